"""What the ops with one product W @ X share: the float64 reference, its error scale, FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.epilogue import ARGUMENTS

Array = NDArray[Any]
Shape = Mapping[str, int]

_ROWS_AT_ONCE: Final = 512  # a float64 copy of all of W would take 4x its memory


class Product:
    """Base of spmm, spmv and gemm: Y = epilogue(W @ X); the task knows the epilogue, an op only its argument names."""

    shape_names: tuple[str, ...] = ("M", "N", "K")
    scalars: tuple[str, ...] = ("M", "N", "K", "ldx", "ldy", "W.nnz", "W.max_row")
    fixed: Mapping[str, int] = {}

    def argument_names(self, packed: tuple[str, ...]) -> tuple[str, ...]:
        """The arrays of W, then X, Y, the scalars and what an epilogue may need."""
        return (*(f"W.{name}" for name in packed), "X", "Y", *self.scalars, *ARGUMENTS)

    def simulator_baseline(self, dtypes: tuple[str, str], layouts: tuple[str, str], *, epilogue: bool) -> str:
        """The dense tensor-core seed; for float32, which has none without TF32, the tiled one."""
        if dtypes[0] == "float32":
            return "gemm/fused_tiled"
        plain = dtypes == ("float16", "float16") and layouts == ("col", "col") and not epilogue
        return "gemm/dense_mma_pipelined" if plain else "gemm/fused_mma"

    def reference(self, w: Array, x: Array, stored: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """W @ X in float64, (M, N); with `stored`, term by term over the stored slots only."""
        if stored is None:
            return _by_rows(w, x, np.dtype(np.float64), square=False)
        wide = x.astype(np.float64)
        result = np.empty((w.shape[0], x.shape[1]))
        with np.errstate(invalid="ignore", over="ignore"):
            for row, values in enumerate(w.astype(np.float64)):
                columns = np.flatnonzero(stored[row])
                result[row] = (values[columns, None] * wide[columns]).sum(axis=0)
        return result

    def scale(self, w: Array, x: Array) -> NDArray[np.float64]:
        """sqrt((W*W) @ (X*X)), (M, N); nonfinite operands count as 0."""
        # squares of float16 lie within 4e-15 .. 5e9, safe in float32, which is twice as fast
        narrow = w.dtype == np.float16 and x.dtype == np.float16
        squares = _by_rows(w, x, np.dtype(np.float32 if narrow else np.float64), square=True)
        return np.sqrt(squares, dtype=np.float64)

    def flops(self, shape: Shape, nnz: float) -> float:
        """2 * nnz * N."""
        return 2.0 * nnz * shape["N"]

    def dense_bytes(self, shape: Shape, x_itemsize: int, y_itemsize: int) -> float:
        """X (K, N) read and Y (M, N) written."""
        return float(shape["N"]) * (shape["K"] * x_itemsize + shape["M"] * y_itemsize)


def _by_rows(w: Array, x: Array, dtype: np.dtype[Any], *, square: bool) -> Array:
    """W @ X, or (W*W) @ (X*X) with nonfinite values as 0, converted to `dtype` a few rows at a time."""
    wide = _converted(x, dtype, square)
    result = np.empty((w.shape[0], x.shape[1]), dtype)
    for first in range(0, w.shape[0], _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        np.matmul(_converted(w[rows], dtype, square), wide, out=result[rows])
    return result


def _converted(values: Array, dtype: np.dtype[Any], square: bool) -> Array:
    wide: Array = values.astype(dtype)
    if square:
        wide[~np.isfinite(wide)] = 0
        np.multiply(wide, wide, out=wide)
    return wide
