from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import evo
from evo.errors import ExperimentError
from evo.experiment import Experiment, nearest
from tests.evo import fakes

SHIPPED = Path(evo.__file__).parent.parent / "experiments"


def problems(*overrides: str, **changes: Any) -> dict[str, str]:
    """Key path -> reason and fix of every problem; empty if there is none."""
    try:
        Experiment.from_dict(fakes.spec(**changes), overrides)
    except ExperimentError as error:
        return {problem.path: f"{problem.reason}; {problem.fix}" for problem in error.problems}
    return {}


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.name)
def test_the_shipped_experiments_are_sound(path: Path) -> None:
    experiment = Experiment.load(path)
    assert experiment.checked_task.shapes
    assert Experiment.from_dict(experiment.model_dump(mode="json")) == experiment


def test_every_problem_at_once() -> None:
    found = problems(
        search__childen=8,
        search__islands=0,
        budget__minutes=-3,
        operators={"tuen": 3},
        device__kind="simulatr",
        device__gpu="H20",
        rng_seed="7",
        serch={"generations": 3},
        limits__steps=1.5,
        llm={"models": [{"nam": "x"}]},
        task__dtype="float61",
        name="a/b",
    )
    assert found.keys() >= {
        "search.childen", "search.islands", "budget.minutes", "operators.tuen", "device.kind", "device.gpu", "rng_seed",
        "serch", "limits.steps", "llm.models[0].nam", "llm.models[0].name", "name",
    }  # fmt: skip
    assert any(path.startswith("task.dtype") for path in found)


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"search__childen": 8}, "search.childen", 'unknown key; did you mean "children"?'),
        ({"budgets": {}}, "budgets", 'unknown key; did you mean "budget"?'),
        ({"operators": {"tuen": 1}}, "operators.tuen", 'did you mean "tune"? (available: dispatch, llm_crossover, '),
        ({"operators": {"llm_edits": 1}}, "operators.llm_edits", 'did you mean "llm_edit"?'),
        ({"llm": {"tool": []}}, "llm.tool", 'did you mean "tools"?'),
        ({"llm": {"tools": ["shell"]}}, "llm.tools[0]", "compile"),
        ({"llm": {"models": [{"nam": "x"}]}}, "llm.models[0].nam", 'did you mean "name"?'),
        ({"pause": {"failure_rate": 2}}, "pause.failure_rate", "less than or equal to 1"),
        ({"operators": {"tune": 0}}, "operators", "no operator has a weight > 0"),
        ({"operators": {"tune": -1}}, "operators.tune", "greater than or equal to 0, not -1"),
        ({"device__kind": "cude"}, "device.kind", 'did you mean "cuda"?'),
        ({"device__gpu": "h20"}, "device.gpu", 'did you mean "H200"?'),
        ({"rng_seed": -1}, "rng_seed", "greater than or equal to 0, not -1"),
        ({"search__children": True}, "search.children", "valid integer, not true"),
        ({"budget__usd": "2"}, "budget.usd", 'valid number, not "2"'),
        ({"budget__evaluations": 0}, "budget.evaluations", "greater than or equal to 1, not 0"),
        ({"name": "best"}, "name", "reference to a candidate"),
        ({"name": "42"}, "name", "reference to a candidate"),
        ({"name": "two words"}, "name", 'for example "two-words"'),
        ({"task__shapes": []}, "task.shapes", ""),
        ({"task__patern": {}}, "task.patern", "pattern"),
    ],
)
def test_each_problem_names_key_reason_and_fix(changes: dict[str, Any], path: str, words: str) -> None:
    found = problems(**changes)
    assert path in found, found
    assert words in found[path]


@pytest.mark.parametrize("key", ["name", "task"])
def test_required_keys(key: str) -> None:
    data = fakes.spec()
    del data[key]
    with pytest.raises(ExperimentError, match=f"{key}: is required"):
        Experiment.from_dict(data)


def test_overrides() -> None:
    experiment = Experiment.from_dict(
        fakes.spec(),
        [
            "search.children=3",
            "budget.usd = 2.5",
            "task.shapes.1.N=64",
            "device.gpu=A100",
            'name="x"',
            "limits.run_s=1",
        ],
    )
    assert experiment.search.children == 3
    assert experiment.budget.usd == 2.5
    assert experiment.task["shapes"][1]["N"] == 64
    assert experiment.device.gpu == "A100"
    assert experiment.name == "x"
    assert experiment.limits.run_s == 1.0
    assert fakes.spec()["task"]["shapes"][1]["N"] == 32


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("search.children", "is not KEY=VALUE"),
        ("=3", "is not KEY=VALUE"),
        ("task.shapes.7.N=3", '"7" is not an index of a list of 2'),
        ("name.first=3", '"name" is a value, not a table'),
        ("search.childen=3", "unknown key"),
        ("search.children=many", "valid integer"),
    ],
)
def test_bad_overrides(setting: str, words: str) -> None:
    assert any(words in text for text in problems(setting).values())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"name = ", "is not valid TOML"),
        (b"a = 1\na = 2", "is not valid TOML"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"", "name: is required"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(ExperimentError, match=words) as caught:
        Experiment.load(path)
    assert all(line.startswith(str(path)) for line in caught.value.lines)


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "nm24.toml").write_text("")
    with pytest.raises(ExperimentError, match=r"no such file; did you mean .*nm24\.toml"):
        Experiment.load(tmp_path / "nm25.toml")
    with pytest.raises(ExperimentError, match="no such file; give the path"):
        Experiment.load(tmp_path / "nowhere" / "nm24.toml")
    with pytest.raises(ExperimentError, match="is a folder"):
        Experiment.load(tmp_path)


def test_defaults_and_weights() -> None:
    experiment = fakes.experiment(operators={"tune": 2, "splice": 0})
    assert experiment.weights == {"tune": 2.0}
    assert experiment.budget.evaluations is None
    assert experiment.device.kind == "simulator"


def test_a_dotted_operator_path_is_accepted() -> None:
    assert fakes.experiment(operators={"tests.evo.fakes:Tune": 1}).weights == {"tests.evo.fakes:Tune": 1.0}


def test_llm_section_is_checked_and_kept() -> None:
    experiment = fakes.experiment(llm={"models": [{"name": "m", "weight": 2}, {"name": "n"}]}, budget__tokens=2_000_000)
    assert [(model.name, model.weight) for model in experiment.llm.models] == [("m", 2.0), ("n", 1.0)]
    assert "llm.models[0].weight" in problems(llm={"models": [{"name": "m", "weight": 0}]})


def test_fingerprint_is_what_steers_the_search() -> None:
    base = fakes.experiment()
    assert base.fingerprint == fakes.experiment(budget__minutes=9, archive={"path": "x.db"}).fingerprint
    for change in ({"rng_seed": 8}, {"search__children": 9}, {"task__free": ["N"]}, {"operators": {"tune": 1}}):
        assert base.fingerprint != fakes.experiment(**change).fingerprint


def test_only_raised_budgets_and_generations_may_change() -> None:
    old = fakes.experiment(budget__minutes=4, budget__evaluations=20)

    def conflicts(**changes: Any) -> list[str]:
        values = {"budget__minutes": 4, "budget__evaluations": 20} | changes
        return [str(change) for change in old.resume_conflicts(fakes.experiment(**values))]

    assert conflicts() == []
    assert conflicts(budget__minutes=5, budget__evaluations=21, search__generations=5) == []
    assert conflicts(budget__minutes=3) == ["budget.minutes: 4.0 -> 3.0"]
    assert conflicts(budget__usd=1.0) == ["budget.usd: null -> 1.0"]
    assert conflicts(search__generations=3) == ["search.generations: 4 -> 3"]
    assert conflicts(task__shapes=[{"M": 128, "K": 128, "N": 8}])[0].startswith("task.shapes: [{")
    unlimited = Experiment.from_dict(fakes.spec(budget__evaluations=20))
    assert old.resume_conflicts(unlimited) == ()


def test_the_archived_form_is_plain_json() -> None:
    experiment = fakes.experiment()
    assert Experiment.from_dict(json.loads(json.dumps(experiment.model_dump(mode="json")))) == experiment


def test_nearest() -> None:
    assert nearest("tuen", ["tune", "splice"]) == 'did you mean "tune"?'
    assert nearest("h200", ["H200"]) == 'did you mean "H200"?'
    assert nearest("zzz", ["b", "a"]) == "known: a, b"
    assert nearest("zzz", []) == ""
