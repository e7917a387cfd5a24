"""What the simulated blocks touched of one global buffer: which sectors, and how long ago each was read last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.counters import REUSE_BUCKETS, SECTOR_BYTES, BufferCounters

_WORD_BYTES = 4
_PAGE = 1024
"""Sectors of large buffers are looked at by pages, for few of these are touched."""

Indices = NDArray[np.int64]


class Footprint:
    """When each simulated block last read each sector of a buffer, what it wrote, and atomics per 4-byte word.

    Attributes:
        reuse: sectors read again, by the power of two of how many the block has read since.
    """

    __slots__ = ("_hits", "_pages", "_read", "_written", "bytes", "reuse")

    def __init__(self, size: int, blocks: int) -> None:
        self.bytes = size
        pages = -(-size // (SECTOR_BYTES * _PAGE)) + 1
        self._read: NDArray[np.int32] = np.zeros((blocks, pages * _PAGE), dtype=np.int32)
        self._pages = np.zeros(pages, dtype=bool)  # that are touched
        self._written: NDArray[np.bool_] | None = None
        self._hits: NDArray[np.int64] | None = None
        self.reuse = np.zeros(REUSE_BUCKETS)

    def mark_written(self, blocks: Indices, sectors: Indices) -> None:
        """Note that blocks wrote sectors."""
        if self._written is None:
            self._written = np.zeros(self._read.shape, dtype=bool)
        self._written[blocks, sectors] = True
        self._pages[sectors // _PAGE] = True

    def mark_read(self, blocks: Indices, sectors: Indices, clock: int, cached: bool) -> None:
        """Note a read; where L1 may hold the sector from before, count how long ago that was.

        Args:
            blocks: (n,) of distinct pairs.
            sectors: (n,) of distinct pairs.
            clock: sectors the blocks have read so far, at least 1.
            cached: whether L1 may serve it.
        """
        if cached:
            self._reused(clock - self._read[blocks, sectors], clock)
        self._read[blocks, sectors] = clock
        self._pages[sectors // _PAGE] = True

    def mark_reads(
        self, order: Indices, blocks: Indices, sectors: Indices, clocks: Indices, cached: NDArray[np.bool_]
    ) -> None:
        """Several reads at once, as if one after another.

        Args:
            order: (n,) which read each pair belongs to; ascending numbers are later.
            blocks: (n,) of pairs that are distinct within a read.
            sectors: (n,) of the same.
            clocks: (reads,) as of `mark_read`.
            cached: (reads,) as of `mark_read`.
        """
        width, reads = self._read.shape[1], clocks.size
        key = np.sort((blocks * width + sectors) * reads + order)
        place, order = np.divmod(key, reads)
        clock = clocks[order]
        first = np.ones(place.size, dtype=bool)
        np.not_equal(place[1:], place[:-1], out=first[1:])
        stored = self._read.reshape(-1)
        before = np.empty_like(clock)
        before[1:] = clock[:-1]
        before[first] = stored[place[first]]
        counted = cached[order]
        self._reused((clock - before)[counted], clock[counted])
        last = np.append(first[1:], True)
        stored[place[last]] = clock[last]
        self._pages[sectors // _PAGE] = True

    def _reused(self, age: NDArray[np.signedinteger], clock: int | Indices) -> None:
        """Count sectors read `age` after they were read last; an age of `clock` means never before."""
        age = age[age < clock]
        if age.size:
            bucket = np.minimum(np.log2(np.maximum(age, 1)).astype(np.int64), REUSE_BUCKETS - 1)
            self.reuse += np.bincount(bucket, minlength=REUSE_BUCKETS)

    def hit(self, offsets: Indices) -> None:
        """Count atomic operations at byte offsets."""
        if self._hits is None:
            self._hits = np.zeros(self.bytes // _WORD_BYTES + 1, dtype=np.int64)
        words, counts = np.unique(offsets // _WORD_BYTES, return_counts=True)
        self._hits[words] += counts

    def frozen(self) -> BufferCounters:
        """The counters."""
        sums = [self._extent(self._read), (0.0, 0.0) if self._written is None else self._extent(self._written)]
        hits = self._hits if self._hits is not None else np.zeros(1, dtype=np.int64)
        atomics = float(hits.max()), float(hits.sum()), float(np.count_nonzero(hits))
        return BufferCounters(self.bytes, *sums[0], *sums[1], *atomics, tuple(self.reuse.tolist()))

    def _extent(self, marks: NDArray[np.generic]) -> tuple[float, float]:
        """Sectors touched, summed over the blocks, and by any of them."""
        touched = marks.reshape(marks.shape[0], -1, _PAGE)[:, self._pages] != 0
        return float(np.count_nonzero(touched)), float(np.count_nonzero(touched.any(axis=0)))
