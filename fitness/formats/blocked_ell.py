"""Blocked ELLPACK: every block row padded to as many r x c blocks as the fullest one has, so that none needs a pointer.

M is padded to a multiple of r and K to a multiple of c with zeros: Mp, Kp. `W.width` is the number of blocks of the
fullest block row, `W.nblocks` = Mp / r * W.width that of all slots.

* `indices[Mp/r][width]` int32: block columns, ascending; -1 marks padding, a block that is no part of W: it must not be
  taken for block column 0, and X is not read for it.
* `values`: [Mp/r][width] blocks, padding blocks all zero, each by option `order`: "row": [r][c]; "fragment":
  [r/16][c/16][32][8], for each 16 x 16 tile and each lane of a warp the 8 values of its A operand of `mma.m16n8k16`,
  as in the format `bsr`, r and c multiples of 16; "core": [r/8][c/8][8][8], as there too, multiples of 8.

Options `r` and `c`: the block's rows and columns (cuSPARSE's Blocked-ELL has r = c).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fitness.formats.blocks import ORDERS, SIZES, block_places, block_size, find_blocks, grid, ordered, row_major
from fitness.formats.ell import PADDING
from fitness.formats.entries import Entries, EntryFormat, positions
from fitness.formats.format import Array, Options, Shape, check_count


class BlockedEll(EntryFormat):
    """Padded block rows; arguments `W.values` and `W.indices`, the integers `W.width` and `W.nblocks`."""

    name = "blocked_ell"
    options: Mapping[str, tuple[str, ...]] = {"r": SIZES, "c": SIZES, "order": ORDERS}
    sizes: tuple[str, ...] = ("width", "nblocks")

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values` and `indices`."""
        return ("values", "indices")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """Both arrays; raises FormatError beyond 2^31 - 1 elements, and for blocks too small for their order."""
        self.check(entries, options)
        size = block_size(options)
        blocks = find_blocks(entries, size)
        down = grid(entries.shape, size)[0]
        counts = np.bincount(blocks.rows, minlength=down)
        slots = positions(counts, blocks.rows)
        values = np.zeros((down, int(counts.max(initial=0)), *size), entries.values.dtype)
        indices = np.full(values.shape[:2], PADDING, np.int32)
        values[blocks.rows, slots] = blocks.elements
        indices[blocks.rows, slots] = blocks.columns
        stored = ordered(values.reshape(-1, *size), options["order"])
        return {"values": stored.reshape(*indices.shape, *stored.shape[1:]), "indices": indices}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        size = block_size(options)
        down, across = grid(shape, size)
        indices = arrays["indices"].reshape(down, -1)
        rows, slots = np.nonzero(indices != PADDING)
        values = row_major(arrays["values"], size, options["order"]).reshape(*indices.shape, *size)
        blocks = np.zeros((down, across, *size), values.dtype)
        blocks[rows, indices[rows, slots]] = values[rows, slots]
        return blocks.transpose(0, 2, 1, 3).reshape(down * size[0], across * size[1])[: shape[0], : shape[1]].copy()

    def check(self, entries: Entries, options: Options) -> None:
        """Any matrix with at most 2^31 - 1 stored elements; raises FormatError for impossible options."""
        r, c = block_size(options)
        check_count(self.name, self._slots(entries, (r, c)) * r * c)

    def entry_bytes(self, entries: Entries, options: Options) -> int:
        """All elements of the slots and a block column for each."""
        r, c = block_size(options)
        return self._slots(entries, (r, c)) * (r * c * entries.itemsize + 4)

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:
        """Whole blocks, cut to (M, K); padding is no part of W."""
        size = block_size(options)
        kept = np.zeros(grid((w.shape[0], w.shape[1]), size), np.bool_)
        kept.flat[block_places(Entries.of(w), size)] = True
        return kept.repeat(size[0], axis=0).repeat(size[1], axis=1)[: w.shape[0], : w.shape[1]]

    def measure(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> dict[str, int]:  # noqa: ARG002
        """`width`: slots of a block row; `nblocks`: of all."""
        return {"width": int(arrays["indices"].shape[1]), "nblocks": int(arrays["indices"].size)}

    def _slots(self, entries: Entries, size: tuple[int, int]) -> int:
        down, across = grid(entries.shape, size)
        counts = np.bincount(block_places(entries, size) // max(across, 1), minlength=down)
        return int(counts.max(initial=0)) * down
