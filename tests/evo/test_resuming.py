from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from evo import resuming
from evo.archive import Archive, Refused, RunRecord
from evo.errors import ResumeError
from evo.observer import SeedNote
from evo.seed_reasons import seed_reason
from evo.seeding import Seed
from mutations.operator import Candidate, Plan
from tests.evo import fakes

RECORD = RunRecord(
    "", "fake", fakes.experiment().model_dump(mode="json"), 7, "simulator", "H200", "sm_90a", "modelled", "0.1", None,
    {}, "running", "2026",
)  # fmt: skip


def find(archive: Archive, **changes: Any) -> RunRecord:
    return resuming.find(archive, fakes.experiment(**changes), "simulator", "H200")


def test_the_latest_unfinished_run_is_found() -> None:
    archive = Archive.memory()
    archive.add_run(dataclasses.replace(RECORD, status="stopped"))
    wanted = archive.add_run(dataclasses.replace(RECORD, status="interrupted"))
    archive.add_run(dataclasses.replace(RECORD, status="finished"))
    archive.add_run(dataclasses.replace(RECORD, name="other"))
    assert find(archive).id == wanted.id


def test_nothing_to_resume() -> None:
    archive = Archive.memory()
    with pytest.raises(ResumeError, match="no run named fake"):
        find(archive)
    archive.add_run(dataclasses.replace(RECORD, status="finished"))
    with pytest.raises(ResumeError, match="is finished"):
        find(archive)
    assert find(archive, search__generations=9).status == "finished"


def test_another_device_or_card_is_refused() -> None:
    archive = Archive.memory()
    run = archive.add_run(dataclasses.replace(RECORD, gpu="A100"))
    with pytest.raises(ResumeError, match=f"run {run.id} ran on simulator A100, not on simulator H200"):
        find(archive)


def test_an_experiment_of_another_version_is_refused() -> None:
    archive = Archive.memory()
    archive.add_run(dataclasses.replace(RECORD, experiment={"name": "fake", "later": 1}))
    with pytest.raises(ResumeError, match=r"does not understand the experiment.*use evo 0\.1"):
        find(archive)


def test_seeds_come_from_the_archive() -> None:
    archive = Archive.memory()
    run = archive.add_run(RECORD).id
    assert resuming.archived_seeds(archive, run) == ((), ())
    seeds = [Seed("spmm/fast", fakes.kernel("fast")), Seed("a: b/x.cu", fakes.kernel("slow"))]
    entries: list[Candidate | Refused] = [
        Candidate(Plan(n, 0, 0, "seed"), seed.kernel, seed_reason(seed)) for n, seed in enumerate(seeds)
    ]
    entries.append(Candidate(Plan(2, 1, 0, "tune", (0,)), fakes.kernel(A=2), "A = 2"))
    archive.add_entries(run, entries)
    found, notes = resuming.archived_seeds(archive, run)
    assert [seed.kernel for seed in found] == [seed.kernel for seed in seeds]
    assert notes[0] == SeedNote("spmm/fast")


def test_seconds_of_earlier_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive.memory()
    run = archive.add_run(RECORD).id
    assert resuming.earlier_s(archive, run) == 0
    moments = iter(f"2026-01-01T00:{minute}+00:00" for minute in ("00:00", "00:20", "00:50", "30:00", "30:10"))
    monkeypatch.setattr("evo.archive.store.now", lambda: next(moments))
    for kind in ("session", "warning", "warning", "session", "end"):
        archive.add_event(run, kind, {})
    assert resuming.earlier_s(archive, run) == 50 + 10
