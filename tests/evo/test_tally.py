from __future__ import annotations

import pytest

from evo.budget import Budget
from evo.experiment import BudgetSection
from evo.observer import Stage
from evo.tally import Tally, timings_of
from fitness.outcome import CompileFailed, Gate, Outcome, Timed, WrongResult
from mutations.operator import Candidate, Judged, Plan
from tests.evo import fakes

TASK = fakes.experiment().checked_task


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def judged(n: int, outcome: Outcome | None = None, reused_from: int | None = None, **params: int) -> Judged:
    kernel = fakes.kernel("fast", **params)
    candidate = Candidate(Plan(n, min(n, 1), 0, "tune"), kernel, "")
    return Judged(candidate, outcome or Timed(Gate.TIMING, timings=fakes.timings(kernel, TASK)), reused_from)


def tally(clock: Clock | None = None) -> Tally:
    made = Tally(4, Budget(BudgetSection(evaluations=9), clock or Clock()))
    made.seeds = 1
    return made


def test_counts() -> None:
    clock = Clock()
    made = tally(clock)
    clock.now = 30.0
    made.judged(judged(0), replayed=True)
    made.judged(judged(1, CompileFailed(Gate.COMPILE)), replayed=False)
    made.judged(judged(2, WrongResult(Gate.SMALL_RUN)), replayed=False)
    made.judged(judged(3, CompileFailed(Gate.COMPILE), reused_from=1), replayed=False)
    state = made.state()
    assert (state.judged, state.valid, state.duplicates, state.evaluations) == (4, 1, 1, 3)
    assert state.failed == {Gate.COMPILE: 2, Gate.SMALL_RUN: 1}
    assert state.per_minute == pytest.approx(6.0)  # what the archive held does not count
    assert state.generations == 4
    assert state.budget[0].limit == 9


def test_stage() -> None:
    made = tally()
    assert made.state().stage is Stage.BASELINE
    made.stage(Stage.JUDGE, 5)
    made.step()
    made.step()
    assert (made.state().stage, made.state().stage_done, made.state().stage_total) == (Stage.JUDGE, 2, 5)


def test_the_best_does_not_depend_on_the_order_of_arrival() -> None:
    verdicts = [judged(0), judged(1, A=4), judged(2, A=8), judged(3, A=8), judged(4, A=2)]
    bests = []
    for order in (verdicts, verdicts[::-1]):
        made = tally()
        made.baseline = fakes.timings(fakes.kernel("dense"), TASK)
        for verdict in order:
            made.judged(verdict, replayed=False)
        bests.append(made.state().best)
    assert bests[0] == bests[1]
    assert bests[0] is not None
    assert bests[0].n == 2
    assert bests[0].gain is not None
    assert bests[0].gain > 1
    assert bests[0].speedup > 0


def test_without_a_baseline_nothing_is_the_best_yet() -> None:
    made = tally()
    made.judged(judged(0), replayed=False)
    assert made.state().best is None


def test_a_refuted_best_is_replaced() -> None:
    made = tally()
    made.baseline = fakes.timings(fakes.kernel("dense"), TASK)
    verdicts = [judged(0), judged(1, A=4), judged(2, A=8)]
    for verdict in verdicts:
        made.judged(verdict, replayed=False)
    made.refuted(verdicts[:2])
    best = made.state().best
    assert best is not None
    assert best.n == 1
    made.refuted([])
    assert made.state().best is None


def test_the_hopeless_are_valid_but_never_the_best() -> None:
    made = tally()
    made.baseline = fakes.timings(fakes.kernel("dense"), TASK)
    made.judged(judged(0, Timed(Gate.TIMING_SCREEN, timings=fakes.timings(fakes.kernel(), TASK))), replayed=False)
    assert made.state().valid == 1
    assert made.state().best is None


def test_failures_have_no_times() -> None:
    with pytest.raises(TypeError, match="candidate 1 is CompileFailed"):
        timings_of(judged(1, CompileFailed(Gate.COMPILE)))
