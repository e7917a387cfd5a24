"""Data races: two unordered accesses to the same memory by different threads, one of them a plain write.

Lanes run in lockstep here, so a missing barrier seldom shows in the results; this detector finds it from the
order that barriers guarantee. For every granule of memory it keeps the last writer, the last reader, and a
reader of another warp, each stamped with block epoch (barriers its block has passed), warp epoch
(`__syncwarp`s its warp has passed) and lane. Two accesses by different lanes are ordered if the block epoch
has changed in between, or if they are of one warp and its warp epoch has.

A granule is as small as the kernel's narrowest access to the memory in question (2 bytes for halves), and as
large as that allows. Atomic (and volatile or relaxed) accesses race with plain ones only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.faults import Findings
from fitness.devices.simulator.lanes import Chunk, Context
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.sites import Site

Stamps = NDArray[np.int64]

_EPOCH = 44  # bits above: block epoch
_WARP_EPOCH = 24  # 20 bits: warp epoch
_MANY = np.int64(1 << 23)  # several lanes of the warp read it
_ATOMIC = np.int64(1 << 22)
_LANE = np.int64((1 << 22) - 1)


class _History:
    """Last accesses to every granule of one memory."""

    def __init__(self, granules: int, *, readers: bool = True) -> None:
        self.writer: Stamps = np.zeros(granules, dtype=np.int64)
        self.writer_site: NDArray[np.int32] = np.zeros(granules, dtype=np.int32)
        held = granules if readers else 0
        self.reader: Stamps = np.zeros(held, dtype=np.int64)
        self.reader_site: NDArray[np.int32] = np.zeros(held, dtype=np.int32)
        self.stranger: Stamps = np.zeros(held, dtype=np.int64)  # a reader of another warp than `reader`'s


class Races:
    """Race detector of one launch (an `Observer` of its memory).

    Args:
        sites: the kernel's memory instructions. findings: where races go. memory: for messages.
        fenced: the kernel holds memory fences, with which blocks may order their accesses to global memory.
    """

    sees_landing = True

    def __init__(self, sites: list[Site], findings: Findings, memory: Memory, *, fenced: bool) -> None:
        self.sites, self.findings, self.memory, self.fenced = sites, findings, memory, fenced
        self.shift = _granule_shift(s for s in sites if s.space in ("shared", "generic"))
        self.global_shift = _granule_shift(s for s in sites if s.space in ("global", "generic"))
        self.collided: NDArray[np.intp] | None = None
        self._stamps: dict[int, tuple[Context, int, Stamps, Any]] = {}
        self._version = 0

    def begin(self, chunk: Chunk) -> None:
        """A new chunk: its shared memory has no history."""
        slots = chunk.blocks.size
        self.epochs: Stamps = np.ones(slots, dtype=np.int64)
        self.warp_epochs: Stamps = np.ones(chunk.live.size // 32, dtype=np.int64)
        self.shared_history = _History((slots * chunk.shared_stride >> self.shift) + 1)
        self._stamps.clear()
        self._version = 0

    # ---- order

    def block_barrier(self, slots: NDArray[np.bool_] | None) -> None:
        """A barrier of all blocks (None) or of some completed."""
        if slots is None:
            self.epochs += 1
        else:
            self.epochs[slots] += 1
        self._version += 1

    def warp_barrier(self, warps: NDArray[np.int64]) -> None:
        """`__syncwarp` of these warps completed."""
        self.warp_epochs[warps] += 1
        self._version += 1

    def _now(self, context: Context) -> tuple[Stamps, Any]:
        """Stamp of each lane, and the smallest stamp of its present block epoch."""
        found = self._stamps.get(id(context))
        if found is not None and found[0] is context and found[1] == self._version:
            return found[2], found[3]
        epochs = self.epochs[context.slot] << _EPOCH
        stamps = epochs | (self.warp_epochs[context.lanes >> 5] << _WARP_EPOCH) | context.lanes
        if len(self._stamps) > 64:
            self._stamps.clear()
        self._stamps[id(context)] = (context, self._version, stamps, epochs)
        return stamps, epochs

    # ---- accesses

    def shared(self, context: Context, relative: NDArray[np.int64], site: Site, bytes_each: int) -> None:
        """Lanes touch shared memory."""
        first = (relative + context.slot * context.chunk.shared_stride) >> self.shift
        count = bytes_each >> self.shift
        self._access(self.shared_history, context, _spread(first, count), count, site)

    def global_(
        self, context: Context, region: Region, relative: NDArray[np.int64], site: Site, bytes_each: int
    ) -> None:
        """Lanes touch a buffer: not followed."""

    def _access(self, history: _History, context: Context, granules: NDArray[np.int64], count: int, site: Site) -> None:
        stamps, epochs = self._now(context)
        if count > 1:
            stamps, epochs = np.repeat(stamps, count), np.repeat(epochs, count)
        self.collided = None
        writes = site.verb != "reads"
        suspects = history.writer.take(granules)
        recent = suspects >= epochs
        if recent.any():
            self._accuse(context, suspects, recent, stamps, history.writer_site, granules, count, site, "written")
        if not writes:
            if not site.atomic:
                self._read(history, granules, stamps, epochs, site)
            return
        for readers in (history.reader, history.stranger):
            suspects = readers.take(granules)
            recent = suspects >= epochs
            if recent.any():
                self._accuse(context, suspects, recent, stamps, history.reader_site, granules, count, site, "read")
        history.writer[granules] = stamps | _ATOMIC if site.atomic else stamps
        history.writer_site[granules] = site.index
        if not site.atomic:
            lost = history.writer.take(granules) != stamps
            if lost.any():
                self.collided = np.unique(np.flatnonzero(lost) // count)

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
        recent = old >= epochs
        if recent.any():
            where, before, now = granules[recent], old[recent], stamps[recent]
            near = (before & _LANE) >> 5 == (now & _LANE) >> 5
            together = near & ((before >> _WARP_EPOCH) == (now >> _WARP_EPOCH))
            many = together & (((before ^ now) & _LANE != 0) | (before & _MANY != 0))
            history.reader[where[many]] |= _MANY
            history.stranger[where[~near]] = before[~near]

    def _accuse(
        self,
        context: Context,
        suspects: Stamps,
        recent: NDArray[np.bool_],
        stamps: Stamps,
        other_sites: NDArray[np.int32],
        granules: NDArray[np.int64],
        count: int,
        site: Site,
        verb: str,
    ) -> None:
        """Report those accesses of the present epoch that are unordered and conflict."""
        places = np.flatnonzero(recent)
        before, now = suspects[places], stamps[places]
        lane_before, lane_now = before & _LANE, now & _LANE
        conflict = (lane_before != lane_now) | ((before & _MANY) != 0)
        same_warp = lane_before >> 5 == lane_now >> 5
        conflict &= ~(same_warp & ((before >> _WARP_EPOCH) != (now >> _WARP_EPOCH)))
        if site.atomic:
            conflict &= (before & _ATOMIC) == 0
        if not conflict.any():
            return
        first = int(np.argmax(conflict))
        other = self.sites[int(other_sites[granules[places[first]]])]
        if self.findings.knows("race", site.line, f"shared {other.line}"):
            return
        lane = context.lanes[places[first] // count]
        one, two = self.memory.where(context, lane), self.memory.where(context, int(lane_before[first]))
        address = int(granules[places[first]] << self.shift) % max(1, context.chunk.shared_stride)
        many = " (and other lanes of its warp)" if before[first] & _MANY else ""
        self.findings.add(
            "race",
            f"{one} {site.verb} shared memory at byte {address} that {two.split(' of block')[0]}{many} has {verb} "
            f"at line {other.line} with no barrier in between",
            site.line,
            f"shared {other.line}",
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
                f"{self.memory.where(context, lane)} and another thread write different values to the same shared "
                "memory in one instruction",
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
