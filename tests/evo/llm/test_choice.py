from __future__ import annotations

from collections import Counter

import pytest

from evo.llm.choice import MOST, Pull, call_cost, factors, improvement, order
from mutations.llm.prices import Model
from mutations.llm.recording import Call


def call(tokens: int, usd: float | None) -> Call:
    return Call(1, "edit", "m", "m", "", "", tokens, 0, usd, 0.0, "ok")


def test_improvement_is_the_log_of_the_gain() -> None:
    assert improvement(20.0, 10.0) == pytest.approx(0.6931, abs=1e-4)
    assert improvement(10.0, 20.0) == 0.0
    assert improvement(None, 5.0) == improvement(5.0, None) == 0.0


def test_cost_is_dollars_where_known_else_tokens() -> None:
    assert call_cost([call(20_000, None), call(99, 0.03)]) == pytest.approx(2.0 + 3.0)
    assert call_cost([]) == 0.0


def test_nothing_known_changes_nothing() -> None:
    assert factors([], ["a", "b"], 3) == {"a": 1.0, "b": 1.0}
    assert factors([Pull("a", 1, 0.0, 1.0)] * 9, ["a", "b"], 3) == {"a": 1.0, "b": 1.0}


def test_the_arm_that_brings_more_per_cost_gains_weight_within_bounds() -> None:
    pulls = [Pull("cheap", 1, 0.1, 1.0), Pull("dear", 1, 0.1, 10.0), Pull("idle", 1, 0.0, 1.0)] * 40
    found = factors(pulls, ["cheap", "dear", "idle", "new"], 2)
    assert found["cheap"] == MOST
    assert 1 / MOST <= found["dear"] < 1.0
    assert 1 / MOST <= found["idle"] < 0.3
    assert found["new"] == pytest.approx(1.0)


def test_few_trials_decide_little() -> None:
    one = factors([Pull("a", 1, 0.2, 1.0), Pull("b", 1, 0.0, 1.0)], ["a", "b"], 2)
    many = factors([Pull("a", 1, 0.2, 1.0), Pull("b", 1, 0.0, 1.0)] * 30, ["a", "b"], 2)
    assert 1.0 < one["a"] < many["a"]


def test_what_was_long_ago_fades() -> None:
    old = [Pull("a", 1, 0.5, 1.0)] * 10 + [Pull("b", 1, 0.0, 1.0)] * 10
    new = [Pull("a", 15, 0.0, 1.0)] * 10 + [Pull("b", 15, 0.5, 1.0)] * 10
    found = factors(old + new, ["a", "b"], 16)
    assert found["b"] > 1.5 > 0.6 > found["a"]


def test_models_are_drawn_by_weight_without_replacement_and_repeatably() -> None:
    models = [Model("a", 3.0), Model("b", 1.0), Model("c", 1.0)]
    drawn = [order(models, {}, 7, n) for n in range(600)]
    assert drawn == [order(models, {}, 7, n) for n in range(600)]
    assert all({model.name for model in row} == {"a", "b", "c"} for row in drawn)
    first = Counter(row[0].name for row in drawn)
    assert 0.5 < first["a"] / 600 < 0.7
    favoured = Counter(order(models, {"b": 12.0}, 7, n)[0].name for n in range(600))
    assert favoured["b"] > favoured["a"]
