from __future__ import annotations

import pickle

from evo.errors import ArchiveError, EvoError, ExperimentError, Problem


def test_an_error_is_one_line_with_its_fix() -> None:
    assert str(EvoError("it is\nbroken", "mend it")) == "it is broken; mend it"
    assert str(EvoError("it is broken")) == "it is broken"


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(ArchiveError("full", "delete something")))
    assert (error.message, error.fix) == ("full", "delete something")


def test_an_experiment_error_has_a_line_per_problem() -> None:
    error = ExperimentError("a.toml", [Problem("task.dtype", "is required"), Problem("", "bad", "do it well")])
    assert error.lines == ("a.toml: task.dtype: is required", "a.toml: bad; do it well")
    assert "\n" not in str(error)
