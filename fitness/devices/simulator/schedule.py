"""The order in which ptxas would issue a stretch of PTX: regions of a trace, unrolled and list-scheduled.

A *region* is what ptxas schedules as one piece: a basic block, or several joined because the branches between them skip
so little that they become predicates. Within a region only true dependences (a value, memory that may
alias, a fence) hold instructions back: registers are renamed, as register allocation comes later. Small loops without a
barrier are unrolled by four. All three were read off SASS of sm_90a.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fitness.devices.simulator.counters import Op
from fitness.devices.simulator.pipes import Timing

Code = tuple[tuple[Op, ...], ...]
Blocks = tuple[int, ...]

PREDICATED = 16.0  # instructions of a conditional that becomes a predicate
UNROLLED = 48.0  # instructions of a loop body that is unrolled
UNROLL = 4
_FENCES = frozenset(
    {
        "barrier",
        "cluster_wait",
        "fence",
        "cp_async_wait",
        "bulk",
        "bulk_store",
        "mbarrier",
        "mbarrier_wait",
        "wgmma_commit",
        "wgmma_wait",
    }
)
_FRESH = 1 << 32  # renamed registers are numbered from here


@dataclass(frozen=True)
class Region:
    """Instructions in issue order, and the registers (name, renamed) that hold its results afterwards."""

    steps: tuple[tuple[Op, Timing], ...]
    results: tuple[tuple[int, int], ...]


def size(code: Code, block: int) -> float:
    """Instructions a basic block issues."""
    return sum(op.issues for op in code[block])


def regions(code: Code, blocks: Blocks) -> list[Blocks]:
    """Split basic blocks issued one after another into what ptxas schedules together."""
    found: list[list[int]] = []
    for block in blocks:
        if found and _joined(code, found[-1], block):
            found[-1].append(block)
        else:
            found.append([block])
    return [tuple(region) for region in found]


def _joined(code: Code, region: list[int], block: int) -> bool:
    """Whether `block` follows `region` by a forward branch over little, or is itself little."""
    last = region[-1]
    if block <= last:
        return False
    skipped = [size(code, between) for between in range(last + 1, block)]
    if sum(skipped) > PREDICATED:
        return False
    return bool(skipped) or size(code, block) <= PREDICATED or (len(region) > 1 and size(code, last) <= PREDICATED)


def unrollable(code: Code, blocks: Blocks) -> bool:
    """Whether ptxas unrolls a loop of these blocks."""
    ops = [op for block in blocks for op in code[block]]
    return (
        sum(op.issues for op in ops) <= UNROLLED
        and any(op.kind.startswith("load_") for op in ops)
        and not any(op.kind in _FENCES for op in ops)
    )


def scheduled(code: Code, blocks: Blocks, timing: Callable[[Op], Timing]) -> Region:
    """A region in list-scheduler order: ready instructions by longest remaining latency, then program order."""
    ops, results = _renamed([op for block in blocks for op in code[block]])
    after, waiting = _dependences(ops)
    timings = [timing(op) for op in ops]
    rank = [0.0] * len(ops)
    for i in reversed(range(len(ops))):
        rank[i] = timings[i].latency + 1 + max((rank[j] for j in after[i]), default=0.0)
    ready = [(-rank[i], i) for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    steps: list[tuple[Op, Timing]] = []
    while ready:
        _, i = heapq.heappop(ready)
        steps.append((ops[i], timings[i]))
        for j in after[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, (-rank[j], j))
    return Region(tuple(steps), results)


def _renamed(ops: Sequence[Op]) -> tuple[list[Op], tuple[tuple[int, int], ...]]:
    """Give every definition a register of its own."""
    current: dict[int, int] = {}
    found: list[Op] = []
    fresh = _FRESH
    for op in ops:
        uses = tuple(current.get(register, register) for register in op.uses)
        defs = []
        for register in op.defs:
            current[register] = fresh
            defs.append(fresh)
            fresh += 1
        found.append(Op(op.kind, op.line, tuple(defs), uses, op.site, op.argument, op.issues))
    return found, tuple(current.items())


def _dependences(ops: Sequence[Op]) -> tuple[list[set[int]], list[int]]:
    """Successors of each instruction and its number of predecessors."""
    after: list[set[int]] = [set() for _ in ops]
    defined: dict[int, int] = {}
    memory = _MemoryOrder()
    last = len(ops) - 1
    for i, op in enumerate(ops):
        before = {defined[register] for register in op.uses if register in defined}
        before.update(memory.before(i, op.kind))
        if i == last and op.kind == "branch":
            before.update(range(i))
        for j in before:
            after[j].add(i)
        for register in op.defs:
            defined[register] = i
    waiting = [0] * len(ops)
    for following in after:
        for j in following:
            waiting[j] += 1
    return after, waiting


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
        if kind.startswith("load") or kind in ("ldmatrix", "cp_async"):
            self.loads.setdefault(space, []).append(i)
        else:
            found += self.loads.pop(space, [])
            self.stores[space] = i
        return found


def _space(kind: str) -> str:
    """Memory whose order matters to an instruction; copies and their commits keep an order of their own."""
    if kind in ("ldmatrix", "stmatrix") or kind.endswith(("_shared", "_cluster")):
        return "shared"
    if kind in ("cp_async", "cp_async_commit"):
        return "async"
    if kind.startswith("wgmma") and ":" in kind:  # in order, and neither before a fence nor after its commit
        return "wgmma"
    return kind.rpartition("_")[2] if kind.endswith(("_global", "_local")) else ""
