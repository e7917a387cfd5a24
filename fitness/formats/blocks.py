"""Blocks of r x c elements: finding those with a nonzero, and the order of the elements within one."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from fitness.formats.entries import Entries, Indices, distinct
from fitness.formats.format import Array, FormatError, Options, Shape

SIZES: Final = ("32", "16", "8", "64", "4")
"""Choices of the edges of a block."""
ORDERS: Final = ("row", "fragment", "core")
"""Choices of the order within a block, see `ordered`."""


class Blocks(NamedTuple):
    """The blocks of a matrix that have a nonzero, by block row and then by block column.

    `rows`, `columns`: (blocks,) their places in the grid of blocks; `elements`: (blocks, r, c).
    """

    rows: Indices
    columns: Indices
    elements: Array


def block_size(options: Options) -> tuple[int, int]:
    """Options `r` and `c` as numbers; raises FormatError where they do not suit the option `order`."""
    r, c = int(options["r"]), int(options["c"])
    if options["order"] == "fragment" and (r % 16 or c % 16):
        raise FormatError(f"blocks of {r}x{c} have no fragment order: the tensor cores take tiles of 16x16")
    if options["order"] == "core" and (r % 8 or c % 8):
        raise FormatError(f"blocks of {r}x{c} have no core matrices: these are of 8x8")
    return r, c


def grid(shape: Shape, size: tuple[int, int]) -> tuple[int, int]:
    """Block rows and block columns, cut ones included."""
    return -(-shape[0] // size[0]), -(-shape[1] // size[1])


def block_places(entries: Entries, size: tuple[int, int]) -> Indices:
    """Numbers of the blocks with a nonzero in the grid, row-major, ascending."""
    return distinct(_numbers(entries, size))


def find_blocks(entries: Entries, size: tuple[int, int]) -> Blocks:
    """The blocks of `entries` that have a nonzero."""
    (r, c), across = size, grid(entries.shape, size)[1]
    numbers, which = np.unique(_numbers(entries, size), return_inverse=True)
    elements = np.zeros((len(numbers), r, c), entries.values.dtype)
    elements[which, entries.rows % r, entries.columns % c] = entries.values
    rows, columns = np.divmod(numbers, max(across, 1))
    return Blocks(rows, columns, elements)


def _numbers(entries: Entries, size: tuple[int, int]) -> Indices:
    numbers: Indices = entries.rows // size[0] * grid(entries.shape, size)[1] + entries.columns // size[1]
    return numbers


def ordered(blocks: Array, order: str) -> Array:
    """(n, r, c) -> as stored: "row" as they are, "fragment" (n, r/16, c/16, 32, 8), "core" (n, r/8, c/8, 8, 8).

    Fragment order: for each 16 x 16 tile of a block (tiles of 16 rows first, then along c) and each lane of a warp
    the 8 values of that lane's A operand of `mma.m16n8k16` for 16-bit types, registers a0..a3 in order, so that a lane
    reads a whole 16-byte vector. With g = lane / 4, t = lane % 4: a0 = (row g, columns 2t, 2t+1), a1 = (row g+8, same
    columns), a2 = (row g, columns 2t+8, 2t+9), a3 = (row g+8, columns 2t+8, 2t+9) (PTX ISA, "Matrix fragments for
    mma.m16n8k16").

    Core order: the 8 x 8 matrices of a block, each row-major and 128 bytes long for 16-bit types, those along c one
    after another: what wgmma reads as a K-major operand without swizzle (PTX ISA, "Asynchronous warpgroup level matrix
    shared memory layout"), so that one bulk copy brings a block as it is needed.
    """
    count, r, c = blocks.shape
    if order == "row":
        return blocks
    if order == "core":
        matrices = blocks.reshape(count, r // 8, 8, c // 8, 8).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(matrices)
    # row = 16*i + 8*h + g, column = 16*j + 8*q + 2*t + e; register = 2*q + h, lane = 4*g + t
    split = blocks.reshape(count, r // 16, 2, 8, c // 16, 2, 4, 2)  # block, i, h, g, j, q, t, e
    lanes = split.transpose(0, 1, 4, 3, 6, 5, 2, 7)  # block, i, j, g, t, q, h, e
    return np.ascontiguousarray(lanes).reshape(count, r // 16, c // 16, 32, 8)


def row_major(stored: Array, size: tuple[int, int], order: str) -> Array:
    """Inverse of `ordered`: (n, r, c)."""
    r, c = size
    if order == "row":
        return stored.reshape(-1, r, c)
    if order == "core":
        matrices = stored.reshape(-1, r // 8, c // 8, 8, 8).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(matrices).reshape(-1, r, c)
    lanes = stored.reshape(-1, r // 16, c // 16, 8, 4, 2, 2, 2)
    return np.ascontiguousarray(lanes.transpose(0, 1, 6, 3, 2, 5, 4, 7)).reshape(-1, r, c)
