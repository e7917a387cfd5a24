"""The shipped experiments of the first floor, run as a user runs them at reduced size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evo.archive import Archive, Refused
from evo.experiment import Experiment
from tests.evo.cli.test_smoke import ROOT, evo

#: Smaller shapes and the cheapest seeds: the full lists of a seed take most of such a run.
REDUCED = {
    "csr_spmm": ("[{ M = 256, K = 256, N = 16 }]", '["spmm/csr_scalar"]', "spmm/csr_scalar"),
    "spmv": ("[{ M = 256, K = 256 }]", '["spmv/csr_scalar"]', "spmv/csr_scalar"),
    "block_sparse": ("[{ M = 128, K = 128, N = 32 }]", '["spmm/bsr_scalar"]', "spmm/bsr_scalar"),
    "gemm_bias_relu": ("[{ M = 128, K = 128, N = 16 }]", '["gemm/fused_splitk"]', "gemm/fused_splitk"),
    "gemm_refine": ("[{ M = 128, K = 128, N = 16 }]", '["gemm/fused_splitk"]', "gemm/fused_splitk"),
}


def test_all_of_them_are_run_here() -> None:
    shipped = {path.stem for path in (ROOT / "experiments").glob("*.toml")}
    assert set(REDUCED) <= shipped


@pytest.mark.parametrize("name", REDUCED)
def test_the_rules_and_a_baseline_are_part_of_it(name: str) -> None:
    experiment = Experiment.load(ROOT / "experiments" / f"{name}.toml")
    assert experiment.weights["rewrite"] > 0
    assert experiment.budget.minutes is not None
    assert experiment.budget.minutes <= 6
    assert experiment.checked_task.baseline_seed.startswith("gemm/fused_")


def reduced(name: str, folder: Path) -> dict[str, object]:
    shapes, kernels, baseline = REDUCED[name]
    settings = {
        "task.shapes": shapes,
        "task.seeds": kernels,
        "task.baseline": f'"{baseline}"',
        "search.generations": "1",
        "search.children": "3",
        "search.islands": "1",
        "search.confirm": "1",
        "budget.minutes": "10",
    }
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    result: dict[str, object] = json.loads(evo(folder, "run", name, *options, "--workers", "1", "--json").stdout)
    return result


@pytest.mark.parametrize(
    "name", ["csr_spmm", *(pytest.param(n, marks=pytest.mark.slow) for n in REDUCED if n != "csr_spmm")]
)
def test_it_runs_at_reduced_size(name: str, tmp_path: Path) -> None:
    result = reduced(name, tmp_path)
    assert result["status"] == "finished"
    assert result["confirmed"] is True
    with Archive.open(tmp_path / "runs" / "archive.db", readonly=True) as archive:
        entries = archive.entries(str(result["run"]))
        outcomes = archive.outcomes(str(result["run"]))
    children = [entry for entry in entries if entry.plan.generation == 1]
    assert len(children) == 3
    assert any(not isinstance(entry, Refused) and outcomes[entry.plan.n][0].valid for entry in children)
