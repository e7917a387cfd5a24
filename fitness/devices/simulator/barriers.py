"""Barriers: lanes parked at `bar.sync`, `barrier.sync`, `bar.red` and `bar.warp.sync` until theirs is complete.

A block-wide barrier completes when all threads of the block that have not exited are there (as on hardware
since Volta), one with a thread count when that many are. Every completed barrier orders the memory accesses of
its whole block for the race detector; a named barrier among some warps is treated alike, so a race between
warps that do not take part can be missed, never invented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.faults import Stop, finding
from fitness.devices.simulator.lanes import WARP, Chunk, Context, Value, gather

Reduction = tuple[str, Value, int]


@dataclass
class _Parked:
    """A group at a barrier. `number` and `count` per lane; `target` and `values`: where it goes on."""

    context: Context
    number: NDArray[np.int64]
    count: NDArray[np.int64]
    aligned: bool
    line: int
    target: int
    values: tuple[Value, ...]
    reduction: Reduction | None


class Barriers:
    """Barrier state of the chunk under way."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.parked: list[_Parked] = []
        self.warps: list[tuple[Context, Any, int, int, tuple[Value, ...]]] = []
        self.arrivals: dict[int, NDArray[np.int64]] = {}
        self.chunk: Chunk | None = None

    @property
    def waiting(self) -> bool:
        """Whether any lane is parked."""
        return bool(self.parked or self.warps)

    def begin(self, chunk: Chunk) -> None:
        """A new chunk."""
        self.parked, self.warps, self.arrivals, self.chunk = [], [], {}, chunk

    # ---- arrival

    def arrive(
        self,
        context: Context,
        number: Value,
        count: Value,
        aligned: bool,
        line: int,
        target: int,
        values: tuple[Value, ...],
        reduction: Reduction | None = None,
    ) -> Any:
        """Lanes reach a barrier; they go on at once if everybody is here, else they are parked."""
        chunk = context.chunk
        uniform = not isinstance(number, np.ndarray)
        if context.n == chunk.live_count and uniform and count is None and reduction is None and not self.arrivals:
            self._completed(None)
            return target, values
        numbers = np.broadcast_to(np.asarray(number, dtype=np.int64), context.n)
        counts = np.broadcast_to(np.asarray(0 if count is None else count, dtype=np.int64), context.n)
        self.parked.append(_Parked(context, numbers, counts, aligned, line, target, values, reduction))
        if sum(p.context.n for p in self.parked) == chunk.live_count:
            self.release()
        return None

    def arrive_only(self, context: Context, number: Value) -> None:
        """`bar.arrive`: counts, but does not wait."""
        chunk = context.chunk
        numbers = np.broadcast_to(np.asarray(number, dtype=np.int64), context.n)
        for one in np.unique(numbers):
            slots = context.slot[numbers == one]
            tally = self.arrivals.setdefault(int(one), np.zeros(chunk.blocks.size, dtype=np.int64))
            tally += np.bincount(slots, minlength=chunk.blocks.size)

    def arrive_warp(self, context: Context, mask: Value, line: int, target: int, values: tuple[Value, ...]) -> Any:
        """Lanes reach `__syncwarp`."""
        if not context.whole:
            named = _named(context, mask)
            if (named & ~context.active & ~context.exited).any():
                self.warps.append((context, mask, line, target, values))
                return None
        if self.machine.races is not None:
            self.machine.races.warp_barrier(context.warps)
        return target, values

    # ---- release

    def release(self) -> bool:
        """Let lanes go on whose barrier is complete. Returns whether any could."""
        return self._release_warps() | self._release_blocks()

    def _completed(self, slots: NDArray[np.bool_] | None) -> None:
        if self.machine.races is not None:
            self.machine.races.block_barrier(slots)

    def _release_blocks(self) -> bool:
        chunk = self.chunk
        if not self.parked or chunk is None:
            return False
        slots = chunk.blocks.size
        live = chunk.live.reshape(slots, -1).sum(axis=1)
        parked, self.parked = self.parked, []
        released = False
        ready: dict[int, NDArray[np.bool_]] = {}
        for number in sorted({int(n) for p in parked for n in np.unique(p.number)}):
            arrived = np.zeros(slots, dtype=np.int64)
            asked = np.zeros(slots, dtype=np.int64)
            for p in parked:
                here = p.number == number
                arrived += np.bincount(p.context.slot[here], minlength=slots)
                np.maximum.at(asked, p.context.slot[here], p.count[here])
            present = arrived > 0
            arrived += self.arrivals.get(number, 0)
            expected = np.where(asked > 0, asked, live)
            ready[number] = present & (arrived >= expected)
            if ready[number].any():
                released = True
                self._check_alignment(parked, number, ready[number])
                self._reduce(parked, number, ready[number])
                self._completed(ready[number])
                if number in self.arrivals:
                    self.arrivals[number][ready[number]] = 0
        for p in parked:
            go = np.zeros(p.context.n, dtype=bool)
            for number, slots_ready in ready.items():
                go |= (p.number == number) & slots_ready[p.context.slot]
            self._part(p, go)
        if not any(a.any() for a in self.arrivals.values()):
            self.arrivals = {}
        return released

    def _part(self, p: _Parked, go: NDArray[np.bool_]) -> None:
        if go.all():
            self.machine.resume(p.target, p.context, p.values)
            return
        if not go.any():
            self.parked.append(p)
            return
        gone, stay = p.context.split(go)
        assert gone.where is not None
        assert stay.where is not None
        self.machine.resume(p.target, gone, gather(p.values, gone.where))
        reduction = p.reduction
        if reduction is not None and isinstance(reduction[1], np.ndarray):
            reduction = (reduction[0], reduction[1][stay.where], reduction[2])
        self.parked.append(
            _Parked(
                stay, p.number[stay.where], p.count[stay.where], p.aligned, p.line, p.target,
                gather(p.values, stay.where), reduction,
            )
        )  # fmt: skip

    def _reduce(self, parked: list[_Parked], number: int, ready: NDArray[np.bool_]) -> None:
        """Result of `bar.red` for the lanes of complete barriers."""
        involved = [p for p in parked if p.reduction is not None]
        if not involved:
            return
        votes = np.zeros(ready.size, dtype=np.int64)
        total = np.zeros(ready.size, dtype=np.int64)
        for p in involved:
            assert p.reduction is not None
            here = p.number == number
            held = np.broadcast_to(p.reduction[1], p.context.n)
            votes += np.bincount(p.context.slot[here & held], minlength=ready.size)
            total += np.bincount(p.context.slot[here], minlength=ready.size)
        for p in involved:
            assert p.reduction is not None
            operation, _, place = p.reduction
            if place < 0:
                continue
            result = {"popc": votes, "and": votes == total, "or": votes > 0}[operation]
            old = np.asarray(p.values[place])
            spread = np.broadcast_to(old, p.context.n).copy()
            chosen = (p.number == number) & ready[p.context.slot]
            spread[chosen] = result[p.context.slot][chosen].astype(old.dtype)
            values = list(p.values)
            values[place] = spread
            p.values = tuple(values)

    def _check_alignment(self, parked: list[_Parked], number: int, ready: NDArray[np.bool_]) -> None:
        """An aligned barrier must be reached by whole warps at one instruction."""
        groups = [p for p in parked if p.aligned and (p.number == number).any()]
        if len({p.target for p in groups}) < 2:
            return
        owner: dict[int, _Parked] = {}
        for p in groups:
            for warp in np.unique(p.context.lanes[(p.number == number) & ready[p.context.slot]] // WARP):
                other = owner.setdefault(int(warp), p)
                if other.target != p.target:
                    lane = int(warp) * WARP
                    message = (
                        f"lanes of one warp ({self.machine.memory.where(p.context, lane)} and others) wait at "
                        f"different barriers, at lines {other.line} and {p.line}"
                    )
                    self.machine.findings.add("barrier_divergence", message, p.line)
                    return

    def _release_warps(self) -> bool:
        if not self.warps:
            return False
        parked, self.warps = self.warps, []
        chunk = parked[0][0].chunk
        arrived = ~chunk.live.reshape(-1, WARP)
        named = np.zeros_like(arrived)
        for context, mask, *_ in parked:
            arrived[context.warps] |= context.active
            named[context.warps] |= _named(context, mask)
        complete: NDArray[np.bool_] = np.logical_not((named & ~arrived).any(axis=1))
        released = False
        for context, mask, line, target, values in parked:
            go = complete[context.lanes // WARP]
            if not go.any():
                self.warps.append((context, mask, line, target, values))
                continue
            released = True
            if self.machine.races is not None:
                self.machine.races.warp_barrier(context.warps[complete[context.warps]])
            if go.all():
                self.machine.resume(target, context, values)
                continue
            gone, stay = context.split(go)
            assert gone.where is not None
            assert stay.where is not None
            self.machine.resume(target, gone, gather(values, gone.where))
            rest = mask[stay.where] if isinstance(mask, np.ndarray) else mask
            self.warps.append((stay, rest, line, target, gather(values, stay.where)))
        return released

    def deadlock(self) -> Stop:
        """Threads wait for others that will never come."""
        if self.warps:
            context, _, line, *_ = self.warps[0]
            who = self.machine.memory.where(context, context.lanes[0])
            message = f"{who} waits at __syncwarp for lanes that do not come"
            return Stop("fault", finding("barrier_divergence", message, line))
        first = self.parked[0]
        lane = int(first.context.lanes[0])
        who = self.machine.memory.where(first.context, lane)
        message = f"{who} waits at a barrier that other threads of its block never reach"
        other = next((p for p in self.parked if p.line != first.line), None)
        if other is not None:
            message += f"; some wait at line {other.line} instead"
        return Stop("fault", finding("barrier_divergence", message, first.line))


def _named(context: Context, mask: Value) -> NDArray[np.bool_]:
    """(warps, 32) lanes named by the membermasks of a group's lanes."""
    bits = np.arange(WARP, dtype=np.uint32)
    masks = np.zeros((context.warps.size, WARP), dtype=np.uint32)
    masks[context.rows] = mask
    together = np.bitwise_or.reduce(masks, axis=1)
    named: NDArray[np.bool_] = ((together[:, None] >> bits) & np.uint32(1)) != 0
    return named
