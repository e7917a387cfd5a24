"""Judging accesses by those remembered: which are unordered and conflict, and what is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.faults import Findings
from fitness.devices.simulator.lanes import Context, unravel
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.race_history import ATOMIC, EPOCH, LANE, MANY, WARP_EPOCH, Access, History, Stamps
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.vector_clocks import VectorClocks


class Judge:
    """The part of the race detector that compares and reports (see `Races`)."""

    def __init__(self, sites: list[Site], findings: Findings, memory: Memory, global_shift: int, shift: int) -> None:
        self.sites, self.findings, self.memory = sites, findings, memory
        self.shift, self.global_shift = shift, global_shift
        self.clocks: VectorClocks | None = None
        self.collided: NDArray[np.intp] | None = None
        self.lane_base = 0
        self._stride = 1
        self._numbers: list[int] = []  # linear index of every block that has run

    def _judge(self, history: History, last: Stamps, now: Access, verb: str) -> None:
        """Compare with the last writer or reader of every granule; report conflicts."""
        before = last.take(now.granules)
        recent = self._recent(history, before, now)
        if recent.any():
            recent &= ((before ^ now.stamps) & (LANE | MANY)) != 0  # a lane does not race with itself
        if recent.any():
            self._accuse(history, before, recent, now, verb)

    def _recent(self, history: History, before: Stamps, now: Access) -> NDArray[np.bool_]:
        """Where the access before may not be ordered before this one (of one warp: its warp epoch decides later)."""
        if self.clocks is None:
            recent = before >= now.epochs
            if history.buffer:
                recent |= (before != 0) & (self._block(before) != self._block(now.stamps))
            return np.asarray(recent)
        base = self.lane_base if history.buffer else 0
        warp = ((before & LANE) - base) >> 5
        here = (before != 0) & (warp >= 0)  # of this chunk
        warp = np.where(here, warp, 0)
        cluster = self.clocks.cluster_of
        near = here & (cluster(warp) == cluster(now.viewers))
        loose = self.clocks.unordered(now.viewers, warp, before >> EPOCH)
        loose |= warp == ((now.stamps & LANE) - base) >> 5
        return np.asarray((before != 0) & (~near | loose))

    def _block(self, stamps: Stamps) -> NDArray[np.int64]:
        """Number of the block (over all chunks) a stamp's lane belongs to."""
        return np.asarray((stamps & LANE) // self._stride)

    def _accuse(self, history: History, last: Stamps, recent: NDArray[np.bool_], now: Access, verb: str) -> None:
        """Report those accesses, recent enough to be unordered, that do conflict."""
        site, places = now.site, np.flatnonzero(recent)
        before, after = last[places], now.stamps[places]
        lane_before, lane_after = before & LANE, after & LANE
        conflict = (lane_before != lane_after) | ((before & MANY) != 0)
        same_warp = lane_before >> 5 == lane_after >> 5
        conflict &= ~(same_warp & ((before >> WARP_EPOCH) != (after >> WARP_EPOCH)))
        if site.atomic:
            conflict &= (before & ATOMIC) == 0
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

    def _report(self, history: History, now: Access, place: int, before: np.int64, other: Site, verb: str) -> None:
        context, site = now.context, now.site
        lane = int(context.lanes[place // now.per_lane])
        number = int(before & LANE)
        many = " (and other lanes of its warp)" if before & MANY else ""
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

    def settle(
        self, context: Context, differs: NDArray[np.bool_], site: Site, index: Any, region: Region | None
    ) -> None:
        """Lanes of one instruction wrote one place: a race where their values differ.

        Args:
            context: lanes.
            differs: (n,) where memory holds another value than the lane's.
            site: the instruction.
            index: (n,) or one for all, elements of 2**site.shift bytes in the buffer, or in all blocks' shared memory.
            region: the buffer, None: shared memory.
        """
        if self.collided is None:
            return
        rows = self.collided[differs[self.collided]]
        if not rows.size or self.findings.knows("race", site.line, "collision"):
            return
        row = int(rows[0])
        place = int(np.broadcast_to(index, context.n)[row]) << site.shift
        if region is not None:
            what = self.memory.element(region, place)
        else:
            what = f"shared memory at byte {place % max(1, context.chunk.shared_stride)}"
        message = (
            f"{self.memory.where(context, context.lanes[row])} and another thread write different values to {what}"
        )
        cure = "Let one thread write it, or combine the values first, by an atomic operation or across the warp."
        self.findings.add("race", f"{message} in one instruction", site.line, "collision", suggestion=cure)
