"""What a confirmation on a card asks besides; the card and its tools are stand-ins here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fitness import confirmation
from fitness.baselines import measuring
from fitness.devices.cuda.cuda import Cuda
from fitness.devices.cuda.tools import ToolError
from fitness.devices.device import Measurement, Timeable
from fitness.evaluate import FRESH_SEED, _Evaluation
from fitness.outcome import Finding, Gate, SanitizerFinding
from fitness.timing import CONFIRM
from tests.fitness.devices.cuda.fake import copy_inputs, copy_program
from tests.fitness.fakes import DENSE, NumpyDevice, dense_kernel, gemm_task

SHAPE = {"M": 4, "N": 4, "K": 4}
WARNING = Finding(Gate.CONFIRMATION, "race", "racecheck: hazard", 7, severity="warning")
ERROR = Finding(Gate.CONFIRMATION, "out_of_bounds", "memcheck: Invalid __global__ read", 9)


class Told(Cuda):
    """A card whose sanitizer says what it is told to, and whose times are those of a list."""

    def __init__(self, said: tuple[Finding, ...] | ToolError = (), times_us: tuple[float, ...] = ()) -> None:
        self.said, self.times_us = said, times_us
        self.together: list[int] = []

    def sanitize(self, program: Any, inputs: Any) -> tuple[Finding, ...]:  # noqa: ARG002
        if isinstance(self.said, ToolError):
            raise self.said
        return self.said

    def beside(self, subjects: Any, rivals: Any, plan: Any) -> tuple[Measurement, ...]:
        self.together.append(len(subjects) + len(rivals))
        count = plan.blocks * plan.per_block
        return tuple(Measurement(us, us, us, (us,) * count) for us in self.times_us)


def asked(said: tuple[Finding, ...] | ToolError) -> tuple[Any, tuple[Finding, ...]]:
    return confirmation.sanitized(Told(said), copy_program(), copy_inputs(), SHAPE)


def test_what_the_sanitizer_finds_ends_a_kernel_but_advice_does_not() -> None:
    failure, notes = asked((WARNING, ERROR))
    assert isinstance(failure, SanitizerFinding)
    assert failure.findings == (replace(ERROR, shape=SHAPE),)
    assert notes == (replace(WARNING, shape=SHAPE), replace(ERROR, shape=SHAPE))
    assert asked((WARNING,)) == (None, (replace(WARNING, shape=SHAPE),))
    assert asked(()) == (None, ())


def test_a_missing_sanitizer_is_said_aloud() -> None:
    failure, (note,) = asked(ToolError("compute-sanitizer is not installed"))
    assert failure is None
    assert (note.kind, note.severity) == ("not_sanitized", "note")
    assert "not installed" in note.message


def test_ratios_are_to_the_seed_and_to_the_routine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "dense_case", lambda *_: None)
    subject = Timeable(copy_program(), copy_inputs())
    card = Told(times_us=(10.0, 25.0, 12.0))
    measured, notes = confirmation.times_beside(gemm_task(), card, SHAPE, subject, "cublas", subject)
    assert measured.time_us == 10.0
    assert card.together == [3]
    seed, routine = notes
    assert seed.message.startswith("2.500x the best seed, interleaved (95 % from 2.500 to 2.500)")
    assert routine.message.startswith("1.200x cublas, interleaved")
    alone = Told(times_us=(10.0,))
    assert confirmation.times_beside(gemm_task(), alone, SHAPE, subject, "", None)[1] == ()
    assert alone.together == [1]


def test_the_opponent_is_made_ready_at_the_same_shape() -> None:
    task = gemm_task()
    evaluation = _Evaluation(dense_kernel(), task, NumpyDevice(clock="measured"), steps=1_000)
    evaluation.seed = FRESH_SEED
    assert evaluation.opponent(task.shapes[0]) is None
    evaluation.against = dense_kernel(BM=32)
    ready = evaluation.opponent(task.shapes[0])
    assert isinstance(ready, Timeable)
    assert ready.reference_us == pytest.approx(2 * task.floor_us(task.shapes[0], evaluation.device.gpu))
    assert ready.inputs.outputs["Y"].size == task.shapes[0]["M"] * task.shapes[0]["N"]
    evaluation.against = dense_kernel(DENSE.replace("sum += ", "sum = undefined + "))
    assert evaluation.opponent(task.shapes[0]) is None


def test_the_plan_of_a_confirmation_has_200_pairs() -> None:
    assert CONFIRM.blocks * CONFIRM.per_block == 200
