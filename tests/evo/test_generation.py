from __future__ import annotations

import dataclasses

import pytest

from evo.archive import Archive, Entry, Refused, RunRecord
from evo.budget import Budget
from evo.generation import OutOfTimeError, enter_all, judge_all
from evo.session import Session
from fitness.compile import DAMAGED_CACHE
from fitness.kernel import Kernel
from fitness.outcome import CompileFailed, Finding, Gate, Outcome, Timed
from mutations.operator import Candidate, Plan
from tests.evo import fakes

EXPERIMENT = fakes.experiment(budget__minutes=1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def session(pool: fakes.FakePool, clock: Clock | None = None) -> Session:
    archive = Archive.memory()
    run = RunRecord("", "fake", {}, 7, "simulator", "H200", "sm_90a", "modelled", "0", None, {}, "running", "2026")
    budget = Budget(EXPERIMENT.budget, clock or Clock())
    return Session(EXPERIMENT, archive, archive.add_run(run), pool, fakes.Watcher(), budget)


def plans(count: int, first: int = 0) -> list[Plan]:
    return [Plan(n, 1, 0, "tune") for n in range(first, first + count)]


KERNELS = [
    {"A": 1}, {"A": 2}, {"A": 1}, {"A": 2, "SAME": 1}, {"A": 32, "B": 32}, {"A": 32, "B": 32, "C": 2},
    {"A": 32, "B": 32}, {"A": 4},
]  # fmt: skip


def make(plan: Plan) -> Entry:
    if plan.n == 7:
        return Refused(plan, "no")
    return Candidate(plan, fakes.kernel("fast", **KERNELS[plan.n % len(KERNELS)]), "")


def test_entries_are_archived_in_one_go_and_in_order() -> None:
    made = session(fakes.FakePool())
    candidates = enter_all(made, plans(8), make)
    assert [candidate.plan.n for candidate in candidates] == list(range(7))
    assert [entry.plan.n for entry in made.archive.entries(made.run_id)] == list(range(8))
    assert made.tally.state().refused == 1


@pytest.mark.parametrize("workers", [1, 3, 5])
def test_the_first_of_equal_kernels_is_judged_for_all(workers: int) -> None:
    pool = fakes.FakePool(workers)
    made = session(pool)
    judge_all(made, enter_all(made, plans(8), make), None, full=False)
    reused = {n: judged.reused_from for n, judged in sorted(made.judged.items())}
    assert reused == {0: None, 1: None, 2: 0, 3: 1, 4: None, 5: None, 6: 4}
    assert sorted(n for what, n in pool.calls if what == "prepare") == [0, 1, 3, 4, 5]
    assert sorted(n for what, n in pool.calls if what == "judge") == [0, 1]
    assert isinstance(made.judged[6].outcome, CompileFailed)
    assert made.judged[3].outcome.code_key == made.judged[1].outcome.code_key
    assert made.archive.outcomes(made.run_id).keys() == made.judged.keys()


def test_equal_code_of_an_earlier_generation_is_reused() -> None:
    pool = fakes.FakePool()
    made = session(pool)
    judge_all(made, enter_all(made, plans(2), make), None, full=False)
    pool.calls.clear()

    def again(plan: Plan) -> Entry:
        kernel = fakes.kernel("fast", A=1) if plan.n == 2 else fakes.kernel("fast", A=1, SAME=1)
        return Candidate(plan, kernel, "")

    judge_all(made, enter_all(made, plans(2, first=2), again), None, full=False)
    assert [made.judged[n].reused_from for n in (2, 3)] == [0, 0]
    assert pool.calls == [("prepare", 3)]


def test_out_of_time_keeps_what_is_there() -> None:
    clock = Clock()

    def tick(_what: str, _n: int) -> None:
        clock.now += 12.0

    made = session(fakes.FakePool(on_call=tick), clock)
    clock.now = 20.0
    with pytest.raises(OutOfTimeError) as caught:
        judge_all(made, enter_all(made, plans(8), make), None, full=False)
    assert caught.value.kind == "minutes"
    assert 0 < len(made.judged) < 7
    assert made.archive.outcomes(made.run_id).keys() == made.judged.keys()


def test_the_kind_of_run_is_passed_on() -> None:
    pool = fakes.FakePool()
    made = session(pool)
    judge_all(made, enter_all(made, plans(1), make), None, full=True)
    assert pool.calls == [("prepare", 0), ("judge full", 0)]
    assert isinstance(made.judged[0].outcome, Timed)


def test_a_repaired_compile_cache_is_said_aloud() -> None:
    """The note stands in what compiling gives; the verdict comes from the cache as it is then."""
    note = Finding(Gate.COMPILE, DAMAGED_CACHE, "the entry x was damaged", severity="note")

    class Damaged(fakes.FakePool):
        def _compiled(self, candidate: Kernel) -> fakes.Prepared | Outcome:
            result = super()._compiled(candidate)
            return dataclasses.replace(result, findings=(*result.findings, note))

    made = session(Damaged())
    judge_all(made, enter_all(made, plans(8), make), None, full=False)
    said = [event.data["message"] for event in made.archive.events(made.run_id, "warning")]
    assert sorted(said) == [f"#{n}: the entry x was damaged" for n in (0, 1, 3, 4, 5)]  # 2 and 6 repeat a kernel
