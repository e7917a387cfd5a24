"""Coordinates: every nonzero with its row and its column.

* `values[nnz]`, `rows[nnz]` int32, `indices[nnz]` int32 (columns).

Option `order`: "row", by row and then by column; "column", by column and then by row. Each place occurs once: the
harness adds values given at the same place and sorts (`Entries.from_triplets`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitness.formats.entries import Entries, EntryFormat
from fitness.formats.format import Array, Options, Shape


class Coo(EntryFormat):
    """Coordinates; arguments `W.values`, `W.rows`, `W.indices` (see the module)."""

    name = "coo"
    options: Mapping[str, tuple[str, ...]] = {"order": ("row", "column")}

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values`, `rows`, `indices`."""
        return ("values", "rows", "indices")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """The three arrays; raises FormatError beyond 2^31 - 1 nonzeros."""
        self.check(entries, options)
        by_row = options["order"] == "row"
        order = np.arange(entries.nnz) if by_row else np.argsort(entries.columns, kind="stable")
        return {
            "values": entries.values[order],
            "rows": entries.rows[order].astype(np.int32),
            "indices": entries.columns[order].astype(np.int32),
        }

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:  # noqa: ARG002
        """The (M, K) operand."""
        w = np.zeros(shape, arrays["values"].dtype)
        w[arrays["rows"], arrays["indices"]] = arrays["values"]
        return w

    def entry_bytes(self, entries: Entries, options: Options) -> int:  # noqa: ARG002
        """A value, a row and a column for each nonzero."""
        return entries.nnz * (entries.itemsize + 8)
