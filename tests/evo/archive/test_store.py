from __future__ import annotations

import dataclasses
import sqlite3
import time
from pathlib import Path

import pytest

from evo.archive import Archive, Refused, RunRecord, facts, keeping
from evo.errors import ArchiveError
from evo.observer import Confirmation
from fitness.outcome import CompileFailed, Cost, Finding, Gate, Resources, Timed
from mutations.operator import Candidate, Judged, Plan
from tests.evo import fakes

TASK = fakes.experiment().checked_task
RUN = RunRecord(
    "", "fake", fakes.spec(), 7, "simulator", "H200", "sm_90a", "modelled", "0.1", None, {"cpus": 2}, "running", "2026"
)


def timed() -> Timed:
    times = fakes.timings(fakes.kernel(), TASK)
    return Timed(Gate.TIMING, (), Cost(1.0, 2.0), "key", "modelled", times, Resources(32, 64, 8, 0.5))


def candidate(n: int, about: str = "fast", parents: tuple[int, ...] = (), **params: int) -> Candidate:
    return Candidate(
        Plan(n, min(n, 1), 0, "tune" if parents else "seed", parents, (0,) if parents else ()),
        fakes.kernel(about, **params),
        f"because of {about}",
        None,
    )


def test_a_run_comes_back(archive: Archive) -> None:
    run = archive.add_run(RUN)
    assert run.id.startswith("fake-")
    assert archive.run(run.id) == run == dataclasses.replace(RUN, id=run.id)
    assert archive.run("none") is None
    other = archive.add_run(dataclasses.replace(RUN, name="other"))
    assert [r.id for r in archive.runs()] == [other.id, run.id]
    assert [r.id for r in archive.runs("fake")] == [run.id]
    archive.set_status(run.id, "finished")
    finished = archive.run(run.id)
    assert finished is not None
    assert finished.status == "finished"
    assert finished.ended_at is not None
    archive.set_status(run.id, "running")
    again = archive.run(run.id)
    assert again is not None
    assert again.ended_at is None


def test_the_latest_run_is_the_latest_started_one(archive: Archive) -> None:
    new, old, twin = (
        archive.add_run(dataclasses.replace(RUN, started_at=f"2026-01-0{day}T00:00:00+00:00")).id for day in (2, 1, 2)
    )
    assert [run.id for run in archive.runs()] == [twin, new, old]
    assert [run.id for run in archive.runs("fake")] == [twin, new, old]
    assert [line.id for line in keeping.info(archive).runs] == [twin, new, old]


def test_candidates_and_verdicts_come_back(archive: Archive) -> None:
    run = archive.add_run(RUN).id
    entries: list[Candidate | Refused] = [
        candidate(0),
        candidate(1, "slow"),
        candidate(2, parents=(1, 0), A=4),
        Refused(Plan(3, 1, 1, "splice", (0, 1), ()), "nothing in common"),
        candidate(4),  # the kernel of 0 again
    ]
    archive.add_entries(run, entries)
    assert archive.entries(run) == entries
    failed = CompileFailed(Gate.COMPILE, (Finding(Gate.COMPILE, "syntax", "expected ;", 3),))
    archive.add_outcome(run, 2, failed)
    archive.add_outcome(run, 0, timed())
    archive.add_outcome(run, 4, timed(), reused_from=0)
    assert archive.outcomes(run) == {0: (timed(), None), 2: (failed, None), 4: (timed(), 0)}
    verdicts = {0: (timed(), None), 2: (failed, None), 4: (timed(), 0)}
    candidates = {entry.plan.n: entry for entry in entries if isinstance(entry, Candidate)}
    assert archive.judged(run) == [Judged(candidates[n], *verdict) for n, verdict in verdicts.items()]
    assert archive.check() == []


def test_runs_do_not_mix(archive: Archive) -> None:
    one, other = archive.add_run(RUN).id, archive.add_run(RUN).id
    archive.add_entries(one, [candidate(0)])
    archive.add_outcome(one, 0, timed())
    assert archive.entries(other) == []
    assert archive.outcomes(other) == {}
    archive.add_entries(other, [candidate(0)])
    assert len(archive.entries(other)) == 1


def test_a_verdict_is_given_once(archive: Archive) -> None:
    run = archive.add_run(RUN).id
    archive.add_entries(run, [candidate(0)])
    archive.add_outcome(run, 0, timed())
    with pytest.raises(ArchiveError):
        archive.add_outcome(run, 0, timed())
    assert archive.outcomes(run) == {0: (timed(), None)}  # and not with twice the times


def test_a_batch_is_archived_whole_or_not_at_all(archive: Archive) -> None:
    run = archive.add_run(RUN).id
    with pytest.raises(ArchiveError):
        archive.add_entries(run, [candidate(0), candidate(1), candidate(0)])
    assert archive.entries(run) == []


def test_baseline_confirmations_events(archive: Archive) -> None:
    run = archive.add_run(RUN).id
    assert list(facts.baselines(archive, run)) == []
    times = fakes.timings(fakes.kernel("dense"), TASK)
    archive.add_baseline(run, "gemm/dense", times)
    assert list(facts.baselines(archive, run)) == [("gemm/dense", times)]
    archive.add_entries(run, [candidate(0), candidate(1, "slow")])
    archive.add_outcome(run, 0, timed())
    confirmed = Confirmation(0, "confirmed", 2.0, 1.9, 2.1, {"stage": "CONFIRMATION", "findings": []})
    refuted = Confirmation(1, "refuted", None, None, None, {"why": "wrong"})
    archive.add_confirmation(run, refuted)
    archive.add_confirmation(run, confirmed, times)
    assert archive.confirmations(run) == {0: confirmed, 1: refuted}
    assert archive.confirmation_timings(run, 0) == times
    assert archive.outcomes(run)[0] == (timed(), None)  # its own times are other rows
    assert [(r.id, n) for r, n in archive.confirmed()] == [(run, 0)]
    archive.add_event(run, "warning", {"message": "careful"})
    archive.add_event(run, "end", {})
    assert [event.kind for event in archive.events(run)] == ["warning", "end"]
    assert archive.events(run, "warning")[0].data == {"message": "careful"}


def test_words_are_found_in_reasons_and_sources(archive: Archive) -> None:
    run = archive.add_run(RUN).id
    archive.add_entries(run, [candidate(0), candidate(1, "slow"), candidate(2, parents=(0,), A=2)])
    assert {n for _, n, _ in archive.find("because fast")} == {0, 2}
    assert [n for _, n, _ in archive.find("slow")] == [1]
    archive.add_entries(run, [dataclasses.replace(candidate(3, "slow"), reason="unlike any other")])
    archive.add_entries(run, [dataclasses.replace(candidate(4, A=8), reason="as slow as ever")])
    assert [n for _, n, _ in archive.find("slow")] == [1, 4, 3]  # said in the reason before said in the source
    assert len(archive.find("slow", limit=2)) == 2
    assert {n for _, n, _ in archive.find("__global__")} == {0, 1, 2, 3, 4}
    assert archive.find('"; drop table runs') == []
    assert archive.find("  ") == []


def test_a_damaged_kernel_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Archive.open(path) as archive:
        run = archive.add_run(RUN).id
        archive.add_entries(run, [candidate(0)])
    raw = sqlite3.connect(path)
    raw.execute("update sources set text = 'rubbish'")
    raw.commit()
    raw.close()
    with Archive.open(path) as archive, pytest.raises(ArchiveError, match="damaged row"):
        archive.entries(run)


def test_archiving_is_cheap(tmp_path: Path) -> None:
    """The engine may add 20 ms per candidate in all; the archive takes about 1 ms."""
    with Archive.open(tmp_path / "a.db") as archive:
        run = archive.add_run(RUN).id
        started = time.process_time()
        for first in range(0, 200, 20):
            archive.add_entries(run, [candidate(n) for n in range(first, first + 20)])
            for n in range(first, first + 20):
                archive.add_outcome(run, n, timed())
        assert (time.process_time() - started) / 200 < 0.010


@pytest.fixture(name="archive")
def _archive(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "a.db")
