from __future__ import annotations

import dataclasses
import time

import pytest

from evo.archive import Archive, Refused, RunRecord
from evo.budget import Budget
from evo.errors import ArchiveError, ResumeError
from evo.observer import Confirmation
from evo.session import Session
from fitness.outcome import CompileFailed, Cost, Gate, Timed
from mutations.operator import Candidate, Plan
from tests.evo import fakes

EXPERIMENT = fakes.experiment(budget__evaluations=20, budget__gpu_minutes=1)
TASK = EXPERIMENT.checked_task


def new_run(archive: Archive, clock: str = "modelled") -> RunRecord:
    return archive.add_run(
        RunRecord("", "fake", {}, 7, "simulator", "H200", "sm_90a", clock, "0", None, {}, "running", "2026")
    )


def session(archive: Archive, run: RunRecord, watcher: fakes.Watcher | None = None) -> Session:
    budget = Budget(EXPERIMENT.budget, time.monotonic)
    budget.reserve("evaluations", 10)
    return Session(EXPERIMENT, archive, run, fakes.FakePool(), watcher or fakes.Watcher(), budget)


def candidate(n: int, **params: int) -> Candidate:
    return Candidate(Plan(n, 0, 0, "seed"), fakes.kernel("fast", **params), "")


def timed(key: str, **params: int) -> Timed:
    return Timed(Gate.TIMING, (), Cost(0.0, 30.0), key, timings=fakes.timings(fakes.kernel("fast", **params), TASK))


def test_a_verdict_is_archived_before_it_is_shown() -> None:
    archive = Archive.memory()
    run = new_run(archive)
    known: list[int] = []

    class Checking(fakes.Watcher):
        def on_judged(self, judged: object, state: object) -> None:
            del judged, state
            known.extend(archive.outcomes(run.id))

    made = session(archive, run, Checking())
    made.archive_entries([candidate(0)])
    made.verdict(candidate(0), timed("a"), None)
    assert known == [0]


def test_what_cannot_be_archived_is_not_counted() -> None:
    archive = Archive.memory()
    made = session(archive, new_run(archive))
    archive.close()
    with pytest.raises(ArchiveError):
        made.verdict(candidate(0), timed("a"), None)
    assert made.judged == {}
    assert made.tally.state().judged == 0


def test_reservations_are_settled() -> None:
    archive = Archive.memory()
    made = session(archive, new_run(archive))
    made.enter(Refused(Plan(2, 1, 0, "splice", (0, 1)), "no"))
    for n in (0, 1):
        made.enter(candidate(n))
    made.verdict(candidate(0), timed("a"), None)
    made.verdict(candidate(1), timed("a"), 0)
    line = made.budget.line("evaluations")
    assert (line.used, line.reserved) == (1, 7)
    assert made.tally.state().refused == 1
    assert made.owner_of("a") == 0
    assert made.owner_of("b") is None


def test_gpu_minutes_count_on_the_measured_clock_only() -> None:
    for clock, minutes in (("modelled", 0.0), ("measured", 0.5)):
        archive = Archive.memory()
        made = session(archive, new_run(archive, clock))
        made.verdict(candidate(0), timed("a"), None)
        assert made.budget.used("gpu_minutes") == minutes


def test_ranking_and_best_seed() -> None:
    archive = Archive.memory()
    made = session(archive, new_run(archive))
    child = dataclasses.replace(candidate(4, A=8), plan=Plan(4, 1, 0, "tune", (0,)))
    made.archive_entries([candidate(0), candidate(1, A=2), candidate(2), candidate(3), child])
    made.verdict(candidate(0), timed("a"), None)
    made.verdict(candidate(1, A=2), timed("b", A=2), None)
    made.verdict(candidate(2), timed("a"), 0)
    made.verdict(candidate(3), CompileFailed(Gate.COMPILE), None)
    made.verdict(child, timed("c", A=8), None)
    assert [judged.candidate.plan.n for judged in made.ranking()] == [4, 1, 0]
    seed = made.best_seed()
    assert seed is not None
    assert seed.candidate.plan.n == 1
    made.confirm(Confirmation(4, "refuted", None, None, None))
    assert [judged.candidate.plan.n for judged in made.ranking()] == [1, 0]
    assert list(archive.confirmations(made.run_id)) == [4]


def test_the_next_session_knows_what_this_one_archived() -> None:
    archive = Archive.memory()
    run = new_run(archive)
    made = session(archive, run)
    made.archive_entries([candidate(0), candidate(1, A=2)])
    made.verdict(candidate(0), timed("a"), None)
    watcher = fakes.Watcher()
    again = session(archive, run, watcher)
    assert again.resumed == 1
    assert again.archived_entry(Plan(1, 0, 0, "seed")) == candidate(1, A=2)
    assert again.archived_entry(Plan(2, 0, 0, "seed")) is None
    known = again.archived_outcome(0)
    assert known is not None
    again.verdict(candidate(0), *known)  # does not archive it twice
    assert watcher.judged == []
    assert again.tally.state().judged == 1
    with pytest.raises(ResumeError, match="candidate 1 is archived as"):
        again.archived_entry(Plan(1, 0, 1, "seed"))


def test_events_are_archived_and_said() -> None:
    archive, watcher = Archive.memory(), fakes.Watcher()
    made = session(archive, new_run(archive), watcher)
    made.event("warning", {"message": "careful"})
    assert watcher.events == [("warning", {"message": "careful"})]
    assert [event.kind for event in archive.events(made.run_id)] == ["warning"]
