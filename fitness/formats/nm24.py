"""2:4 structured sparsity as the sparse tensor cores of sm_80+ take it (`mma.sp::ordered_metadata`).

Two values of every four along K are kept. M is padded to a multiple of 16 and K to a multiple of 64 with
zeros; Mp, Kp are the padded sizes. One group of four holds two slots: its nonzeros in ascending order of
column; with fewer than two nonzeros the empty slots hold 0.0 at indices chosen so that the two indices are
ascending and distinct (a lone nonzero at column 3 takes slot 1, index pair (0, 3); at column c < 3 it takes
slot 0, pair (c, 3); an empty group has the pair (0, 1)). -0.0 is a zero and takes no slot.

`values`, by option `values` (16-bit types; h = halfs):

* "row": `values[Mp][Kp/2]`, row-major; column 2*g + s of a row is slot s of group g.
* "fragment": `values[Mp/16][Kp/64][2][32][8]`: for each 16-row tile, each block of 64 k, each k32 step and
  each lane of a warp, the 8 halfs of that lane's A operand of `mma.sp.m16n8k32`, registers a0..a3 in order,
  so that a lane reads one 16-byte vector per step. With g = lane / 4, t = lane % 4 and the compressed 16 x 16
  A of that step (compressed column c of the step = column 32*block + 16*step + c of the "row" order):
  a0 = (row g, c = 2t, 2t+1), a1 = (row g+8, same c), a2 = (row g, c = 2t+8, 2t+9), a3 = (row g+8, same c).
* "tile": `values[Mp/16][Kp/64][16][32]`: each 16 x 32 tile of the "row" order contiguous (1 KiB), row-major,
  so that one bulk copy or 64 16-byte `cp.async` bring it to shared memory for `ldmatrix`.

`meta[Mp/16][Kp/64][32]` uint32, one word per lane: the metadata operand of lane l for m16n8k32. Selector 0
(lanes with l % 4 in {0, 1}) serves the first k32 of the block, selector 1 (l % 4 in {2, 3}) the second. In
lane l = 4*g + 2*step + half, the low 16 bits are row g and the high 16 bits row g + 8; both hold the four
groups 4*half .. 4*half + 3 of that k32 step, 4 bits each from the low end: index0 | index1 << 2.
(PTX ISA, "Sparse matrix storage" and "Metadata for sparse mma", 16-bit types; confirmed on an H200.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.expressions import round_up
from fitness.formats.format import Array, BaseFormat, FormatError, Options, Shape

_ROWS_AT_ONCE: Final = 512  # bounds the index arrays of packing to a few MB


def _slot_table() -> NDArray[np.uint8]:
    """(16, 2): for a mask of the four columns (bit c = column c is nonzero), the two stored columns."""
    table = np.zeros((16, 2), np.uint8)
    for mask in range(16):
        columns = [c for c in range(4) if mask >> c & 1]
        if not columns:
            columns = [0, 1]
        elif len(columns) == 1:
            columns = [columns[0], 3] if columns[0] < 3 else [0, 3]
        table[mask] = columns[:2]
    return table


_SLOTS: Final = _slot_table()


class Nm24(BaseFormat):
    """Two of four along K, for 16-bit values; arguments `W.values` and `W.meta` (see the module)."""

    name = "nm24"
    options: Mapping[str, tuple[str, ...]] = {"values": ("row", "fragment", "tile")}

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values` and `meta`."""
        return ("values", "meta")

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """`values` in the chosen order and `meta`; raises FormatError if a group has three nonzeros."""
        self.validate(w, options)
        padded = _padded(w)
        rows, columns = padded.shape
        values = np.empty((rows, columns // 2), w.dtype)
        slots = np.empty((rows, columns // 4, 2), np.uint8)
        for first in range(0, rows, _ROWS_AT_ONCE):
            part = slice(first, first + _ROWS_AT_ONCE)
            groups = padded[part].reshape(len(padded[part]), columns // 4, 4)
            slots[part] = _SLOTS[_group_masks(groups)]
            chosen = np.take_along_axis(groups, slots[part].astype(np.intp), axis=2)
            values[part] = np.where(chosen == 0, chosen.dtype.type(0), chosen).reshape(values[part].shape)
        return {"values": _ordered(values, options["values"]), "meta": _metadata(slots)}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        rows, columns = round_up(shape[0], 16), round_up(shape[1], 64)
        values = _row_major(arrays["values"], (rows, columns // 2), options["values"])
        slots = _slots_of(arrays["meta"].reshape(rows // 16, columns // 64, 32))
        w = np.zeros((rows, columns // 4, 4), values.dtype)
        np.put_along_axis(w, slots.astype(np.intp), values.reshape(rows, columns // 4, 2), axis=2)
        return w.reshape(rows, columns)[: shape[0], : shape[1]].copy()

    def validate(self, w: Array, options: Options) -> None:  # noqa: ARG002
        """Raise FormatError naming the first row and group with more than two nonzeros."""
        if w.ndim != 2:
            raise FormatError(f"nm24 stores a matrix, not an array of {w.ndim} dimensions")
        if reason := self.supports(w.dtype):
            raise FormatError(reason)
        for first in range(0, w.shape[0], _ROWS_AT_ONCE):
            part = _pad_columns(w[first : first + _ROWS_AT_ONCE], 4)
            groups = part.reshape(len(part), -(-w.shape[1] // 4), 4)
            counts = np.count_nonzero(groups, axis=2)
            if counts.size and counts.max() > 2:
                row, group = (int(i) for i in np.argwhere(counts > 2)[0])
                raise FormatError(
                    f"row {first + row}, group {group} (columns {4 * group} to {4 * group + 3}) has "
                    f"{int(counts[row, group])} nonzeros; 2:4 allows two of every four along K"
                )

    def bytes(self, w: Array, options: Options) -> int:  # noqa: ARG002
        """Half the padded elements plus 2 bits for each."""
        rows, columns = round_up(w.shape[0], 16), round_up(w.shape[1], 64)
        return rows * columns // 2 * w.itemsize + rows * columns // 8

    def ratio(self, options: Options) -> tuple[int, int]:  # noqa: ARG002
        """Two of four."""
        return 2, 4

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:  # noqa: ARG002
        """True at the two slots of every group, (M, K); empty slots hold 0 and meet X there."""
        padded = _padded(w)
        slots = _SLOTS[_group_masks(padded.reshape(padded.shape[0], -1, 4))]
        stored = np.zeros((*slots.shape[:2], 4), np.bool_)
        np.put_along_axis(stored, slots.astype(np.intp), True, axis=2)
        return stored.reshape(padded.shape)[: w.shape[0], : w.shape[1]]

    def supports(self, dtype: np.dtype[Any]) -> str:
        """16-bit types only for now; 32-bit ones never (the hardware's ratio there is 1:2)."""
        if dtype.itemsize == 4:
            return f"nm24 cannot store {dtype}: for 32-bit types the sparse tensor cores take 1:2, not 2:4"
        return "" if dtype.itemsize == 2 else f"nm24 stores 16-bit types, not {dtype}"


def _pad_columns(w: Array, multiple: int) -> Array:
    extra = round_up(w.shape[1], multiple) - w.shape[1]
    return np.pad(w, ((0, 0), (0, extra))) if extra else np.ascontiguousarray(w)


def _padded(w: Array) -> Array:
    rows = round_up(w.shape[0], 16) - w.shape[0]
    wide = _pad_columns(w, 64)
    return np.pad(wide, ((0, rows), (0, 0))) if rows else wide


def _group_masks(groups: Array) -> NDArray[np.uint8]:
    """(..., 4) -> (...): bit c set where column c is nonzero (-0.0 is zero)."""
    nonzero = (groups != 0).view(np.uint8)
    masks: NDArray[np.uint8] = (
        nonzero[..., 0] | nonzero[..., 1] << 1 | nonzero[..., 2] << 2 | nonzero[..., 3] << 3
    ).astype(np.uint8, copy=False)
    return masks


def _ordered(values: Array, order: str) -> Array:
    """Values in row order (Mp, Kp/2) -> the array as stored."""
    if order == "row":
        return values
    rows, columns = values.shape
    tiles = values.reshape(rows // 16, 16, columns // 32, 32).transpose(0, 2, 1, 3)  # tile, block, row, column
    if order == "tile":
        return np.ascontiguousarray(tiles)
    # row = 8*h + g, column = 16*step + 8*q + 2*t + e; register = 2*q + h, lane = 4*g + t
    split = tiles.reshape(rows // 16, columns // 32, 2, 8, 2, 2, 4, 2)  # tile, block, h, g, step, q, t, e
    lanes = split.transpose(0, 1, 4, 3, 6, 5, 2, 7)  # tile, block, step, g, t, q, h, e
    return np.ascontiguousarray(lanes).reshape(rows // 16, columns // 32, 2, 32, 8)


def _row_major(stored: Array, shape: Shape, order: str) -> Array:
    """Inverse of `_ordered`."""
    rows, columns = shape
    if order == "row":
        return stored.reshape(shape)
    if order == "tile":
        tiles = stored.reshape(rows // 16, columns // 32, 16, 32)
    else:
        lanes = stored.reshape(rows // 16, columns // 32, 2, 8, 4, 2, 2, 2)
        tiles = lanes.transpose(0, 1, 6, 3, 2, 5, 4, 7).reshape(rows // 16, columns // 32, 16, 32)
    return np.ascontiguousarray(tiles.transpose(0, 2, 1, 3)).reshape(shape)


def _metadata(slots: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """(Mp, Kp/4, 2) stored columns -> (Mp/16, Kp/64, 32) words."""
    rows, groups = slots.shape[:2]
    nibbles = (slots[..., 0] | slots[..., 1] << 2).astype(np.uint32)
    quads = nibbles.reshape(rows, groups // 4, 4)
    half_words = quads[..., 0] | quads[..., 1] << 4 | quads[..., 2] << 8 | quads[..., 3] << 12
    split = half_words.reshape(rows // 16, 2, 8, groups // 16, 4)  # tile, h, g, block, 2*step + half
    words = split[:, 0] | split[:, 1] << 16  # tile, g, block, 2*step + half
    return np.ascontiguousarray(words.transpose(0, 2, 1, 3)).reshape(rows // 16, groups // 16, 32)


def _slots_of(meta: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Inverse of `_metadata`."""
    tiles, blocks = meta.shape[:2]
    words = meta.reshape(tiles, blocks, 8, 4).transpose(0, 2, 1, 3)
    half_words = np.stack([words & 0xFFFF, words >> 16], axis=1).reshape(tiles * 16, blocks * 4)
    nibbles = half_words[..., None] >> np.array([0, 4, 8, 12], np.uint32) & 15
    nibbles = nibbles.reshape(tiles * 16, blocks * 16)
    return np.stack([nibbles & 3, nibbles >> 2], axis=2).astype(np.uint8)
