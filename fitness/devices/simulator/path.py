"""Critical path of one warp: its own instructions in the order it issued them, waiting for what they need.

An in-order scoreboard over the basic blocks of a warp's trace: an instruction issues when the one before has
issued, its operands are ready and its pipe is free. Within a basic block the instructions are first put
into the order a list scheduler would choose, as ptxas does, so that loads are issued early. `cp.async`
completes in the background and is waited for by its group, so stages in flight hide latency as they do on the card.
Loops are followed until their iterations take equal time; the rest of the iterations is added up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.counters import Op
from fitness.devices.simulator.pipes import Timing

_LONGEST_PERIOD = 16  # basic blocks of one iteration of a loop
_MOST_ITERATIONS = 24  # followed before the last ones are taken as typical
_FENCES = frozenset({"barrier", "fence", "cp_async_wait", "cp_async_commit", "bulk"})


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


def scheduled(block: tuple[Op, ...], timing: Callable[[Op], Timing]) -> list[Op]:
    """A basic block in list-scheduler order: ready instructions by longest remaining latency, then program order."""
    after, before = _dependences(block)
    latency = [timing(op).latency + 1 for op in block]
    rank = [0.0] * len(block)
    for i in reversed(range(len(block))):
        rank[i] = latency[i] + max((rank[j] for j in after[i]), default=0.0)
    waiting = list(before)
    ready = [(-rank[i], i) for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(block[i])
        for j in after[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, (-rank[j], j))
    return order


def _dependences(block: tuple[Op, ...]) -> tuple[list[set[int]], list[int]]:
    """Successors of each instruction and its number of predecessors (registers, memory order, control)."""
    after: list[set[int]] = [set() for _ in block]
    defined: dict[int, int] = {}
    used: dict[int, list[int]] = {}
    memory = _MemoryOrder()
    for i, op in enumerate(block):
        sources = {defined[r] for r in op.uses if r in defined}
        for r in op.defs:
            sources.update(used.pop(r, ()))
            if r in defined:
                sources.add(defined[r])
        sources.update(memory.before(i, op.kind))
        if op.kind == "branch":
            sources.update(range(i))
        for j in sources - {i}:
            after[j].add(i)
        for r in op.uses:
            used.setdefault(r, []).append(i)
        for r in op.defs:
            defined[r] = i
    before = [0] * len(block)
    for following in after:
        for j in following:
            before[j] += 1
    return after, before


class _MemoryOrder:
    """Loads may pass loads; nothing passes a store to the same space, a fence or a barrier."""

    def __init__(self) -> None:
        self.fence: list[int] = []
        self.since: list[int] = []
        self.stores: dict[str, int] = {}
        self.loads: dict[str, list[int]] = {}

    def before(self, i: int, kind: str) -> list[int]:
        """Indices that must come before instruction `i`."""
        if kind in _FENCES:
            found = self.since + self.fence
            self.fence, self.since, self.stores, self.loads = [i], [], {}, {}
            return found
        space = _space(kind)
        if not space:
            return []
        self.since.append(i)
        found = list(self.fence)
        if space in self.stores:
            found.append(self.stores[space])
        if kind.startswith("load") or kind == "ldmatrix":
            self.loads.setdefault(space, []).append(i)
        else:
            found += self.loads.pop(space, [])
            self.stores[space] = i
        return found


def _space(kind: str) -> str:
    if kind in ("ldmatrix", "stmatrix") or kind.endswith("_shared"):
        return "shared"
    if kind in ("cp_async",):
        return "async"
    return kind.rpartition("_")[2] if kind.endswith(("_global", "_local")) else ""


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

    def _define(self, op: Op, time: float, producer: tuple[str, int]) -> None:
        for register in op.defs:
            self.ready[register] = (time, producer)


def warp_path(
    code: tuple[tuple[Op, ...], ...],
    trace: NDArray[np.int32],
    timing: Callable[[Op], Timing],
    schedules: dict[int, list[tuple[Op, Timing]]],
) -> WarpPath:
    """Follow one warp.

    Args:
        code: basic blocks.
        trace: those the warp issued, in order.
        timing: behaviour of an instruction on the card.
        schedules: filled and reused between warps of one launch; start with {}.

    Returns:
        the path; the end waits for no store.
    """
    warp = _Warp()
    skipped, skipped_issue = 0.0, 0.0
    for blocks, repeats in loops(trace):
        ends: list[tuple[float, float]] = [(warp.now, warp.path.issued)]
        for _ in range(min(repeats, _MOST_ITERATIONS)):
            for block in blocks:
                if block not in schedules:
                    schedules[block] = [(op, timing(op)) for op in scheduled(code[block], timing)]
                for op, behaviour in schedules[block]:
                    warp.step(op, behaviour)
            ends.append((warp.now, warp.path.issued))
        left = repeats - (len(ends) - 1)
        if left > 0:
            tail = len(ends) // 2
            skipped += left * (ends[-1][0] - ends[-1 - tail][0]) / tail
            skipped_issue += left * (ends[-1][1] - ends[-1 - tail][1]) / tail
            _stretch(warp.path.stalls, 1.0 + left / len(ends))
    warp.path.clocks = warp.now + skipped
    warp.path.issued += skipped_issue
    return warp.path


def _stretch(stalls: dict[tuple[str, int], float], factor: float) -> None:
    """Stalls of a loop followed in part stand for all its iterations (a share, not a time, is reported)."""
    for cause in stalls:
        stalls[cause] *= factor


def waits(paths: Mapping[int, WarpPath]) -> list[tuple[tuple[str, int], float]]:
    """What the warps of a block waited for, largest share first: ((kind, line), fraction of the stalled clocks)."""
    total: dict[tuple[str, int], float] = {}
    for path in paths.values():
        for cause, clocks in path.stalls.items():
            total[cause] = total.get(cause, 0.0) + clocks
    whole = sum(total.values()) or 1.0
    return sorted(((cause, clocks / whole) for cause, clocks in total.items()), key=lambda item: (-item[1], item[0]))
