from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from evo.budget import Budget
from evo.experiment import BudgetSection
from evo.observer import Confirmation, RunSummary
from evo.summary import shape_rows, summarise
from evo.tally import Tally
from fitness.outcome import Gate, Timed
from mutations.operator import Candidate, Judged, Plan
from tests.evo import fakes

TASK = fakes.experiment().checked_task
BASELINE = fakes.timings(fakes.kernel("dense"), TASK)


def judged(n: int, **params: int) -> Judged:
    kernel = fakes.kernel("fast", **params)
    return Judged(Candidate(Plan(n, 0, 0, "seed"), kernel, ""), Timed(Gate.TIMING, timings=fakes.timings(kernel, TASK)))


RANKING = [judged(2, A=8), judged(1, A=4), judged(0)]


def summary(**changes: Any) -> RunSummary:
    values: dict[str, Any] = {
        "run_id": "r-1", "name": "r", "status": "finished", "reason": "done", "clock": "modelled",
        "baseline": ("dense", BASELINE), "ranking": RANKING, "seed": RANKING[-1], "confirmations": {},
        "state": Tally(1, Budget(BudgetSection(), lambda: 0.0)).state(), "generations": (),
    }  # fmt: skip
    return summarise(**(values | changes))


def confirmations(**verdicts: str) -> dict[int, Confirmation]:
    return {int(n[1:]): Confirmation(int(n[1:]), v, 1.0, 1.0, 1.0) for n, v in verdicts.items()}  # type: ignore[arg-type]


def test_rows() -> None:
    rows = shape_rows(BASELINE, fakes.timings(fakes.kernel(), TASK), fakes.timings(fakes.kernel(A=8), TASK))
    assert [row.shape for row in rows] == [dict(shape) for shape in TASK.shapes]
    for row in rows:
        assert row.speedup == pytest.approx(row.baseline_us / row.best_us)
        assert row.gain == pytest.approx(row.seed_us / row.best_us)
        assert row.floor_fraction == pytest.approx(row.floor_us / row.best_us)
        assert row.clock == "modelled"
        assert row.limiter == "memory"


def test_rows_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="shapes"):
        shape_rows(BASELINE[:1], BASELINE, BASELINE)


def test_only_a_confirmed_candidate_is_the_answer() -> None:
    found = summary(confirmations=confirmations(n2="refuted", n1="confirmed"), ranking=RANKING[1:])
    assert found.best is not None
    assert found.best.plan.n == 1
    assert found.confirmed
    assert found.gain is not None
    assert found.gain == pytest.approx(found.rows[0].gain)
    refuted = summary(confirmations=confirmations(n2="refuted"), ranking=RANKING[1:])
    assert refuted.best is None
    assert (refuted.rows, refuted.speedup, refuted.gain, refuted.floor_fraction) == ((), None, None, None)


def test_before_any_confirmation_the_fastest_valid_is_shown_as_unconfirmed() -> None:
    found = summary(status="interrupted")
    assert found.best is not None
    assert found.best.plan.n == 2
    assert not found.confirmed
    assert len(found.rows) == 2


def test_nothing_known_yet() -> None:
    found = summary(baseline=None, ranking=[], seed=None)
    assert found.baseline == ""
    assert found.best is None
    assert dataclasses.asdict(found)["rows"] == ()
