"""Pipes of an SM: which one an instruction uses, how long it keeps it, when its result is ready."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fitness.devices.simulator.counters import SECTOR_BYTES, Op, SiteCounters
from fitness.gpu import Gpu

#: Share of a block's other warps that are in the same phase: 0 none, 1 lockstep. One number for all kernels,
#: from 60 settings of four tensor-core seeds on an H200: log(model / card) spreads by 0.099, 0.086 and 0.094 at 0,
#: 0.7 and 1.
IN_STEP = 0.7
WARPGROUP = 4  # warps
SCHEDULERS = 4  # sub-partitions of an SM, each with its own scheduler and arithmetic pipes

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
#: Rate of a tensor instruction relative to 16-bit inputs of the same number of multiply-adds.
_TYPE_BYTES = {"s8": 1.0, "u8": 1.0, "e4m3": 1.0, "e5m2": 1.0, "tf32": 4.0}
_TYPE_RATE = {"s8": 2.0, "u8": 2.0, "e4m3": 2.0, "e5m2": 2.0, "s4": 2.0, "u4": 2.0, "b1": 4.0, "tf32": 0.5}
_RATES = {
    "fp32": "fp32_per_clk",
    "fp16": "fp16_per_clk",
    "fp64": "fp64_per_clk",
    "int": "int_per_clk",
    "convert": "convert_per_clk",
    "sfu": "sfu_per_clk",
    "shuffle": "shuffle_per_clk",
    "bulk": "bulk_per_clk",
    "bulk_store": "bulk_per_clk",
}
_LSU = frozenset(
    {f"{what}_{where}" for what in ("load", "store", "atomic") for where in ("global", "shared", "local")}
    | {"ldmatrix", "stmatrix", "cp_async", "load_cluster", "store_cluster"}
)
_WHOLE_SM = frozenset({"lsu", "shuffle"})  # one for all four sub-partitions


def per_clock_name(kind: str) -> str | None:
    """Name of the `gpu.model` rate of a kind of instruction; None where only issue slots limit it."""
    return "lsu_per_clk" if kind in _LSU else _RATES.get(kind)


def tensor_clocks(gpu: Gpu, kind: str) -> float:
    """Clocks one SM needs for a tensor instruction such as "mma_sp:m16n8k32:f16" (all four tensor cores busy)."""
    name, shape, dtype = kind.split(":")[:3]
    macs = float(np.prod(_shape(kind, shape)))
    if dtype == "f64":
        return macs / gpu.model["fp64_macs_per_clk"]
    if name.startswith("wgmma"):  # a warp issues a quarter of its warpgroup's product
        macs /= WARPGROUP
        rate = gpu.model["wgmma_macs_per_clk"] * (2.0 if name == "wgmma_sp" else 1.0)
        clocks = macs / (rate * _TYPE_RATE.get(dtype, 1.0))
        return max(clocks, wgmma_wavefronts(kind) / gpu.model["wavefronts_per_clk"])
    return macs / (gpu.model[f"{name}_macs_per_clk"] * _TYPE_RATE.get(dtype, 1.0))


def wgmma_wavefronts(kind: str) -> float:
    """Passes of 128 bytes in which shared memory feeds a warp's share of a `wgmma`; 0 for other instructions."""
    name, shape, dtype = kind.split(":")[:3]
    if not name.startswith("wgmma"):
        return 0.0
    m, n, k = _shape(kind, shape)
    width = _TYPE_BYTES.get(dtype, 2.0)
    of_a = m * k * width / (2.0 if name == "wgmma_sp" else 1.0) if kind.endswith(":shared") else 0.0
    return (of_a + n * k * width) / 128.0 / WARPGROUP


def _shape(kind: str, shape: str) -> tuple[float, float, float]:
    found = _SHAPE.fullmatch(shape)
    if found is None:
        raise ValueError(f"{kind!r} is no tensor instruction")
    return float(found[1]), float(found[2]), float(found[3])


@dataclass(frozen=True)
class Timing:
    """How one instruction of one warp behaves.

    Attributes:
        pipe: what it occupies; occupancy: clocks before the pipe takes this warp's next instruction, the other
            warps of the block having had their turn.
        latency: clocks from issue to a usable result (0 where there is none).
        turns: warps of the block that share this warp's issue slots.
        background: clocks of work that is queued for the tensor cores and waited for later (wgmma).
    """

    pipe: str
    occupancy: float
    latency: float
    turns: float = 1.0
    background: float = 0.0


@dataclass(frozen=True)
class Pipes:
    """Timing of instructions on one card, for one launch.

    The warps of a block do the same thing at about the same time, for they wait for one another at barriers; so an
    instruction occupies its pipe for most of the others too. Other resident blocks are the throughput terms' affair.

    Attributes:
        gpu: the card.
        sites: memory instructions of the launch, as `Op.site` numbers them.
        global_latency: buffer -> mean latency of a read, from where in the hierarchy it is served.
        warps: warps of a block that do as much as the busiest.
    """

    gpu: Gpu
    sites: tuple[SiteCounters, ...]
    global_latency: Mapping[str, float]
    warps: float = 1

    def __call__(self, op: Op) -> Timing:
        """Timing of one instruction."""
        pipe, occupancy, latency = self._alone(op)
        turns = _sharing(self.warps / SCHEDULERS)
        if op.kind.startswith("wgmma") and ":" in op.kind:
            return Timing("wgmma issue", 1.0, 0.0, turns, occupancy * turns)
        sharing = _sharing(self.warps) if pipe in _WHOLE_SM else turns
        return Timing(pipe, occupancy * sharing, latency, turns)

    def _alone(self, op: Op) -> tuple[str, float, float]:
        """Pipe, occupancy and latency with one warp per block."""
        model, kind = self.gpu.model, op.kind
        if ":" in kind:
            # One warp feeds one of the four tensor cores.
            return "tensor", SCHEDULERS * tensor_clocks(self.gpu, kind), model["mma_latency"]
        if kind == "wgmma_wait":
            return "issue", 1.0, model["mma_latency"]
        if kind in ("mbarrier", "mbarrier_wait"):
            return "lsu", 1.0, model["mbarrier_latency"] if op.defs else 0.0
        if kind == "cluster_wait":
            return "issue", 1.0, model["cluster_latency"]
        if kind in ("bulk", "bulk_store"):  # the copy engine works in the background
            return "issue", 1.0, 0.0
        if op.site >= 0:
            return self._memory(op)
        rate = per_clock_name(kind)
        if rate is None:
            latency = model["alu_latency"]
            if kind == "barrier":
                latency = model["barrier_latency"] + model["barrier_clk_per_warp"] * self.warps
            return "issue", 1.0, latency
        latency = {
            "sfu": model["sfu_latency"],
            "shuffle": model["shuffle_latency"],
            "convert": 2 * model["alu_latency"],
            "fp64": 4 * model["alu_latency"],
        }.get(kind, model["alu_latency"])
        pipe = rate.removesuffix("_per_clk")
        return pipe, (1.0 if pipe in _WHOLE_SM else SCHEDULERS) / model[rate], latency

    def _memory(self, op: Op) -> tuple[str, float, float]:
        model, site = self.gpu.model, self.sites[op.site]
        requests = max(site.requests, 1.0)
        fronts = max(1.0, site.wavefronts / requests)
        if op.kind in ("load_shared", "ldmatrix"):
            return "lsu", fronts, model["shared_latency"] + fronts - 1
        if op.kind in ("load_cluster", "store_cluster"):  # through the network between SMs
            fronts *= 128.0 / model["cluster_bytes_per_clk"]
            return "lsu", fronts, model["cluster_latency"] if op.defs else 0.0
        if op.kind == "atomic_shared":
            return "lsu", fronts, model["shared_latency"] * max(1.0, site.serial / requests)
        if op.kind == "atomic_global":
            return "lsu", fronts, model["atomic_latency"] if op.defs else 0.0
        if op.kind in ("store_shared", "stmatrix", "store_global"):
            return "lsu", fronts, 0.0
        arrival = site.sectors / requests * SECTOR_BYTES / model["l2_bytes_per_clk_per_sm"]
        latency = self.global_latency.get(site.buffer, model["l1_latency"])
        return "lsu", fronts, latency + max(fronts - 1, arrival)


def _sharing(warps: float) -> float:
    """Warps that want a pipe at the same time, of those of a block that use it."""
    return 1.0 + IN_STEP * max(0.0, warps - 1.0)
