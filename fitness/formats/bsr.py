"""Block compressed sparse rows: dense r x c blocks where W has a nonzero, with their block columns.

M is padded to a multiple of r and K to a multiple of c with zeros: Mp, Kp.

* `indptr[Mp/r + 1]` int32: the blocks of block row i are `indptr[i]` up to `indptr[i + 1]`.
* `indices[blocks]` int32: their block columns, ascending within a block row.
* `values`, by option `order`:
  "row": [blocks][r][c], each block row-major;
  "fragment": [blocks][r/16][c/16][32][8]: for each 16 x 16 tile of a block (tiles of 16 rows first, then along c)
  and each lane of a warp the 8 values of that lane's A operand of `mma.m16n8k16` for 16-bit types, registers a0..a3
  in order, so that a lane reads a whole 16-byte vector. With g = lane / 4, t = lane % 4: a0 = (row g, columns
  2t, 2t+1), a1 = (row g+8, same columns), a2 = (row g, columns 2t+8, 2t+9), a3 = (row g+8, columns 2t+8, 2t+9)
  (PTX ISA, "Matrix fragments for mma.m16n8k16"). It needs r and c that are multiples of 16;
  "core": [blocks][r/8][c/8][8][8], the 8 x 8 core matrices of a block one after another along c, each row-major: for
  16-bit types a K-major operand of `wgmma` without swizzle (PTX ISA, "Asynchronous warpgroup level matrix shared memory
  layout"), a contiguous piece of r * c values. It needs r and c that are multiples of 8.
* `row_order[Mp]` int32: stored row i is row `row_order[i]` of W, -1 for padding.
* `column_order[Kp]` int32: stored column j is column `column_order[j]` of W and meets that row of X, -1 for padding.

Options `r` and `c`: the block's rows and columns. Every slot of a stored block is stored, zeros in it too.
Options `rows` and `columns` reorder W before it is cut into blocks, which can leave far fewer of them: "natural", as
they are; "cluster", similar ones next to each other; rows also by "length", most nonzeros first. A kernel that does not
read `row_order` and `column_order` must ask for "natural" ones. `W.nblocks` is the number of stored blocks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fitness.formats.blocks import ORDERS, SIZES, block_places, block_size, find_blocks, grid, ordered, row_major
from fitness.formats.entries import Entries, EntryFormat, Indices, row_pointers
from fitness.formats.format import Array, Options, Shape, check_count
from fitness.formats.ordering import ROW_ORDERS, by_similarity, row_order


class Bsr(EntryFormat):
    """r x c blocks; arguments `W.values`, `W.indices`, `W.indptr`, ... (see the module)."""

    name = "bsr"
    options: Mapping[str, tuple[str, ...]] = {
        "r": SIZES,
        "c": SIZES,
        "order": ORDERS,
        "rows": ROW_ORDERS,
        "columns": ("natural", "cluster"),
    }
    sizes: tuple[str, ...] = ("nblocks",)

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values`, `indices`, `indptr`, `row_order` and `column_order`."""
        return ("values", "indices", "indptr", "row_order", "column_order")

    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """The five arrays; raises FormatError for blocks too small for their order."""
        self.check(entries, options)
        size = block_size(options)
        moved, rows, columns = _reordered(entries, options)
        blocks = find_blocks(moved, size)
        down, across = grid(entries.shape, size)
        return {
            "values": ordered(blocks.elements, options["order"]),
            "indices": blocks.columns.astype(np.int32),
            "indptr": row_pointers(np.bincount(blocks.rows, minlength=down)),
            "row_order": _padded(rows, down * size[0]),
            "column_order": _padded(columns, across * size[1]),
        }

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        size = block_size(options)
        down, across = grid(shape, size)
        blocks = np.zeros((down, across, *size), arrays["values"].dtype)
        rows = np.repeat(np.arange(down), np.diff(arrays["indptr"]))
        blocks[rows, arrays["indices"]] = row_major(arrays["values"], size, options["order"])
        stored = blocks.transpose(0, 2, 1, 3).reshape(down * size[0], across * size[1])
        w = np.empty(shape, stored.dtype)
        w[np.ix_(arrays["row_order"][: shape[0]], arrays["column_order"][: shape[1]])] = stored[: shape[0], : shape[1]]
        return w

    def check(self, entries: Entries, options: Options) -> None:
        """Any matrix with at most 2^31 - 1 elements in stored blocks; raises FormatError for impossible options."""
        r, c = block_size(options)
        moved = _reordered(entries, options)[0]
        check_count(self.name, len(block_places(moved, (r, c))) * r * c)

    def entry_bytes(self, entries: Entries, options: Options) -> int:
        """All elements of stored blocks, a column for each, a pointer for each block row, one more, both orders."""
        r, c = block_size(options)
        stored = len(block_places(_reordered(entries, options)[0], (r, c)))
        down, across = grid(entries.shape, (r, c))
        return stored * (r * c * entries.itemsize + 4) + 4 * (down + 1 + down * r + across * c)

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:
        """Whole blocks, cut to (M, K)."""
        size = block_size(options)
        moved, rows, columns = _reordered(Entries.of(w), options)
        kept = np.zeros(grid(moved.shape, size), np.bool_)
        kept.flat[block_places(moved, size)] = True
        whole = kept.repeat(size[0], axis=0).repeat(size[1], axis=1)[: w.shape[0], : w.shape[1]]
        stored = np.empty(w.shape, np.bool_)
        stored[np.ix_(rows, columns)] = whole
        return stored

    def measure(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> dict[str, int]:  # noqa: ARG002
        """`nblocks`: stored blocks."""
        return {"nblocks": len(arrays["indices"])}


def _reordered(entries: Entries, options: Options) -> tuple[Entries, Indices, Indices]:
    """The entries with rows and columns in the chosen orders, and these orders.

    Columns are brought together by the rows they meet, before rows are by the blocks of columns that makes.
    """
    columns = np.arange(entries.shape[1])
    if options["columns"] == "cluster":
        turned = np.lexsort((entries.rows, entries.columns))
        columns = by_similarity(entries.columns[turned], entries.rows[turned], entries.shape[1])
        entries = entries.permuted(columns=columns)
    rows = row_order(options["rows"], entries.rows, entries.columns, entries.shape[0], int(options["c"]))
    if options["rows"] != "natural":
        entries = entries.permuted(rows)
    return entries, rows, columns


def _padded(order: Indices, size: int) -> NDArray[np.int32]:
    padded = np.full(size, -1, np.int32)
    padded[: len(order)] = order
    return padded
