"""The whole product once, as a user runs it: real compiler, real simulator, processes and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evo.archive import Archive, Refused
from evo.cli.experiments import find
from evo.errors import ArchiveError

ROOT = Path(__file__).parents[3]


def evo(folder: Path, *arguments: str, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run `evo ARGUMENTS` in a folder, as a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "evo", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert check is None or done.returncode == check, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def content(folder: Path) -> list[Any]:
    """All that a run's archive says, but for ids, moments and seconds."""
    with Archive.open(folder / "runs" / "archive.db", readonly=True) as archive:
        (run,) = archive.runs()
        outcomes = archive.outcomes(run.id)
        rows: list[Any] = [run.status, run.experiment, archive.baseline(run.id)]
        for entry in archive.entries(run.id):
            if isinstance(entry, Refused):
                rows.append((entry.plan, entry.why))
            else:
                outcome, reused_from = outcomes[entry.plan.n]
                timings = getattr(outcome, "timings", ())
                facts = (outcome.kind, outcome.stage, outcome.findings, outcome.code_key, timings, reused_from)
                rows.append((entry.plan, entry.kernel.id, entry.reason, *facts))
        rows.append([(c.n, c.verdict, c.speedup) for c in archive.confirmations(run.id).values()])
    return rows


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], float]:
    """One run of the shipped smoke experiment: its folder, its JSON and its seconds."""
    folder = tmp_path_factory.mktemp("smoke")
    started = time.monotonic()
    done = evo(folder, "run", "smoke", "--json")
    return folder, json.loads(done.stdout), time.monotonic() - started


def test_smoke_is_quick_and_finds_something(smoke: tuple[Path, dict[str, Any], float]) -> None:
    folder, result, seconds = smoke
    assert seconds < 20
    assert result["status"] == "finished"
    assert result["confirmed"] is True
    assert result["gain"] >= 1.0
    assert 0 < result["floor_fraction"] <= 1.0
    files = {path.name for path in (folder / result["folder"]).iterdir()}
    assert files == {"best.cu", "best.ptx", "plot.png", "plot.pdf", "plot.csv", "report.md"}


def test_smoke_uses_every_operator(smoke: tuple[Path, dict[str, Any], float]) -> None:
    folder, result, _ = smoke
    with Archive.open(folder / "runs" / "archive.db", readonly=True) as archive:
        operators = {entry.plan.operator for entry in archive.entries(result["run"])}
    assert operators == {"seed", "tune", "splice"}


def test_the_best_can_be_explained_plotted_and_started_from(smoke: tuple[Path, dict[str, Any], float]) -> None:
    folder, result, _ = smoke
    story = json.loads(evo(folder, "lineage", "best", "--json").stdout)
    assert story["candidate"] == result["best"]
    assert story["path"][0]["operator"] == "seed"
    assert evo(folder, "plot", result["run"]).stdout.count("plot.") == 4
    text = find("smoke").path.read_text(encoding="utf-8")
    own = json.dumps([str(folder / result["folder"] / "best.cu")])
    lines = [f"seeds = {own}" if line.startswith("seeds") else line for line in text.splitlines()]
    (folder / "again.toml").write_text("\n".join(lines), encoding="utf-8")
    forecast = json.loads(evo(folder, "run", "again.toml", "--dry-run", "--json").stdout)
    best_us = [shape["best_us"] for shape in result["shapes"]]
    assert forecast["seeds"][0]["time_us"] == pytest.approx(best_us), "best.cu is not the best kernel"


def test_the_same_with_one_worker(smoke: tuple[Path, dict[str, Any], float], tmp_path: Path) -> None:
    evo(tmp_path, "run", "smoke", "--workers", "1", "--quiet")
    assert content(tmp_path) == content(smoke[0])


def test_kill_9_and_resume_end_as_if_nothing_had_happened(
    smoke: tuple[Path, dict[str, Any], float], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "evo", "run", "smoke", "--quiet"]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        deadline = time.monotonic() + 60
        while judged(tmp_path) < 3 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert judged(tmp_path) >= 3
    evo(tmp_path, "run", "smoke", "--resume", "--quiet")
    assert content(tmp_path) == content(smoke[0])


def judged(folder: Path) -> int:
    """Verdicts in the archive so far."""
    path = folder / "runs" / "archive.db"
    if not path.exists() or path.stat().st_size == 0:
        return 0
    try:
        with Archive.open(path, readonly=True) as archive:
            return sum(len(archive.outcomes(run.id)) for run in archive.runs())
    except ArchiveError:  # its tables are being made
        return 0


SEEDS = {
    "does not compile": ("int x = undefined_name;", "undefined_name"),
    "is wrong": ("if (threadIdx.x < 0) Y[0] = __float2half(0.0f);", "no valid"),
}


@pytest.mark.parametrize("case", SEEDS)
def test_a_bad_seed_of_the_user(case: str, tmp_path: Path) -> None:
    body, words = SEEDS[case]
    kernel = (
        '/*---\nabout = "mine"\nformat = "nm24"\n\n[[launch]]\nkernel = "mine"\ngrid = ["1"]\nblock = ["32"]\n'
        'args = ["Y"]\n---*/\n#include <cuda_fp16.h>\nextern "C" __global__ void mine(__half* Y) { ' + body + " }\n"
    )
    (tmp_path / "mine.cu").write_text(kernel, encoding="utf-8")
    done = evo(tmp_path, "run", "smoke", "--set", 'task.seeds=["mine.cu"]', "--quiet", check=1)
    assert words in done.stdout + done.stderr
    assert "mine.cu" in done.stdout + done.stderr
