"""The modelled clock: time of one launch from what its simulated blocks did.

    T = launch + ramp + (DRAM^p + L2^p + SM^p + ...)^(1/p),     SM = (latency^p + throughput^p)^(1/p)

* throughput: clocks the busiest SM needs in its busiest pipe (issue slots, FP32, INT, tensor cores, ...);
* latency: waves of resident blocks times the critical path of one warp, so bytes in flight, stages of
  asynchronous copies and occupancy decide how much of the memory's bandwidth a kernel can ask for;
* L2 and DRAM: device-wide traffic after L1 and L2 over the measured bandwidths;
* atomics: the most contended address and all of them; starting blocks.

The terms overlap imperfectly, which the p-norm says: two equal limits cost 26 % more than either, one that dominates
costs itself (p = 3 ranked best in a study of 23 kernels against a card). Nothing is fitted per kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fitness.devices.device import Entry, ResolvedLaunch
from fitness.devices.simulator.counters import SECTOR_BYTES, CounterError, LaunchCounters, SiteCounters
from fitness.devices.simulator.demand import Demand, Traffic, demand, extrapolated
from fitness.devices.simulator.path import Scheduler, WarpPath, warp_path
from fitness.devices.simulator.pipes import SCHEDULERS, Pipes
from fitness.gpu import Gpu
from fitness.occupancy import Occupancy, occupancy

P = 3.0
#: The same for kernels fed by bulk copies: these, wgmma and stores run in engines of their own and overlap better. From
#: 19 settings of a sparse wgmma seed on an H200 (h200_wgmma.json).
P_BULK = 8.0
_SUBPARTITION_PIPES = frozenset({"issue", "fp32", "fp16", "fp64", "int", "convert", "sfu", "tensor"})


class ModelError(RuntimeError):
    """The model contradicts itself (a time below the floor): a fault of evo, never a verdict on a kernel."""


@dataclass(frozen=True)
class Served:
    """Where the reads of one buffer are served.

    Attributes:
        l1: fraction of the requested sectors that L1 holds.
        cold: fraction of the requests to L2 that wait for DRAM, be it because another block asked first.
        l2_sectors: sectors a block asks of L2, writes and atomics included.
        dram_bytes: whole grid, reads and writes.
    """

    l1: float
    cold: float
    l2_sectors: float
    dram_bytes: float


@dataclass(frozen=True)
class LaunchTime:
    """Modelled time of one launch.

    Attributes:
        time_us: all of it. floor_us: launch + DRAM bytes at the data sheet's peak, which it cannot undercut.
        terms: term -> microseconds if it alone counted ("DRAM", "L2", "latency", "tensor", ...).
        occupancy: what an SM can hold; resident: blocks it does hold, for the grid may be small.
        warps_per_block: ceil(threads / 32); busy_sms: SMs that get a block.
        waves: blocks of the busiest SM / resident blocks.
        path: clocks of the longest critical path of a warp at full K.
        stalls: (kind, line) waited for -> share of that path's clocks.
        demand, served, blocks, sites: what the terms were made of.
    """

    entry: str
    time_us: float
    floor_us: float
    terms: Mapping[str, float]
    occupancy: Occupancy
    resident: int
    warps_per_block: int
    busy_sms: int
    waves: float
    path: float
    stalls: Mapping[tuple[str, int], float]
    demand: Demand
    served: Mapping[str, Served]
    blocks: int = 1
    sites: tuple[SiteCounters, ...] = field(repr=False, default=())


def modelled_time(
    gpu: Gpu,
    launch: ResolvedLaunch,
    entry: Entry,
    samples: Sequence[tuple[float, LaunchCounters]],
    *,
    workspaces: frozenset[str] = frozenset(),
) -> LaunchTime:
    """Time of one launch.

    Args:
        gpu: the card modelled.
        launch: the launch at full size.
        entry: its kernel's resources.
        samples: (reduced K / full K, counters), ascending: one at scale 1, or two or more at reduced K.
        workspaces: names of scratch buffers, whose traffic stays in L2 where it fits.

    Raises:
        CounterError: samples that cannot be extrapolated.
        ModelError: the time would be below the floor.
    """
    residency = occupancy(
        gpu,
        threads=launch.block[0] * launch.block[1] * launch.block[2],
        registers=entry.registers,
        shared_bytes=entry.shared_bytes + launch.shared,
    )
    demands = [(scale, _with_spills(gpu, entry, demand(gpu, counters), counters)) for scale, counters in samples]
    (low_scale, low), (high_scale, high) = demands[0], demands[-1]
    if high_scale != 1.0 and (len(samples) < 2 or not low_scale < high_scale):
        raise CounterError("reduced-K counters need two different scales in ascending order")
    full = high if high_scale == 1.0 else extrapolated(low, low_scale, high, high_scale)
    machine = _Machine(gpu, launch, residency, full, workspaces, entry.shared_bytes + launch.shared)
    sites = samples[-1][1].sites
    scheduler = Scheduler(samples[-1][1].code, machine.pipes(sites, _equal_warps(samples[-1][1])))
    paths = [(scale, _longest_path(scheduler, counters)) for scale, counters in samples]
    return machine.time(paths, sites)


def _with_spills(gpu: Gpu, entry: Entry, found: Demand, counters: LaunchCounters) -> Demand:
    """Add register spills, which PTX does not show: each is charged as often as the mean instruction runs."""
    words = (entry.spill_store_bytes + entry.spill_load_bytes) / 4
    static = sum(op.issues for block in counters.code for op in block)
    if not words or not static:
        return found
    extra = found.issued / static * words
    pipes = dict(found.pipes)
    for pipe in ("lsu", "wavefronts"):
        pipes[pipe] = pipes.get(pipe, 0.0) + extra
    pipes["issue"] += extra / gpu.model["issue_per_clk"]
    return replace(found, pipes=pipes)


def _equal_warps(counters: LaunchCounters) -> float:
    """Warps of a block that share its pipes, as many as would do equal work.

    All of them, but for kernels with bulk copies, whose warps have roles: the work of all over that of the busiest.
    """
    if not counters.ring.bytes:
        return float(counters.warps_per_block)
    issued = counters.issued().reshape(counters.blocks_simulated, -1)
    busiest = issued.max(axis=1)
    return max(1.0, float(np.mean(issued.sum(axis=1) / np.maximum(busiest, 1.0))))


def _longest_path(scheduler: Scheduler, counters: LaunchCounters) -> WarpPath:
    traces = {trace.tobytes(): trace for _, trace in counters.traces}
    paths = [warp_path(trace, scheduler) for trace in traces.values()]
    return max(paths, key=lambda path: path.clocks, default=WarpPath())


class _Machine:
    """The card with one launch on it."""

    def __init__(
        self,
        gpu: Gpu,
        launch: ResolvedLaunch,
        residency: Occupancy,
        full: Demand,
        workspaces: frozenset[str],
        shared_bytes: int,
    ) -> None:
        self.gpu, self.launch, self.residency, self.demand, self.workspaces = gpu, launch, residency, full, workspaces
        self.blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        self.warps_per_block = -(-threads // 32)
        usable = _usable_sms(gpu, launch.cluster[0] * launch.cluster[1] * launch.cluster[2])
        self.busy_sms = min(self.blocks, usable)
        self.per_sm = -(-self.blocks // usable)
        self.resident = max(1, min(self.per_sm, residency.blocks))
        self.l1_bytes = max(0.0, gpu.model["l1_bytes"] - self.resident * (shared_bytes + 1024))
        footprint = sum(t.grid_read + t.grid_written for t in full.traffic.values()) * SECTOR_BYTES
        #: Fraction of a re-read that misses L2 because the launch touches more than L2 holds.
        self.l2_miss = max(0.0, 1.0 - gpu.model["l2_usable_bytes"] / footprint) if footprint else 0.0
        self.served = {name: self._served(name, traffic) for name, traffic in full.traffic.items()}

    def _served(self, name: str, traffic: Traffic) -> Served:
        hits = 0.0
        for i, count in enumerate(traffic.reuse):
            distance = 1.5 * 2**i * SECTOR_BYTES * self.resident  # other resident blocks read as much meanwhile
            hits += count * min(1.0, max(0.0, 2.0 - distance / self.l1_bytes)) if self.l1_bytes else 0.0
        hits = min(hits, traffic.cached)
        reads = traffic.reads - hits
        total = reads * self.blocks
        first = min(traffic.grid_read, total)
        dram = first + (total - first) * self.l2_miss * self._reread_later()
        written = min(traffic.grid_written, (traffic.written + traffic.atomic) * self.blocks)
        if name in self.workspaces and self.l2_miss == 0.0:
            dram = written = 0.0
        # Blocks of one wave ask for a shared sector at about the same time, and all wait for its first arrival.
        waves = max(1.0, self.per_sm / self.resident)
        asked = min(total, traffic.grid_read * waves)
        return Served(
            l1=hits / traffic.reads if traffic.reads else 0.0,
            cold=min(1.0, dram / asked) if asked else 0.0,
            l2_sectors=reads + traffic.written + traffic.atomic,
            dram_bytes=(dram + written) * SECTOR_BYTES,
        )

    def _reread_later(self) -> float:
        """Fraction of re-reads by blocks that are not resident together, so that L2 may have lost the sector."""
        together = self.busy_sms * self.resident
        return max(0.0, 1.0 - together / self.blocks)

    def pipes(self, sites: tuple[SiteCounters, ...], warps: float) -> Pipes:
        """Instruction timing with the buffers' mean latencies, for so many warps of a block at equal work."""
        return Pipes(self.gpu, sites, self._latencies(), warps)

    def _latencies(self) -> dict[str, float]:
        """Buffer -> mean latency of a read, clocks."""
        model = self.gpu.model
        return {
            name: served.l1 * model["l1_latency"]
            + (1.0 - served.l1)
            * (model["l2_latency"] + served.cold * (model["dram_stream_latency"] - model["l2_latency"]))
            for name, served in self.served.items()
        }

    def _fed(self, path: float, sites: tuple[SiteCounters, ...]) -> float:
        """Path of the warps that consume bulk loads: their own work, or what the ring of stages lets through.

        A ring of `room` bytes takes in its content once per latency of a load and time of consuming a stage; a stage
        is there when its slowest part is. The first load is in the ramp of every launch.
        """
        full = self.demand
        if not full.phases:
            return path
        latencies = self._latencies()
        slowest = max((latencies.get(site.buffer, 0.0) for site in sites if site.kind == "bulk"), default=0.0)
        stage = full.landed / full.phases
        moved = stage / self.gpu.model["l2_bytes_per_clk_per_sm"]
        latency = slowest + self.gpu.model["bulk_latency"] + moved
        stages = max(1.0, full.room / stage)
        return max(path, full.phases * (latency + path / full.phases) / stages)

    def time(self, paths: Sequence[tuple[float, WarpPath]], sites: tuple[SiteCounters, ...]) -> LaunchTime:
        """Put the terms together."""
        tail = paths[-1][1].tail if self.demand.phases else 0.0
        path = self._fed(_at_full_k([(scale, found.clocks - tail) for scale, found in paths]), sites)
        terms = self._sm_terms(path) | self._device_terms()
        latency = terms["latency"]
        pipes = max((terms[pipe] for pipe in self.demand.pipes), default=0.0)
        p = P_BULK if self.demand.phases else P
        sm = _norm(p, latency, pipes, terms["L1 fill"])
        ramp = self._ramp(tail)
        launch_us = self.gpu.launch_us
        body = _norm(p, sm, terms["DRAM"], terms["L2"], terms["atomics"], terms["block starts"])
        floor = launch_us + self._dram_bytes() / (self.gpu.bandwidth_gb_per_s * 1e3)
        time_us = launch_us + ramp + body
        if time_us < floor:
            raise ModelError(f"{self.launch.entry}: modelled {time_us:.3f} us, below its floor of {floor:.3f} us")
        last = paths[-1][1]
        return LaunchTime(
            entry=self.launch.entry,
            time_us=time_us,
            floor_us=floor,
            terms={**terms, "launch": launch_us + ramp},
            occupancy=self.residency,
            resident=self.resident,
            warps_per_block=self.warps_per_block,
            busy_sms=self.busy_sms,
            waves=self.per_sm / self.resident,
            path=path,
            stalls={cause: clocks / max(last.clocks, 1.0) for cause, clocks in last.stalls.items()},
            demand=self.demand,
            served=self.served,
            blocks=self.blocks,
            sites=sites,
        )

    def _ramp(self, tail: float) -> float:
        """Microseconds in which a launch asks for no memory: start and end, and those of every wave of a pipeline.

        Behind its last load a block fed by bulk copies combines and stores results (`tail` clocks) while the copy
        engine rests, and the next block has to fill its ring.
        """
        clocks = self.gpu.model["ramp_clk"]
        if self.demand.phases:
            clocks = -(-self.per_sm // self.resident) * (clocks + tail)
        return clocks / (self.gpu.clock_ghz * 1e3)

    def _sm_terms(self, path: float) -> dict[str, float]:
        """Microseconds of the busiest SM by pipe, and of its latency."""
        to_us = 1.0 / (self.gpu.clock_ghz * 1e3)
        warps = self.resident * self.warps_per_block
        idle_schedulers = SCHEDULERS / min(SCHEDULERS, warps)
        skew = self.demand.issued_most / self.demand.issued if self.demand.issued else 1.0
        uneven = (self.per_sm + skew - 1.0) / self.per_sm
        terms = {}
        for pipe, clocks in self.demand.pipes.items():
            factor = idle_schedulers if pipe in _SUBPARTITION_PIPES else 1.0
            terms[pipe] = self.per_sm * uneven * clocks * factor * to_us
        waves = -(-self.per_sm // self.resident)
        # The traced path is the longest block's; other waves take the mean.
        terms["latency"] = (1.0 + (waves - 1) / skew) * path * to_us
        filled = sum(served.l2_sectors for served in self.served.values()) * SECTOR_BYTES + self.demand.multicast
        terms["L1 fill"] = self.per_sm * filled / self.gpu.model["l2_bytes_per_clk_per_sm"] * to_us
        return terms

    def _l2_us(self) -> float:
        """All sectors cross to the SMs; those that several SMs ask for at the same time are read from L2 once."""
        model, waves = self.gpu.model, max(1.0, self.per_sm / self.resident)
        total = distinct = 0.0
        for name, served in self.served.items():
            traffic = self.demand.traffic[name]
            sectors = served.l2_sectors * self.blocks
            total += sectors
            distinct += min(sectors, traffic.grid_read * waves + (traffic.written + traffic.atomic) * self.blocks)
        shared, alone = model["l2_shared_gb_per_s"] * 1e3, model["l2_gb_per_s"] * 1e3
        return SECTOR_BYTES * (total / shared + distinct * (1.0 / alone - 1.0 / shared))

    def _dram_bytes(self) -> float:
        return sum(served.dram_bytes for served in self.served.values())

    def _device_terms(self) -> dict[str, float]:
        model, to_us = self.gpu.model, 1.0 / (self.gpu.clock_ghz * 1e3)
        traffic = self.demand.traffic.values()
        hottest = max((t.hottest for t in traffic), default=0.0) / model["atomics_per_clk"]
        atomics = sum(t.atomic for t in traffic) * self.blocks / model["atomic_sectors_per_clk"]
        return {
            "DRAM": self._dram_bytes() / (model["dram_gb_per_s"] * 1e3),
            "L2": self._l2_us(),
            "atomics": max(hottest, atomics) * to_us,
            "block starts": self.blocks / model["blocks_per_clk"] * to_us,
        }


def _usable_sms(gpu: Gpu, cluster: int) -> int:
    """SMs that hold blocks at a time when a block fills an SM: a cluster stays within a GPC and may leave SMs over."""
    if cluster == 1:
        return gpu.sms
    listed = min(size for size in (2, 4, 8) if size >= min(cluster, 8))
    sms = gpu.model[f"clusters_of_{listed}"] * listed
    return int(sms // cluster * cluster)


def _norm(p: float, *terms: float) -> float:
    return float(sum(term**p for term in terms) ** (1.0 / p))


def _at_full_k(values: Sequence[tuple[float, float]]) -> float:
    (low_scale, low), (high_scale, high) = values[0], values[-1]
    if high_scale == 1.0:
        return high
    return max(high, low + (high - low) * (1.0 - low_scale) / (high_scale - low_scale))
