"""When a routine's result counts as right; a stand-in for the card hands out results that are off by so much."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fitness.baselines import LENIENT
from fitness.baselines.measuring import measure
from fitness.correctness import check
from fitness.devices.cuda.cuda import Cuda
from fitness.devices.device import Measurement
from fitness.gpu import load
from fitness.inputs import make_case
from fitness.kernel import FormatChoice
from fitness.outcome import WrongValues
from tests.fitness.fakes import gemm_task


class OffCard:
    """Its results are off by `times` the tolerance."""

    gpu, clock = load("H200"), "measured"

    def __init__(self, times: float) -> None:
        self._times = times

    def routine(self, *_: object) -> Measurement:
        task = gemm_task()
        case = make_case(task, task.shapes[0], FormatChoice("dense"), seed=0, data="normal", gpu=self.gpu)
        y = case.inputs.outputs["Y"].copy()
        case.logical({"Y": y})[...] = case.reference
        exact, step = y.copy(), 1e-4
        while (found := _found(case, y)) is None or found.margin < self._times:
            y[...] = exact
            y.flat[7] += step
            step *= 1.05
        return Measurement(3.0, 2.9, 3.1, outputs=({"Y": y},))


def _found(case: Any, y: Any) -> WrongValues | None:
    return check(case, {"Y": y}, {"Y": y == y}, sampled=False)


@pytest.mark.parametrize(
    ("name", "times", "right"), [("cublas", 2.0, False), ("eager", 3.0, True), ("eager", 9.0, False)]
)
def test_only_chains_of_operations_may_round_in_between(name: str, times: float, right: bool) -> None:
    assert set(LENIENT) == {"eager", "torch_compile"}
    (found,) = measure(gemm_task(), cast(Cuda, OffCard(times)), [name])
    assert bool(found.timings) == right
    if right:
        assert found.told.startswith("3.00 us (off by 3.")
        assert "rounds after each operation" in found.told
    else:
        assert "x the tolerance" in found.why_not
        assert found.told == found.why_not
