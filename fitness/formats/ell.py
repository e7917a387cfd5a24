"""ELLPACK: every row padded to the length of the longest one, so that rows need no pointers.

With width = the largest number of nonzeros in a row (`W.max_row`):

* `values`: the nonzeros of each row in ascending order of column, then zeros.
* `indices` int32: their columns; -1 marks padding, which is no element of W and must not be read from X.

Option `order`: "column", arrays [width][M], so that threads on neighbouring rows read neighbouring words;
"row", arrays [M][width], so that the lanes of a warp on one row do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.expressions import Expression
from fitness.formats.csr import check_matrix, row_pointers
from fitness.formats.format import Array, Options, Shape

PADDING: Final = -1
"""Column of a slot that holds no element."""


class Ell:
    """Padded rows; arguments `W.values` and `W.indices`, and the integer `W.max_row` (see the module)."""

    name = "ell"
    options: Mapping[str, tuple[str, ...]] = {"order": ("column", "row")}

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values` and `indices`."""
        return ("values", "indices")

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """Both arrays; raises FormatError beyond 2^31 - 1 slots."""
        self.validate(w, options)
        counts = np.count_nonzero(w, axis=1)
        rows, columns = np.nonzero(w)
        slots = np.arange(len(rows)) - row_pointers(counts)[rows]
        width = int(counts.max(initial=0))
        values = np.zeros((w.shape[0], width), w.dtype)
        indices = np.full(values.shape, PADDING, np.int32)
        values[rows, slots] = w[rows, columns]
        indices[rows, slots] = columns
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

    def validate(self, w: Array, options: Options) -> None:  # noqa: ARG002
        """Any matrix with at most 2^31 - 1 slots."""
        check_matrix(w, self.name, w.shape[0] * int(np.count_nonzero(w, axis=1).max(initial=0)))

    def bytes(self, w: Array, options: Options) -> int:  # noqa: ARG002
        """A value and a column for each slot of M rows as long as the longest."""
        return int(w.shape[0] * np.count_nonzero(w, axis=1).max(initial=0) * (w.itemsize + 4))

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:  # noqa: ARG002
        """The nonzeros: padding is no element."""
        stored: NDArray[np.bool_] = w != 0
        return stored

    def domain(self, options: Options) -> tuple[Expression, ...]:  # noqa: ARG002
        """Any shape."""
        return ()

    def supports(self, dtype: np.dtype[Any]) -> str:  # noqa: ARG002
        """Any dtype."""
        return ""
