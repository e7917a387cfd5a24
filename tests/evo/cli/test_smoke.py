"""The whole product once, as a user runs it: real compiler, real simulator, processes and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mutations
from evo.archive import Archive, Refused
from evo.archive.facts import baselines
from evo.cli.boundary import INTERRUPTED
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
        timeout=900,
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
        rows: list[Any] = [run.status, run.experiment, list(baselines(archive, run.id))]
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


@dataclass(frozen=True)
class Smoke:
    """One run of the shipped smoke experiment: its folder and its JSON."""

    folder: Path
    result: dict[str, Any]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    folder = tmp_path_factory.mktemp("smoke")
    return Smoke(folder, json.loads(evo(folder, "run", "smoke", "--json").stdout))


def test_smoke_finds_something_and_leaves_its_files(smoke: Smoke) -> None:
    result = smoke.result
    assert result["status"] == "finished"
    assert result["confirmed"] is True
    assert result["gain"] >= 1.0
    assert 0 < result["floor_fraction"] <= 1.0
    files = {path.name for path in (smoke.folder / result["folder"]).iterdir()}
    assert files == {"best.cu", "best.ptx", "plot.png", "plot.pdf", "plot.csv", "report.md"}


def test_smoke_uses_every_operator(smoke: Smoke) -> None:
    with Archive.open(smoke.folder / "runs" / "archive.db", readonly=True) as archive:
        operators = {entry.plan.operator for entry in archive.entries(smoke.result["run"])}
    assert operators == {"seed"} | {name for name in mutations.OPERATORS if not name.startswith("llm_")}


def test_the_best_can_be_explained_plotted_and_started_from(smoke: Smoke) -> None:
    folder, result = smoke.folder, smoke.result
    story = json.loads(evo(folder, "lineage", "best", "--json").stdout)
    assert story["candidate"] == result["best"]
    assert story["path"][0]["operator"] == "seed"
    assert evo(folder, "plot", result["run"]).stdout.count("plot.") == 4
    own = f'task.seeds=["{result["folder"]}/best.cu"]'
    forecast = json.loads(evo(folder, "run", "smoke", "--set", own, "--dry-run", "--workers", "1", "--json").stdout)
    best_us = [shape["best_us"] for shape in result["shapes"]]
    assert forecast["seeds"][0]["time_us"] == pytest.approx(best_us), "best.cu is not the best kernel"


SETTINGS = (
    'task.seeds=["spmm/nm24_mma_sp_fragment"]', "task.shapes=[{M=64,K=64,N=8}]", "search.generations=1",
    "search.children=2",
)  # fmt: skip
SMALL = ["run", "smoke", "--quiet", *(word for setting in SETTINGS for word in ("--set", setting))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What an uninterrupted run with one worker leaves."""
    folder = tmp_path_factory.mktemp("whole")
    evo(folder, *SMALL, "--workers", "1")
    return content(folder)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_ended_by_a_signal_and_resumed_it_ends_like_an_uninterrupted_run(
    how: signal.Signals, whole: list[Any], tmp_path: Path
) -> None:
    """With two workers instead of one; SIGTERM is obeyed within 30 seconds, whatever the workers are at."""
    command = [sys.executable, "-m", "evo", *SMALL, "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        while judged(tmp_path) < 2 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(how)
        assert process.wait(timeout=30.0) == (INTERRUPTED if how is signal.SIGTERM else -how)
    assert judged(tmp_path) >= 2
    evo(tmp_path, *SMALL, "--workers", "2", "--resume")
    assert content(tmp_path) == whole


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
    "is wrong": ("if (threadIdx.x < 0) Y[0] = __float2half(0.0f);", "WrongResult at small_run"),
}


@pytest.mark.parametrize("case", SEEDS)
def test_a_bad_seed_of_the_user(case: str, tmp_path: Path) -> None:
    body, words = SEEDS[case]
    kernel = (
        '/*---\nabout = "mine"\nformat = "nm24"\n\n[[launch]]\nkernel = "mine"\ngrid = ["1"]\nblock = ["32"]\n'
        'args = ["Y"]\n---*/\n#include <cuda_fp16.h>\nextern "C" __global__ void mine(__half* Y) { ' + body + " }\n"
    )
    (tmp_path / "mine.cu").write_text(kernel, encoding="utf-8")
    mine = [*SMALL, "--workers", "1", "--set", 'task.seeds=["mine.cu"]']
    done = evo(tmp_path, *mine, check=1)
    assert words in done.stdout + done.stderr
    assert "mine.cu" in done.stdout + done.stderr
    forecast = evo(tmp_path, *mine, "--dry-run", check=1)
    assert words in forecast.stdout
    assert "refused   seed mine.cu fails" in forecast.stdout
