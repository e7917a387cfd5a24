"""`analyze`: everything about the structure of one matrix, and whether a sparse kernel can pay for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import ml_dtypes
import numpy as np

from fitness.analysis.advice import Advice, advise
from fitness.analysis.blocks import Blocks, count_blocks
from fitness.analysis.diagonals import DiagonalCounter, Diagonals
from fitness.analysis.floors import COLUMNS, Floor, floors_of
from fitness.analysis.lengths import Lengths, lengths_of, padding
from fitness.analysis.maps import DensityMap, MapCounter
from fitness.analysis.ratios import RatioCounter, Ratios
from fitness.analysis.reordering import Reordering, is_mixed, try_orders
from fitness.analysis.repetition import Repetition, RepetitionCounter
from fitness.analysis.sizes import Sizes, sizes_of
from fitness.gpu import Gpu
from fitness.matrices import Matrix

STORED_DTYPES: Final = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "int8": np.dtype(np.int8),
}
"""Element types a matrix may have on the GPU."""

_AS_THEY_ARE: Final = tuple(name for name in STORED_DTYPES if name != "float64")
"""Types kept from the file; float64, which no kernel here computes in, the rest and bare patterns become float32."""


@dataclass(frozen=True, eq=False)
class Analysis:
    """One matrix, measured.

    Attributes:
        shape: M, K; nnz, density: nonzeros and their share.
        dtype: of the file's values; gpu_dtype: what floors and sizes are for; gpu: the card's name.
        stored_zeros, duplicates: see `Matrix`.
        rows, columns: nonzeros of each row and column; padding: slots over nonzeros in slices of 32 rows.
        ratios, blocks, diagonals, repetition, map: see their classes.
        reordering: what other orders give.
        sizes: bytes by format; floors: time by format and N; advice: which format, and whether sparse pays.
    """

    shape: tuple[int, int]
    nnz: int
    density: float
    dtype: str
    gpu_dtype: str
    gpu: str
    stored_zeros: int | None
    duplicates: int
    rows: Lengths
    columns: Lengths
    padding: float
    ratios: Ratios
    blocks: Blocks
    diagonals: Diagonals
    repetition: Repetition
    map: DensityMap
    reordering: Reordering
    sizes: Sizes
    floors: tuple[Floor, ...]
    advice: Advice


def analyze(matrix: Matrix, gpu: Gpu, *, dtype: str | None = None, columns: Sequence[int] = COLUMNS) -> Analysis:
    """Measure a matrix.

    Args:
        matrix: as a reader gives it.
        gpu: the card floors are for.
        dtype: element type on the GPU, one of `STORED_DTYPES`; None: the file's, but float32 for float64, other types
            and patterns without values.
        columns: every N that floors are given for.

    Returns:
        Exact counts, except where a field says that it is an estimate from some of the rows.
    """
    mask = matrix.mask
    gpu_dtype = dtype or (matrix.dtype if matrix.dtype in _AS_THEY_ARE else "float32")
    ratios, diagonals = RatioCounter(mask.shape[1]), DiagonalCounter(mask.shape)
    repetition, cells = RepetitionCounter(mask.shape[0]), MapCounter(mask.shape)
    for strip in mask.strips():
        for counter in (ratios, diagonals, repetition, cells):
            counter.add(strip)
    blocks = count_blocks(mask)
    sizes = sizes_of(mask, STORED_DTYPES[gpu_dtype], reorder=not is_mixed(mask.shape, blocks))
    used = int(np.count_nonzero(mask.column_counts))
    floors = floors_of(sizes, blocks, mask.shape, used, gpu_dtype, gpu, columns)
    return Analysis(
        shape=mask.shape,
        nnz=mask.nnz,
        density=mask.density,
        dtype=matrix.dtype,
        gpu_dtype=gpu_dtype,
        gpu=gpu.name,
        stored_zeros=matrix.stored_zeros,
        duplicates=matrix.duplicates,
        rows=lengths_of(mask.row_counts),
        columns=lengths_of(mask.column_counts),
        padding=padding(mask.row_counts),
        ratios=ratios.result(),
        blocks=blocks,
        diagonals=diagonals.result(),
        repetition=repetition.result(mask),
        map=cells.result(),
        reordering=try_orders(mask, blocks),
        sizes=sizes,
        floors=floors,
        advice=advise(mask, floors, sizes, gpu_dtype, gpu),
    )
