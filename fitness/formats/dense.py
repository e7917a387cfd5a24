"""Dense storage: `values[M][K]` row-major, leading dimension K; zeros are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.expressions import Expression
from fitness.formats.format import Array, Options, Shape


class Dense:
    """W as it is. Stores any pattern; every slot is stored, so 0 * Inf of X gives NaN."""

    name = "dense"
    options: Mapping[str, tuple[str, ...]] = {}

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """One array: `values`."""
        return ("values",)

    def pack(self, w: Array, options: Options) -> dict[str, Array]:  # noqa: ARG002
        """`values` (M, K), C-contiguous."""
        return {"values": np.ascontiguousarray(w)}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:  # noqa: ARG002
        """The (M, K) operand."""
        return arrays["values"].reshape(shape)

    def validate(self, w: Array, options: Options) -> None:
        """Every matrix is dense."""

    def bytes(self, w: Array, options: Options) -> int:  # noqa: ARG002
        """M * K elements."""
        return w.size * w.itemsize

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:  # noqa: ARG002
        """True everywhere, (M, K)."""
        return np.ones(w.shape, dtype=np.bool_)

    def domain(self, options: Options) -> tuple[Expression, ...]:  # noqa: ARG002
        """Any shape."""
        return ()

    def supports(self, dtype: np.dtype[Any]) -> str:  # noqa: ARG002
        """Any dtype."""
        return ""
