"""The report of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.archive import Archive
from evo.report.markdown import report, table
from tests.evo import archives
from tests.evo.report.test_folder import summary_of


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "runs" / "archive.db")


def test_report_says_how_the_best_came_about_and_what_failed(archive: Archive) -> None:
    run = archives.fill(archive)
    text = report(archive, run, summary_of(run.id), ["best.cu", "plot.png"])
    for words in (
        f"# Run {run.id}",
        "spmm, W 2:4, float16, on the simulator of H200 (sm_90a)",
        "**All times are modelled**",
        "| M=4096 K=4096 N=256 | 32 us | 8 us | 4.00x | 2.00x | 100 % | 10.0 | 1000 | DRAM bandwidth |",
        "Candidate 5, confirmed in a fresh process.",
        "| 1 | 0 | seed | seed spmm/nm24_mma: mma | 16 us, 16 us |",
        "| 5 | 2 | tune | BM 32 -> 64 | 8 us, 8 us |",
        "Params of the best: BM = 64, BN = 8.",
        "| splice | 1 | 0 |",
        "| 1 | CompileFailed | unknown_api | __shfl is not there |",
        "Beside this report: best.cu, plot.png.",
        '"rng_seed": 24',
    ):
        assert words in text
    path = [line for line in text.splitlines() if line.startswith(("| 1 | 0", "| 2 | 1", "| 5 | 2"))]
    assert len(path) == 3, "the path runs from the seed to the best"


def test_cells_cannot_break_a_table() -> None:
    assert table(("a",), [("x|y\nz",)]).splitlines() == ["| a |", "|---|", "| x\\|y z |"]
