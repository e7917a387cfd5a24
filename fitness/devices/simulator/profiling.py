"""Profile of a program on the modelled clock: counters, and what each source line does and waits for.

Counters have Nsight Compute's names where they mean the same; those that begin with `evo__` have no counterpart.
Caches, occupancy, waves and waits are the cost model's.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from fitness.devices.device import Checks, Profile, Timeable
from fitness.devices.simulator.cost import LaunchTime
from fitness.devices.simulator.counters import GLOBAL_KINDS, SECTOR_BYTES, LaunchCounters, SiteCounters
from fitness.devices.simulator.pipes import SCHEDULERS
from fitness.devices.simulator.sampling import sample_blocks
from fitness.devices.simulator.timing import CostRunError, ProgramTime, Runner, limiter, program_time
from fitness.gpu import Gpu

Lines = dict[int, dict[str, float]]

_STEPS = 50_000_000
INSTRUCTIONS = "smsp__inst_executed.sum"
WAITS = "evo__wait_share.pct"
"""Share of the longest warp's time that waits for a line."""
_THREADS = "smsp__thread_inst_executed.sum"


def profile_program(runner: Runner, subject: Timeable) -> Profile:
    """Counters of sampled blocks scaled to the whole grid, over all launches, and the limiter sentence.

    Args:
        runner: the simulator.
        subject: the program at full size.

    Raises:
        CostRunError: the program does not finish.
    """
    chosen = tuple(sample_blocks(launch) for launch in subject.program.launches)
    checks = Checks(races=False, uninitialised=False, counters=True, blocks=chosen, steps=_STEPS)
    execution = runner.run(subject.program, subject.inputs, checks)
    if execution.ended != "finished":
        raise CostRunError(execution)
    totals: dict[str, float] = defaultdict(float)
    lines: Lines = defaultdict(lambda: defaultdict(float))
    for counters in execution.counters or ():
        _add(counters, totals, lines)
    time = program_time(runner, subject)
    _ratios(totals)
    for line in lines.values():
        _ratios(line)
    totals |= _modelled(time, runner.gpu)
    for launch in time.launches:
        for (_, number), share in launch.stalls.items():
            if number:
                lines[number][WAITS] += 100 * share * launch.time_us / time.time_us
    per_line = {line: dict(values) for line, values in sorted(lines.items()) if line}
    return Profile(dict(totals), limiter(time, runner.gpu), per_line)


def _add(counters: LaunchCounters, totals: dict[str, float], lines: Lines) -> None:
    """What the sampled blocks of one launch executed and touched, scaled to its grid."""
    scale = counters.blocks_total / counters.blocks_simulated
    executions = counters.executions.sum(axis=1)
    for block, times, lanes in zip(counters.code, executions, counters.lane_executions, strict=True):
        for op in block:
            totals[INSTRUCTIONS] += scale * float(times)
            totals[_THREADS] += scale * float(lanes)
            totals[f"evo__inst_executed_{op.kind.partition(':')[0]}.sum"] += scale * float(times)
            if op.kind.startswith(("mma", "wgmma:", "wgmma_sp:")):
                totals["sm__inst_executed_pipe_tensor.sum"] += scale * float(times)
            lines[op.line][INSTRUCTIONS] += scale * float(times)
            lines[op.line][_THREADS] += scale * float(lanes)
    totals["smsp__sass_branch_targets_threads_divergent.sum"] += scale * counters.divergent_branches
    for site in counters.sites:
        for name, value in _of_site(site).items():
            totals[name] += scale * value
            lines[site.line][name] += scale * value
    hottest = max((buffer.atomic_max for buffer in counters.buffers.values()), default=0.0)
    totals["evo__atomics_hottest_address.max"] = max(totals["evo__atomics_hottest_address.max"], hottest)


def _of_site(site: SiteCounters) -> dict[str, float]:
    """Counters of one memory instruction."""
    direction = (
        "ld" if site.kind.startswith(("load", "ldmatrix", "cp_async", "bulk")) and site.kind != "bulk_store" else "st"
    )
    if site.kind.startswith("atomic"):
        return {"evo__atomics_requests.sum": site.requests, "evo__atomics_serial.sum": site.serial}
    if site.kind in GLOBAL_KINDS:
        space = f"pipe_lsu_mem_global_op_{direction}.sum"
        return {
            f"l1tex__t_sectors_{space}": site.sectors,
            f"l1tex__t_requests_{space}": site.requests,
            "evo__sectors_beyond_need.sum": site.sectors - site.ideal_sectors,
        }
    if not site.wavefronts:
        return {}
    return {
        f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{direction}.sum": site.wavefronts,
        "l1tex__data_bank_conflicts_pipe_lsu.sum": site.wavefronts - site.ideal_wavefronts,
    }


def _ratios(counts: dict[str, float]) -> None:
    """Ratios of what has been summed."""
    if counts.get(INSTRUCTIONS):
        ratio = counts[_THREADS] / counts[INSTRUCTIONS]
        counts["smsp__thread_inst_executed_per_inst_executed.ratio"] = ratio
    for direction in ("ld", "st"):
        space = f"pipe_lsu_mem_global_op_{direction}"
        requests = counts.get(f"l1tex__t_requests_{space}.sum", 0.0)
        if requests:
            sectors = counts[f"l1tex__t_sectors_{space}.sum"]
            counts[f"l1tex__average_t_sectors_per_request_{space}.ratio"] = sectors / requests


def _modelled(time: ProgramTime, gpu: Gpu) -> dict[str, float]:
    """Traffic behind L1, and of the slowest launch its occupancy, waves, warps that could issue, and busy pipes."""
    found: dict[str, float] = defaultdict(float)
    for launch in time.launches:
        for name, served in launch.served.items():
            found["lts__t_bytes.sum"] += SECTOR_BYTES * served.l2_sectors * launch.blocks
            found["dram__bytes.sum"] += served.dram_bytes
            reads = launch.demand.traffic[name].reads * launch.blocks
            found["evo__l1_reads"] += reads
            found["evo__l1_hits"] += reads * served.l1
    reads, hits = found.pop("evo__l1_reads", 0.0), found.pop("evo__l1_hits", 0.0)
    if reads:
        found["l1tex__t_sector_hit_rate.pct"] = 100 * hits / reads
    slowest = max(time.launches, key=lambda launch: launch.time_us)
    return {**found, **_of_launch(slowest, gpu)}


def _of_launch(launch: LaunchTime, gpu: Gpu) -> Mapping[str, float]:
    warps = launch.resident * launch.warps_per_block
    waves = launch.blocks / (gpu.sms * launch.occupancy.blocks)
    waiting = min(1.0, sum(launch.stalls.values()))
    busy = {
        f"evo__busy_{term.replace(' ', '_').replace('/', '_').lower()}.pct": 100 * us / launch.time_us
        for term, us in launch.terms.items()
    }
    return busy | {
        "sm__maximum_warps_per_active_cycle_pct": 100 * launch.occupancy.fraction,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 100 * warps / gpu.limits.warps_per_sm,
        "smsp__warps_eligible.avg.per_cycle_active": warps / SCHEDULERS * (1 - waiting),
        "launch__waves_per_multiprocessor": waves,
        "evo__tail_idle.pct": 100 * (1 - waves / math.ceil(waves)),
    }
