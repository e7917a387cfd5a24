"""Which tensors of a model are matrices of weights, and how their dtypes are called."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from fitness.matrices.mask import Shape

WEIGHT_DTYPES: Final = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8", "uint8", "bool",
)  # fmt: skip
"""Element types of weights and masks; wider integers are positions or packed words."""


def as_matrix(shape: Sequence[int]) -> Shape | None:
    """The matrix W (M x K) that a tensor of weights acts as; None where it is none.

    (out, in) as it is; a convolution (out, in, kh, kw) is out x (in kh kw), as im2col multiplies it; experts
    (experts, out, in) are stacked. Vectors, scalars and empty tensors are none.
    """
    if len(shape) < 2 or 0 in shape:
        return None
    if len(shape) == 3 and shape[2] > 16:  # a longer last dimension than kernels of 1-D convolutions have
        return shape[0] * shape[1], shape[2]
    rows = shape[0]
    return (rows, math.prod(shape[1:])) if rows > 1 and math.prod(shape[1:]) > 1 else None


def why_not(shape: Sequence[int], dtype: str) -> str:
    """Why a tensor is not analysed; empty if it is."""
    if as_matrix(shape) is None:
        return f"shape {tuple(shape)} is no matrix"
    if dtype not in WEIGHT_DTYPES:
        return f"{dtype} holds positions or packed words, not weights"
    return ""
