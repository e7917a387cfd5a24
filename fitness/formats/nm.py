"""N:M structured sparsity of any ratio: n values of every m neighbours along K, with their places in the group.

K is padded to a multiple of m with zeros; G = Kp / m groups to a row. A group has n slots: its nonzeros and, where
there are fewer than n, zeros at the lowest other columns of the group; slots ascend in column. -0.0 is a zero.

* `values`: the slots' values; `indices` uint8: their columns within the group, 0 .. m - 1.
  Option `order`: "row", both [M][G * n]; "column", both [G * n][M], so that threads on neighbouring rows read
  neighbouring words.

Option `ratio`: "n:m". 2:4 in the layout of the sparse tensor cores is the format `nm24`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fitness.expressions import round_up
from fitness.formats.format import Array, BaseFormat, FormatError, Options, Shape, check_matrix


class Nm(BaseFormat):
    """n of m along K; arguments `W.values` and `W.indices` (see the module)."""

    name = "nm"
    options: Mapping[str, tuple[str, ...]] = {
        "ratio": ("2:4", "1:2", "1:4", "4:8", "2:8", "1:8", "8:16", "4:16", "2:16", "1:16"),
        "order": ("row", "column"),
    }

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values` and `indices`."""
        return ("values", "indices")

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """Both arrays; raises FormatError if a group has more than n nonzeros."""
        self.validate(w, options)
        groups = _groups(w, options)
        slots = _slots(groups, options)
        values = np.take_along_axis(groups, slots, axis=2)
        values = np.where(values == 0, values.dtype.type(0), values).reshape(w.shape[0], -1)
        indices = slots.astype(np.uint8).reshape(values.shape)
        if options["order"] == "column":
            values, indices = values.T, indices.T
        return {"values": np.ascontiguousarray(values), "indices": np.ascontiguousarray(indices)}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        n, m = _ratio(options)
        values, indices = arrays["values"], arrays["indices"]
        if options["order"] == "column":
            values, indices = values.reshape(-1, shape[0]).T, indices.reshape(-1, shape[0]).T
        groups = np.zeros((shape[0], round_up(shape[1], m) // m, m), values.dtype)
        slots = (shape[0], groups.shape[1], n)
        np.put_along_axis(groups, indices.reshape(slots).astype(np.intp), values.reshape(slots), axis=2)
        return groups.reshape(shape[0], -1)[:, : shape[1]].copy()

    def validate(self, w: Array, options: Options) -> None:
        """Raise FormatError naming the first row and group with more than n nonzeros."""
        check_matrix(w, self.name, w.size)
        n, m = _ratio(options)
        counts = np.count_nonzero(_groups(w, options), axis=2)
        if counts.max(initial=0) > n:
            row, group = (int(i) for i in np.argwhere(counts > n)[0])
            raise FormatError(
                f"row {row}, group {group} (columns {m * group} to {m * group + m - 1}) has {int(counts[row, group])} "
                f"nonzeros; {n}:{m} allows {n} of every {m} along K"
            )

    def ratio(self, options: Options) -> tuple[int, int]:
        """The option `ratio`."""
        return _ratio(options)

    def bytes(self, w: Array, options: Options) -> int:
        """A value and a byte of index for each slot."""
        n, m = _ratio(options)
        return int(w.shape[0] * (round_up(w.shape[1], m) // m) * n * (w.itemsize + 1))

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:
        """True at the n slots of every group; empty slots hold 0 and meet X there."""
        groups = _groups(w, options)
        stored = np.zeros(groups.shape, np.bool_)
        np.put_along_axis(stored, _slots(groups, options), True, axis=2)
        return stored.reshape(w.shape[0], -1)[:, : w.shape[1]]


def _ratio(options: Options) -> tuple[int, int]:
    n, _, m = options["ratio"].partition(":")
    return int(n), int(m)


def _groups(w: Array, options: Options) -> Array:
    """(M, K) -> (M, G, m), padded with zeros."""
    m = _ratio(options)[1]
    extra = round_up(w.shape[1], m) - w.shape[1]
    wide = np.pad(w, ((0, 0), (0, extra))) if extra else np.ascontiguousarray(w)
    return wide.reshape(w.shape[0], wide.shape[1] // m, m)


def _slots(groups: Array, options: Options) -> NDArray[np.intp]:
    """(M, G, n) stored columns of each group, ascending: nonzeros first served, then the lowest zeros."""
    n = _ratio(options)[0]
    chosen = np.argsort(groups == 0, axis=2, kind="stable")[..., :n]
    return np.sort(chosen, axis=2)
