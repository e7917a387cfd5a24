"""Bitmaps: one bit for every element of W, and the nonzeros without their columns. For densities of a tenth upwards.

W is cut into blocks of r x c elements, M and K padded: `G = ceil(M / r)` block rows, `H = ceil(K / c)` block columns.

* `bitmap[G][H][r * c / 32]` uint32: bit b of a block (b % 32 of word b / 32) is set where element b is no zero.
* `indptr[G * H + 1]` int32: the values of block (i, j) begin at `indptr[i * H + j]`.
* `values[nnz]`: block by block, in the order of the bits.

Option `block`: "16x16", "8x8", "1x32", "1x64". Option `order`, of the elements in a block: "row", row-major;
"fragment", for "16x16" only: element b is value b % 8 of lane b / 8 in the A operand of `mma.m16n8k16` for 16-bit
types (registers a0..a3, as in the format `bsr`), so that byte l of a block's bitmap is all that lane l needs. Tensor
cores multiply whole blocks: in that order every slot of a block with a nonzero meets X, and a block without one must
be left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fitness.formats.blocks import ORDERS, block_places, grid, ordered, row_major
from fitness.formats.entries import Entries, EntryFormat, Indices, row_pointers
from fitness.formats.format import Array, FormatError, Options, Shape, check_count


class Bitmap(EntryFormat):
    """A bit for every element; arguments `W.values`, `W.bitmap`, `W.indptr` (see the module)."""

    name = "bitmap"
    options: Mapping[str, tuple[str, ...]] = {"block": ("16x16", "8x8", "1x32", "1x64"), "order": ORDERS}

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values`, `bitmap`, `indptr`."""
        return ("values", "bitmap", "indptr")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """The three arrays; raises FormatError beyond 2^31 - 1 elements and for impossible options."""
        self.check(entries, options)
        size = _size(options)
        down, across = grid(entries.shape, size)
        block, bit = _places(entries, options)
        order = np.lexsort((bit, block))
        words = np.zeros(down * across * _words(size), np.uint32)
        np.bitwise_or.at(words, block * _words(size) + bit // 32, np.uint32(1) << (bit % 32).astype(np.uint32))
        return {
            "values": entries.values[order],
            "bitmap": words.reshape(down, across, _words(size)),
            "indptr": row_pointers(np.bincount(block, minlength=down * across)),
        }

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        size = _size(options)
        down, across = grid(shape, size)
        octets = np.ascontiguousarray(arrays["bitmap"]).astype("<u4").view(np.uint8)
        bits = np.unpackbits(octets, bitorder="little").astype(np.bool_)
        elements = np.zeros(bits.shape, arrays["values"].dtype)
        elements[bits] = arrays["values"]
        blocks = row_major(elements, size, options["order"]).reshape(down, across, *size)
        return blocks.transpose(0, 2, 1, 3).reshape(down * size[0], across * size[1])[: shape[0], : shape[1]].copy()

    def check(self, entries: Entries, options: Options) -> None:
        """Any matrix with at most 2^31 - 1 elements, zeros included; raises FormatError for impossible options."""
        size = _size(options)
        down, across = grid(entries.shape, size)
        check_count(self.name, down * across * size[0] * size[1])

    def entry_bytes(self, entries: Entries, options: Options) -> int:
        """A value for each nonzero, a bit for each element, a pointer for each block, one more."""
        size = _size(options)
        down, across = grid(entries.shape, size)
        return entries.nnz * entries.itemsize + 4 * (down * across * (_words(size) + 1) + 1)

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:
        """The nonzeros; in fragment order whole blocks that have one, as they are unpacked for the tensor cores."""
        if options["order"] == "row":
            return super().stored_mask(w, options)
        size = _size(options)
        kept = np.zeros(grid((w.shape[0], w.shape[1]), size), np.bool_)
        kept.flat[block_places(Entries.of(w), size)] = True
        return kept.repeat(size[0], axis=0).repeat(size[1], axis=1)[: w.shape[0], : w.shape[1]]


def _size(options: Options) -> tuple[int, int]:
    r, _, c = options["block"].partition("x")
    if options["order"] == "fragment" and options["block"] != "16x16":
        raise FormatError(f"bitmaps of {options['block']} have no fragment order: the tensor cores take tiles of 16x16")
    return int(r), int(c)


def _words(size: tuple[int, int]) -> int:
    return size[0] * size[1] // 32


def _places(entries: Entries, options: Options) -> tuple[Indices, Indices]:
    """(nnz,) block numbers and bits within the block."""
    (r, c), across = _size(options), grid(entries.shape, _size(options))[1]
    element = entries.rows % r * c + entries.columns % c
    bits: NDArray[np.int64] = np.empty(r * c, np.int64)
    bits[ordered(np.arange(r * c).reshape(1, r, c), options["order"]).ravel()] = np.arange(r * c)
    return entries.rows // r * across + entries.columns // c, bits[element]
