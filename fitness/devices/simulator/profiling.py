"""Profile of a program on the modelled clock: counters named as Nsight Compute names them, and per source line."""

from __future__ import annotations

from collections import defaultdict

from fitness.devices.device import Checks, Profile, Timeable
from fitness.devices.simulator.counters import GLOBAL_KINDS, LaunchCounters
from fitness.devices.simulator.sampling import sample_blocks
from fitness.devices.simulator.timing import CostRunError, Runner, model_program

_STEPS = 50_000_000


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
    lines: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for counters in execution.counters or ():
        _add(counters, totals, lines)
    if totals["smsp__inst_executed.sum"]:
        ratio = totals["smsp__thread_inst_executed.sum"] / totals["smsp__inst_executed.sum"]
        totals["smsp__thread_inst_executed_per_inst_executed.ratio"] = ratio
    measurement = model_program(runner, subject)
    return Profile(dict(totals), measurement.limiter, {line: dict(values) for line, values in sorted(lines.items())})


def _add(counters: LaunchCounters, totals: dict[str, float], lines: dict[int, dict[str, float]]) -> None:
    scale = counters.blocks_total / counters.blocks_simulated
    executions = counters.executions.sum(axis=1)
    for block, times, lanes in zip(counters.code, executions, counters.lane_executions, strict=True):
        for op in block:
            totals["smsp__inst_executed.sum"] += scale * float(times)
            totals["smsp__thread_inst_executed.sum"] += scale * float(lanes)
            lines[op.line]["smsp__inst_executed.sum"] += scale * float(times)
    totals["smsp__sass_branch_targets_threads_divergent.sum"] += scale * counters.divergent_branches
    for site in counters.sites:
        load = site.kind.startswith(("load", "ldmatrix", "cp_async"))
        if site.kind in GLOBAL_KINDS:
            direction = "ld" if load else "st"
            name = f"l1tex__t_sectors_pipe_lsu_mem_global_op_{direction}.sum"
            totals[name] += scale * site.sectors
            lines[site.line][name] += scale * site.sectors
        elif site.wavefronts:
            name = f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{'ld' if load else 'st'}.sum"
            totals[name] += scale * site.wavefronts
            totals["l1tex__data_bank_conflicts_pipe_lsu.sum"] += scale * (site.wavefronts - site.ideal_wavefronts)
            lines[site.line][name] += scale * site.wavefronts
