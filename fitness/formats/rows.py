"""Compact rows: the rows of W that have a nonzero, dense, for pruned output features.

* `values[kept][K]`: those rows; `W.kept` of them. Every slot of them is stored, zeros in it too.
* `row_order[M]` int32: the kept rows, ascending, and then the others: stored row i is row `row_order[i]` of W. Rows
  `row_order[kept]` onwards are empty, yet their results must be written too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fitness.formats.format import Array, BaseFormat, Options, Shape, check_matrix


class Rows(BaseFormat):
    """Kept rows; arguments `W.values` and `W.row_order`, the integer `W.kept` (see the module)."""

    name = "rows"
    options: Mapping[str, tuple[str, ...]] = {}
    sizes: tuple[str, ...] = ("kept",)

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values` and `row_order`."""
        return ("values", "row_order")

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """Both arrays."""
        self.validate(w, options)
        kept = (w != 0).any(axis=1)
        order = np.concatenate([np.flatnonzero(kept), np.flatnonzero(~kept)])
        return {"values": np.ascontiguousarray(w[kept]), "row_order": order.astype(np.int32)}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:  # noqa: ARG002
        """The (M, K) operand."""
        w = np.zeros(shape, arrays["values"].dtype)
        w[arrays["row_order"][: len(arrays["values"])]] = arrays["values"].reshape(len(arrays["values"]), shape[1])
        return w

    def validate(self, w: Array, options: Options) -> None:  # noqa: ARG002
        """Any matrix with at most 2^31 - 1 elements."""
        check_matrix(w, self.name, w.size)

    def bytes(self, w: Array, options: Options) -> int:  # noqa: ARG002
        """K elements for each kept row, a number for each row."""
        return int((w != 0).any(axis=1).sum() * w.shape[1] * w.itemsize) + 4 * int(w.shape[0])

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:  # noqa: ARG002
        """Whole rows."""
        return np.repeat((w != 0).any(axis=1)[:, None], w.shape[1], axis=1)

    def measure(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> dict[str, int]:  # noqa: ARG002
        """`kept`: stored rows."""
        return {"kept": len(arrays["values"])}
