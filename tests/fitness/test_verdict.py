"""Executions to outcomes, hidden shapes, resources: the pure parts of the evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fitness.devices.device import Compiled, Entry, Execution, Program, ResolvedLaunch
from fitness.outcome import Finding, Gate, Resources, SanitizerFinding, WrongResult, WrongValues
from fitness.verdict import abnormal, resources, same_path, without_shape

SHAPE = {"M": 3, "N": 5, "K": 8}
FINISHED = Execution({}, {"Y": np.ones((5, 3), np.bool_)})
RACE = Finding(Gate.SMALL_RUN, "race", "two threads write one word", 9)
WRONG = WrongValues(1.0, 1.0, 9.0, 2, 15, (2, 4), 0.0, 1.0, "zeros", "n >= 373 is wrong")


@pytest.mark.parametrize(
    ("execution", "kind", "found"),
    [
        (FINISHED, None, []),
        (replace(FINISHED, findings=(replace(RACE, severity="note"),)), None, []),
        (replace(FINISHED, findings=(RACE,)), "SanitizerFinding", ["race"]),
        (replace(FINISHED, ended="fault", findings=(RACE,)), "SanitizerFinding", ["race"]),
        (replace(FINISHED, ended="trap"), "Crashed", ["trap"]),
        (replace(FINISHED, ended="trap", findings=(RACE,)), "Crashed", ["race"]),
        (replace(FINISHED, ended="steps", steps=77), "TimedOut", ["step_limit"]),
        (replace(FINISHED, ended="unsupported", findings=(RACE,)), "Unsupported", ["race"]),
    ],
)
def test_how_a_run_ended_decides(execution: Execution, kind: str | None, found: list[str]) -> None:
    outcome = abnormal(execution, Gate.CORRECTNESS, SHAPE)
    assert (outcome.kind if outcome else None) == kind
    if outcome is not None:
        assert [finding.kind for finding in outcome.findings] == found
        assert {finding.gate for finding in outcome.findings} == {Gate.CORRECTNESS}
        assert outcome.findings[0].shape == SHAPE


def test_a_hidden_shape_cannot_be_read_off_the_findings() -> None:
    wrong = Finding(
        Gate.CORRECTNESS, "wrong_result", "2 of 15 elements", None, WRONG.suggestion, shape=SHAPE, wrong=WRONG
    )
    hidden = without_shape(WrongResult(Gate.CORRECTNESS, (wrong,))).findings[0]
    assert hidden.shape is None
    assert hidden.wrong is not None
    assert (hidden.wrong.pattern, hidden.wrong.margin) == ("zeros", 9.0)
    assert (hidden.wrong.first, hidden.wrong.wrong, hidden.wrong.total) == ((0, 0), 0, 0)
    assert "15" not in hidden.message
    assert "373" not in hidden.suggestion + hidden.wrong.suggestion
    assert "accumulator" in hidden.suggestion
    assert without_shape(SanitizerFinding(Gate.CORRECTNESS, (replace(RACE, shape=SHAPE),))).findings == (RACE,)


def program(**launches: tuple[int, int]) -> Program:
    """Entry name -> (registers, grid x); every launch adds 100 dynamic bytes."""
    entries = {name: Entry(name, (), registers, 50, 0, 4, 8) for name, (registers, _) in launches.items()}
    resolved = tuple(ResolvedLaunch(name, (grid, 1, 1), (32, 1, 1), 100, ()) for name, (_, grid) in launches.items())
    return Program(Compiled("sm_90a", "", b"", "", entries), resolved)


def test_resources_are_the_worst_of_all_launches() -> None:
    both = [program(a=(40, 1), b=(90, 1)), program(a=(40, 1))]
    assert resources(both, [0.5, 0.25]) == Resources(90, 150, 12, 0.25)
    assert resources(both, []).occupancy == 0.0


def test_same_path_means_same_entries_and_grids() -> None:
    assert same_path(program(a=(40, 7)), program(a=(40, 7)))
    assert not same_path(program(a=(40, 7)), program(a=(40, 8)))
    assert not same_path(program(a=(40, 7)), program(a=(40, 7), b=(40, 7)))
