from __future__ import annotations

import pytest

from evo.archive import Archive
from evo.lineage import shares
from mutations.operator import Candidate, Plan
from tests.evo import archives


def test_what_operators_contributed() -> None:
    with Archive.memory() as archive:
        run = archives.fill(archive)
        for n, reused in ((6, None), (7, 5)):
            child = Candidate(Plan(n, 3, 0, "tune", (2,)), archives.kernel(f"k{n}"), "slower", "gpt")
            archive.add_entries(run.id, [child])
            archive.add_outcome(run.id, n, archives.timed(f"k{n}", 16.0, 32.0), reused)
        archive.database.table("llm_calls").insert(
            {"run_id": run.id, "n": 6, "model": "gpt", "tokens_in": 100, "tokens_out": 20, "usd": 0.25}
        )
        by_name = {share.name: share for share in shares(archive, run.id)}
        models = {share.name: share for share in shares(archive, run.id, "model")}
    tune = by_name["tune"]
    assert (tune.planned, tune.refused, tune.valid, tune.duplicates, tune.distinct) == (5, 1, 4, 1, 3)
    assert (tune.faster, tune.bests) == (2, 2)
    assert tune.median_gain == pytest.approx(2**0.5)
    assert tune.best_gain == pytest.approx(2**0.5)
    assert (tune.tokens, tune.usd) == (120, 0.25)
    assert (by_name["seed"].bests, by_name["seed"].median_gain) == (1, None)
    assert (by_name["splice"].planned, by_name["splice"].valid) == (1, 0)
    assert (models["gpt"].planned, models["gpt"].usd, models["gpt"].bests) == (2, 0.25, 0)
    assert models["none"].planned == 6


def test_a_price_that_is_not_known_is_not_nothing() -> None:
    with Archive.memory() as archive:
        run = archives.fill(archive)
        archive.add_entries(run.id, [Candidate(Plan(6, 3, 0, "llm_edit", (2,)), archives.kernel("k6"), "why", "gpt")])
        known = {"run_id": run.id, "n": 6, "model": "gpt", "returned_model": "gpt-5", "tokens_in": 100, "usd": 0.25}
        archive.database.table("llm_calls").insert_all(
            [known, known | {"usd": None}, known | {"purpose": "tool:trace"}]
        )
        (gpt,) = [share for share in shares(archive, run.id, "model") if share.name == "gpt"]
    assert (gpt.tokens, gpt.usd) == (200, None)


def test_what_the_planner_and_refused_children_spent_is_not_lost() -> None:
    with Archive.memory() as archive:
        run = archives.fill(archive)
        call = {"run_id": run.id, "n": 4, "model": "gpt", "returned_model": "gpt-5", "tokens_in": 100, "usd": 0.25}
        archive.database.table("llm_calls").insert_all([call, call | {"n": None, "model": "plan"}])
        operators = {share.name: share for share in shares(archive, run.id)}
        models = {share.name: share for share in shares(archive, run.id, "model")}
    assert {name: share.tokens for name, share in operators.items()} == {
        "seed": 0, "splice": 0, "tune": 100, "planner": 100
    }  # fmt: skip
    assert operators["planner"].planned == 0
    assert {name: share.usd for name, share in models.items()} == {"gpt": 0.25, "none": 0.0, "plan": 0.25}
