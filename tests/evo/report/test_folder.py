"""The folder a run leaves."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from evo.archive import Archive
from evo.errors import EvoError
from evo.observer import RunSummary
from evo.report import folder
from evo.summary import shape_rows
from fitness.outcome import Gate
from mutations.operator import Candidate, Plan
from tests.evo import archives
from tests.evo.test_progress import SUMMARY


def summary_of(run_id: str) -> RunSummary:
    best = Candidate(Plan(5, 2, 1, "tune", (2,)), archives.kernel("mma", BM=64), "BM 32 -> 64")
    times = archives.timings(8.0, 8.0)
    rows = shape_rows(archives.timings(16.0, 32.0), archives.timings(16.0, 16.0), times)
    state = dataclasses.replace(SUMMARY.state, judged=5, valid=4, duplicates=0, failed={Gate.COMPILE: 1})
    return dataclasses.replace(SUMMARY, run_id=run_id, best=best, best_timings=times, rows=rows, state=state)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "runs" / "archive.db")


def test_everything_lies_beside_the_archive(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path / "cache"))
    run = archives.fill(archive)
    where, files = folder.write_run_folder(archive, summary_of(run.id))
    assert where == tmp_path / "runs" / run.id
    names = ["best.cu", "best.ptx", "plot.png", "plot.pdf", "plot.csv", "report.md"]
    assert [file.name for file in files] == names
    assert all(file.stat().st_size > 100 for file in files)
    text = (where / "best.cu").read_text(encoding="utf-8")
    assert f"// evo run {run.id}, candidate 5 (confirmed): 8 us, 8 us modelled, H200" in text


def test_a_run_without_a_valid_candidate_still_has_a_report(archive: Archive) -> None:
    run = archives.fill(archive)
    summary = dataclasses.replace(summary_of(run.id), best=None, best_timings=(), rows=(), baseline="")
    where, files = folder.write_run_folder(archive, summary)
    assert [file.name for file in files] == ["report.md"]
    assert "No valid candidate." in (where / "report.md").read_text(encoding="utf-8")


def test_an_unknown_run(archive: Archive) -> None:
    with pytest.raises(EvoError, match="run nm24-0000 is not in archive"):
        folder.write_run_folder(archive, summary_of("nm24-0000"))
