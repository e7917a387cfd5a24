"""Dense arrays -> `Mask`, some rows at a time: the array may be a file mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.matrices.mask import Mask
from fitness.matrices.source import Matrix

_ELEMENTS_AT_ONCE: Final = 8_000_000


def dense_matrix(array: NDArray[Any], dtype: str) -> Matrix:
    """A matrix from all its elements, (M, K), any strides.

    Args:
        array: bools, integers or floats, those of ml_dtypes too.
        dtype: how the report names the element type.
    """
    mask = Mask.from_strips((array.shape[0], array.shape[1]), _nonzero_strips(array))
    return Matrix(mask, dtype, stored_zeros=array.size - mask.nnz)


def _nonzero_strips(array: NDArray[Any]) -> Iterator[NDArray[np.bool_]]:
    step = max(1, _ELEMENTS_AT_ONCE // max(1, array.shape[1]))
    for first in range(0, array.shape[0], step):
        yield nonzero(np.ascontiguousarray(array[first : first + step]))


def nonzero(values: NDArray[Any]) -> NDArray[np.bool_]:
    """True where a value is not zero; -0.0 is zero, NaN is not. Narrow floats are compared as integers, 10x faster."""
    if values.dtype.itemsize <= 2 and values.dtype.kind not in "biu":
        unsigned = np.dtype(f"u{values.dtype.itemsize}")
        shifted: NDArray[np.bool_] = (values.view(unsigned) << 1).astype(unsigned) != 0
        return shifted
    found: NDArray[np.bool_] = values != 0
    return found
