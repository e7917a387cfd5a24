"""The forecast of a dry run."""

from __future__ import annotations

import dataclasses

import pytest

from evo import dryrun
from evo.cli.experiments import find
from evo.dryrun import Forecast, SeedVerdict
from evo.experiment import Experiment
from evo.observer import SeedNote
from fitness import gpu
from fitness.outcome import Finding, Gate, WrongResult
from tests.evo import archives

WRONG = WrongResult(Gate.SMALL_RUN, (Finding(Gate.SMALL_RUN, "wrong_values", "zeros at m >= 16"),))
PLAN = Forecast(
    gpu=gpu.load("H200"),
    seeds=(SeedVerdict("spmm/nm24_mma", archives.timed("a", 5.0, 10.0)), SeedVerdict("spmm/nm24_odd", WRONG)),
    dropped=(SeedNote("gemm/dense_naive", "stores W as dense"),),
    baseline="gemm/dense_mma_pipelined",
    timings=archives.timings(16.0, 32.0),
    candidates=134,
    seconds=150.0,
)


def test_headroom_is_baseline_over_floor() -> None:
    assert PLAN.headroom == pytest.approx(4.0)


def test_lines_say_shapes_seeds_baseline_headroom_and_cost() -> None:
    text = "\n".join(dryrun.forecast_lines(PLAN))
    for words in (
        "simulator of H200 (sm_90a); times are modelled",
        "M=4096 K=4096 N=16: floor 4 us, baseline 16 us (DRAM bandwidth)",
        "seed      spmm/nm24_mma: 5 us, 10 us",
        "seed      spmm/nm24_odd: not valid, WrongResult at small_run: zeros at m >= 16",
        "dropped   gemm/dense_naive: stores W as dense",
        "headroom  4.00x",
        "at most 134 candidates, up to 2.5 min at the rate of the seeds",
    ):
        assert words in text
    assert "warning" not in text


def test_small_headroom_is_a_warning() -> None:
    plan = dataclasses.replace(PLAN, timings=archives.timings(4.4, 8.8))
    assert any(line.startswith("warning   the headroom is small") for line in dryrun.forecast_lines(plan))


def test_json_has_the_same_facts() -> None:
    data = dryrun.forecast_json(PLAN)
    assert data["headroom"] == pytest.approx(4.0)
    assert data["floor_us"] == [4.0, 8.0]
    seeds = data["seeds"]
    assert isinstance(seeds, list)
    assert seeds[1] == {"name": "spmm/nm24_odd", "verdict": "WrongResult", "time_us": None, "why": ["zeros at m >= 16"]}


@pytest.mark.parametrize(("evaluations", "planned"), [(None, 20), (12, 12), (1000, 20)])
def test_planned_candidates_are_capped_by_the_budget(evaluations: int | None, planned: int) -> None:
    experiment = Experiment.load(find("smoke").path, ["search.generations=3", "search.children=6"])
    budget = experiment.budget.model_copy(update={"evaluations": evaluations, "minutes": None})
    experiment = experiment.model_copy(update={"budget": budget})
    assert dryrun.planned(experiment, seeds=2) == planned


def test_why_the_run_would_end_with_its_seeds() -> None:
    plan = dataclasses.replace(PLAN, refusal="seed spmm/nm24_odd fails: zeros at m >= 16")
    assert dryrun.forecast_lines(plan)[-1] == "refused   seed spmm/nm24_odd fails: zeros at m >= 16"
    assert dryrun.forecast_json(plan)["refusal"] == plan.refusal
    assert dryrun.forecast_json(PLAN)["refusal"] is None
