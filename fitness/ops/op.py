"""The `Op` protocol: what is computed from the operands, and what it must cost at least.

Every implementation passes `fitness.ops.testing.OpContract`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = Mapping[str, int]


class Op(Protocol):
    """An operation Y = W @ X or a relative of it; what follows (bias, activation) is the task's `epilogue`.

    Attributes:
        name: as tasks write it.
        shape_names: the dimensions of a task shape ("M", "N", "K").
        sparse: True if a task must give W a pattern.
        scalars: names of the integer arguments kernels may take ("M", ..., "ldx", "ldy").
        fixed: dimensions that have one size in every task; shapes may leave them out.
    """

    name: str
    shape_names: tuple[str, ...]
    sparse: bool
    scalars: tuple[str, ...]
    fixed: Mapping[str, int]

    def argument_names(self, packed: tuple[str, ...]) -> tuple[str, ...]:
        """All argument names, for a format with the arrays `packed`."""

    def simulator_baseline(self, dtypes: tuple[str, str], layouts: tuple[str, str], *, epilogue: bool) -> str:
        """The seed that speedup is counted against on the modelled clock.

        Args:
            dtypes: of the operands, of the result.
            layouts: of X, of Y.
            epilogue: True if anything follows the product.
        """

    def default_layouts(self, pattern_kind: str) -> tuple[str, str]:
        """Default `x_layout` and `y_layout` ("col" or "row") for a pattern of W."""

    def reference(self, w: Array, x: Array, stored: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """The result in float64.

        Args:
            w: (M, K), quantised.
            x: (K, N), quantised.
            stored: (M, K) slots at which NaN and Inf of X count; None where all operands are finite.

        Returns:
            (M, N), not rounded to the output dtype.
        """

    def scale(self, w: Array, x: Array) -> NDArray[np.float64]:
        """sqrt((W*W) @ (X*X)), (M, N): the size of the random error of an honest accumulation."""

    def flops(self, shape: Shape, nnz: float) -> float:
        """Multiplications and additions with `nnz` nonzeros of W."""

    def dense_bytes(self, shape: Shape, x_itemsize: int, y_itemsize: int) -> float:
        """Bytes that must move besides W: X read once, Y written once."""
