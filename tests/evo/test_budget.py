from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.budget import Budget, BudgetError
from evo.experiment import BudgetSection


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_in_flight_counts() -> None:
    budget = Budget(BudgetSection(evaluations=10), Clock())
    budget.reserve("evaluations", 8)
    assert budget.left("evaluations") == 2
    assert not budget.fits("evaluations", 3)
    with pytest.raises(BudgetError, match="3 evaluations do not fit into the 2"):
        budget.reserve("evaluations", 3)
    budget.settle("evaluations", 5, 5)
    budget.settle("evaluations", 3, 0)
    assert budget.left("evaluations") == 5
    assert budget.exhausted() is None
    budget.spend("evaluations", 5)
    assert budget.exhausted() == "evaluations"


def test_settling_what_was_never_reserved_is_a_bug() -> None:
    budget = Budget(BudgetSection(), Clock())
    with pytest.raises(BudgetError):
        budget.settle("tokens", 1, 1)
    with pytest.raises(BudgetError):
        budget.spend("usd", -1)


def test_minutes_count_all_sessions() -> None:
    clock = Clock()
    budget = Budget(BudgetSection(minutes=2), clock, earlier_s=90)
    assert budget.used("minutes") == 1.5
    clock.now += 29
    assert budget.exhausted() is None
    clock.now += 1
    assert budget.exhausted() == budget.exhausted_time() == "minutes"
    assert budget.session_s == 30


def test_unlimited_and_overspent() -> None:
    budget = Budget(BudgetSection(usd=1.0), Clock())
    assert budget.left("tokens") is None
    assert budget.fits("tokens", 1e12)
    budget.spend("usd", 1.5)  # it happened
    assert budget.left("usd") == 0
    assert budget.exhausted() is None  # a run goes on without its model
    assert [line.kind for line in budget.lines()] == ["evaluations", "minutes", "gpu_minutes", "tokens", "usd"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=40))
def test_never_overshoots(work: list[tuple[int, bool]]) -> None:
    budget = Budget(BudgetSection(evaluations=50), Clock())
    for amount, finished in work:
        if budget.fits("evaluations", amount):
            budget.reserve("evaluations", amount)
            if finished:
                budget.settle("evaluations", amount, amount)
    line = budget.line("evaluations")
    assert line.used + line.reserved <= 50
