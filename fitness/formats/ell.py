"""ELLPACK: every row padded to the length of the longest one, so that rows need no pointers.

With width = the largest number of nonzeros in a row (`W.max_row`):

* `values`: the nonzeros of each row in ascending order of column, then zeros.
* `indices` int32: their columns; -1 marks padding, which is no element of W and must not be read from X.

Option `order`: "column", arrays [width][M], so that threads on neighbouring rows read neighbouring words;
"row", arrays [M][width], so that the lanes of a warp on one row do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from fitness.formats.entries import Entries, EntryFormat, positions
from fitness.formats.format import Array, Options, Shape, check_count

PADDING: Final = -1
"""Column of a slot that holds no element."""


class Ell(EntryFormat):
    """Padded rows; arguments `W.values` and `W.indices`, and the integer `W.max_row` (see the module)."""

    name = "ell"
    options: Mapping[str, tuple[str, ...]] = {"order": ("column", "row")}

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values` and `indices`."""
        return ("values", "indices")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """Both arrays; raises FormatError beyond 2^31 - 1 slots."""
        self.check(entries, options)
        slots = positions(entries.row_counts, entries.rows)
        values = np.zeros((entries.shape[0], entries.longest), entries.values.dtype)
        indices = np.full(values.shape, PADDING, np.int32)
        values[entries.rows, slots] = entries.values
        indices[entries.rows, slots] = entries.columns
        if options["order"] == "column":
            values, indices = values.T, indices.T
        return {"values": np.ascontiguousarray(values), "indices": np.ascontiguousarray(indices)}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        values, indices = arrays["values"], arrays["indices"]
        if options["order"] == "column":
            values, indices = values.reshape(-1, shape[0]).T, indices.reshape(-1, shape[0]).T
        values, indices = values.reshape(shape[0], -1), indices.reshape(shape[0], -1)
        rows, slots = np.nonzero(indices != PADDING)
        w = np.zeros(shape, values.dtype)
        w[rows, indices[rows, slots]] = values[rows, slots]
        return w

    def check(self, entries: Entries, options: Options) -> None:  # noqa: ARG002
        """Any matrix with at most 2^31 - 1 slots."""
        check_count(self.name, entries.shape[0] * entries.longest)

    def entry_bytes(self, entries: Entries, options: Options) -> int:  # noqa: ARG002
        """A value and a column for each slot of M rows as long as the longest."""
        return entries.shape[0] * entries.longest * (entries.itemsize + 4)
