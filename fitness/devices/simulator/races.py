"""Data races: two unordered accesses to the same memory by different threads, one of them a plain write.

Lanes run in lockstep here, so a missing barrier seldom shows in the results; this detector finds it from the
order that barriers guarantee. For every granule of memory it keeps the last writer, the last reader, and a
reader of another warp, each stamped with block epoch (barriers its block has passed), warp epoch
(`__syncwarp`s its warp has passed) and lane. Two accesses by different lanes are ordered if the block epoch
has changed in between, or if they are of one warp and its warp epoch has.

Kernels that synchronise by mbarriers or in clusters are followed with vector clocks instead (vector_clocks.py).

A granule is as small as the kernel's narrowest access to the memory in question (2 bytes for halves), and as
large as that allows. Atomic (and volatile or relaxed) accesses race with plain ones only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.faults import Findings
from fitness.devices.simulator.lanes import Chunk, Context, unravel
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.vector_clocks import COPY, VectorClocks

Stamps = NDArray[np.int64]

_EPOCH = 44  # bits above: block epoch
_WARP_EPOCH = 24  # 20 bits: warp epoch
_MANY = np.int64(1 << 23)  # several lanes of the warp read it
_ATOMIC = np.int64(1 << 22)
_LANE = np.int64((1 << 22) - 1)
_LOG_LIMIT = 512


class _History:
    """Last accesses to every granule of one memory: a buffer by name, or all shared memory ("")."""

    def __init__(self, granules: int, buffer: str) -> None:
        self.buffer = buffer
        self.writer: Stamps = np.zeros(granules, dtype=np.int64)
        self.writer_site: NDArray[np.int32] = np.zeros(granules, dtype=np.int32)
        self.reader: Stamps = np.zeros(granules, dtype=np.int64)
        self.reader_site: NDArray[np.int32] = np.zeros(granules, dtype=np.int32)
        self.stranger: Stamps = np.zeros(granules, dtype=np.int64)  # a reader of another warp than `reader`'s
        #: Reads not entered yet: most are forgotten at the next barrier, before any write could race with them.
        self.log: list[_Read] = []


class _Read(NamedTuple):
    """A read that is yet to be entered into the history."""

    context: Context
    relative: NDArray[np.int64]
    bytes_each: int
    site: Site
    stamps: Stamps
    epochs: Stamps


class _Access(NamedTuple):
    """One executed access.

    Per granule its stamp, the smallest stamp of the lane's block epoch, and the warp that makes it.
    """

    context: Context
    site: Site
    granules: NDArray[np.int64]
    per_lane: int
    stamps: Stamps
    epochs: Stamps
    viewers: Stamps


class Races:
    """Race detector of one launch (an `Observer` of its memory).

    Args:
        sites: the kernel's memory instructions. findings: where races go. memory: for messages.
        fenced: the kernel holds memory fences, with which blocks may order their accesses to global memory.
        vector: follow the order by vector clocks (mbarriers, clusters) instead of block epochs.
    """

    sees_landing = True

    def __init__(self, sites: list[Site], findings: Findings, memory: Memory, *, fenced: bool, vector: bool) -> None:
        self.sites, self.findings, self.memory, self.fenced = sites, findings, memory, fenced
        self._vector = vector
        self.clocks: VectorClocks | None = None
        self.shift = _granule_shift(s for s in sites if s.space in ("shared", "generic"))
        self.global_shift = _granule_shift(s for s in sites if s.space in ("global", "generic"))
        self.collided: NDArray[np.intp] | None = None
        self._stamps: dict[int, tuple[Context, int, Stamps, Any]] = {}
        self._version = 0
        self._buffers: dict[str, _History] = {}
        self._numbers: list[int] = []  # linear index of every block that has run

    def begin(self, chunk: Chunk) -> None:
        """A new chunk: its shared memory has no history."""
        slots = chunk.blocks.size
        self.epochs: Stamps = np.ones(slots, dtype=np.int64)
        self.warp_epochs: Stamps = np.ones(chunk.live.size // 32, dtype=np.int64)
        self.clocks = VectorClocks(chunk) if self._vector else None
        self.shared_history = _History((slots * chunk.shared_stride >> self.shift) + 1, "")
        self.lane_base = len(self._numbers) * chunk.stride
        self._stride = chunk.stride
        self._numbers += chunk.blocks.tolist()
        self._stamps.clear()
        self._version = 0
        self.quiet = True

    # ---- order

    def block_barrier(self, slots: NDArray[np.bool_] | None) -> None:
        """A barrier of all blocks (None) or of some completed."""
        if self.clocks is not None:
            self.clocks.blocks(slots)
        if slots is None:
            self.epochs += 1
            if self.clocks is None:  # else copies, products and other blocks of a cluster have not met them
                self.shared_history.log.clear()
                self.quiet = True
        else:
            self.epochs[slots] += 1
        self._version += 1

    def cluster_barrier(self, slots: NDArray[np.bool_], size: int) -> None:
        """A barrier of clusters of `size` blocks completed."""
        self.epochs[slots] += 1
        self._version += 1
        assert self.clocks is not None
        self.clocks.blocks(slots, size)

    def ordered_anew(self) -> VectorClocks:
        """The clocks, which the caller is about to change."""
        assert self.clocks is not None
        self._version += 1
        return self.clocks

    def warp_barrier(self, warps: NDArray[np.int64]) -> None:
        """`__syncwarp` of these warps completed."""
        self.warp_epochs[warps] += 1
        self._version += 1

    def _now(self, context: Context) -> tuple[Stamps, Any]:
        """Stamp of each lane, and the smallest stamp of its present block epoch."""
        found = self._stamps.get(id(context))
        if found is not None and found[0] is context and found[1] == self._version:
            return found[2], found[3]
        if self.clocks is not None:
            epochs = self.clocks.own(context.lanes >> 5) << _EPOCH
        else:
            epochs = self.epochs[context.slot] << _EPOCH
        stamps = epochs | (self.warp_epochs[context.lanes >> 5] << _WARP_EPOCH) | context.lanes
        if len(self._stamps) > 64:
            self._stamps.clear()
        self._stamps[id(context)] = (context, self._version, stamps, epochs)
        return stamps, epochs

    # ---- accesses

    def shared(self, context: Context, relative: NDArray[np.int64], site: Site, bytes_each: int) -> None:
        """Lanes touch shared memory."""
        history = self.shared_history
        self.collided = None
        if site.verb == "reads" and not site.atomic:
            history.log.append(_Read(context, relative, bytes_each, site, *self._now(context)))
            if len(history.log) > _LOG_LIMIT:
                self._enter_reads(history)
            if self.quiet:
                return  # nothing has been written since all blocks met at a barrier
        elif history.log:
            self._enter_reads(history)
        if site.verb != "reads":
            self.quiet = False
        count = bytes_each >> self.shift
        self._access(history, context, self._granules(context, relative, bytes_each), count, site)

    def _granules(self, context: Context, relative: NDArray[np.int64], bytes_each: int) -> NDArray[np.int64]:
        first = (relative + context.slot * context.chunk.shared_stride) >> self.shift
        return _spread(first, bytes_each >> self.shift)

    def _enter_reads(self, history: _History) -> None:
        for read in history.log:
            count = read.bytes_each >> self.shift
            stamps, epochs = read.stamps, read.epochs
            if count > 1:
                stamps, epochs = np.repeat(stamps, count), np.repeat(epochs, count)
            granules = self._granules(read.context, read.relative, read.bytes_each)
            self._read(history, granules, stamps, epochs, read.site)
        history.log.clear()

    def global_(
        self, context: Context, region: Region, relative: NDArray[np.int64], site: Site, bytes_each: int
    ) -> None:
        """Lanes touch a buffer.

        Not followed: inputs, which cannot be written; module variables (counters and flags, which are polled);
        kernels with fences, which order accesses in ways unseen here.
        """
        self.collided = None
        if self.fenced or region.role not in ("output", "workspace"):
            return
        history = self._buffers.get(region.name)
        if history is None:
            history = self._buffers[region.name] = _History((region.size >> self.global_shift) + 1, region.name)
        count = bytes_each >> self.global_shift
        self._access(history, context, _spread(relative >> self.global_shift, count), count, site)

    def bulk(
        self, one: Context, slot: int, offsets: NDArray[np.int64], site: Site, kind: int | None = None
    ) -> tuple[int, int] | None:
        """A bulk copy or a product of one lane touches shared memory of the block at `slot`, 16 bytes at each offset.

        Args:
            one: the lane that issues it.
            slot: place of the block in the chunk.
            offsets: of the pieces.
            site: the instruction.
            kind: whose pseudo warp does it (`COPY`, `PRODUCT`), None for the lane itself.

        Returns:
            pseudo warp and clock of the access, None without vector clocks or `kind`.
        """
        return self._pieces(Context(one.chunk, np.repeat(one.lanes, offsets.size)), slot, offsets, 16, site, kind)

    def asynchronous(
        self, context: Context, slot: int, offsets: NDArray[np.int64], site: Site
    ) -> tuple[int, int] | None:
        """`st.async` or `red.async` of lanes changes shared memory of the block at `slot`; result as of `bulk`."""
        return self._pieces(Context(context.chunk, context.lanes), slot, offsets, site.bytes, site, COPY)

    def _pieces(
        self, context: Context, slot: int, offsets: NDArray[np.int64], size: int, site: Site, kind: int | None
    ) -> tuple[int, int] | None:
        """Accesses of `size` bytes at offsets into the memory of the block at `slot`, made by a pseudo warp."""
        context.__dict__["slot"] = np.full(offsets.size, slot, dtype=np.int64)
        if self.clocks is None or kind is None:
            self.shared(context, offsets, site, size)
            return None
        history = self.shared_history
        if history.log:
            self._enter_reads(history)
        tick = self.clocks.pseudo(kind, slot)
        stamp = np.int64(tick[1] << _EPOCH | tick[0] << 5)
        granules = self._granules(context, offsets, size)
        count = size >> self.shift
        stamps = np.full(granules.size, stamp)
        self.quiet = self.quiet and site.verb == "reads"
        viewers = np.repeat(context.lanes >> 5, count)
        self._enter(history, _Access(context, site, granules, count, stamps, stamps, viewers))
        return tick

    def bulk_global(self, one: Context, region: Region, rows: NDArray[np.int64], size: int, site: Site) -> None:
        """A bulk copy of one lane touches rows of `size` bytes of a buffer."""
        if self.fenced or region.role not in ("output", "workspace"):
            return
        step = 1 << self.global_shift
        pieces = (rows[:, None] + np.arange(0, size, step)).ravel()
        self.global_(Context(one.chunk, np.repeat(one.lanes, pieces.size)), region, pieces, site, step)

    def _access(self, history: _History, context: Context, granules: NDArray[np.int64], count: int, site: Site) -> None:
        stamps, epochs = self._now(context)
        if history.buffer:
            stamps = stamps + self.lane_base
        viewers = context.lanes >> 5
        if count > 1:
            stamps, epochs, viewers = (np.repeat(x, count) for x in (stamps, epochs, viewers))
        self._enter(history, _Access(context, site, granules, count, stamps, epochs, viewers))

    def _enter(self, history: _History, now: _Access) -> None:
        """Judge an access by those before it, and remember it."""
        site, granules, count, stamps = now.site, now.granules, now.per_lane, now.stamps
        self.collided = None
        self._judge(history, history.writer, now, "written")
        if site.verb == "reads":
            if not site.atomic and (history.buffer or (self.clocks is not None and stamps is now.epochs)):
                self._read(history, granules, stamps, now.epochs, site)
            return
        self._judge(history, history.reader, now, "read")
        self._judge(history, history.stranger, now, "read")
        history.writer[granules] = stamps | _ATOMIC if site.atomic else stamps
        history.writer_site[granules] = site.index
        if not site.atomic:
            lost = history.writer.take(granules) != stamps
            if lost.any():
                self.collided = np.unique(np.flatnonzero(lost) // count)

    def _judge(self, history: _History, last: Stamps, now: _Access, verb: str) -> None:
        """Compare with the last writer or reader of every granule; report conflicts."""
        before = last.take(now.granules)
        recent = self._recent(history, before, now)
        if recent.any():
            self._accuse(history, before, recent, now, verb)

    def _recent(self, history: _History, before: Stamps, now: _Access) -> NDArray[np.bool_]:
        """Where the access before may not be ordered before this one (of one warp: its warp epoch decides later)."""
        if self.clocks is None:
            recent = before >= now.epochs
            if history.buffer:
                recent |= (before != 0) & (self._block(before) != self._block(now.stamps))
            return np.asarray(recent)
        base = self.lane_base if history.buffer else 0
        warp = ((before & _LANE) - base) >> 5
        here = (before != 0) & (warp >= 0)  # of this chunk
        warp = np.where(here, warp, 0)
        cluster = self.clocks.cluster_of
        near = here & (cluster(warp) == cluster(now.viewers))
        loose = self.clocks.unordered(now.viewers, warp, before >> _EPOCH)
        loose |= warp == ((now.stamps & _LANE) - base) >> 5
        return np.asarray((before != 0) & (~near | loose))

    def _block(self, stamps: Stamps) -> NDArray[np.int64]:
        """Number of the block (over all chunks) a stamp's lane belongs to."""
        return np.asarray((stamps & _LANE) // self._stride)

    def _read(self, history: _History, granules: NDArray[np.int64], stamps: Stamps, epochs: Any, site: Site) -> None:
        old = history.reader.take(granules)
        history.reader[granules] = stamps
        history.reader_site[granules] = site.index
        kept = history.reader.take(granules)
        lost = kept != stamps
        if lost.any():
            where, winner, loser = granules[lost], kept[lost], stamps[lost]
            near = ((winner ^ loser) & _LANE) < 32
            near &= (winner & _LANE) >> 5 == (loser & _LANE) >> 5
            history.reader[where[near]] = winner[near] | _MANY
            history.stranger[where[~near]] = loser[~near]
        recent = old >= epochs if self.clocks is None else old != 0
        if recent.any():
            where, before, now = granules[recent], old[recent], stamps[recent]
            near = (before & _LANE) >> 5 == (now & _LANE) >> 5
            together = near & ((before >> _WARP_EPOCH) == (now >> _WARP_EPOCH))
            many = together & (((before ^ now) & _LANE != 0) | (before & _MANY != 0))
            history.reader[where[many]] |= _MANY
            history.stranger[where[~near]] = before[~near]

    def _accuse(self, history: _History, last: Stamps, recent: NDArray[np.bool_], now: _Access, verb: str) -> None:
        """Report those accesses, recent enough to be unordered, that do conflict."""
        site, places = now.site, np.flatnonzero(recent)
        before, after = last[places], now.stamps[places]
        lane_before, lane_after = before & _LANE, after & _LANE
        conflict = (lane_before != lane_after) | ((before & _MANY) != 0)
        same_warp = lane_before >> 5 == lane_after >> 5
        conflict &= ~(same_warp & ((before >> _WARP_EPOCH) != (after >> _WARP_EPOCH)))
        if site.atomic:
            conflict &= (before & _ATOMIC) == 0
        if verb == "written" and self.memory.changes is not None and conflict.any():
            conflict &= self.memory.changes()[places // now.per_lane]  # the same value again harms nobody
        if not conflict.any():
            return
        first = int(np.argmax(conflict))
        place = int(places[first])
        sites = history.writer_site if verb == "written" else history.reader_site
        other = self.sites[int(sites[now.granules[place]])]
        if self.findings.knows("race", site.line, f"{history.buffer} {other.line}"):
            return
        self._report(history, now, place, before[first], other, verb)

    def _report(self, history: _History, now: _Access, place: int, before: np.int64, other: Site, verb: str) -> None:
        context, site = now.context, now.site
        lane = int(context.lanes[place // now.per_lane])
        number = int(before & _LANE)
        many = " (and other lanes of its warp)" if before & _MANY else ""
        if history.buffer:
            region = next(r for r in self.memory.regions if r.name == history.buffer)
            what = self.memory.element(region, int(now.granules[place]) << self.global_shift)
            block = self._numbers[number // self._stride]
            own = block == int(context.chunk.blocks[lane // self._stride])
            who = f"thread {unravel(number % self._stride, context.chunk.block)}"
            who += "" if own else f" of block {unravel(block, context.chunk.grid)}"
            cure = "with no barrier in between" if own else "and nothing orders the two blocks"
            suggestion = (
                ""
                if own
                else "Use atomics, or give every block its own part of a workspace and add in a second launch."
            )
        else:
            what = (
                f"shared memory at byte {int(now.granules[place] << self.shift) % max(1, context.chunk.shared_stride)}"
            )
            who = f"thread {context.chunk.position(number % context.chunk.live.size)[1]}"
            if number >= context.chunk.live.size:  # a pseudo warp of the vector clocks
                copies = number < context.chunk.live.size + 32 * context.chunk.blocks.size
                who = "a bulk copy" if copies else "a wgmma"
            cure, suggestion = "with no barrier in between", ""
            if self.clocks is not None:
                cure = "and nothing orders the two"
        self.findings.add(
            "race",
            f"{self.memory.where(context, lane)} {site.verb} {what} that {who}{many} has {verb} "
            f"at line {other.line} {cure}",
            site.line,
            f"{history.buffer} {other.line}",
            suggestion=suggestion,
        )

    def settle(self, context: Context, differs: NDArray[np.bool_], site: Site) -> None:
        """Lanes of one instruction wrote one place: a race where their values differ."""
        if self.collided is None:
            return
        rows = self.collided[differs[self.collided]]
        if rows.size and not self.findings.knows("race", site.line, "collision"):
            lane = context.lanes[int(rows[0])]
            self.findings.add(
                "race",
                f"{self.memory.where(context, lane)} and another thread write different values to the same place "
                "in one instruction",
                site.line,
                "collision",
            )


def _granule_shift(sites: Iterable[Site]) -> int:
    return min((s.shift for s in sites), default=4)


def _spread(first: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Granules of accesses that cover `count` each."""
    if count == 1:
        return first
    return np.asarray((first[:, None] + np.arange(count)).reshape(-1))
