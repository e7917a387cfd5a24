"""Blocks: of the r x c blocks a matrix is cut into, how many hold a nonzero, and how full those are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fitness.matrices.mask import Mask, Strip

EDGES: Final = (1, 2, 4, 8, 16, 32, 64)
"""Rows and columns of blocks that are counted: `mask.STRIP_ROWS` at most."""

Size = tuple[int, int]
Keys = NDArray[np.int64]

_EXACT_NONZEROS: Final = 2**25
_SAMPLE_NONZEROS: Final = 2**24


@dataclass(frozen=True)
class Blocks:
    """Blocks with a nonzero, for every size.

    Attributes:
        nnz: of the whole matrix.
        stored: (r, c) -> such blocks in the whole matrix; estimates where `sampled` < 1.
        sampled: share of the nonzeros that was looked at.
    """

    nnz: int
    stored: Mapping[Size, float]
    sampled: float

    def fill(self, size: Size) -> float:
        """Share of nonzeros among the slots of stored blocks, 0..1 (cut blocks count whole); 0 without nonzeros."""
        slots = self.stored[size] * size[0] * size[1]
        return self.nnz / slots if slots else 0.0

    def slots(self, size: Size) -> float:
        """Elements of stored blocks."""
        return self.stored[size] * size[0] * size[1]

    def best(self, itemsize: int, edges: Iterable[int] = EDGES) -> Size:
        """The size with the least bytes: its slots and four bytes a block; of equal ones the largest block."""
        edges = tuple(edges)
        sizes = [(r, c) for r in edges for c in edges]
        return min(sizes, key=lambda s: (round(self.slots(s) * itemsize + 4 * self.stored[s]), -s[0] * s[1]))

    def whole(self, least: float = 0.9) -> Size | None:
        """The largest block of which at least that share is nonzero; None where only single elements are."""
        full = [size for size in self.stored if size != (1, 1) and self.fill(size) >= least]
        return max(full, key=lambda size: (size[0] * size[1], -abs(size[0] - size[1])), default=None)


ALL: Final = tuple((r, c) for r in EDGES for c in EDGES)


def count_blocks(
    mask: Mask,
    order: NDArray[np.int64] | None = None,
    columns: NDArray[np.int64] | None = None,
    sizes: Iterable[Size] = ALL,
) -> Blocks:
    """Count blocks of every size.

    Above 2^25 nonzeros strips of rows that hold about 2^24 are looked at, evenly spread, and counts scaled up.

    Args:
        mask: the matrix.
        order: (M,) rows in the order wanted; None: as they are.
        columns: (K,) new place of each column; None: as they are.
        sizes: which, of `ALL`.
    """
    every = 1 if mask.nnz <= _EXACT_NONZEROS else round(mask.nnz / _SAMPLE_NONZEROS)
    counter = BlockCounter(sizes)
    for strip in mask.strips(order, columns, every):
        counter.add(strip)
    return counter.result(mask.nnz)


class BlockCounter:
    """Counts over the strips it is shown, each of which begins at a multiple of 64 rows."""

    def __init__(self, sizes: Iterable[Size] = ALL) -> None:
        self._stored = dict.fromkeys(sorted(sizes), 0)
        self._by_rows = {r: [c for row, c in self._stored if row == r] for r, _ in self._stored}
        self._seen = 0

    def add(self, strip: Strip) -> None:
        """Count one strip."""
        self._seen += strip.nnz
        if strip.bits is not None:
            self._add_bits(strip.bits)
        else:
            self._add_coordinates(strip)

    def result(self, nnz: int) -> Blocks:
        """Counts for the whole matrix of `nnz` nonzeros."""
        sampled = self._seen / nnz if nnz else 1.0
        scale = 1 / sampled if sampled else 1.0
        return Blocks(nnz, {size: count * scale for size, count in self._stored.items()}, sampled)

    def _add_bits(self, bits: NDArray[np.bool_]) -> None:
        tall, height = bits, 1
        for r, widths in self._by_rows.items():
            while height < r:
                tall, height = _pairs(tall, 0), 2 * height
            wide, width = tall, 1
            for c in widths:
                while width < c:
                    wide, width = _pairs(wide, 1), 2 * width
                self._stored[r, c] += int(np.count_nonzero(wide))

    def _add_coordinates(self, strip: Strip) -> None:
        # key = row << shift | column: a shift right halves the columns and leaves keys sorted
        shift = max(1, strip.columns - 1).bit_length() + len(EDGES)
        tall, height = strip.row << shift | strip.column, 1
        for r, widths in self._by_rows.items():
            if r > height:
                joined = tall >> shift + (r // height).bit_length() - 1 << shift | tall & (1 << shift) - 1
                # rows are runs in order, which a stable sort merges: eight times faster than to sort anew
                tall, height = _distinct(np.sort(joined, kind="stable")), r
            wide, width = tall, 1
            for c in widths:
                if c > width:
                    wide, width = _distinct(wide >> (c // width).bit_length() - 1), c
                self._stored[r, c] += len(wide)


def _pairs(bits: NDArray[np.bool_], axis: int) -> NDArray[np.bool_]:
    """Neighbours along an axis joined by "or"; a last one alone stays."""
    first, second = (bits[0::2], bits[1::2]) if axis == 0 else (bits[:, 0::2], bits[:, 1::2])
    joined = first.copy()
    if axis == 0:
        joined[: len(second)] |= second
    else:
        joined[:, : second.shape[1]] |= second
    return joined


def _distinct(keys: Keys) -> Keys:
    """Sorted keys, each once."""
    if not len(keys):
        return keys
    fresh = np.empty(len(keys), np.bool_)
    fresh[0] = True
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    return keys[fresh]
