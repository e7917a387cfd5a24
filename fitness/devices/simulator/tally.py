"""Filling `LaunchCounters` while a launch is simulated.

The engine calls `execute` once per executed basic block (a row increment and a list append), and one of
`global_access`, `shared_access`, `atomic` and `bulk_access` once per executed memory instruction with the
addresses of the active lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.accesses import Access, Accesses
from fitness.devices.simulator.backlog import Backlog, PutOff
from fitness.devices.simulator.coalescing import (
    LINE_BYTES,
    Addresses,
    Lanes,
    Pattern,
    PatternCache,
    longest_runs,
)
from fitness.devices.simulator.counters import (
    SECTOR_BYTES,
    TRACE_LIMIT,
    CounterError,
    LaunchCounters,
    Op,
    RingCounters,
    SiteCounters,
)
from fitness.devices.simulator.footprint import Footprint
from fitness.devices.simulator.merging import Group, merged_code
from fitness.devices.simulator.places import Place

_WORD_BYTES = 4
_LOG_LIMIT = 8 * TRACE_LIMIT
_SEEN_LIMIT = 4096
#: A site with more new patterns than that, and than repeated ones, is irregular: its accesses are put off.
_MISSES = 4


class _Site:
    """Running totals and remembered patterns of one static memory instruction."""

    __slots__ = ("buffer", "bytes_per_lane", "cached_l1", "counts", "kind", "line", "patterns")

    def __init__(self, kind: str, line: int, bytes_per_lane: int, cached_l1: bool, warps_per_block: int) -> None:
        self.kind, self.line, self.bytes_per_lane, self.cached_l1 = kind, line, bytes_per_lane, cached_l1
        self.buffer = ""
        self.counts = np.zeros(7)  # requests, lanes, sectors, wavefronts, ideal sectors, ideal wavefronts, serial
        self.patterns = PatternCache(warps_per_block)

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

    @property
    def irregular(self) -> bool:
        """Whether its patterns hardly repeat."""
        return self.patterns.misses > max(_MISSES, self.patterns.hits)

    def frozen(self) -> SiteCounters:
        counts = (float(count) for count in self.counts)
        return SiteCounters(self.kind, self.line, self.bytes_per_lane, self.buffer, self.cached_l1, *counts)


class _Executed:
    """How often a group's warps (None: all) issued a basic block, and with how many lanes in all."""

    __slots__ = ("lanes", "times", "warps")

    def __init__(self, warps: NDArray[np.int64] | None) -> None:
        self.warps, self.times, self.lanes = warps, 0, 0


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
        self._seen: dict[tuple[int, int], _Executed] = {}  # by basic block and id of the warps, not yet added
        self._sites = [_Site(*site, warps_per_block) for site in sites]
        self._buffers = {name: Footprint(size, blocks_simulated) for name, size in buffers.items()}
        self._log: list[tuple[int, NDArray[np.int64] | None]] = []
        self._accesses, self._backlog = Accesses(warps_per_block), Backlog()
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
        key = (block, id(warps))
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _SEEN_LIMIT:
                self._add_executed()
            seen = self._seen[key] = _Executed(warps)
        seen.times += 1
        seen.lanes += lanes
        if len(self._log) < _LOG_LIMIT:
            self._log.append((block, warps))

    def _add_executed(self) -> None:
        """Add what groups have issued to the counts of their warps."""
        for (block, _), seen in self._seen.items():
            if seen.warps is None:
                self._executions[block] += seen.times
            else:
                self._executions[block, seen.warps] += seen.times
            self._lanes[block] += seen.lanes
        self._seen.clear()

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
            self._global(site, buffer, offsets, lanes, write, bytes_per_lane)

    def global_at(
        self, site: int, buffer: str, place: Place, offset: int, size: int, lanes: Lanes, first: int, *, write: bool
    ) -> None:
        """`global_access` of `size` bytes at addresses plus an offset; `lanes` are numbered from `first` on."""
        record, target = self._sites[site], self._buffers[buffer]
        record.buffer = buffer
        low = place.low + offset
        key = ("global", size, low % LINE_BYTES)
        known = place.patterns.get(key)
        if known is not None:
            record.patterns.hits += 1
        elif record.irregular:
            offsets = (place.address + np.uint64(offset % (1 << 64))).view(np.int64)
            self._put_off(Access(record.counts, target, record.cached_l1, write, size), offsets, lanes + first)
            return
        else:
            offsets = (place.address + np.uint64(offset % (1 << 64))).view(np.int64)
            pattern, _, block = record.patterns.find(offsets, lanes + first, size, shared=False)
            known = place.patterns[key] = (pattern, block)
        self._touch(record, target, known[0], low // LINE_BYTES * LINE_BYTES, known[1], lanes.size, write)

    def _global(self, site: int, buffer: str, offsets: Addresses, lanes: Lanes, write: bool, size: int) -> None:
        record, target = self._sites[site], self._buffers[buffer]
        record.buffer = buffer
        size = size or record.bytes_per_lane
        if record.irregular:
            self._put_off(Access(record.counts, target, record.cached_l1, write, size), offsets, lanes)
            return
        pattern, base, block = record.patterns.find(offsets, lanes, size, shared=False)
        self._touch(record, target, pattern, base, block, offsets.size, write)

    def _put_off(self, access: Access, offsets: Addresses, lanes: Lanes) -> None:
        """Keep an access of a site whose patterns hardly repeat."""
        self._accesses.add(access, offsets, lanes)
        if self._accesses.full:
            self._catch_up()

    def _catch_up(self) -> None:
        """Count the accesses that were put off."""
        self._clock = self._accesses.count(self._clock)

    def _touch(
        self, record: _Site, buffer: Footprint, pattern: Pattern, base: int, block: int, lanes: int, write: bool
    ) -> None:
        """Count an access of a known pattern to a buffer, and note the sectors."""
        record.add(pattern, lanes)
        if self._accesses and not write:  # after those that were put off
            access = Access(record.counts, buffer, record.cached_l1, write, 0)
            self._accesses.add_known(access, pattern, base // SECTOR_BYTES, block)
            if self._accesses.full:
                self._catch_up()
            return
        blocks, sectors = pattern.unique_block + block, pattern.unique + base // SECTOR_BYTES
        if write:
            buffer.mark_written(blocks, sectors)
            return
        buffer.mark_read(blocks, sectors, int(self._clock), record.cached_l1)
        if record.cached_l1:
            buffer.reuse[0] += pattern.sectors - pattern.unique.size  # several warps of the block, at the same time
            self._clock += max(1.0, pattern.unique.size / pattern.blocks)

    def shared_access(self, site: int, offsets: Addresses, lanes: Lanes) -> None:
        """Lanes load from or store to shared memory, 1..16 bytes each (`offsets` (L,) within the block's memory).

        For `ldmatrix`/`stmatrix` of n matrices pass the first 8 * n lanes of each warp, which give the row
        addresses, at a site of 16 bytes per lane: 8 lanes make one phase.
        """
        if offsets.size:
            self._shared(site, offsets, lanes)

    def _shared(self, site: int, offsets: Addresses, lanes: Lanes) -> Pattern | PutOff | None:
        """Count an access to shared memory; what was found, None where another instruction's holds it."""
        record = self._sites[site]
        size = record.bytes_per_lane
        group = self._group.get(site)
        if group is not None and group not in self._apart:
            size *= len(group)
            if site != group[0]:
                return None  # counted with the first
            if (offsets % size).any():
                self._apart.add(group)
                size = record.bytes_per_lane
        if record.irregular:
            kept = self._backlog.add(offsets, lanes, size)
            kept.charge(record.counts)
            return kept
        pattern, _, _ = record.patterns.find(offsets, lanes, size, shared=True)
        record.add(pattern, offsets.size)
        return pattern

    def shared_at(self, site: int, place: Place, offset: int, lanes: Lanes, first: int) -> None:
        """`shared_access` at an address array less a constant offset; `lanes` are numbered from `first` on."""
        record = self._sites[site]
        size, group = record.bytes_per_lane, self._group.get(site)
        if group is not None and group not in self._apart:
            if site != group[0]:
                return  # counted with the first
            size *= len(group)
        key = ("shared", size, offset % max(_WORD_BYTES, size))  # whole words further, other banks are as busy
        known = place.patterns.get(key)
        if known is None or (group is not None and (place.bits | offset) & (size - 1)):
            found = self._shared(site, place.address.astype(np.int64) + offset, lanes + first)
            if group is None or group not in self._apart:
                place.patterns[key] = found
            return
        record.patterns.hits += 1
        if isinstance(known, PutOff):
            known.charge(record.counts)
        else:
            record.add(known, lanes.size)

    def atomic(self, site: int, buffer: str, offsets: Addresses, lanes: Lanes) -> None:
        """Lanes perform an atomic or reduction on global memory, or on shared memory where `buffer` is ""."""
        if not offsets.size:
            return
        serial = float(longest_runs(offsets, lanes).sum())
        if buffer:
            self._global(site, buffer, offsets, lanes, True, 0)
            self._sites[site].counts[6] += serial
            self._buffers[buffer].hit(offsets)
            return
        record = self._sites[site]
        pattern, _, _ = record.patterns.find(offsets, lanes, record.bytes_per_lane, shared=True)
        record.add(pattern, offsets.size, serial)

    def bulk_access(self, site: int, buffer: str, rows: Addresses, size: int, block: int, *, write: bool) -> None:
        """One bulk copy, issued by simulated block `block`: rows of `size` bytes at offsets `rows` of a buffer."""
        self._catch_up()
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
        self._catch_up()
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
        self._catch_up()
        self._backlog.count()
        self._add_executed()
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
