"""Orders of rows (or columns) that bring together what should be worked on together."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

ROW_ORDERS: Final = ("natural", "length", "cluster")
"""Choices of formats that may reorder rows; the first changes nothing."""

_HASHES: Final = 8
_MULTIPLIERS: Final = np.random.default_rng(20).integers(1, 2**63, _HASHES, dtype=np.uint64) | np.uint64(1)


def row_order(choice: str, rows: Indices, columns: Indices, count: int, width: int = 1) -> Indices:
    """(count,) the order of a choice of `ROW_ORDERS`.

    Args:
        choice: "natural": as they are; "length": most nonzeros first; "cluster": as `by_similarity`.
        rows: (nnz,) rows of the nonzeros, ascending.
        columns: (nnz,) their columns.
        count: number of rows.
        width: columns of a block, for "cluster".
    """
    if choice == "length":
        return by_length(np.bincount(rows, minlength=count))
    return by_similarity(rows, columns, count, width) if choice == "cluster" else np.arange(count)


def by_length(counts: Indices) -> Indices:
    """Longest first, equal ones as they were, so that neighbours have about the same work."""
    return np.argsort(-counts, kind="stable")


def by_similarity(rows: Indices, columns: Indices, count: int, width: int = 1) -> Indices:
    """Rows with similar columns next to each other; empty ones last.

    Rows are sorted by the least hashes of the blocks of `width` columns they have nonzeros in (minwise hashing:
    Broder, "On the resemblance and containment of documents", 1997). Two rows agree in such a hash with a chance equal
    to the share of blocks they have in common, so equal rows become neighbours for certain and similar ones mostly.

    Args:
        rows: (nnz,) rows of the nonzeros, ascending.
        columns: (nnz,) their columns.
        count: number of rows.
        width: columns of a block.
    """
    keys = np.full((_HASHES, count), np.iinfo(np.uint64).max, np.uint64)
    if len(rows):
        blocks = (columns // width).astype(np.uint64) + np.uint64(1)
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        for key, multiplier in zip(keys, _MULTIPLIERS, strict=True):
            mixed = blocks * multiplier
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(32)
            key[rows[starts]] = np.minimum.reduceat(mixed, starts)
    order: Indices = np.lexsort(keys[::-1])
    return order
