"""How register values look: arrays over lanes, or NumPy scalars where all lanes agree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def plain(value: Array) -> Array:
    """A 0-d array as the scalar it holds; other arrays as they are (uniform values must stay scalars)."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        scalar: Array = value[()]
        return scalar
    return value
