"""Block compressed sparse rows: dense r x c blocks where W has a nonzero, with their block columns.

M is padded to a multiple of r and K to a multiple of c with zeros.

* `indptr[Mp/r + 1]` int32: the blocks of block row i are `indptr[i]` up to `indptr[i + 1]`.
* `indices[blocks]` int32: their block columns, ascending within a block row.
* `values`, by option `order`:
  "row": [blocks][r][c], each block row-major;
  "fragment": [blocks][r/16][c/16][32][8]: for each 16 x 16 tile of a block (tiles of 16 rows first, then along c)
  and each lane of a warp the 8 values of that lane's A operand of `mma.m16n8k16` for 16-bit types, registers a0..a3
  in order, so that a lane reads a whole 16-byte vector. With g = lane / 4, t = lane % 4: a0 = (row g, columns
  2t, 2t+1), a1 = (row g+8, same columns), a2 = (row g, columns 2t+8, 2t+9), a3 = (row g+8, columns 2t+8, 2t+9)
  (PTX ISA, "Matrix fragments for mma.m16n8k16"). It needs r and c that are multiples of 16.

Options `r` and `c`: the block's rows and columns. Every slot of a stored block is stored, zeros in it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.expressions import Expression, round_up
from fitness.formats.csr import check_matrix, row_pointers
from fitness.formats.format import Array, FormatError, Options, Shape

_SIZES: Final = ("32", "16", "8", "64", "4")


class Bsr:
    """r x c blocks; arguments `W.values`, `W.indices` and `W.indptr` (see the module)."""

    name = "bsr"
    options: Mapping[str, tuple[str, ...]] = {"r": _SIZES, "c": _SIZES, "order": ("row", "fragment")}

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values`, `indices` and `indptr`."""
        return ("values", "indices", "indptr")

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """The three arrays; raises FormatError for a fragment order of blocks smaller than 16 x 16."""
        self.validate(w, options)
        blocks = _blocks(w, options)
        kept = (blocks != 0).any(axis=(2, 3))
        rows, columns = np.nonzero(kept)
        return {
            "values": _ordered(np.ascontiguousarray(blocks[rows, columns]), options["order"]),
            "indices": columns.astype(np.int32),
            "indptr": row_pointers(np.count_nonzero(kept, axis=1)),
        }

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        r, c = _size(options)
        block_rows, block_columns = -(-shape[0] // r), -(-shape[1] // c)
        blocks = np.zeros((block_rows, block_columns, r, c), arrays["values"].dtype)
        rows = np.repeat(np.arange(block_rows), np.diff(arrays["indptr"]))
        blocks[rows, arrays["indices"]] = _row_major(arrays["values"], (r, c), options["order"])
        return blocks.transpose(0, 2, 1, 3).reshape(block_rows * r, block_columns * c)[: shape[0], : shape[1]].copy()

    def validate(self, w: Array, options: Options) -> None:
        """Any matrix with at most 2^31 - 1 elements in stored blocks; raises FormatError for impossible options."""
        r, c = _size(options)
        if options["order"] == "fragment" and (r % 16 or c % 16):
            raise FormatError(f"blocks of {r}x{c} have no fragment order: the tensor cores take tiles of 16x16")
        check_matrix(w, self.name, w.size)

    def bytes(self, w: Array, options: Options) -> int:
        """All elements of the stored blocks, a block column for each, a pointer for each block row, one more."""
        r, c = _size(options)
        stored = int((_blocks(w, options) != 0).any(axis=(2, 3)).sum())
        return int(stored * (r * c * w.itemsize + 4) + 4 * (-(-w.shape[0] // r) + 1))

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:
        """Whole blocks, cut to (M, K)."""
        r, c = _size(options)
        kept = (_blocks(w, options) != 0).any(axis=(2, 3))
        stored: NDArray[np.bool_] = kept.repeat(r, axis=0).repeat(c, axis=1)[: w.shape[0], : w.shape[1]]
        return stored

    def domain(self, options: Options) -> tuple[Expression, ...]:  # noqa: ARG002
        """Any shape: it pads."""
        return ()

    def supports(self, dtype: np.dtype[Any]) -> str:  # noqa: ARG002
        """Any dtype."""
        return ""


def _size(options: Options) -> tuple[int, int]:
    return int(options["r"]), int(options["c"])


def _blocks(w: Array, options: Options) -> Array:
    """(M, K) -> (block rows, block columns, r, c), padded with zeros."""
    r, c = _size(options)
    rows, columns = round_up(w.shape[0], r), round_up(w.shape[1], c)
    if (rows, columns) != w.shape:
        w = np.pad(w, ((0, rows - w.shape[0]), (0, columns - w.shape[1])))
    return np.ascontiguousarray(w).reshape(rows // r, r, columns // c, c).transpose(0, 2, 1, 3)


def _ordered(blocks: Array, order: str) -> Array:
    """(blocks, r, c) -> as stored."""
    if order == "row":
        return blocks
    count, r, c = blocks.shape
    # row = 16*i + 8*h + g, column = 16*j + 8*q + 2*t + e; register = 2*q + h, lane = 4*g + t
    split = blocks.reshape(count, r // 16, 2, 8, c // 16, 2, 4, 2)  # block, i, h, g, j, q, t, e
    lanes = split.transpose(0, 1, 4, 3, 6, 5, 2, 7)  # block, i, j, g, t, q, h, e
    return np.ascontiguousarray(lanes).reshape(count, r // 16, c // 16, 32, 8)


def _row_major(stored: Array, size: Shape, order: str) -> Array:
    """Inverse of `_ordered`."""
    r, c = size
    if order == "row":
        return stored.reshape(-1, r, c)
    lanes = stored.reshape(-1, r // 16, c // 16, 8, 4, 2, 2, 2)
    return np.ascontiguousarray(lanes.transpose(0, 1, 6, 3, 2, 5, 4, 7)).reshape(-1, r, c)
