"""Compressed sparse rows: the nonzeros of each row one after another, with their columns.

* `values[nnz]`: nonzeros, row by row, ascending in column within a row (-0.0 is a zero and is not stored).
* `indices[nnz]` int32: their columns.
* `indptr[M + 1]` int32: stored row i is `values[indptr[i]]` up to `values[indptr[i + 1]]`.
* `row_order[M]` int32: stored row i is row `row_order[i]` of W.
* `diagonals[ceil((M + nnz) / 64) + 1]` int32: equal shares of the work, for kernels that balance it. A merge path
  takes the nonzeros in order and, after the last one of a row, the end of that row: M + nnz steps. `diagonals[p]` is
  the number of row ends among the first d = min(64 * p, M + nnz) steps, so that step d begins at nonzero
  `d - diagonals[p]` of stored row `diagonals[p]` (Merrill and Garland, "Merge-based parallel sparse matrix-vector
  multiplication", SC 2016).
* `bins[32]` int32: `bins[b]` stored rows have 2^b nonzeros or more; with the order "length" these are the first ones.
* `W.rows4`, `W.rows16`, `W.rows64`, ... `W.rows4096`: some of these counts as integers, so that a launch and its
  threads know where the rows of a length begin without reading anything.

Option `order`: "natural", where row_order[i] = i; "length": longest rows first (equal ones in their order), so
that the rows a warp or block takes together have nearly the same number of nonzeros and the longest start first;
"cluster": rows with similar columns next to each other, so that they find rows of X in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fitness.formats.entries import Entries, EntryFormat, Indices, row_pointers
from fitness.formats.format import Array, Options, Shape, check_count
from fitness.formats.ordering import ROW_ORDERS, row_order

STEPS: Final = 64
"""Steps of the merge path between two entries of `diagonals`."""
BINS: Final = 32
COUNTED: Final = tuple(4**b for b in range(1, 7))
"""Lengths of rows of which sizes tell how many are as long or longer."""


class Csr(EntryFormat):
    """Compressed sparse rows; arguments `W.values`, `W.indices`, `W.indptr`, `W.row_order`, ... (see the module)."""

    name = "csr"
    options: Mapping[str, tuple[str, ...]] = {"order": ROW_ORDERS}
    sizes: tuple[str, ...] = tuple(f"rows{length}" for length in COUNTED)

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values`, `indices`, `indptr`, `row_order`, `diagonals`, `bins`."""
        return ("values", "indices", "indptr", "row_order", "diagonals", "bins")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """The six arrays; raises FormatError beyond 2^31 - 1 rows and nonzeros."""
        self.check(entries, options)
        order = row_order(options["order"], entries.rows, entries.columns, entries.shape[0])
        if options["order"] != "natural":
            entries = entries.permuted(order)
        indptr = row_pointers(entries.row_counts)
        return {
            "values": entries.values,
            "indices": entries.columns.astype(np.int32),
            "indptr": indptr,
            "row_order": order.astype(np.int32),
            "diagonals": merge_diagonals(indptr),
            "bins": _bins(entries.row_counts),
        }

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:  # noqa: ARG002
        """The (M, K) operand."""
        w = np.zeros(shape, arrays["values"].dtype)
        rows = np.repeat(arrays["row_order"], np.diff(arrays["indptr"]))
        w[rows, arrays["indices"]] = arrays["values"]
        return w

    def check(self, entries: Entries, options: Options) -> None:  # noqa: ARG002
        """Any matrix with at most 2^31 - 1 rows and nonzeros together."""
        check_count(self.name, entries.nnz + entries.shape[0])

    def entry_bytes(self, entries: Entries, options: Options) -> int:  # noqa: ARG002
        """A value and a column for each nonzero, a pointer and a row for each row, one more, a row for 64 steps."""
        rows = entries.shape[0]
        shares = -(-(rows + entries.nnz) // STEPS) + 1
        return entries.nnz * (entries.itemsize + 4) + 4 * (2 * rows + 1 + shares + BINS)

    def measure(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> dict[str, int]:  # noqa: ARG002
        """`rows4`, `rows16`, ...: stored rows of so many nonzeros or more."""
        return {f"rows{length}": int(arrays["bins"][length.bit_length() - 1]) for length in COUNTED}


def merge_diagonals(indptr: NDArray[np.int32]) -> NDArray[np.int32]:
    """Row ends before every 64th step of the merge path, and before its end; (ceil(steps / 64) + 1,)."""
    rows = len(indptr) - 1
    ends = indptr[1:].astype(np.int64) + np.arange(rows)  # the step at which each row ends
    total = rows + int(indptr[-1])
    at = np.minimum(np.arange(-(-total // STEPS) + 1) * STEPS, total)
    return np.searchsorted(ends, at).astype(np.int32)


def _bins(counts: Indices) -> NDArray[np.int32]:
    """How many rows have 2^b nonzeros or more, b = 0 .. 31."""
    ascending = np.sort(counts)
    return (len(counts) - np.searchsorted(ascending, 2 ** np.arange(BINS, dtype=np.int64))).astype(np.int32)
