"""Pipes of an SM: which one an instruction uses, how long it keeps it, when its result is ready."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fitness.devices.simulator.counters import Op, SiteCounters
from fitness.gpu import Gpu

SCHEDULERS = 4  # sub-partitions of an SM, each with its own scheduler and arithmetic pipes

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
#: Rate of a tensor instruction relative to 16-bit inputs of the same number of multiply-adds.
_TYPE_RATE = {"s8": 2.0, "u8": 2.0, "e4m3": 2.0, "e5m2": 2.0, "s4": 2.0, "u4": 2.0, "b1": 4.0, "tf32": 0.5}
_RATES = {
    "fp32": "fp32_per_clk",
    "fp16": "fp16_per_clk",
    "fp64": "fp64_per_clk",
    "int": "int_per_clk",
    "convert": "convert_per_clk",
    "sfu": "sfu_per_clk",
    "shuffle": "shuffle_per_clk",
}
_LSU = frozenset(
    {f"{what}_{where}" for what in ("load", "store", "atomic") for where in ("global", "shared", "local")}
    | {"ldmatrix", "stmatrix", "cp_async"}
)
_SHARED_PIPES = frozenset({"lsu_per_clk", "shuffle_per_clk"})


def per_clock_name(kind: str) -> str | None:
    """Name of the `gpu.model` rate of a kind of instruction; None where only issue slots limit it."""
    return "lsu_per_clk" if kind in _LSU else _RATES.get(kind)


def tensor_clocks(gpu: Gpu, kind: str) -> float:
    """Clocks one SM needs for a tensor instruction such as "mma_sp:m16n8k32:f16" (all four tensor cores busy)."""
    name, shape, dtype = kind.split(":")
    found = _SHAPE.fullmatch(shape)
    if found is None:
        raise ValueError(f"{kind!r} is no tensor instruction")
    macs = float(found[1]) * float(found[2]) * float(found[3])
    if dtype == "f64":
        return macs / gpu.model["fp64_macs_per_clk"]
    rate = gpu.model["wgmma_macs_per_clk" if name.startswith("wgmma") else f"{name}_macs_per_clk"]
    if name == "wgmma_sp":
        rate *= 2
    return macs / (rate * _TYPE_RATE.get(dtype, 1.0))


@dataclass(frozen=True)
class Timing:
    """How one instruction of one warp behaves.

    Attributes:
        pipe: what it occupies; occupancy: clocks before the pipe takes this warp's next instruction.
        latency: clocks from issue to a usable result (0 where there is none).
    """

    pipe: str
    occupancy: float
    latency: float


@dataclass(frozen=True)
class Pipes:
    """Timing of instructions on one card, for the sites of one launch.

    Attributes:
        gpu: the card.
        sites: memory instructions of the launch, as `Op.site` numbers them.
        global_latency: buffer -> mean latency of a read, from where in the hierarchy it is served.
    """

    gpu: Gpu
    sites: tuple[SiteCounters, ...]
    global_latency: Mapping[str, float]

    def __call__(self, op: Op) -> Timing:
        """Timing of one instruction."""
        model, kind = self.gpu.model, op.kind
        if ":" in kind:
            # One warp feeds one of the four tensor cores.
            return Timing("tensor", SCHEDULERS * tensor_clocks(self.gpu, kind), model["mma_latency"])
        if op.site >= 0:
            return self._memory(op)
        rate = per_clock_name(kind)
        occupancy = 1.0
        if rate is not None:
            occupancy = (1.0 if rate in _SHARED_PIPES else SCHEDULERS) / model[rate]
        latency = {
            "sfu": model["sfu_latency"],
            "shuffle": model["shuffle_latency"],
            "barrier": model["barrier_latency"],
            "convert": 2 * model["alu_latency"],
            "fp64": 4 * model["alu_latency"],
        }.get(kind, model["alu_latency"])
        return Timing(rate or "issue", occupancy, latency)

    def _memory(self, op: Op) -> Timing:
        model, site = self.gpu.model, self.sites[op.site]
        fronts = max(1.0, site.wavefronts / site.requests) if site.requests else 1.0
        if op.kind in ("load_shared", "ldmatrix"):
            return Timing("lsu", fronts, model["shared_latency"] + fronts - 1)
        if op.kind == "atomic_shared":
            serial = site.serial / site.requests if site.requests else 1.0
            return Timing("lsu", fronts, model["shared_latency"] * serial)
        if op.kind == "atomic_global":
            return Timing("lsu", fronts, model["atomic_latency"] if op.defs else 0.0)
        if op.kind in ("store_shared", "stmatrix", "store_global"):
            return Timing("lsu", fronts, 0.0)
        sectors = site.sectors / site.requests if site.requests else 0.0
        arrival = sectors * 32 / model["l2_bytes_per_clk_per_sm"]
        return Timing(
            "lsu", fronts, self.global_latency.get(site.buffer, model["l1_latency"]) + max(fronts - 1, arrival)
        )
