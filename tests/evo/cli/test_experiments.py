"""Where experiment files are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.cli import experiments
from evo.errors import ExperimentError
from evo.experiment import Experiment


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file_of_the_user_comes_first() -> None:
    Path("nm24.toml").write_text("", encoding="utf-8")
    assert experiments.find("nm24.toml") == experiments.Found(Path("nm24.toml"))
    assert experiments.find("nm24") == experiments.Found(Path("nm24.toml"))


def test_then_one_of_the_folders_own_experiments() -> None:
    own = Path("experiments") / "nm24.toml"
    own.parent.mkdir()
    own.write_text("", encoding="utf-8")
    assert experiments.find("nm24") == experiments.Found(own)


@pytest.mark.parametrize("given", ["nm24", "nm24.toml", "experiments/nm24.toml"])
def test_else_the_shipped_one_of_that_name(given: str) -> None:
    found = experiments.find(given)
    assert found.shipped
    assert Experiment.load(found.path).name == "nm24"


def test_a_missing_file_suggests_a_shipped_one() -> None:
    with pytest.raises(ExperimentError, match=r'nm42\.toml: no such file; did you mean "nm24"\?'):
        experiments.find("nm42.toml")


@pytest.mark.parametrize("path", experiments.shipped_experiments().values(), ids=lambda path: path.stem)
def test_every_shipped_experiment_loads(path: Path) -> None:
    assert Experiment.load(path).name == path.stem
