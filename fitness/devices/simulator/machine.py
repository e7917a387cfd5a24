"""The scheduler: runs groups of lanes through a kernel's basic blocks until every thread has ended.

Always the group at the lowest block runs; groups that meet at a block merge. Lanes at a barrier are parked
until all live threads of their block have come. A group that has run long while others wait (a spin lock, a
flag another block sets) lets the oldest one go first for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fitness.devices.simulator.barriers import Barriers
from fitness.devices.simulator.bulk import Bulk
from fitness.devices.simulator.clusters import Clusters
from fitness.devices.simulator.codegen import Kernel
from fitness.devices.simulator.faults import Findings, Stop, finding, unsupported
from fitness.devices.simulator.groups import merge
from fitness.devices.simulator.lanes import Chunk, Context, Value, gather
from fitness.devices.simulator.mapchange import MapChanges
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.phases import Mbarriers
from fitness.devices.simulator.remote import Remote
from fitness.devices.simulator.warps import Warps
from fitness.devices.simulator.wgmma import Wgmma

Group = tuple[Context, tuple[Value, ...]]
#: Block executions after which a waiting group goes ahead of the lowest one.
PATIENCE = 512


class Budget:
    """Warp instructions (and block executions) a run may take in all."""

    def __init__(self, steps: int) -> None:
        self.steps, self.limit = 0, steps
        self.executions, self.most_executions = 0, max(20_000, steps // 200)

    def exhausted(self, line: int) -> Stop:
        """The finding of a run that takes too long."""
        return Stop("steps", finding("step_limit", f"more than {self.limit:,} warp instructions", line))


class Machine:
    """Executes one launch, chunk by chunk. Generated code calls its methods as `_m`."""

    zero, one = np.uint32(0), np.uint32(1)

    def __init__(
        self,
        kernel: Kernel,
        memory: Memory,
        budget: Budget,
        findings: Findings,
        parameters: bytes,
        geometry: tuple[tuple[int, int, int], tuple[int, int, int]],
        shared: tuple[int, int],
        services: Any,
        cluster: tuple[int, int, int] = (1, 1, 1),
    ) -> None:
        grid, block = geometry
        self.kernel, self.memory, self.budget, self.findings = kernel, memory, budget, findings
        self.ntid = tuple(np.uint32(x) for x in block)
        self.nctaid = tuple(np.uint32(x) for x in grid)
        self.cluster = tuple(np.uint32(x) for x in cluster)
        self.nclusterid = tuple(np.uint32(x // y) for x, y in zip(grid, cluster, strict=True))
        self.explicit_cluster = np.bool_(cluster != (1, 1, 1))
        self.cluster_nctarank = np.uint32(cluster[0] * cluster[1] * cluster[2])
        self.nwarpid = np.uint32(-(-(block[0] * block[1] * block[2]) // 32))
        self.nsmid, self.gridid = np.uint32(128), np.uint64(1)
        self.workspace = np.zeros(2, dtype=np.uint32)  # address of the grid barrier, low word first (see GRID_BARRIER)
        self.dynamic_shared, self.total_shared = np.uint32(shared[0]), np.uint32(shared[1])
        self._parameters = parameters
        self._parameter_cache: dict[tuple[int, str], Any] = {}
        self.warps = Warps(self)
        self.printer = services.printer
        self.copies, self.atomics, self.matrices = services.copies, services.atomics, services.matrices
        self.races, self.proxies, self.counting = services.races, services.proxies, services.counting
        self.tally = services.counting.tally if services.counting is not None else None
        self.pending: dict[int, list[Group]] = {}
        self.stalled: dict[int, list[Group]] = {}
        self.barriers = Barriers(self)
        self.clusters = memory.clusters = Clusters(self)
        self.mbarriers = Mbarriers(self, deferred=self.copies.deferred)
        self.bulk = Bulk(self, deferred=self.copies.deferred)
        self.remote = Remote(self, deferred=self.copies.deferred)
        self.maps = MapChanges(self)
        self.wgmma = Wgmma(self)
        self.tracer: Any = None
        self.warp_base, self.only_chunk = 0, True
        self._met = 0  # block executions when groups waited at one block alone for the last time
        self._first_line = [
            next((i.line for i in [*b.instructions, b.terminator.instruction] if i is not None and i.line), 0)
            for b in kernel.graph.blocks
        ]

    # ---- what generated code calls

    def parameter(self, offset: int, dtype: np.dtype[Any]) -> Any:
        """A kernel argument."""
        key = (offset, dtype.str)
        if key not in self._parameter_cache:
            self._parameter_cache[key] = np.frombuffer(self._parameters, dtype, 1, offset)[0]
        return self._parameter_cache[key]

    def clock(self) -> np.uint32:
        """%clock: one tick per warp instruction executed so far."""
        return np.uint32(self.budget.steps & 0xFFFFFFFF)

    def clock64(self) -> np.uint64:
        """%clock64."""
        return np.uint64(self.budget.steps)

    def split(
        self, context: Context, condition: Any, taken: int, yes: tuple[Value, ...], other: int, no: tuple[Value, ...]
    ) -> tuple[int, tuple[Value, ...]] | None:
        """A branch on an array: all lanes one way, or two groups."""
        count = np.count_nonzero(condition)
        if count == context.n:
            return taken, yes
        if count == 0:
            return other, no
        first, second = context.split(condition)
        if self.tally is not None:
            self.tally.diverged(first.warp_count + second.warp_count - context.warp_count)
        self._add(taken, first, first.draw(yes))
        self._add(other, second, second.draw(no))
        return None

    def switch(self, context: Context, index: Value, ways: tuple[Any, ...], line: int) -> Any:
        """`brx.idx`: every lane goes to the block its index names."""
        if np.any(np.asarray(index) >= len(ways)):
            raise Stop("fault", finding("out_of_bounds", f"a branch table of {len(ways)} entries is left", line))
        if not isinstance(index, np.ndarray):
            return ways[int(index)]
        for number in np.unique(index):
            target, values = ways[int(number)]
            where = np.flatnonzero(index == number)
            self._add(target, Context(context.chunk, context.lanes[where], context, where), gather(values, where))
        return None

    def guarded(
        self,
        context: Context,
        condition: Value,
        function: Callable[..., tuple[Value, ...]],
        values: tuple[Value, ...],
        old: tuple[Value, ...],
    ) -> tuple[Value, ...]:
        """Run a guarded instruction for the lanes where the guard holds; others keep their old results."""
        if not isinstance(condition, np.ndarray):
            return function(self, context, *values) if condition else old
        count = np.count_nonzero(condition)
        if count == context.n:
            return function(self, context, *values)
        if count == 0:
            return old
        some, _ = context.split(condition)
        assert some.where is not None
        results = function(self, some, *gather(values, some.where))
        merged = []
        for before, new in zip(old, results, strict=True):
            if before is new or (before is False and new is False):
                merged.append(before)
                continue
            whole = np.empty(context.n, dtype=np.result_type(np.asarray(before).dtype, np.asarray(new).dtype))
            whole[:] = before
            whole[some.where] = new
            merged.append(whole)
        return tuple(merged)

    def exit(self, context: Context) -> None:
        """The group's threads end."""
        context.chunk.exit(context.lanes)
        self.copies.exit(context)

    def trap(self, context: Context, line: int) -> None:
        """`trap`."""
        raise Stop("trap", finding("trap", f"{self.memory.where(context, context.lanes[0])} executed trap", line))

    def barrier(
        self, context: Context, number: Value, count: Value, aligned: bool, line: int, target: int, values: Any
    ) -> Any:
        """`bar.sync` and `barrier.sync`."""
        return self.barriers.arrive(context, number, count, aligned, line, target, values)

    def barrier_reduction(
        self,
        context: Context,
        number: Value,
        operation: str,
        predicate: Value,
        place: int,
        line: int,
        target: int,
        values: Any,
    ) -> Any:
        """`bar.red`: a barrier that also reduces a predicate over the block."""
        return self.barriers.arrive(
            context, number, None, True, line, target, values, reduction=(operation, predicate, place)
        )

    def warp_barrier(self, context: Context, mask: Value, line: int, target: int, values: Any) -> Any:
        """`bar.warp.sync`."""
        return self.barriers.arrive_warp(context, mask, line, target, values)

    # ---- scheduling

    def _add(self, block: int, context: Context, values: tuple[Value, ...]) -> None:
        self.pending.setdefault(block, []).append((context, values))

    def resume(self, block: int, context: Context, values: tuple[Value, ...]) -> None:
        """A released group continues."""
        self._add(block, context, values)

    def run(self, chunk: Chunk) -> None:
        """Run all threads of a chunk to their end.

        Raises:
            Stop: fault, trap, budget, barrier divergence or an instruction that is not modelled.
        """
        self.barriers.begin(chunk)
        self.clusters.begin(chunk)
        self.mbarriers.begin(chunk)
        self.copies.begin(chunk)
        self.bulk.begin(chunk)
        self.wgmma.begin(chunk)
        self.memory.places.clear()
        if self.tracer is not None:
            self.tracer.begin(chunk)
        if self.races is not None:
            self.races.begin(chunk)
        if self.proxies is not None:
            self.proxies.begin(chunk)
        self.pending.clear()
        self.stalled.clear()
        self._add(self.kernel.graph.entry, chunk.all, self.kernel.entry_values)
        while True:
            if self.pending:
                self._go(self._next())
            elif self.stalled and self._unstall():
                continue
            elif not (self.barriers.release() or self.clusters.release() or self.mbarriers.time_out()):
                if self.stalled:  # the instruction says which lanes are missing
                    self._go(min(self.stalled), forced=True)
                    continue
                if chunk.live_count:
                    raise self.clusters.deadlock() if self.clusters.waiting else self.barriers.deadlock()
                return

    def _next(self) -> int:
        """The block to run: the lowest, unless a group there has kept others waiting too long."""
        now = self.budget.executions
        if len(self.pending) == 1:
            self._met = now
        elif now % PATIENCE == PATIENCE - 1 and now - self._met >= PATIENCE:
            blocks = sorted(self.pending)
            return blocks[1 + (now // PATIENCE) % (len(blocks) - 1)]
        return min(self.pending)

    def _go(self, block: int, *, forced: bool = False) -> None:
        """Run the groups waiting at a block, then on while theirs is the lowest block.

        Part of a warp waits for its other lanes before a block with warp-wide instructions, unless `forced`.
        """
        groups = self.pending.pop(block, []) + self.stalled.pop(block, [])
        context, values = merge(groups) if len(groups) > 1 else groups[0]
        self._advance(block, context, values, forced=forced)

    def _unstall(self) -> bool:
        """Only parts of warps are left, each before a warp-wide instruction: one with all the lanes it names goes on.

        Next come those whose masks are not known before they run.

        Returns:
            False where each names a lane that is elsewhere: at a barrier, if all is well.
        """
        for block in sorted(self.stalled):
            mask = self.kernel.masks[block]
            if mask is None:
                continue
            groups = self.stalled[block]
            context, values = merge(groups) if len(groups) > 1 else groups[0]
            ready = self.warps.ready(context, values[mask[0]] if isinstance(mask, tuple) else np.uint32(mask))
            if ready.all():
                del self.stalled[block]
                self._advance(block, context, values, forced=True)
                return True
            if ready.any():
                go, rest = context.split(ready)
                assert go.where is not None
                assert rest.where is not None
                self.stalled[block] = [(rest, gather(values, rest.where))]
                self._advance(block, go, gather(values, go.where), forced=True)
                return True
            self.stalled[block] = [(context, values)]
        unknown = [block for block in self.stalled if self.kernel.masks[block] is None]
        if unknown:
            self._go(min(unknown), forced=True)
        return bool(unknown)

    def _advance(self, block: int, context: Context, values: tuple[Value, ...], *, forced: bool) -> None:
        """Run one group from a block on."""
        kernel, budget, tally = self.kernel, self.budget, self.tally
        functions, lengths, whole, pending = kernel.functions, kernel.lengths, kernel.whole, self.pending
        ended = self.mbarriers.ended
        while True:
            if whole[block] and not (forced or _together(context, whole[block])):
                self.stalled.setdefault(block, []).append((context, values))
                return
            forced = False
            warps = context.warp_count
            budget.executions += 1
            budget.steps += lengths[block] * warps
            if budget.steps > budget.limit or budget.executions > budget.most_executions:
                raise budget.exhausted(self._first_line[block])
            if tally is not None:
                everyone = context.n == context.chunk.all.n and self.warp_base == 0 and self.only_chunk
                tally.execute(block, None if everyone else context.warps_from(self.warp_base), context.n)
            result = functions[block](self, context, *values)
            if ended:
                self.mbarriers.wake()
            if result is None:
                return
            block, values = result
            long = budget.executions % PATIENCE == PATIENCE - 1
            if long:
                self._remind()
            if pending and (long or min(pending) <= block):
                self._add(block, context, values)
                return

    def _remind(self) -> None:
        """A group has run long: let those that wait look again."""
        if self.barriers.waiting:
            self.barriers.release()
        if self.clusters.waiting:
            self.clusters.release()
        if self.mbarriers.waiting:
            self.mbarriers.time_out()


def _together(context: Context, warps: int) -> bool:
    """Whether no lane that a block needs (of a warp, of a warpgroup) is elsewhere."""
    if warps == 1:
        return context.whole or context.complete
    return context.complete_warpgroups


__all__ = ["Budget", "Machine", "unsupported"]
