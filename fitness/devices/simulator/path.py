"""Critical path of one warp: its own instructions in the order it issued them, waiting for what they need.

An in-order scoreboard over a warp's trace: an instruction issues when the one before has issued, its
operands are ready and its pipe is free. Regions of the trace are first put into the order ptxas would choose
(schedule.py). `cp.async` and `wgmma` complete in the background and are waited for by their groups, so what is in
flight hides latency as it does on the card. Loops are followed until their iterations take equal time; the rest
is added up.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.counters import Op
from fitness.devices.simulator.pipes import Timing
from fitness.devices.simulator.schedule import UNROLL, Blocks, Code, Region, regions, scheduled, unrollable

_LONGEST_PERIOD = 256  # basic blocks of one iteration of a loop
_MOST_ITERATIONS = 24  # followed before the last ones are taken as typical
_STEADY = 4  # iterations of equal length after which a loop is taken to go on like this
_ISSUE = "issue slots"
_WAITS = frozenset({"cp_async_wait", "wgmma_wait"})
_EFFECTS = frozenset({"cp_async", "cp_async_commit", "barrier", "cluster_wait", "wgmma_commit", "mbarrier_wait"})

Cause = tuple[str, int]


@dataclass
class WarpPath:
    """Result: clocks from the first issue to the end, and for what the warp waited.

    Attributes:
        clocks: length of the path; issued: clocks in which the warp issued.
        stalls: (kind, line) of the instruction waited for -> clocks.
        tail: of `clocks`, those after the last wait for an mbarrier.
    """

    clocks: float = 0.0
    issued: float = 0.0
    stalls: dict[Cause, float] = field(default_factory=dict)
    tail: float = 0.0


def loops(trace: Sequence[int]) -> list[tuple[Blocks, int]]:
    """Compress a trace into (basic blocks of one iteration, repetitions), greedily from the start.

    What is issued once is joined into one stretch.
    """
    found: list[tuple[Blocks, int]] = []
    items = np.asarray(trace, dtype=np.int64)
    text = "".join(map(chr, trace))  # strings are compared and searched fastest
    at, size = 0, len(text)
    while at < size:
        period, repeats = _period(items, text, at)
        blocks = tuple(items[at : at + period].tolist())
        if repeats == 1 and found and found[-1][1] == 1:
            found[-1] = (found[-1][0] + blocks, 1)
        else:
            found.append((blocks, repeats))
        at += period * repeats
    return found


def _period(items: NDArray[np.int64], text: str, at: int) -> tuple[int, int]:
    """(length, repetitions) of the loop that covers most of the trace from `at` on; (1, 1) where there is none."""
    best = (1, 1)
    size, place = len(text), at
    last = at + min(_LONGEST_PERIOD, (size - at) // 2)
    while (place := text.find(text[at : at + 2], place + 1, last + 2)) >= 0:
        p = place - at
        if not text.startswith(text[at : place + p], place):
            continue  # not twice more
        differs = items[at : size - p] != items[at + p :]
        same = int(differs.argmax()) if differs.any() else size - at - p
        repeats = same // p + 1
        if repeats > 2 and repeats * p > best[0] * best[1]:
            best = (p, repeats)
            if repeats * p >= (size - at) // 2:
                break
    return best


class Scheduler:
    """Regions of one launch's code, scheduled once and kept.

    Args:
        code: basic blocks.
        timing: behaviour of an instruction on the card.
    """

    def __init__(self, code: Code, timing: Callable[[Op], Timing]) -> None:
        self.code, self._timing = code, timing
        self._known: dict[Blocks, Region] = {}

    def __call__(self, blocks: Blocks) -> list[Region]:
        """Regions of basic blocks that are issued one after another."""
        return [self.whole(region) for region in regions(self.code, blocks)]

    def whole(self, blocks: Blocks) -> Region:
        """Basic blocks as one region."""
        if blocks not in self._known:
            self._known[blocks] = scheduled(self.code, blocks, self._timing)
        return self._known[blocks]


def warp_path(trace: NDArray[np.int32], scheduler: Scheduler) -> WarpPath:
    """Follow one warp.

    Args:
        trace: basic blocks it issued, in order.
        scheduler: of the launch.

    Returns:
        the path; the end waits for no store.
    """
    warp = _Warp(scheduler)
    warp.follow(loops(trace.tolist()))
    return warp.finished()


class _Warp:
    """State of the scoreboard."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._now = 0.0
        self._issued = 0.0
        self._skipped = 0.0  # clocks of iterations that were not followed
        self._skipped_issue = 0.0
        self._stalls: dict[Cause, float] = {}
        self._ready: dict[int, tuple[float, Cause]] = {}
        self._free: dict[str, float] = {}
        self._open = 0.0  # completion of the async copies not yet committed
        self._groups: list[float] = []
        self._fed = 0.0  # when the warp waited for an mbarrier last
        self._product = 0.0  # when the tensor cores have done the last wgmma
        self._batches: list[float] = []  # wgmma groups: when they are complete
        self._copied: Cause = ("cp_async", 0)

    def finished(self) -> WarpPath:
        """The path so far."""
        end = self._now + self._skipped
        return WarpPath(end, self._issued + self._skipped_issue, self._stalls, end - self._fed)

    def follow(self, parts: Sequence[tuple[Blocks, int]]) -> None:
        """Issue stretches and loops, inner loops within."""
        for blocks, repeats in parts:
            inner = loops(blocks) if repeats > 1 else [(blocks, 1)]
            if len(inner) > 1 or inner[0][1] > 1:
                self._repeat(functools.partial(self.follow, inner), repeats)
            elif repeats >= UNROLL and unrollable(self._scheduler.code, blocks):
                self._repeat_regions([self._scheduler.whole(blocks * UNROLL)], repeats // UNROLL)
                self._repeat_regions(self._scheduler(blocks), repeats % UNROLL)
            else:
                self._repeat_regions(self._scheduler(blocks), repeats)

    def _repeat_regions(self, pieces: list[Region], repeats: int) -> None:
        def once() -> None:
            for region in pieces:
                self._issue(region)

        self._repeat(once, repeats)

    def _repeat(self, once: Callable[[], None], repeats: int) -> None:
        """Run an iteration `repeats` times, the later ones by extrapolation."""
        ends = [self._position()]
        before = dict(self._stalls)
        while len(ends) <= min(repeats, _MOST_ITERATIONS):
            once()
            ends.append(self._position())
            if len(ends) > _STEADY and _steady([end[0] for end in ends[-_STEADY:]]):
                break
        done = len(ends) - 1
        left = repeats - done
        if left <= 0:
            return
        tail = max(1, done // 2) if done >= _MOST_ITERATIONS else _STEADY - 1
        if self._fed > ends[0][0]:  # it waits in every iteration: the last one is the last of all
            self._fed += left * (ends[-1][0] - ends[-1 - tail][0]) / tail
        self._skipped += left * (ends[-1][0] - ends[-1 - tail][0]) / tail
        self._skipped_issue += left * (ends[-1][1] - ends[-1 - tail][1]) / tail
        for cause, clocks in self._stalls.items():
            self._stalls[cause] = clocks + (clocks - before.get(cause, 0.0)) * left / done

    def _position(self) -> tuple[float, float]:
        return self._now + self._skipped, self._issued + self._skipped_issue

    def _issue(self, region: Region) -> None:
        """Issue every instruction of a region (the loop that costing a launch spends most of its time in)."""
        ready, free, stalls = self._ready, self._free, self._stalls
        now, issued, slots = self._now, self._issued, free.get(_ISSUE, 0.0)
        for op, timing in region.steps:
            start, cause = self._start(op, timing, now, slots)
            if not op.issues:  # folded away: the result is ready when the operand is
                folded = (start if cause else 0.0, cause or (op.kind, op.line))
                for register in op.defs:
                    ready[register] = folded
                continue
            if cause is not None and start > now:
                stalls[cause] = stalls.get(cause, 0.0) + start - now
            free[timing.pipe] = start + timing.occupancy
            if timing.background:
                self._product = max(self._product, start) + timing.background
            # The other warps of this scheduler issue in between.
            slots = max(slots, start) + op.issues * timing.turns
            now = start + op.issues
            issued += op.issues
            if op.kind in _EFFECTS:
                now = self._effect(op, start, now, timing)
            result = (start + timing.latency, (op.kind, op.line))
            for register in op.defs:
                ready[register] = result
        for register, renamed in region.results:
            ready[register] = ready[renamed]
        self._now, self._issued, free[_ISSUE] = now, issued, slots

    def _start(self, op: Op, timing: Timing, now: float, slots: float) -> tuple[float, Cause | None]:
        """When an instruction issues that could from `now` on, and what it has waited for."""
        start: float = now
        cause: Cause | None = None
        known = self._ready.get
        for register in op.uses:
            found = known(register)
            if found is not None and found[0] > start:
                start, cause = found
        if not op.issues:
            return start, cause
        busy = self._free.get(timing.pipe, 0.0)
        if busy > start:
            start, cause = busy, (timing.pipe, op.line)
        if slots > start:
            start, cause = slots, (_ISSUE, op.line)
        if op.kind in _WAITS:
            awaited, why = self._awaited(op, timing)
            if awaited > start:
                start, cause = awaited, why
        return start, cause

    def _arrival(self, left_open: int) -> float:
        """When all copies but the last `left_open` groups have arrived; forgets those."""
        done = self._groups[: len(self._groups) - left_open] if left_open else [*self._groups, self._open]
        del self._groups[: max(0, len(self._groups) - left_open)]
        return max(done, default=0.0)

    def _effect(self, op: Op, start: float, now: float, timing: Timing) -> float:
        """What copies, commits and barriers do beside issuing; returns the clock after."""
        if op.kind == "cp_async":
            self._open, self._copied = max(self._open, start + timing.latency), (op.kind, op.line)
        elif op.kind == "cp_async_commit":
            self._groups.append(self._open)
            self._open = 0.0
        elif op.kind == "wgmma_commit":
            self._batches.append(self._product)
        elif op.kind == "mbarrier_wait":
            self._fed = now + self._skipped
        else:
            cause = (op.kind, op.line)
            self._stalls[cause] = self._stalls.get(cause, 0.0) + timing.latency
            return now + timing.latency
        return now

    def _awaited(self, op: Op, timing: Timing) -> tuple[float, Cause]:
        """When what a wait waits for is there, and what that is."""
        if op.kind == "cp_async_wait":
            return self._arrival(op.argument), self._copied
        done = self._products(op.argument)
        return (done + timing.latency if done else 0.0), ("tensor", op.line)

    def _products(self, left_open: int) -> float:
        """When all wgmma groups but the last `left_open` are complete; forgets those."""
        count = max(0, len(self._batches) - left_open)
        done, self._batches = self._batches[:count], self._batches[count:]
        return max(done, default=0.0)


def _steady(ends: list[float]) -> bool:
    """Whether the iterations between these ends took equal time, to a thousandth."""
    lengths = [b - a for a, b in itertools.pairwise(ends)]
    return max(lengths) - min(lengths) <= 1e-3 * max(lengths)
