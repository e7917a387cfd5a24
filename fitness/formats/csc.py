"""Compressed sparse columns: the nonzeros of each column of W one after another, with their rows.

* `values[nnz]`: nonzeros, column by column, ascending in row within a column.
* `indices[nnz]` int32: their rows.
* `indptr[K + 1]` int32: column k is `values[indptr[k]]` up to `values[indptr[k + 1]]`.

A column of W meets one row of X, which is read once; the products are spread over Y.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitness.formats.entries import Entries, EntryFormat, row_pointers
from fitness.formats.format import Array, Options, Shape


class Csc(EntryFormat):
    """Compressed sparse columns; arguments `W.values`, `W.indices`, `W.indptr` (see the module)."""

    name = "csc"
    options: Mapping[str, tuple[str, ...]] = {}

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values`, `indices`, `indptr`."""
        return ("values", "indices", "indptr")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """The three arrays; raises FormatError beyond 2^31 - 1 nonzeros."""
        self.check(entries, options)
        order = np.argsort(entries.columns, kind="stable")
        counts = np.bincount(entries.columns, minlength=entries.shape[1])
        return {
            "values": entries.values[order],
            "indices": entries.rows[order].astype(np.int32),
            "indptr": row_pointers(counts),
        }

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:  # noqa: ARG002
        """The (M, K) operand."""
        w = np.zeros(shape, arrays["values"].dtype)
        w[arrays["indices"], np.repeat(np.arange(shape[1]), np.diff(arrays["indptr"]))] = arrays["values"]
        return w

    def entry_bytes(self, entries: Entries, options: Options) -> int:  # noqa: ARG002
        """A value and a row for each nonzero, a pointer for each column, one more."""
        return entries.nnz * (entries.itemsize + 4) + 4 * (entries.shape[1] + 1)
