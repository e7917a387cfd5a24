"""What other orders of rows and columns would buy: fuller blocks, rows of equal length side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.analysis.blocks import Blocks, Size, count_blocks
from fitness.analysis.lengths import padding
from fitness.formats.ordering import by_length, by_similarity
from fitness.matrices.mask import Mask

Indices = NDArray[np.int64]

SIZES: Final[tuple[Size, ...]] = ((4, 4), (8, 8), (16, 16), (32, 32), (16, 1))
"""Blocks whose fill is compared; 16 x 1 is what a tensor-core kernel that gathers rows of X can skip."""
MAX_NONZEROS: Final = 2**24
"""Above, no order is tried."""
MAX_DENSITY: Final = 0.5
"""Above, no order can double the fill of blocks."""
WIDTH: Final = 16
"""Columns (or rows) of the blocks that rows (or columns) are compared by."""
_MIXED: Final = 0.95


@dataclass(frozen=True)
class Order:
    """One order of rows and columns, and what it gives.

    Attributes:
        name: "natural", "row_length", "row_clustering", "column_clustering", "rows_and_columns" or
            "reverse_cuthill_mckee".
        fill: (r, c) -> share of nonzeros in stored blocks, for `SIZES`.
        padding: slots over nonzeros in slices of 32 rows padded to their longest.
    """

    name: str
    fill: dict[Size, float]
    padding: float


@dataclass(frozen=True)
class Reordering:
    """The orders tried, the natural one first; `skipped` says why none were."""

    orders: tuple[Order, ...]
    skipped: str = ""

    def best(self, size: Size) -> Order:
        """The order with the fullest blocks of a size."""
        return max(self.orders, key=lambda order: order.fill[size])


def try_orders(mask: Mask, natural: Blocks) -> Reordering:
    """Measure every order.

    Args:
        mask: the matrix.
        natural: its blocks as they are.
    """
    before = _order("natural", natural, mask.row_counts)
    if mask.nnz > MAX_NONZEROS:
        return Reordering((before,), f"more than {MAX_NONZEROS} nonzeros")
    if mask.density > MAX_DENSITY:
        return Reordering((before,), f"more than {MAX_DENSITY:.0%} dense")
    if not mask.nnz:
        return Reordering((before,), "no nonzeros")
    if is_mixed(mask.shape, natural):
        return Reordering(
            (before,), f"rows meet nearly every block of {WIDTH} columns, and columns of rows: all are alike"
        )
    return Reordering((before, *(_tried(mask, name, rows, columns) for name, rows, columns in _orders(mask))))


def is_mixed(shape: tuple[int, int], blocks: Blocks) -> bool:
    """True where clustering has nothing to go by: nearly all 1 x 16 and 16 x 1 blocks have a nonzero."""
    possible = {(1, WIDTH): shape[0] * -(-shape[1] // WIDTH), (WIDTH, 1): shape[1] * -(-shape[0] // WIDTH)}
    return all(blocks.stored[size] >= _MIXED * count for size, count in possible.items())


def _orders(mask: Mask) -> Iterator[tuple[str, Indices | None, Indices | None]]:
    """Name, rows in the order wanted, and columns in the order wanted."""
    yield "row_length", by_length(mask.row_counts), None
    rows, columns = _clustered(mask), None
    yield "row_clustering", rows, None
    columns = _clustered(mask.transposed())
    yield "column_clustering", None, columns
    yield "rows_and_columns", rows, columns
    yield ("reverse_cuthill_mckee", *cuthill_mckee(mask))


def _tried(mask: Mask, name: str, rows: Indices | None, columns: Indices | None) -> Order:
    places = None
    if columns is not None:
        places = np.empty(len(columns), np.int64)
        places[columns] = np.arange(len(columns))
    counts = mask.row_counts if rows is None else mask.row_counts[rows]
    return _order(name, count_blocks(mask, rows, places, SIZES), counts)


def _order(name: str, blocks: Blocks, counts: Indices) -> Order:
    return Order(name, {size: blocks.fill(size) for size in SIZES}, padding(counts))


def _clustered(mask: Mask) -> Indices:
    """Rows with similar sets of 16-column blocks side by side (minwise hashing)."""
    indptr, indices = mask.to_csr()
    row = np.repeat(np.arange(mask.shape[0]), np.diff(indptr))
    return by_similarity(row, indices.astype(np.int64), mask.shape[0], WIDTH)


def cuthill_mckee(mask: Mask) -> tuple[Indices, Indices]:
    """Rows and columns by reverse Cuthill-McKee (SciPy's): both alike where the matrix is square.

    A rectangular matrix is ordered as the bipartite graph of its rows and columns.
    """
    from scipy.sparse import block_array, csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    rows, columns = mask.shape
    indptr, indices = mask.to_csr()
    graph = csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=mask.shape)
    if rows == columns:
        both = (graph + graph.T).tocsr()
        order = np.asarray(reverse_cuthill_mckee(_int32(both), symmetric_mode=True), np.int64)
        return order, order
    both = block_array([[None, graph], [graph.T, None]], format="csr")
    order = np.asarray(reverse_cuthill_mckee(_int32(both), symmetric_mode=True), np.int64)
    return order[order < rows], order[order >= rows] - rows


def _int32(graph: Any) -> Any:
    """With 32-bit indices, which is all that SciPy's ordering takes."""
    graph.indptr = graph.indptr.astype(np.int32)
    graph.indices = graph.indices.astype(np.int32)
    return graph
