"""Modelled time of a whole program: which blocks to simulate at which K, then the cost model per launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fitness.compiler.ptx import communicates
from fitness.devices.device import Checks, Execution, Inputs, Measurement, Program, Timeable, TimingError
from fitness.devices.simulator.cost import LaunchTime, modelled_time
from fitness.devices.simulator.counters import CounterError, LaunchCounters
from fitness.devices.simulator.limiter import sentence
from fitness.devices.simulator.path import loops
from fitness.devices.simulator.sampling import BLOCKS, TOGETHER, sample_blocks
from fitness.gpu import Gpu

STEPS = 50_000_000


class CostRunError(TimingError):
    """A program did not finish while it was costed; `execution` says why. A verdict on the kernel, for the caller."""


class Runner(Protocol):
    """What is needed of the simulator."""

    @property
    def gpu(self) -> Gpu:
        """The card modelled."""

    def run(self, program: Program, inputs: Inputs, checks: Checks) -> Execution:
        """See `Device.run`; with `checks.counters`, `Execution.counters` holds a LaunchCounters per launch."""


@dataclass(frozen=True)
class ProgramTime:
    """Modelled time of a program: its launches' and what its memsets cost, microseconds.

    `reduced_steps` as in `Measurement`.
    """

    launches: tuple[LaunchTime, ...]
    memset_us: float
    reduced_steps: tuple[tuple[float, float], ...] | None = None

    @property
    def time_us(self) -> float:
        """Sum of launches and memsets."""
        return self.memset_us + sum(launch.time_us for launch in self.launches)


def model_program(runner: Runner, subject: Timeable, *, blocks: int = BLOCKS) -> Measurement:
    """Modelled time of one subject.

    Args:
        runner: the simulator.
        subject: the program at full size and, if K is reducible, at two reduced K. The full size is run where
            there are none or where costs are not linear in K.
        blocks: simulated per launch.

    Raises:
        CostRunError: the program did not finish (out of bounds, trap, step budget).
    """
    time = program_time(runner, subject, blocks=blocks)
    said = limiter(time, runner.gpu)
    occupancy = min(launch.occupancy.fraction for launch in time.launches)
    us = time.time_us
    return Measurement(us, us, us, limiter=said, occupancy=occupancy, reduced_steps=time.reduced_steps)


def limiter(time: ProgramTime, gpu: Gpu) -> str:
    """What holds the slowest launch of a program back, and the next two."""
    slowest = max(time.launches, key=lambda launch: launch.time_us)
    said = sentence(slowest, gpu.sms)
    if len(time.launches) > 1:
        said = f"{slowest.entry} ({100 * slowest.time_us / time.time_us:.0f} % of the time): {said}"
    return said


def program_time(runner: Runner, subject: Timeable, *, blocks: int = BLOCKS) -> ProgramTime:
    """The same with everything the model knows about each launch (arguments as of `model_program`)."""
    runs = _reduced_runs(runner, subject, blocks) or [(1.0, _run(runner, subject.program, subject.inputs, blocks))]
    launches = subject.program.launches
    if any(len(run.launches) != len(launches) for _, run in runs):
        raise CounterError("a program at reduced K has other launches than at full K")
    scratch = frozenset(workspace.name for workspace in subject.program.workspaces)
    times = tuple(
        modelled_time(
            runner.gpu,
            launch,
            subject.program.compiled.entries[launch.entry],
            [(scale, run.launches[i]) for scale, run in runs],
            workspaces=scratch,
        )
        for i, launch in enumerate(launches)
    )
    steps = tuple((scale, run.steps_per_block) for scale, run in runs if scale < 1.0)
    return ProgramTime(times, _memsets(runner.gpu, subject), steps)


def _reduced_runs(runner: Runner, subject: Timeable, blocks: int) -> list[tuple[float, _CostRun]]:
    """(scale, run) at the reduced K; none where costs are not linear in K."""
    runs: list[tuple[float, _CostRun]] = []
    for scale, program, inputs in subject.reduced:
        run = _run(runner, program, inputs, blocks)
        if any(map(uneven, run.launches)):
            return []
        runs.append((scale, run))
    return runs if runs and all(map(linear_in_k, runs[0][1].launches, runs[-1][1].launches)) else []


def uneven(counters: LaunchCounters) -> bool:
    """Whether most blocks go ways of their own, as data decide them: another K would have them go others.

    Told from one run, so that no second one is made in vain. First and last blocks of a grid may well differ from those
    in between, and where a single block differs nothing is known.
    """
    simulated = counters.blocks_simulated
    each = counters.executions.reshape(-1, simulated, counters.warps_per_block).swapaxes(0, 1).reshape(simulated, -1)
    return 4 * len({one.tobytes() for one in each}) > 3 * max(simulated, 8)


def linear_in_k(low: LaunchCounters, high: LaunchCounters) -> bool:
    """Whether two reduced K lie on one line with the full K: the same warps did the same, only more often.

    Where K is so small that warps or pipeline stages stay idle, costs do not grow in proportion: the traces
    then differ in more than the repetitions of their loops, or some warp has not run some basic block.
    """
    if low.executions.shape != high.executions.shape or ((low.executions > 0) != (high.executions > 0)).any():
        return False
    return all(
        [blocks for blocks, _ in loops(a.tolist())] == [blocks for blocks, _ in loops(b.tolist())]
        for (_, a), (_, b) in zip(low.traces, high.traces, strict=True)
    )


@dataclass(frozen=True)
class _CostRun:
    """Counters of each launch, and warp instructions per simulated block."""

    launches: Sequence[LaunchCounters]
    steps_per_block: float


def _run(runner: Runner, program: Program, inputs: Inputs, blocks: int) -> _CostRun:
    chosen = tuple(
        sample_blocks(launch, blocks, together=TOGETHER if communicates(program.compiled.ptx, launch.entry) else 1)
        for launch in program.launches
    )
    checks = Checks(races=False, uninitialised=False, counters=True, blocks=chosen, steps=STEPS)
    execution = runner.run(program, inputs, checks)
    if execution.ended != "finished":
        raise CostRunError(execution)
    if execution.counters is None:
        raise CounterError("the simulator was asked for counters and gave none")
    return _CostRun(execution.counters, execution.steps / sum(map(len, chosen)))


def _memsets(gpu: Gpu, subject: Timeable) -> float:
    """A memset is a small kernel of its own: a launch and its bytes at DRAM speed."""
    sizes = {name: array.nbytes for name, array in [*subject.inputs.buffers.items(), *subject.inputs.outputs.items()]}
    sizes |= {workspace.name: workspace.bytes for workspace in subject.program.workspaces}
    names = [name for launch in subject.program.launches for name in launch.memset]
    return sum(gpu.launch_us + sizes[name] / (gpu.model["dram_gb_per_s"] * 1e3) for name in names)
