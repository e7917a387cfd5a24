"""SELL-C-sigma: slices of C rows, each padded to its own longest row, rows sorted by length within windows.

Windows of `sigma` rows are sorted by length, longest first, then cut into slices of `c` rows (Kreutzer, Hager, Wellein,
Fehske and Bishop, "A unified sparse matrix data format for efficient general sparse matrix-vector multiplication on
modern processors with wide SIMD units", SIAM J. Sci. Comput. 2014).

* `values`: slice by slice, within a slice [width of the slice][c], the nonzeros of a row in ascending order of column
  and then zeros; slot s of stored row i is at `indptr[i / c] + s * c + i % c`.
* `indices` int32, likewise: columns, -1 for padding, which is no element of W and must not be read from X.
* `indptr[ceil(M / c) + 1]` int32: where each slice begins.
* `row_order[M]` int32: stored row i is row `row_order[i]` of W. The rest of the last slice is padding.

Options `c` and `sigma`; sigma = 1 leaves the rows in order.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitness.formats.ell import PADDING
from fitness.formats.entries import Entries, EntryFormat, Indices, inverse, positions, row_pointers
from fitness.formats.format import Array, Options, Shape, check_count


class Sell(EntryFormat):
    """Padded slices; arguments `W.values`, `W.indices`, `W.indptr`, `W.row_order` (see the module)."""

    name = "sell"
    options: Mapping[str, tuple[str, ...]] = {
        "c": ("32", "4", "8", "16", "64", "128"),
        "sigma": ("1", "64", "256", "1024", "4096", "16384"),
    }

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values`, `indices`, `indptr`, `row_order`."""
        return ("values", "indices", "indptr", "row_order")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """The four arrays; raises FormatError beyond 2^31 - 1 slots."""
        self.check(entries, options)
        c, order = int(options["c"]), _order(entries.row_counts, options)
        widths = _widths(entries.row_counts[order], c)
        indptr = row_pointers(widths * c)
        stored = inverse(order)[entries.rows]
        slots = positions(entries.row_counts, entries.rows)
        places = indptr[stored // c] + slots * c + stored % c
        values = np.zeros(int(indptr[-1]), entries.values.dtype)
        indices = np.full(len(values), PADDING, np.int32)
        values[places] = entries.values
        indices[places] = entries.columns
        return {"values": values, "indices": indices, "indptr": indptr, "row_order": order.astype(np.int32)}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        c, indptr = int(options["c"]), arrays["indptr"]
        slices = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        within = (np.arange(len(slices)) - indptr[slices]) % c
        kept = arrays["indices"] != PADDING
        w = np.zeros(shape, arrays["values"].dtype)
        w[arrays["row_order"][(slices * c + within)[kept]], arrays["indices"][kept]] = arrays["values"][kept]
        return w

    def check(self, entries: Entries, options: Options) -> None:
        """Any matrix with at most 2^31 - 1 slots."""
        check_count(self.name, self._slots(entries, options))

    def entry_bytes(self, entries: Entries, options: Options) -> int:
        """A value and a column for each slot, a pointer for each slice, one more, a row for each row."""
        slices = -(-entries.shape[0] // int(options["c"]))
        return self._slots(entries, options) * (entries.itemsize + 4) + 4 * (slices + 1 + entries.shape[0])

    def _slots(self, entries: Entries, options: Options) -> int:
        c = int(options["c"])
        return int(_widths(entries.row_counts[_order(entries.row_counts, options)], c).sum()) * c


def _order(counts: Indices, options: Options) -> Indices:
    """Rows by window, and longest first within one."""
    windows = np.arange(len(counts)) // int(options["sigma"])
    order: Indices = np.lexsort((-counts, windows))
    return order


def _widths(counts: Indices, c: int) -> Indices:
    """Length of the longest row of each slice of c rows."""
    return np.maximum.reduceat(counts, np.arange(0, len(counts), c))
