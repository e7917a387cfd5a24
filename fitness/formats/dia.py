"""Diagonals: W stored along those diagonals that have a nonzero, without any index but one for a diagonal.

* `offsets[ndiags]` int32: column - row of each, ascending; `W.ndiags` of them.
* `values`: element d of row i is W[i, i + offsets[d]], zero where that lies outside W (X must not be read there).
  Option `order`: "diagonal", [ndiags][M], so that threads on neighbouring rows read neighbouring words;
  "row", [M][ndiags].

Every slot of a stored diagonal within W is stored, zeros in it too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fitness.formats.entries import Entries, EntryFormat, Indices, distinct
from fitness.formats.format import Array, Options, Shape, check_count


class Dia(EntryFormat):
    """Diagonals; arguments `W.values` and `W.offsets`, the integer `W.ndiags` (see the module)."""

    name = "dia"
    options: Mapping[str, tuple[str, ...]] = {"order": ("diagonal", "row")}
    sizes: tuple[str, ...] = ("ndiags",)

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values` and `offsets`."""
        return ("values", "offsets")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """Both arrays; raises FormatError beyond 2^31 - 1 slots."""
        self.check(entries, options)
        offsets = _offsets(entries)
        values = np.zeros((len(offsets), entries.shape[0]), entries.values.dtype)
        values[np.searchsorted(offsets, entries.columns - entries.rows), entries.rows] = entries.values
        stored = values if options["order"] == "diagonal" else values.T
        return {"values": np.ascontiguousarray(stored), "offsets": offsets.astype(np.int32)}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        offsets = arrays["offsets"].astype(np.int64)
        by_diagonal = options["order"] == "diagonal"
        values = arrays["values"].reshape(len(offsets), shape[0]) if by_diagonal else arrays["values"].T
        values = values.reshape(len(offsets), shape[0])
        columns = np.arange(shape[0]) + offsets[:, None]
        diagonals, rows = np.nonzero((columns >= 0) & (columns < shape[1]))
        w = np.zeros(shape, values.dtype)
        w[rows, columns[diagonals, rows]] = values[diagonals, rows]
        return w

    def check(self, entries: Entries, options: Options) -> None:  # noqa: ARG002
        """Any matrix with at most 2^31 - 1 slots."""
        check_count(self.name, len(_offsets(entries)) * entries.shape[0])

    def entry_bytes(self, entries: Entries, options: Options) -> int:  # noqa: ARG002
        """M elements and an offset for each diagonal."""
        return len(_offsets(entries)) * (entries.shape[0] * entries.itemsize + 4)

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:  # noqa: ARG002
        """Whole diagonals."""
        entries = Entries.of(w)
        offsets = np.arange(w.shape[1])[None, :] - np.arange(w.shape[0])[:, None]
        return np.isin(offsets, _offsets(entries))

    def measure(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> dict[str, int]:  # noqa: ARG002
        """`ndiags`: stored diagonals."""
        return {"ndiags": len(arrays["offsets"])}


def _offsets(entries: Entries) -> Indices:
    return distinct(entries.columns - entries.rows)
