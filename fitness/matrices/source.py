"""What a reader gives: the matrices of a file, each read only when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fitness.matrices.error import MatrixError
from fitness.matrices.mask import Mask, Shape

MAX_DIMENSION: Final = 2**31 - 1
"""Indices are int32, here and in the formats."""

_FREE_ROWS: Final = 2**26
_ROWS_PER_NONZERO: Final = 64


@dataclass(frozen=True, eq=False)
class Matrix:
    """One matrix as read.

    Attributes:
        mask: where it is nonzero; a stored zero (also -0.0) is none, NaN is one.
        dtype: of its values ("float32", ...), "pattern" where the file has none.
        stored_zeros: zeros the file stores, as dense files do everywhere; None where that means nothing.
        duplicates: entries that were added to an earlier one of the same place.
    """

    mask: Mask
    dtype: str
    stored_zeros: int | None = None
    duplicates: int = 0


@dataclass(frozen=True)
class Entry:
    """A matrix of a file, not read yet.

    Attributes:
        name: within the file; empty where it has one matrix only.
        shape: M, K, None until it is read.
        dtype: None until it is read.
        load: reads it; raises MatrixError.
    """

    name: str
    shape: Shape | None
    dtype: str | None
    load: Callable[[], Matrix]


@dataclass(frozen=True)
class Skipped:
    """A tensor of a file that is no matrix, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Source:
    """A file (or a model in several files) and what is in it.

    Attributes:
        path: as given; kind: "Matrix Market", "safetensors", ...
        entries: its matrices; skipped: its other tensors.
    """

    path: Path
    kind: str
    entries: tuple[Entry, ...]
    skipped: tuple[Skipped, ...] = ()


def check_shape(path: Path | str, shape: Shape, nnz: int | None = None, line: int | None = None) -> None:
    """Refuse shapes whose row and column counts alone would not fit in memory.

    Args:
        path: for the message.
        shape: M, K.
        nnz: entries, None for a dense matrix.
        line: for the message; None where there are no lines.

    Raises:
        MatrixError: no rows or columns, more than 2^31 - 1 of either, or nearly all of them empty beyond 2^26.
    """
    if min(shape) < 1:
        raise MatrixError(path, f"the matrix is {shape[0]} x {shape[1]} and has no elements", line=line)
    if max(shape) > MAX_DIMENSION:
        raise MatrixError(
            path, f"the matrix is {shape[0]} x {shape[1]}; evo counts rows and columns to {MAX_DIMENSION}", line=line
        )
    if nnz is not None and sum(shape) > _FREE_ROWS + _ROWS_PER_NONZERO * nnz:
        raise MatrixError(
            path,
            f"the matrix is {shape[0]} x {shape[1]} with {nnz} entries: nearly all rows or columns are empty",
            "leave the empty ones out",
            line,
        )
