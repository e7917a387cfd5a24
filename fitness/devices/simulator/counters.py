"""What one simulated launch did, counted: the interface between the execution engine and the cost model.

The engine counts two kinds of things, both cheap to fill from NumPy-vectorised basic blocks:

* control flow: how often each simulated warp issued each basic block, and in which order (`trace`);
  every per-class instruction count follows as `executions` x the static code;
* memory: per static memory instruction (a *site*) the requests, sectors and wavefronts, and per buffer
  which 32-byte sectors each simulated block touched.

`Tally` (tally.py) computes the memory numbers from lane addresses; this module holds the results and
what may be done with them. Where Nsight Compute has a metric of the same meaning the field names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SECTOR_BYTES = 32
REUSE_BUCKETS = 20

#: Classes of instruction, by the pipe that limits them. Tensor instructions are "mma:<shape>:<type>" and
#: "mma_sp:<shape>:<type>", for example "mma:m16n8k16:f16"; those of warpgroups "wgmma:<shape>:<type>", with ":shared"
#: at the end where A comes from shared memory.
CLASSES = (
    "fp32",
    "fp16",
    "fp64",
    "int",
    "convert",
    "sfu",
    "load_global",
    "store_global",
    "load_shared",
    "store_shared",
    "load_cluster",
    "store_cluster",
    "load_local",
    "store_local",
    "load_const",
    "ldmatrix",
    "stmatrix",
    "cp_async",
    "cp_async_commit",
    "cp_async_wait",
    "bulk",
    "bulk_store",
    "mbarrier",
    "mbarrier_wait",
    "wgmma_commit",
    "wgmma_wait",
    "atomic_global",
    "atomic_shared",
    "barrier",
    "cluster_wait",
    "fence",
    "shuffle",
    "branch",
    "other",
)

#: What a memory site moves, and between which spaces.
GLOBAL_KINDS = frozenset({"load_global", "store_global", "atomic_global", "cp_async", "bulk", "bulk_store"})
SHARED_KINDS = frozenset(
    {"load_shared", "store_shared", "load_cluster", "store_cluster", "ldmatrix", "stmatrix", "atomic_shared"}
)


class CounterError(ValueError):
    """Counters that do not belong together, or that the engine filled inconsistently (a fault)."""


@dataclass(frozen=True, slots=True)
class Op:
    """One static PTX instruction as the cost model sees it.

    Attributes:
        kind: one of CLASSES, or "mma:..." / "mma_sp:..." (`make_op` in kinds.py derives it from the opcode).
        line: 1-based line of the candidate's source (`.loc`), 0 where unknown.
        defs: register numbers written; uses: register numbers read (predicate guard and addresses included).
            Any injective numbering of the entry's registers will do.
        site: index of its memory site, -1 for instructions that touch no memory.
        argument: immediate that timing depends on: N of `cp.async.wait_group N` (0 for wait_all), else 0.
        issues: SASS instructions it becomes on average; 0 for moves and casts that ptxas removes.
    """

    kind: str
    line: int = 0
    defs: tuple[int, ...] = ()
    uses: tuple[int, ...] = ()
    site: int = -1
    argument: int = 0
    issues: float = 1.0


@dataclass(frozen=True)
class SiteCounters:
    """Totals of one static memory instruction over all simulated warps.

    Attributes:
        kind: class of the instruction (CLASSES); line: source line; bytes_per_lane: access width.
        buffer: name of the buffer touched last, "" for shared and local memory.
        cached_l1: False where the access bypasses L1 (`.cg`, `cp.async.cg`, bulk, atomics, stores).
        requests: warp-level accesses [smsp__inst_executed_op_global_ld.sum and kin].
        lanes: active lanes summed over requests (bytes asked for = lanes x bytes_per_lane).
        sectors: distinct 32-byte sectors per request, summed
            [l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum and kin]; 0 for shared memory.
        wavefronts: passes through the L1/shared data pipe; for shared memory bank conflicts show here
            [l1tex__data_pipe_lsu_wavefronts_mem_shared.sum and kin].
        ideal_sectors: the fewest sectors that could carry the distinct bytes asked for.
        ideal_wavefronts: the fewest wavefronts for these lanes and width (no bank conflict).
        serial: for atomics, the longest run of operations on one address, summed over requests; else 0.
    """

    kind: str
    line: int = 0
    bytes_per_lane: int = 0
    buffer: str = ""
    cached_l1: bool = True
    requests: float = 0.0
    lanes: float = 0.0
    sectors: float = 0.0
    wavefronts: float = 0.0
    ideal_sectors: float = 0.0
    ideal_wavefronts: float = 0.0
    serial: float = 0.0

    def added(self, other: SiteCounters, weight: float = 1.0) -> SiteCounters:
        """This plus `weight` times the other's counts (never below zero)."""
        return replace(
            self,
            buffer=self.buffer or other.buffer,
            **{name: max(0.0, getattr(self, name) + weight * getattr(other, name)) for name in _SITE_COUNTS},
        )


_SITE_COUNTS = ("requests", "lanes", "sectors", "wavefronts", "ideal_sectors", "ideal_wavefronts", "serial")


@dataclass(frozen=True)
class BufferCounters:
    """Footprint of the simulated blocks in one global buffer, in 32-byte sectors.

    Attributes:
        bytes: size of the buffer.
        read_per_block, written_per_block: sum over the simulated blocks of the distinct sectors each touched
            (a sector two blocks read counts twice): what an L1 that keeps everything would ask of L2.
        read_union, written_union: distinct sectors touched by all simulated blocks together.
        atomic_max: largest number of atomic lane-operations any single address received (all blocks).
        atomic_lanes: atomic lane-operations in all; atomic_addresses: distinct addresses they went to.
        reuse: sectors read through L1 that the same block had read before, by how many sectors it read in
            between: element i counts distances from 2^i to 2^(i+1) - 1, element 0 also several warps of a
            block reading one sector in the same instruction. What L1 may spare L2.
    """

    bytes: int
    read_per_block: float = 0.0
    read_union: float = 0.0
    written_per_block: float = 0.0
    written_union: float = 0.0
    atomic_max: float = 0.0
    atomic_lanes: float = 0.0
    atomic_addresses: float = 0.0
    reuse: tuple[float, ...] = (0.0,) * REUSE_BUCKETS


@dataclass(frozen=True)
class RingCounters:
    """Bulk loads into shared memory, summed over the simulated blocks that receive them.

    Attributes:
        bytes: landed. phases: of mbarriers that they belong to. room: bytes of the places they go to, each once.
    """

    bytes: float = 0.0
    phases: float = 0.0
    room: float = 0.0

    def added(self, other: RingCounters) -> RingCounters:
        """Counts of both."""
        return RingCounters(self.bytes + other.bytes, self.phases + other.phases, self.room + other.room)


@dataclass(frozen=True)
class LaunchCounters:
    """Counts of one launch over its simulated blocks.

    Attributes:
        entry: name of the kernel; blocks_total: blocks of the whole grid; blocks_simulated: of those, run.
        warps_per_block: ceil(threads / 32).
        code: the entry's basic blocks, each a tuple of `Op` in program order (static; shared, not copied).
        executions: (basic blocks, blocks_simulated * warps_per_block) times each simulated warp issued each
            basic block; a warp whose lanes diverged issues a block once per group of lanes
            [x static count = smsp__inst_executed.sum].
        lane_executions: (basic blocks,) active lanes summed over executions
            [x static count = smsp__thread_inst_executed.sum].
        traces: (warp index, basic blocks it issued, in order) of a few warps of one block, for the
            latency term; truncated to TRACE_LIMIT entries.
        sites: counters of every memory instruction, indexed by `Op.site`.
        buffers: footprint per global buffer.
        divergent_branches: group splits within a warp [smsp__sass_branch_targets_threads_divergent.sum].
        ring: bulk loads.
    """

    entry: str
    blocks_total: int
    blocks_simulated: int
    warps_per_block: int
    code: tuple[tuple[Op, ...], ...]
    executions: Ints
    lane_executions: Floats
    traces: tuple[tuple[int, NDArray[np.int32]], ...] = ()
    sites: tuple[SiteCounters, ...] = ()
    buffers: Mapping[str, BufferCounters] = field(default_factory=dict)
    divergent_branches: float = 0.0
    ring: RingCounters = RingCounters()

    def __post_init__(self) -> None:
        warps = self.blocks_simulated * self.warps_per_block
        if self.executions.shape != (len(self.code), warps):
            raise CounterError(f"executions is {self.executions.shape}, not {(len(self.code), warps)}")
        if not 0 < self.blocks_simulated <= self.blocks_total:
            raise CounterError(f"{self.blocks_simulated} blocks simulated of a grid of {self.blocks_total}")

    def issued(self) -> Floats:
        """(warps,) warp instructions issued by each simulated warp."""
        lengths = np.array([sum(op.issues for op in block) for block in self.code], dtype=np.float64)
        return np.asarray(lengths @ self.executions)

    def by_kind(self) -> dict[str, Floats]:
        """Kind -> (blocks_simulated,) warp instructions of that kind issued by each simulated block."""
        kinds = sorted({op.kind for block in self.code for op in block})
        mix = np.zeros((len(kinds), len(self.code)))
        for b, block in enumerate(self.code):
            for op in block:
                mix[kinds.index(op.kind), b] += op.issues
        per_warp = mix @ self.executions
        per_block = per_warp.reshape(len(kinds), self.blocks_simulated, self.warps_per_block).sum(axis=2)
        return dict(zip(kinds, per_block, strict=True))

    def lanes_per_instruction(self) -> float:
        """Mean active lanes of an issued instruction, 0..32 [smsp__thread_inst_executed_per_inst_executed]."""
        lengths = np.array([sum(op.issues for op in block) for block in self.code], dtype=np.float64)
        issued = float((lengths @ self.executions).sum())
        return float(lengths @ self.lane_executions) / issued if issued else 0.0

    def added(self, other: LaunchCounters) -> LaunchCounters:
        """Counts of both, for disjoint sets of simulated blocks of the same launch.

        Footprint unions add up (an upper bound: blocks of the two sets may share sectors).

        Raises:
            CounterError: the two are not counts of the same launch.
        """
        if (self.entry, self.blocks_total, self.code) != (other.entry, other.blocks_total, other.code):
            raise CounterError(f"cannot add counters of {other.entry!r} to those of {self.entry!r}")
        return replace(
            self,
            blocks_simulated=self.blocks_simulated + other.blocks_simulated,
            executions=np.concatenate([self.executions, other.executions], axis=1),
            lane_executions=self.lane_executions + other.lane_executions,
            traces=self.traces or other.traces,
            sites=tuple(a.added(b) for a, b in zip(self.sites, other.sites, strict=True)),
            buffers={
                name: _add_buffers(self.buffers.get(name), other.buffers.get(name))
                for name in sorted({*self.buffers, *other.buffers})
            },
            divergent_branches=self.divergent_branches + other.divergent_branches,
            ring=self.ring.added(other.ring),
        )


#: Longest trace kept per warp, in basic blocks; the cost model scales what lies beyond.
TRACE_LIMIT = 20_000


def _add_buffers(a: BufferCounters | None, b: BufferCounters | None) -> BufferCounters:
    if a is None or b is None:
        found = a or b
        assert found is not None
        return found
    sectors = -(-a.bytes // SECTOR_BYTES)
    return BufferCounters(
        bytes=a.bytes,
        read_per_block=a.read_per_block + b.read_per_block,
        read_union=min(sectors, a.read_union + b.read_union),
        written_per_block=a.written_per_block + b.written_per_block,
        written_union=min(sectors, a.written_union + b.written_union),
        atomic_max=a.atomic_max + b.atomic_max,
        atomic_lanes=a.atomic_lanes + b.atomic_lanes,
        atomic_addresses=max(a.atomic_addresses, b.atomic_addresses),
        reuse=tuple(x + y for x, y in zip(a.reuse, b.reuse, strict=True)),
    )
