"""Periodic: a pattern of `rows` x `columns` elements repeated all over W; indices are stored for one period only.

The pattern P is True wherever W has a nonzero in any period. With R = rows, C = columns, G = ceil(M / R) periods along
M and H = ceil(K / C) along K (the last ones may be cut), row i of W follows row g = i % R of the pattern and

* `indptr[R + 1]` int32, `indices` int32: the columns of P's row g are `indices[indptr[g]]` up to
  `indices[indptr[g + 1]]`, ascending; n(g) of them.
* `values`: for g = 0 .. R - 1 a dense matrix [G][H * n(g)] that begins at `indptr[g] * G * H`: row i / R of it is row
  i of W, slot h * n(g) + s of that is column h * C + indices[indptr[g] + s]. Slots past M or K are zero, and X must
  not be read past K.

Rows that are equal modulo R have the same columns: for each g, a dense product with the rows of X gathered once.
Every slot of the pattern is stored, zeros in it too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fitness.formats.blocks import grid
from fitness.formats.entries import Entries, EntryFormat, row_pointers
from fitness.formats.format import Array, Options, Shape, check_count


class Periodic(EntryFormat):
    """A repeated pattern; arguments `W.values`, `W.indices`, `W.indptr` (see the module)."""

    name = "periodic"
    options: Mapping[str, tuple[str, ...]] = {
        "rows": ("8", "1", "2", "4", "16", "32", "64"),
        "columns": ("32", "8", "16", "64", "128", "256"),
    }

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values`, `indices`, `indptr`."""
        return ("values", "indices", "indptr")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """The three arrays; raises FormatError beyond 2^31 - 1 slots."""
        self.check(entries, options)
        size = _period(options)
        pattern = _pattern(entries, size)
        down, across = grid(entries.shape, size)
        counts = np.count_nonzero(pattern, axis=1)
        slots, indptr = np.nonzero(pattern)[1], row_pointers(counts)
        number = np.cumsum(pattern, axis=1) - 1  # of each element of the pattern within its row
        g, c = entries.rows % size[0], entries.columns % size[1]
        places = indptr[g] * (down * across) + entries.rows // size[0] * (across * counts[g])
        places += entries.columns // size[1] * counts[g] + number[g, c]
        values = np.zeros(int(indptr[-1]) * down * across, entries.values.dtype)
        values[places] = entries.values
        return {"values": values, "indices": slots.astype(np.int32), "indptr": indptr}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        size = _period(options)
        down, across = grid(shape, size)
        w = np.zeros((down, size[0], across, size[1]), arrays["values"].dtype)
        for g, (begin, end) in enumerate(zip(arrays["indptr"][:-1], arrays["indptr"][1:], strict=True)):
            part = arrays["values"][begin * down * across : end * down * across].reshape(down, across, end - begin)
            w[:, g, :, arrays["indices"][begin:end]] = part.transpose(2, 0, 1)
        return w.reshape(down * size[0], across * size[1])[: shape[0], : shape[1]].copy()

    def check(self, entries: Entries, options: Options) -> None:
        """Any matrix with at most 2^31 - 1 slots."""
        check_count(self.name, self._slots(entries, options))

    def entry_bytes(self, entries: Entries, options: Options) -> int:
        """A value for each slot, a column for each of one period, a pointer for each of its rows, one more."""
        size = _period(options)
        indices = int(np.count_nonzero(_pattern(entries, size)))
        return self._slots(entries, options) * entries.itemsize + 4 * (indices + size[0] + 1)

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:
        """The pattern wherever it lies within W."""
        size = _period(options)
        pattern = _pattern(Entries.of(w), size)
        return np.tile(pattern, grid((w.shape[0], w.shape[1]), size))[: w.shape[0], : w.shape[1]]

    def _slots(self, entries: Entries, options: Options) -> int:
        size = _period(options)
        down, across = grid(entries.shape, size)
        return int(np.count_nonzero(_pattern(entries, size))) * down * across


def _period(options: Options) -> tuple[int, int]:
    return int(options["rows"]), int(options["columns"])


def _pattern(entries: Entries, size: tuple[int, int]) -> NDArray[np.bool_]:
    """(R, C), True where any period has a nonzero."""
    pattern = np.zeros(size, np.bool_)
    pattern[entries.rows % size[0], entries.columns % size[1]] = True
    return pattern
