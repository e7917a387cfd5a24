"""Element types by the names tasks use, with what rounding to them can lose (IEEE 754; ml_dtypes for bfloat16)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Dtype:
    """One element type.

    Attributes:
        name: as tasks write it; numpy: the NumPy dtype of its arrays.
        unit_roundoff: half the distance from 1 to the next value.
        eta: half the smallest subnormal, the absolute error of rounding near zero.
        largest: largest finite value.
        exact_integers: every integer of at most this magnitude is representable.
    """

    name: str
    numpy: np.dtype[Any]
    unit_roundoff: float
    eta: float
    largest: float
    exact_integers: int


DTYPES: Final[Mapping[str, Dtype]] = {
    dtype.name: dtype
    for dtype in (
        Dtype("float16", np.dtype(np.float16), 2.0**-11, 2.0**-25, 65504.0, 2**11),
        Dtype("bfloat16", np.dtype(ml_dtypes.bfloat16), 2.0**-8, 2.0**-134, (2 - 2.0**-7) * 2.0**127, 2**8),
        Dtype("float32", np.dtype(np.float32), 2.0**-24, 2.0**-150, (2 - 2.0**-23) * 2.0**127, 2**24),
    )
}
