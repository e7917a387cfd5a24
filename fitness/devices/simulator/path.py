"""Critical path of one warp: its own instructions in the order it issued them, waiting for what they need.

An in-order scoreboard over a warp's trace: an instruction issues when the one before has issued, its
operands are ready and its pipe is free. Regions of the trace are first put into the order ptxas would choose
(schedule.py). `cp.async` completes in the background and is waited for by its group, so stages in flight
hide latency as they do on the card. Loops are followed until their iterations take equal time; the rest is added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.counters import Op
from fitness.devices.simulator.pipes import Timing
from fitness.devices.simulator.schedule import UNROLL, Blocks, Code, Region, regions, scheduled, unrollable

_LONGEST_PERIOD = 16  # basic blocks of one iteration of a loop
_MOST_ITERATIONS = 24  # followed before the last ones are taken as typical


@dataclass
class WarpPath:
    """Result: clocks from the first issue to the end, and for what the warp waited.

    Attributes:
        clocks: length of the path; issued: clocks in which the warp issued.
        stalls: (kind, line) of the instruction waited for -> clocks.
    """

    clocks: float = 0.0
    issued: float = 0.0
    stalls: dict[tuple[str, int], float] = field(default_factory=dict)


def loops(trace: NDArray[np.int32]) -> list[tuple[tuple[int, ...], int]]:
    """Compress a trace into (basic blocks of one iteration, repetitions), greedily from the start."""
    found: list[tuple[tuple[int, ...], int]] = []
    at = 0
    while at < trace.size:
        period, repeats = 1, 1
        for p in range(1, min(_LONGEST_PERIOD, (trace.size - at) // 2) + 1):
            differs = np.flatnonzero(trace[at : trace.size - p] != trace[at + p :])
            same = int(differs[0]) if differs.size else trace.size - at - p
            if same // p + 1 > 2 and (same // p + 1) * p > period * repeats:
                period, repeats = p, same // p + 1
        found.append((tuple(int(b) for b in trace[at : at + period]), repeats))
        at += period * repeats
    return found


class _Warp:
    """State of the scoreboard."""

    def __init__(self) -> None:
        self.now = 0.0
        self.path = WarpPath()
        self.ready: dict[int, tuple[float, tuple[str, int]]] = {}
        self.free: dict[str, float] = {}
        self.open = 0.0  # completion of the async copies not yet committed
        self.groups: list[float] = []
        self.copied = ("cp_async", 0)

    def step(self, op: Op, timing: Timing) -> None:
        """Issue one instruction."""
        start, cause = self.now, None
        for register in op.uses:
            time, producer = self.ready.get(register, (0.0, ("", 0)))
            if time > start:
                start, cause = time, producer
        if not op.issues:  # folded away: the result is ready when the operand is
            self._define(op, start if cause else 0.0, cause or (op.kind, op.line))
            return
        free = self.free.get(timing.pipe, 0.0)
        if free > start:
            start, cause = free, (timing.pipe, op.line)
        if op.kind == "cp_async_wait":
            done = max(
                self.groups[: len(self.groups) - op.argument] if op.argument else [*self.groups, self.open], default=0.0
            )
            del self.groups[: max(0, len(self.groups) - op.argument)]
            if done > start:
                start, cause = done, self.copied
        if cause and start > self.now:
            self.path.stalls[cause] = self.path.stalls.get(cause, 0.0) + start - self.now
        self.free[timing.pipe] = start + timing.occupancy
        self.now = start + op.issues
        self.path.issued += op.issues
        self._finish(op, start, timing)

    def _finish(self, op: Op, start: float, timing: Timing) -> None:
        if op.kind == "cp_async":
            self.open, self.copied = max(self.open, start + timing.latency), (op.kind, op.line)
        elif op.kind == "cp_async_commit":
            self.groups.append(self.open)
            self.open = 0.0
        elif op.kind == "barrier":
            self.now += timing.latency
            self.path.stalls[op.kind, op.line] = self.path.stalls.get((op.kind, op.line), 0.0) + timing.latency
        self._define(op, start + timing.latency, (op.kind, op.line))

    def rename(self, results: tuple[tuple[int, int], ...]) -> None:
        """End of a region: its results are known by their own names again."""
        for register, renamed in results:
            self.ready[register] = self.ready[renamed]

    def _define(self, op: Op, time: float, producer: tuple[str, int]) -> None:
        for register in op.defs:
            self.ready[register] = (time, producer)


class Scheduler:
    """Regions of one launch's code, scheduled once and kept.

    Args:
        code: basic blocks.
        timing: behaviour of an instruction on the card.
    """

    def __init__(self, code: Code, timing: Callable[[Op], Timing]) -> None:
        self.code, self._timing = code, timing
        self._known: dict[Blocks, list[Region]] = {}

    def __call__(self, blocks: Blocks) -> list[Region]:
        """Regions of basic blocks that are issued one after another."""
        if blocks not in self._known:
            split = regions(self.code, blocks)
            self._known[blocks] = [scheduled(self.code, region, self._timing) for region in split]
        return self._known[blocks]

    def unrolled(self, blocks: Blocks) -> list[Region]:
        """The same for `UNROLL` iterations of a loop that ptxas unrolls."""
        key = blocks * UNROLL
        if key not in self._known:
            self._known[key] = [scheduled(self.code, key, self._timing)]
        return self._known[key]


def warp_path(trace: NDArray[np.int32], scheduler: Scheduler) -> WarpPath:
    """Follow one warp.

    Args:
        trace: basic blocks it issued, in order.
        scheduler: of the launch.

    Returns:
        the path; the end waits for no store.
    """
    warp = _Warp()
    skipped, skipped_issue = 0.0, 0.0
    for blocks, repeats in _straightened(loops(trace)):
        parts = [(scheduler(blocks), repeats)]
        if repeats >= UNROLL and unrollable(scheduler.code, blocks):
            parts = [(scheduler.unrolled(blocks), repeats // UNROLL), (scheduler(blocks), repeats % UNROLL)]
        for pieces, times in parts:
            clocks, issued = _iterate(warp, pieces, times)
            skipped, skipped_issue = skipped + clocks, skipped_issue + issued
    warp.path.clocks = warp.now + skipped
    warp.path.issued += skipped_issue
    return warp.path


def _straightened(found: list[tuple[Blocks, int]]) -> list[tuple[Blocks, int]]:
    """Join what is issued once into one stretch."""
    joined: list[tuple[Blocks, int]] = []
    for blocks, repeats in found:
        if repeats == 1 and joined and joined[-1][1] == 1:
            joined[-1] = (joined[-1][0] + blocks, 1)
        else:
            joined.append((blocks, repeats))
    return joined


def _iterate(warp: _Warp, pieces: list[Region], repeats: int) -> tuple[float, float]:
    """Issue the pieces `repeats` times, the later ones by extrapolation.

    Returns:
        clocks and issue slots of the iterations that were not followed.
    """
    ends = [(warp.now, warp.path.issued)]
    before = dict(warp.path.stalls)
    for _ in range(min(repeats, _MOST_ITERATIONS)):
        for region in pieces:
            for op, timing in region.steps:
                warp.step(op, timing)
            warp.rename(region.results)
        ends.append((warp.now, warp.path.issued))
    left = repeats - (len(ends) - 1)
    if left <= 0:
        return 0.0, 0.0
    tail = len(ends) // 2
    for cause, clocks in warp.path.stalls.items():
        warp.path.stalls[cause] = clocks + (clocks - before.get(cause, 0.0)) * left / (len(ends) - 1)
    clocks, issued = (left * (ends[-1][i] - ends[-1 - tail][i]) / tail for i in (0, 1))
    return clocks, issued
