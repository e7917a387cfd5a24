"""Compact columns: the columns of W that have a nonzero, dense, for pruned input features.

* `values[M][kept]`: those columns; `W.kept` of them. Every slot of them is stored, zeros in it too.
* `indices[kept]` int32: which they are, ascending: stored column j meets row `indices[j]` of X.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fitness.formats.format import Array, BaseFormat, Options, Shape, check_matrix


class Channels(BaseFormat):
    """Kept columns; arguments `W.values` and `W.indices`, the integer `W.kept` (see the module)."""

    name = "channels"
    options: Mapping[str, tuple[str, ...]] = {}
    sizes: tuple[str, ...] = ("kept",)

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values` and `indices`."""
        return ("values", "indices")

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """Both arrays."""
        self.validate(w, options)
        kept = np.flatnonzero((w != 0).any(axis=0))
        return {"values": np.ascontiguousarray(w[:, kept]), "indices": kept.astype(np.int32)}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:  # noqa: ARG002
        """The (M, K) operand."""
        w = np.zeros(shape, arrays["values"].dtype)
        w[:, arrays["indices"]] = arrays["values"].reshape(shape[0], -1)
        return w

    def validate(self, w: Array, options: Options) -> None:  # noqa: ARG002
        """Any matrix with at most 2^31 - 1 elements."""
        check_matrix(w, self.name, w.size)

    def bytes(self, w: Array, options: Options) -> int:  # noqa: ARG002
        """M elements and a number for each kept column."""
        return int((w != 0).any(axis=0).sum() * (w.shape[0] * w.itemsize + 4))

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:  # noqa: ARG002
        """Whole columns."""
        return np.repeat((w != 0).any(axis=0)[None, :], w.shape[0], axis=0)

    def measure(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> dict[str, int]:  # noqa: ARG002
        """`kept`: stored columns."""
        return {"kept": len(arrays["indices"])}
