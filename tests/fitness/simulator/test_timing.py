"""Modelled time of a program: reduced K where costs are linear in it, the full K where they are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fitness import gpu
from fitness.devices.device import Checks, Compiled, Execution, Inputs, Program, ResolvedWorkspace, Timeable
from fitness.devices.simulator.counters import CounterError, LaunchCounters
from fitness.devices.simulator.timing import CostRunError, linear_in_k, model_program, program_time, uneven
from tests.fitness.simulator.synthetic import Stream

FULL = Stream(iterations=256)
NOTHING = Inputs({}, {"Y": np.zeros(64, dtype=np.float16)})


def program(stream: Stream, launches: int = 1, memset: tuple[str, ...] = ()) -> Program:
    compiled = Compiled("sm_90a", "", b"", "", {"k": stream.entry()})
    launch = replace(stream.launch(), memset=memset)
    return Program(compiled, (launch,) * launches, (ResolvedWorkspace("scratch", 1 << 20, "zero"),))


class Recorded:
    """A simulator that has seen it all: counters by program, and which programs it ran."""

    gpu = gpu.load("H200")

    def __init__(self) -> None:
        self.known: list[tuple[Program, tuple[LaunchCounters, ...]]] = []
        self.ran: list[Program] = []
        self.checks: list[Checks] = []
        self.ended = "finished"

    def add(self, stream: Stream, launches: int = 1) -> Program:
        made = program(stream, launches)
        self.known.append((made, (stream.counters(),) * len(made.launches)))
        return made

    def run(self, wanted: Program, inputs: Inputs, checks: Checks) -> Execution:
        del inputs
        self.ran.append(wanted)
        self.checks.append(checks)
        counters = next(counters for made, counters in self.known if made is wanted)
        return Execution({}, {}, ended=self.ended, counters=counters)  # type: ignore[arg-type]


def subject(runner: Recorded, *iterations: int) -> Timeable:
    full = runner.add(FULL)
    reduced = [(i / FULL.iterations, runner.add(replace(FULL, iterations=i)), NOTHING) for i in iterations]
    return Timeable(full, NOTHING, tuple(reduced))


def test_reduced_k_agrees_with_the_full_one_within_three_per_cent_and_spares_running_it() -> None:
    quick, whole = Recorded(), Recorded()
    extrapolated = model_program(quick, subject(quick, 16, 32))
    full = model_program(whole, subject(whole))
    assert extrapolated.time_us == pytest.approx(full.time_us, rel=0.03)
    assert [p is quick.known[0][0] for p in quick.ran] == [False, False]
    assert extrapolated.low_us == extrapolated.time_us == extrapolated.high_us
    assert 0 < extrapolated.occupancy <= 1
    assert "-bound" in extrapolated.limiter


def test_costing_runs_unchecked_on_sampled_blocks_with_counters() -> None:
    runner = Recorded()
    model_program(runner, subject(runner))
    (checks,) = runner.checks
    assert (checks.races, checks.uninitialised, checks.counters) == (False, False, True)
    assert checks.blocks is not None
    assert len(checks.blocks[0]) == 16


def test_a_loop_too_short_to_be_one_is_no_base_for_a_line() -> None:
    runner = Recorded()
    subject_ = subject(runner, 1, 32)
    assert not linear_in_k(runner.known[1][1][0], runner.known[2][1][0])
    time = program_time(runner, subject_)
    assert runner.ran[-1] is subject_.program
    assert time.time_us == program_time(runner, subject(runner)).time_us


def test_warps_without_work_at_the_smaller_k_are_no_base_either() -> None:
    low, high = replace(FULL, iterations=16).counters(), replace(FULL, iterations=32).counters()
    assert linear_in_k(low, high)
    idle = low.executions.copy()
    idle[1, 5] = 0
    assert not linear_in_k(replace(low, executions=idle), high)


def test_blocks_that_all_go_ways_of_their_own_are_costed_at_the_full_k_at_once() -> None:
    runner = Recorded()
    subject_ = subject(runner, 16, 32)
    program_, (low,) = runner.known[1]
    executions = low.executions.copy()
    executions[1] += np.arange(executions.shape[1]) // low.warps_per_block
    runner.known[1] = (program_, (replace(low, executions=executions),))
    time = program_time(runner, subject_)
    assert [p is subject_.program for p in runner.ran] == [False, True]
    assert time.reduced_steps == ()
    assert time.time_us == program_time(runner, subject(runner)).time_us


def test_a_first_and_a_last_block_that_differ_do_not_make_a_launch_uneven() -> None:
    counters = replace(FULL, iterations=16).counters()
    executions = counters.executions.copy()
    executions[1, : counters.warps_per_block] -= 3
    executions[1, -counters.warps_per_block :] -= 5
    assert not uneven(replace(counters, executions=executions))
    alone = replace(counters, blocks_simulated=1, executions=executions[:, : counters.warps_per_block])
    assert not uneven(alone)


def test_launches_and_memsets_add_up() -> None:
    runner = Recorded()
    one = program_time(runner, Timeable(runner.add(FULL), NOTHING)).time_us
    two = program_time(runner, Timeable(runner.add(FULL, launches=2), NOTHING)).time_us
    assert two == pytest.approx(2 * one)
    made = program(FULL, memset=("scratch",))
    runner.known.append((made, (FULL.counters(),)))
    cleared = program_time(runner, Timeable(made, NOTHING))
    assert cleared.memset_us == pytest.approx(1.0 + (1 << 20) / 4.5e6)
    assert cleared.time_us == pytest.approx(one + cleared.memset_us)


def test_the_limiter_of_several_launches_names_the_slowest() -> None:
    runner = Recorded()
    said = model_program(runner, Timeable(runner.add(FULL, launches=2), NOTHING)).limiter
    assert said.startswith("k (50 % of the time): ")


def test_a_run_that_does_not_finish_is_reported_with_its_execution() -> None:
    runner = Recorded()
    runner.ended = "trap"
    with pytest.raises(CostRunError, match="trap") as caught:
        model_program(runner, subject(runner))
    assert caught.value.execution.ended == "trap"


def test_another_number_of_launches_at_reduced_k_is_a_fault() -> None:
    runner = Recorded()
    full = runner.add(FULL)
    reduced = [(i / 256, runner.add(replace(FULL, iterations=i), launches=2), NOTHING) for i in (16, 32)]
    with pytest.raises(CounterError, match="other launches"):
        program_time(runner, Timeable(full, NOTHING, tuple(reduced)))
