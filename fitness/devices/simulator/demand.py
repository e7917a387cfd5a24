"""What one block of a launch asks of the machine: counters turned into quantities that grow linearly with K.

A `Demand` is per block (the mean of the simulated ones) except for the whole-grid numbers it says so of, so demands
of the same kernel at two reduced K extrapolate to the full K before any non-linear step of the cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np

from fitness.devices.simulator.counters import REUSE_BUCKETS, SECTOR_BYTES, BufferCounters, LaunchCounters, SiteCounters
from fitness.devices.simulator.pipes import per_clock_name, tensor_clocks, wgmma_wavefronts
from fitness.gpu import Gpu


@dataclass(frozen=True)
class Traffic:
    """Traffic of one buffer, in 32-byte sectors per block unless said otherwise.

    Attributes:
        cached: read requests that L1 may serve; bypassing: read requests that go to L2.
        written: store requests; atomic: sectors of atomic requests.
        distinct: sectors a block reads at least once.
        grid_read, grid_written: whole grid: distinct sectors read, written (what DRAM must move at least).
        atomic_lanes: atomic lane-operations per block.
        hottest: whole grid: atomic operations on the most contended address.
        reuse: see `BufferCounters.reuse`, per block.
    """

    cached: float = 0.0
    bypassing: float = 0.0
    written: float = 0.0
    atomic: float = 0.0
    distinct: float = 0.0
    grid_read: float = 0.0
    grid_written: float = 0.0
    atomic_lanes: float = 0.0
    hottest: float = 0.0
    reuse: tuple[float, ...] = (0.0,) * REUSE_BUCKETS

    @property
    def reads(self) -> float:
        """Sectors a block asks for, before L1."""
        return self.cached + self.bypassing


@dataclass(frozen=True)
class Demand:
    """Demand of one launch.

    Attributes:
        issued: warp instructions per block; issued_most: of the block that issued most.
        pipes: pipe -> clocks one SM needs for a block at the pipe's full rate.
        traffic: buffer -> traffic.
        lanes: mean active lanes per issued instruction (not linear; taken from the largest K).
        landed: bytes of bulk loads that a block receives; phases: of mbarriers they belong to; room: bytes of shared
            memory they go to; multicast: bytes of `landed` that another block of the cluster has asked for.
    """

    issued: float
    issued_most: float
    pipes: Mapping[str, float] = field(default_factory=dict)
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    lanes: float = 32.0
    landed: float = 0.0
    phases: float = 0.0
    room: float = 0.0
    multicast: float = 0.0


def demand(gpu: Gpu, counters: LaunchCounters) -> Demand:
    """Demand of the simulated blocks, with the whole-grid footprints estimated from them."""
    blocks = counters.blocks_simulated
    per_block = counters.issued().reshape(blocks, -1).sum(axis=1)
    sites = counters.sites
    asked = sum(site.lanes * site.bytes_per_lane for site in sites if site.kind == "bulk") / blocks
    return Demand(
        issued=float(per_block.mean()),
        issued_most=float(per_block.max()),
        pipes=_pipes(gpu, counters),
        traffic={name: _traffic(counters, buffer, name, sites) for name, buffer in sorted(counters.buffers.items())},
        lanes=counters.lanes_per_instruction(),
        landed=counters.ring.bytes / blocks,
        phases=counters.ring.phases / blocks,
        room=counters.ring.room / blocks,
        multicast=max(0.0, counters.ring.bytes / blocks - asked),
    )


def _pipes(gpu: Gpu, counters: LaunchCounters) -> dict[str, float]:
    """Clocks per block and pipe; several kinds of instruction may share one."""
    clocks: dict[str, float] = {}
    fed = 0.0
    for kind, issued in counters.by_kind().items():
        count = float(np.mean(issued))
        if ":" in kind:
            clocks["tensor"] = clocks.get("tensor", 0.0) + count * tensor_clocks(gpu, kind)
            fed += count * wgmma_wavefronts(kind)
            continue
        name = per_clock_name(kind)
        if name:
            pipe = name.removesuffix("_per_clk")
            clocks[pipe] = clocks.get(pipe, 0.0) + count / gpu.model[name]
    fronts = fed + sum(_wavefronts(site) for site in counters.sites) / counters.blocks_simulated
    clocks["wavefronts"] = fronts / gpu.model["wavefronts_per_clk"]
    clocks["issue"] = float(np.mean(counters.issued())) * counters.warps_per_block / gpu.model["issue_per_clk"]
    return clocks


def _wavefronts(site: SiteCounters) -> float:
    """Passes through the data pipe; an asynchronous copy passes once, and its shared-memory side counts that.

    Bulk copies do not seem to take turns with loads there: counting theirs overstates a seed on an H200 by 8 %.
    """
    if site.kind in ("bulk", "bulk_store"):
        return 0.0
    return site.wavefronts - site.ideal_wavefronts if site.kind == "cp_async" else site.wavefronts


def _traffic(counters: LaunchCounters, buffer: BufferCounters, name: str, sites: tuple[SiteCounters, ...]) -> Traffic:
    n = counters.blocks_simulated
    grid = counters.blocks_total / n
    mine = [site for site in sites if site.buffer == name]
    reads = [site for site in mine if site.kind in ("load_global", "cp_async", "bulk")]
    sectors = buffer.bytes / SECTOR_BYTES
    return Traffic(
        cached=sum(site.sectors for site in reads if site.cached_l1) / n,
        bypassing=sum(site.sectors for site in reads if not site.cached_l1) / n,
        written=sum(site.sectors for site in mine if site.kind in ("store_global", "bulk_store")) / n,
        atomic=sum(site.sectors for site in mine if site.kind == "atomic_global") / n,
        distinct=buffer.read_per_block / n,
        grid_read=_whole(buffer.read_union, grid, sectors),
        grid_written=_whole(buffer.written_union, grid, sectors),
        atomic_lanes=buffer.atomic_lanes / n,
        hottest=_hottest(counters, buffer),
        reuse=tuple(count / n for count in buffer.reuse),
    )


def _whole(union: float, grid: float, sectors: float) -> float:
    """Distinct sectors of the whole grid from those of a sample of blocks.

    The simulated blocks' union grows in proportion with the number of blocks until the buffer is exhausted: exact where
    blocks touch disjoint parts or all of a buffer, an upper bound in between.
    """
    return min(sectors, union * grid)


def _hottest(counters: LaunchCounters, buffer: BufferCounters) -> float:
    """Atomic operations of the whole grid on the most contended address.

    An address that as many operations hit as there are simulated blocks is taken to be everyone's (a counter); other
    addresses receive their share of the operations of the whole grid.
    """
    if not buffer.atomic_lanes:
        return 0.0
    grid = counters.blocks_total / counters.blocks_simulated
    shared = buffer.atomic_max >= counters.blocks_simulated > 1
    spread = buffer.atomic_lanes * grid / max(buffer.bytes / 4, 1.0)
    return max(buffer.atomic_max * grid if shared else buffer.atomic_max, spread)


def extrapolated(low: Demand, low_scale: float, high: Demand, high_scale: float) -> Demand:
    """Demand at the full K (scale 1) from two reduced ones, linear in K, never below zero.

    Args:
        low: demand at K = low_scale * full.
        low_scale: reduced K / full K.
        high: demand at K = high_scale * full.
        high_scale: reduced K / full K, larger than low_scale.
    """
    t = (1.0 - low_scale) / (high_scale - low_scale)

    def line(a: float, b: float) -> float:
        return max(0.0, a + (b - a) * t)

    names = sorted({*low.traffic, *high.traffic})
    pipes = sorted({*low.pipes, *high.pipes})
    return replace(
        high,
        issued=line(low.issued, high.issued),
        issued_most=line(low.issued_most, high.issued_most),
        landed=line(low.landed, high.landed),
        phases=line(low.phases, high.phases),
        multicast=line(low.multicast, high.multicast),
        pipes={pipe: line(low.pipes.get(pipe, 0.0), high.pipes.get(pipe, 0.0)) for pipe in pipes},
        traffic={name: _line(low.traffic.get(name), high.traffic.get(name), line) for name in names},
    )


def _line(a: Traffic | None, b: Traffic | None, line: Callable[[float, float], float]) -> Traffic:
    a, b = a or Traffic(), b or Traffic()
    numbers = {f.name: line(getattr(a, f.name), getattr(b, f.name)) for f in fields(Traffic) if f.name != "reuse"}
    return Traffic(**numbers, reuse=tuple(line(x, y) for x, y in zip(a.reuse, b.reuse, strict=True)))
