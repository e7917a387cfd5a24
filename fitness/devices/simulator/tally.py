"""Filling `LaunchCounters` while a launch is simulated.

The engine calls `execute` once per executed basic block (a row increment and a list append), and one of
`global_access`, `shared_access`, `atomic` and `bulk_access` once per executed memory instruction with the
addresses of the active lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.coalescing import (
    LINE_BYTES,
    Addresses,
    Backlog,
    Lanes,
    Pattern,
    PatternCache,
    longest_runs,
)
from fitness.devices.simulator.counters import (
    REUSE_BUCKETS,
    SECTOR_BYTES,
    TRACE_LIMIT,
    BufferCounters,
    CounterError,
    LaunchCounters,
    Op,
    RingCounters,
    SiteCounters,
)
from fitness.devices.simulator.merging import Group, merged_code
from fitness.devices.simulator.places import Place

_LOG_LIMIT = 8 * TRACE_LIMIT
_WORD_BYTES = 4
#: A site with more new patterns than that, and than repeated ones, is given a backlog.
_MISSES = 4


class _Site:
    """Running totals and remembered patterns of one static memory instruction."""

    __slots__ = ("backlog", "buffer", "bytes_per_lane", "cached_l1", "counts", "kind", "last", "line", "patterns")

    def __init__(self, kind: str, line: int, bytes_per_lane: int, cached_l1: bool, warps_per_block: int) -> None:
        self.kind, self.line, self.bytes_per_lane, self.cached_l1 = kind, line, bytes_per_lane, cached_l1
        self.buffer = ""
        self.counts = np.zeros(7)  # requests, lanes, sectors, wavefronts, ideal sectors, ideal wavefronts, serial
        self.patterns = PatternCache(warps_per_block)
        self.backlog = Backlog()
        self.last: Pattern | None = None  # of the last access, where it was looked for

    def add(self, pattern: Pattern, lanes: int, serial: float = 0.0) -> None:
        self.counts += (
            pattern.requests,
            lanes,
            pattern.sectors,
            pattern.wavefronts,
            pattern.ideal_sectors,
            pattern.ideal_wavefronts,
            serial,
        )

    def shared(self, offsets: Addresses, lanes: Lanes, bytes_per_lane: int) -> None:
        """One access to shared memory."""
        known = self.patterns
        if known.misses > max(_MISSES, known.hits):
            pattern = self.backlog.add(offsets, lanes, bytes_per_lane)
            self.last = None
        else:
            pattern, _, _ = known.find(offsets, lanes, bytes_per_lane, shared=True)
            self.last = pattern
        if pattern is not None:
            self.add(pattern, 0)
        self.counts[1] += offsets.size

    def frozen(self) -> SiteCounters:
        left = self.backlog.count()
        if left is not None:
            self.add(left, 0)
        counts = (float(count) for count in self.counts)
        return SiteCounters(self.kind, self.line, self.bytes_per_lane, self.buffer, self.cached_l1, *counts)


class _Buffer:
    """When each simulated block last read each sector of a buffer, what it wrote, and atomics per 4-byte word."""

    __slots__ = ("bytes", "hits", "read", "reuse", "written")

    def __init__(self, size: int, blocks: int) -> None:
        self.bytes = size
        self.read: NDArray[np.int32] = np.zeros((blocks, -(-size // SECTOR_BYTES) + 1), dtype=np.int32)
        self.written: NDArray[np.bool_] | None = None
        self.hits: NDArray[np.int64] | None = None
        self.reuse = np.zeros(REUSE_BUCKETS)

    def mark_written(self, blocks: NDArray[np.int64], sectors: NDArray[np.int64]) -> None:
        if self.written is None:
            self.written = np.zeros(self.read.shape, dtype=bool)
        self.written[blocks, sectors] = True

    def mark_read(self, blocks: NDArray[np.int64], sectors: NDArray[np.int64], clock: int, cached: bool) -> None:
        """Note a read; where L1 may hold the sector from before, count how long ago that was."""
        if cached:
            age = clock - self.read[blocks, sectors]
            age = age[age < clock]  # clock 0: never read before
            if age.size:
                bucket = np.minimum(np.log2(np.maximum(age, 1)).astype(np.int64), REUSE_BUCKETS - 1)
                self.reuse += np.bincount(bucket, minlength=REUSE_BUCKETS)
        self.read[blocks, sectors] = clock

    def hit(self, offsets: Addresses) -> None:
        """Count atomic operations at byte offsets."""
        if self.hits is None:
            self.hits = np.zeros(self.bytes // _WORD_BYTES + 1, dtype=np.int64)
        words, counts = np.unique(offsets // _WORD_BYTES, return_counts=True)
        self.hits[words] += counts

    def frozen(self) -> BufferCounters:
        sums = [_footprint(self.read > 0), (0.0, 0.0) if self.written is None else _footprint(self.written)]
        hits = self.hits if self.hits is not None else np.zeros(1, dtype=np.int64)
        atomics = float(hits.max()), float(hits.sum()), float(np.count_nonzero(hits))
        return BufferCounters(self.bytes, *sums[0], *sums[1], *atomics, tuple(self.reuse.tolist()))


def _footprint(touched: NDArray[np.bool_]) -> tuple[float, float]:
    return float(np.count_nonzero(touched)), float(np.count_nonzero(touched.any(axis=0)))


class Tally:
    """Counters of one launch under simulation.

    Args:
        entry: kernel name.
        code: basic blocks as `Op` tuples; `Op.site` numbers the memory instructions from 0.
        sites: per site (kind, line, bytes per lane, cached in L1).
        blocks_total: blocks of the grid; blocks_simulated: of those, run (numbered 0.. in run order).
        warps_per_block: ceil(threads / 32). Warp w of simulated block b has number b * warps_per_block + w,
            and lane i of it the global lane number 32 * that + i.
        buffers: name -> bytes of every global buffer.
        merges: groups of sites that count as one wider load where their addresses prove aligned (merging.py).
    """

    def __init__(
        self,
        entry: str,
        code: tuple[tuple[Op, ...], ...],
        sites: Sequence[tuple[str, int, int, bool]],
        *,
        blocks_total: int,
        blocks_simulated: int,
        warps_per_block: int,
        buffers: Mapping[str, int],
        merges: Sequence[Group] = (),
    ) -> None:
        self.entry, self.code = entry, code
        self._group = {site: group for group in merges for site in group}
        self._apart: set[Group] = set()  # groups once seen misaligned
        self.blocks_total, self.blocks_simulated, self.warps_per_block = blocks_total, blocks_simulated, warps_per_block
        self._executions = np.zeros((len(code), blocks_simulated * warps_per_block), dtype=np.int64)
        self._lanes = np.zeros(len(code), dtype=np.float64)
        self._sites = [_Site(*site, warps_per_block) for site in sites]
        self._buffers = {name: _Buffer(size, blocks_simulated) for name, size in buffers.items()}
        self._log: list[tuple[int, NDArray[np.int64] | None]] = []
        self._divergent = 0
        self._landed = 0  # bytes of bulk loads
        self._phases: set[tuple[int, int, int]] = set()  # (block, mbarrier, its phase) of bulk loads
        self._room: dict[tuple[int, int], int] = {}  # (block, place in shared memory) -> bytes
        self._clock = 1.0  # sectors a block has read through L1 so far, mean of the blocks at work; 0 means never

    def execute(self, block: int, warps: NDArray[np.int64] | None, lanes: int) -> None:
        """A group of lanes issues one basic block.

        Args:
            block: index of the basic block.
            warps: ascending distinct warp numbers with an active lane in the group, None for all simulated
                warps. The array is kept: do not change it afterwards.
            lanes: active lanes of the group.
        """
        if warps is None:
            self._executions[block] += 1
        else:
            self._executions[block, warps] += 1
        self._lanes[block] += lanes
        if len(self._log) < _LOG_LIMIT:
            self._log.append((block, warps))

    def diverged(self, warps: int) -> None:
        """`warps` warps split at a branch."""
        self._divergent += warps

    def global_access(
        self, site: int, buffer: str, offsets: Addresses, lanes: Lanes, *, write: bool, bytes_per_lane: int = 0
    ) -> None:
        """Lanes load from or store to one global buffer.

        Args:
            site: memory site.
            buffer: its name (split the call where lanes touch several buffers).
            offsets: (L,) int64 byte offsets into the buffer of the active lanes.
            lanes: (L,) int64 their global lane numbers, ascending.
            write: True for stores (atomics go to `atomic`).
            bytes_per_lane: where it differs from the site's (a `cp.async` with a source size), else 0.
        """
        if offsets.size:
            self._global(site, buffer, offsets, lanes, write, bytes_per_lane, 0.0)

    def global_at(
        self, site: int, buffer: str, place: Place, offset: int, size: int, lanes: Lanes, first: int, *, write: bool
    ) -> None:
        """`global_access` of `size` bytes at addresses plus an offset; `lanes` are numbered from `first` on."""
        record = self._sites[site]
        low = place.low + offset
        key = ("global", size, low % LINE_BYTES)
        known = place.patterns.get(key)
        if known is None:
            offsets = (place.address + np.uint64(offset % (1 << 64))).view(np.int64)
            pattern, _, block = record.patterns.find(offsets, lanes + first, size, shared=False)
            known = place.patterns[key] = (pattern, block)
        else:
            record.patterns.hits += 1
        record.buffer = buffer
        self._touch(record, known[0], low // LINE_BYTES * LINE_BYTES, known[1], lanes.size, write, 0.0)

    def _global(
        self, site: int, buffer: str, offsets: Addresses, lanes: Lanes, write: bool, size: int, serial: float
    ) -> None:
        record = self._sites[site]
        record.buffer = buffer
        pattern, base, block = record.patterns.find(offsets, lanes, size or record.bytes_per_lane, shared=False)
        self._touch(record, pattern, base, block, offsets.size, write, serial)

    def _touch(
        self, record: _Site, pattern: Pattern, base: int, block: int, lanes: int, write: bool, serial: float
    ) -> None:
        """Count an access of a known pattern to the site's buffer, and note the sectors."""
        record.add(pattern, lanes, serial)
        buffer = record.buffer
        target = self._buffers[buffer]
        blocks, sectors = pattern.unique_block + block, pattern.unique + base // SECTOR_BYTES
        if write:
            target.mark_written(blocks, sectors)
            return
        target.mark_read(blocks, sectors, int(self._clock), record.cached_l1)
        if record.cached_l1:
            target.reuse[0] += pattern.sectors - pattern.unique.size  # several warps of the block, at the same time
            self._clock += max(1.0, pattern.unique.size / pattern.blocks)

    def shared_access(self, site: int, offsets: Addresses, lanes: Lanes) -> None:
        """Lanes load from or store to shared memory, 1..16 bytes each (`offsets` (L,) within the block's memory).

        For `ldmatrix`/`stmatrix` of n matrices pass the first 8 * n lanes of each warp, which give the row
        addresses, at a site of 16 bytes per lane: 8 lanes make one phase.
        """
        if not offsets.size:
            return
        record = self._sites[site]
        size = record.bytes_per_lane
        group = self._group.get(site)
        if group is not None and group not in self._apart:
            size *= len(group)
            if site != group[0]:
                return  # counted with the first
            if (offsets % size).any():
                self._apart.add(group)
                size = record.bytes_per_lane
        record.shared(offsets, lanes, size)

    def shared_at(self, site: int, place: Place, offset: int, lanes: Lanes, first: int) -> None:
        """`shared_access` at an address array less a constant offset; `lanes` are numbered from `first` on."""
        record = self._sites[site]
        size, group = record.bytes_per_lane, self._group.get(site)
        if group is not None and group not in self._apart:
            if site != group[0]:
                return  # counted with the first
            size *= len(group)
        key = ("shared", size, offset % LINE_BYTES)
        pattern = place.patterns.get(key)
        if pattern is None or (group is not None and (place.bits | offset) & (size - 1)):
            offsets = place.address.astype(np.int64) + offset
            self.shared_access(site, offsets, lanes + first)
            if group is None or group not in self._apart:
                place.patterns[key] = record.last
            return
        record.patterns.hits += 1
        record.add(pattern, lanes.size)

    def atomic(self, site: int, buffer: str, offsets: Addresses, lanes: Lanes) -> None:
        """Lanes perform an atomic or reduction on global memory, or on shared memory where `buffer` is ""."""
        if not offsets.size:
            return
        serial = float(longest_runs(offsets, lanes).sum())
        if buffer:
            self._global(site, buffer, offsets, lanes, True, 0, serial)
            self._buffers[buffer].hit(offsets)
            return
        record = self._sites[site]
        pattern, _, _ = record.patterns.find(offsets, lanes, record.bytes_per_lane, shared=True)
        record.add(pattern, offsets.size, serial)

    def bulk_access(self, site: int, buffer: str, rows: Addresses, size: int, block: int, *, write: bool) -> None:
        """One bulk copy, issued by simulated block `block`: rows of `size` bytes at offsets `rows` of a buffer."""
        record = self._sites[site]
        record.buffer = buffer
        first, last = rows // SECTOR_BYTES, (rows + size - 1) // SECTOR_BYTES
        lengths = last - first
        count = int(lengths.max()) + 1
        touched = (first[:, None] + np.arange(count)).ravel()
        if (lengths != count - 1).any() or (first[1:] <= last[:-1]).any():  # not rows of sectors of their own, in order
            touched = np.unique(np.minimum(touched.reshape(-1, count), last[:, None]))
        total = size * rows.size
        ideal, fronts = -(-total // SECTOR_BYTES), -(-total // 128)
        record.counts += (1, total / max(1, record.bytes_per_lane), touched.size, fronts, ideal, fronts, 0)
        blocks = np.full(touched.size, block)
        if write:
            self._buffers[buffer].mark_written(blocks, touched)
        else:
            self._buffers[buffer].mark_read(blocks, touched, int(self._clock), cached=False)

    def bulk_accesses(
        self, site: int, buffer: str, rows: Addresses, size: int, blocks: NDArray[np.int64], *, write: bool
    ) -> None:
        """Bulk copies of rows (copies, rows) by simulated blocks (copies,): `bulk_access` of each."""
        first, last = rows // SECTOR_BYTES, (rows + size - 1) // SECTOR_BYTES
        count = int(last[0, 0] - first[0, 0]) + 1
        if (last - first != count - 1).any() or (first[:, 1:] <= last[:, :-1]).any():
            for some, block in zip(rows, blocks.tolist(), strict=True):
                self.bulk_access(site, buffer, some, size, block, write=write)
            return
        record, copies = self._sites[site], rows.shape[0]
        record.buffer = buffer
        touched = (first[:, :, None] + np.arange(count)).reshape(copies, -1)
        total = size * rows.shape[1]
        ideal, fronts = -(-total // SECTOR_BYTES), -(-total // 128)
        lanes = total / max(1, record.bytes_per_lane)
        each = np.array([1, lanes, touched.shape[1], fronts, ideal, fronts, 0])
        record.counts += copies * each
        if write:
            self._buffers[buffer].mark_written(blocks[:, None], touched)
        else:
            self._buffers[buffer].mark_read(blocks[:, None], touched, int(self._clock), cached=False)

    def landed(self, block: int, start: int, size: int, barrier: int, phase: int) -> None:
        """A bulk load of `size` bytes goes to byte `start` of a block's shared memory, counted by an mbarrier."""
        self._landed += size
        self._phases.add((block, barrier, phase))
        self._room[block, start] = size

    def finish(self, traced: Sequence[int] | None = None) -> LaunchCounters:
        """The counters, once all simulated blocks have ended.

        Args:
            traced: warp numbers whose traces to keep; by default up to eight of the block that issued most.

        Raises:
            CounterError: the launch had no simulated blocks.
        """
        if self.blocks_simulated < 1:
            raise CounterError(f"no block of {self.entry!r} was simulated")
        chosen = sorted({int(warp) for warp in traced}) if traced is not None else self._longest()
        return LaunchCounters(
            entry=self.entry,
            blocks_total=self.blocks_total,
            blocks_simulated=self.blocks_simulated,
            warps_per_block=self.warps_per_block,
            code=merged_code(self.code, set(self._group.values()) - self._apart),
            executions=self._executions,
            lane_executions=self._lanes,
            traces=self._traces(chosen),
            sites=tuple(site.frozen() for site in self._sites),
            buffers={name: buffer.frozen() for name, buffer in sorted(self._buffers.items())},
            divergent_branches=float(self._divergent),
            ring=RingCounters(float(self._landed), float(len(self._phases)), float(sum(self._room.values()))),
        )

    def _longest(self) -> list[int]:
        """Up to eight warps, spread evenly, of the simulated block that issued most instructions."""
        lengths = np.array([len(block) for block in self.code], dtype=np.int64)
        issued = (lengths @ self._executions).reshape(self.blocks_simulated, self.warps_per_block).sum(axis=1)
        first = int(issued.argmax()) * self.warps_per_block
        return sorted({first + int(w) for w in np.linspace(0, self.warps_per_block - 1, 8).round()})

    def _traces(self, chosen: Sequence[int]) -> tuple[tuple[int, NDArray[np.int32]], ...]:
        """(warp, basic blocks it issued) of some warps."""
        wanted = np.array(chosen, dtype=np.int64)
        known: dict[int, NDArray[np.bool_]] = {}  # by id of an array of warps, which the log holds
        rows = np.ones((len(self._log), wanted.size), dtype=bool)
        for row, (_, warps) in enumerate(self._log):
            if warps is not None:
                held = known.get(id(warps))
                if held is None:
                    held = known[id(warps)] = np.isin(wanted, warps)
                rows[row] = held
        blocks = np.array([block for block, _ in self._log], dtype=np.int32)
        return tuple((warp, blocks[rows[:, place]][:TRACE_LIMIT]) for place, warp in enumerate(chosen))
