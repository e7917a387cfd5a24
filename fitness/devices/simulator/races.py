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

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.faults import Findings
from fitness.devices.simulator.lanes import Chunk, Context
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.race_history import (
    ATOMIC,
    EPOCH,
    LANE,
    MANY,
    WARP_EPOCH,
    Access,
    History,
    Read,
    Stamps,
    granule_shift,
    spread_granules,
)
from fitness.devices.simulator.race_judge import Judge
from fitness.devices.simulator.regions import GRID_BARRIER, Region
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.vector_clocks import COPY, VectorClocks

_LOG_LIMIT = 512


class Races(Judge):
    """Race detector of one launch (an `Observer` of its memory).

    Args:
        sites: the kernel's memory instructions. findings: where races go. memory: for messages.
        fenced: blocks may order their accesses to global memory by fences of the kernel's own.
        vector: follow the order by vector clocks (mbarriers, clusters) instead of block epochs.
    """

    sees_landing = True

    def __init__(self, sites: list[Site], findings: Findings, memory: Memory, *, fenced: bool, vector: bool) -> None:
        shared, buffers = (
            granule_shift(site for site in sites if site.space in (space, "generic")) for space in ("shared", "global")
        )
        super().__init__(sites, findings, memory, shift=shared, global_shift=buffers)
        self.fenced, self._vector = fenced, vector
        self._stamps: dict[int, tuple[Context, int, Stamps, Any]] = {}
        self._version = 0
        self._buffers: dict[str, History] = {}
        self._arrived = 0  # blocks at the barrier of the grid

    def begin(self, chunk: Chunk) -> None:
        """A new chunk: its shared memory has no history."""
        slots = chunk.blocks.size
        self.epochs: Stamps = np.ones(slots, dtype=np.int64)
        self.warp_epochs: Stamps = np.ones(chunk.live.size // 32, dtype=np.int64)
        self.clocks = VectorClocks(chunk) if self._vector else None
        granules = (slots * chunk.shared_stride >> self.shift) + 1
        self.shared_history = History(granules, "", exclusive=not self._vector)
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
                self.shared_history.met()
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
            epochs = self.clocks.own(context.lanes >> 5) << EPOCH
        else:
            epochs = self.epochs[context.slot] << EPOCH
        stamps = epochs | (self.warp_epochs[context.lanes >> 5] << WARP_EPOCH) | context.lanes
        if len(self._stamps) > 64:
            self._stamps.clear()
        self._stamps[id(context)] = (context, self._version, stamps, epochs)
        return stamps, epochs

    # ---- accesses

    def shared(self, context: Context, relative: NDArray[np.int64], site: Site, bytes_each: int) -> None:
        """Lanes touch shared memory."""
        history = self.shared_history
        self.collided = None
        access = Read(context, relative, bytes_each, site, *self._now(context))
        reads = site.verb == "reads" and not site.atomic
        if self.quiet and reads:
            history.log.append(access)  # nothing has been written since all blocks met at a barrier
            if len(history.log) > _LOG_LIMIT:
                self._share(history)
                self._enter_reads(history)
            return
        if history.exclusive and self._alone(history, access):
            return
        if reads:
            history.log.append(access)
            if len(history.log) > _LOG_LIMIT:
                self._enter_reads(history)
        elif any(read.meets(access) for read in history.log):  # else they cannot race with it
            self._enter_reads(history)
        if site.verb != "reads":
            self.quiet = False
        count = bytes_each >> self.shift
        self._access(history, context, self._granules(history, access), count, site)

    # ---- what nobody else has touched

    def _alone(self, history: History, access: Read) -> bool:
        """Put an access off if each granule it touches is one lane's alone; else nothing more is put off."""
        first = history.log if self.quiet and not history.buffer else []  # reads of which nobody has asked yet
        if access.site.atomic or not all(self._claims(history, one) for one in (*first, access)):
            self._share(history)
            return False
        if access.site.verb == "reads":
            history.log.append(access)
        else:
            history.writes.append(access)
            self.quiet = self.quiet and bool(history.buffer)
        if len(history.log) + len(history.writes) > _LOG_LIMIT:
            self._enter_all(history)
        return True

    def _claims(self, history: History, access: Read) -> bool:
        return history.claim(*self._vector_index(history, access), access.stamps, access.epochs)

    def _vector_index(self, history: History, access: Read) -> tuple[NDArray[np.int64], int]:
        """Place of each lane's access in units of its size, and granules in one."""
        wide = access.bytes_each.bit_length() - 1
        if history.buffer:
            return access.relative >> wide, access.bytes_each >> self.global_shift
        return (access.relative >> wide) + access.context.window("shared", wide), access.bytes_each >> self.shift

    def _enter_all(self, history: History) -> None:
        """Enter what was put off while every granule was one lane's alone."""
        for kind, accesses in (("writer", history.writes), ("reader", history.log)):
            for one in accesses:
                history.enter(kind, *self._vector_index(history, one), one.stamps, one.site)
            accesses.clear()

    def _share(self, history: History) -> None:
        """Lanes share granules: from now on accesses are judged one by one."""
        history.exclusive = False
        for one in history.writes:
            history.enter("writer", *self._vector_index(history, one), one.stamps, one.site)
        history.writes.clear()
        if history.buffer:
            self._enter_reads(history)

    # ---- one by one

    def _granules(self, history: History, access: Read) -> NDArray[np.int64]:
        if history.buffer:
            shift, first = self.global_shift, access.relative
        else:
            context = access.context
            shift, first = self.shift, access.relative + context.window("shared", 0)
        return spread_granules(first >> shift, access.bytes_each >> shift)

    def _enter_reads(self, history: History) -> None:
        for read in history.log:
            count = read.bytes_each >> (self.global_shift if history.buffer else self.shift)
            stamps, epochs = read.stamps, read.epochs
            if count > 1:
                stamps, epochs = np.repeat(stamps, count), np.repeat(epochs, count)
            self._read(history, self._granules(history, read), stamps, epochs, read.site)
        history.log.clear()

    def global_(
        self, context: Context, region: Region, relative: NDArray[np.int64], site: Site, bytes_each: int
    ) -> None:
        """Lanes touch a buffer.

        Not followed: inputs, which cannot be written; module variables (counters and flags, which are polled);
        kernels with fences of their own, which order accesses in ways unseen here.
        """
        self.collided = None
        if region.base == GRID_BARRIER and site.atomic:
            self._arrive(context.n)
        if self.fenced or region.role not in ("output", "workspace"):
            return
        history = self._buffers.get(region.name)
        if history is None:
            granules = (region.size >> self.global_shift) + 1
            history = self._buffers[region.name] = History(granules, region.name, exclusive=not self._vector)
        count = bytes_each >> self.global_shift
        if history.exclusive:
            stamps, epochs = self._now(context)
            stamps = stamps + self.lane_base
            if self._alone(history, Read(context, relative, bytes_each, site, stamps, epochs)):
                return
        self._access(history, context, spread_granules(relative >> self.global_shift, count), count, site)

    def _arrive(self, blocks: int) -> None:
        """Blocks come to the barrier of the grid; with the last one, what they did before is done."""
        self._arrived += blocks
        if self._arrived == len(self._numbers):
            self._arrived = 0
            for history in self._buffers.values():
                history.forget()

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
        stamp = np.int64(tick[1] << EPOCH | tick[0] << 5)
        stamps = np.full(context.n, stamp)
        granules = self._granules(history, Read(context, offsets, size, site, stamps, stamps))
        count = size >> self.shift
        stamps = np.full(granules.size, stamp)
        self.quiet = self.quiet and site.verb == "reads"
        viewers = np.repeat(context.lanes >> 5, count)
        self._enter(history, Access(context, site, granules, count, stamps, stamps, viewers))
        return tick

    def bulk_global(self, one: Context, region: Region, rows: NDArray[np.int64], size: int, site: Site) -> None:
        """A bulk copy of one lane touches rows of `size` bytes of a buffer."""
        if self.fenced or region.role not in ("output", "workspace"):
            return
        step = 1 << self.global_shift
        pieces = (rows[:, None] + np.arange(0, size, step)).ravel()
        self.global_(Context(one.chunk, np.repeat(one.lanes, pieces.size)), region, pieces, site, step)

    def _access(self, history: History, context: Context, granules: NDArray[np.int64], count: int, site: Site) -> None:
        stamps, epochs = self._now(context)
        if history.buffer:
            stamps = stamps + self.lane_base
        viewers = context.lanes >> 5
        if count > 1:
            stamps, epochs, viewers = (np.repeat(x, count) for x in (stamps, epochs, viewers))
        self._enter(history, Access(context, site, granules, count, stamps, epochs, viewers))

    def _enter(self, history: History, now: Access) -> None:
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
        history.writer[granules] = stamps | ATOMIC if site.atomic else stamps
        history.writer_site[granules] = site.index
        if not site.atomic:
            lost = history.writer.take(granules) != stamps
            if lost.any():
                self.collided = np.unique(np.flatnonzero(lost) // count)

    def _read(self, history: History, granules: NDArray[np.int64], stamps: Stamps, epochs: Any, site: Site) -> None:
        old = history.reader.take(granules)
        history.reader[granules] = stamps
        history.reader_site[granules] = site.index
        kept = history.reader.take(granules)
        lost = kept != stamps
        if lost.any():
            where, winner, loser = granules[lost], kept[lost], stamps[lost]
            near = ((winner ^ loser) & LANE) < 32
            near &= (winner & LANE) >> 5 == (loser & LANE) >> 5
            history.reader[where[near]] = winner[near] | MANY
            history.stranger[where[~near]] = loser[~near]
        recent = old >= epochs if self.clocks is None else old != 0
        if recent.any():
            where, before, now = granules[recent], old[recent], stamps[recent]
            near = (before & LANE) >> 5 == (now & LANE) >> 5
            together = near & ((before >> WARP_EPOCH) == (now >> WARP_EPOCH))
            many = together & (((before ^ now) & LANE != 0) | (before & MANY != 0))
            history.reader[where[many]] |= MANY
            history.stranger[where[~near]] = before[~near]
