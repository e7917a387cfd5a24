"""The experiment file: TOML -> `Experiment`, with every problem reported at once.

A problem carries the key's dotted path, the reason and the nearest valid spelling. The `[task]` table is
checked by `fitness.task.Task`, the rest by the pydantic models here; both reports are merged.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

import mutations
from evo.errors import ExperimentError, Problem
from evo.llm.section import LlmSection, ModelChoice, PauseSection
from fitness import gpu as gpus
from fitness.compile import CompilerName

if TYPE_CHECKING:
    from fitness.task import Task

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Section(BaseModel):
    """A table of the file: unknown keys refused, nothing converted silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DeviceSection(_Section):
    """`[device]`: where candidates run. "auto" is resolved by the command, said aloud and recorded.

    `compiler`: "nvrtc" works everywhere; "nvcc" is that of an installed CUDA toolkit, called through PyCUDA.
    """

    kind: Literal["auto", "cuda", "simulator"] = "auto"
    gpu: str = "H200"
    compiler: CompilerName = "nvrtc"


class SearchSection(_Section):
    """`[search]`: size and end of the search.

    Attributes:
        generations: after the seeds; children: per generation over all islands.
        target_speedup: > 0 stops the run when a confirmed candidate reaches it.
        stagnation: generations without a better best after which only `tune` is used until there is
            one; 0 never narrows.
        confirm: how many of the best are confirmed at the end (more when all of them are refuted).
    """

    generations: Annotated[int, Field(ge=0, le=100_000)] = 8
    children: Annotated[int, Field(ge=1, le=10_000)] = 16
    islands: Annotated[int, Field(ge=1, le=1_000)] = 2
    target_speedup: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    stagnation: Annotated[int, Field(ge=0)] = 4
    confirm: Annotated[int, Field(ge=1, le=100)] = 2


class BudgetSection(_Section):
    """`[budget]`: what the whole run may spend; an absent key is unlimited."""

    evaluations: Annotated[int, Field(ge=1)] | None = None
    minutes: _Positive | None = None
    gpu_minutes: _Positive | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class LimitsSection(_Section):
    """`[limits]`: what one candidate may use. `steps`: simulator; `run_s`: one launch on a GPU."""

    compile_s: _Positive = 30.0
    steps: Annotated[int, Field(ge=1)] = 50_000_000
    run_s: _Positive = 1.0


class ArchiveSection(_Section):
    """`[archive]`: the working archive, relative to the current folder."""

    path: Annotated[str, Field(min_length=1)] = "runs/archive.db"


@dataclass(frozen=True)
class Change:
    """A key that differs between two experiments; a value is None where the key is absent."""

    path: str
    old: object
    new: object

    def __str__(self) -> str:
        """`path: old -> new`."""
        return f"{self.path}: {json.dumps(self.old)} -> {json.dumps(self.new)}"


class Experiment(_Section):
    """A whole experiment file (kernels.md, "Experiment file")."""

    name: str
    rng_seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    task: dict[str, Any]
    device: DeviceSection = DeviceSection()
    search: SearchSection = SearchSection()
    operators: dict[str, _Weight] = Field(default_factory=lambda: {"tune": 2.0, "splice": 1.0})
    llm: LlmSection = LlmSection()
    pause: PauseSection = PauseSection()
    budget: BudgetSection = BudgetSection()
    limits: LimitsSection = LimitsSection()
    archive: ArchiveSection = ArchiveSection()

    @classmethod
    def load(cls, path: Path | str, overrides: Sequence[str] = ()) -> Experiment:
        """Read an experiment file.

        Args:
            path: the TOML file.
            overrides: "dotted.key=value" settings applied on top, values in TOML or bare words.

        Raises:
            ExperimentError: the file is missing, no TOML, or has problems (all of them).
        """
        path = Path(path)
        return cls.from_dict(_read_toml(path), overrides, where=str(path))

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], overrides: Sequence[str] = (), *, where: str = "experiment"
    ) -> Experiment:
        """Check the content of an experiment file.

        Raises:
            ExperimentError: all problems at once; `where` names the file in them.
        """
        data, problems = _overridden(data, overrides)
        experiment: Experiment | None = None
        try:
            experiment = cls.model_validate(data)
        except ValidationError as error:
            problems += [_problem(details) for details in error.errors()]
        problems += _name_problems(data.get("name"))
        problems += _operator_problems(data)
        problems += _gpu_problems(data.get("device"))
        problems += _task_problems(data.get("task"))
        if problems or experiment is None:
            raise ExperimentError(where, _unique(problems))
        return experiment

    @functools.cached_property
    def checked_task(self) -> Task:
        """The task the `[task]` table describes (checked when the experiment was made)."""
        from fitness.task import Task

        return Task.from_spec(self.task)

    @property
    def weights(self) -> dict[str, float]:
        """Operators in use: name -> weight > 0, in the order of their names."""
        return {name: weight for name, weight in sorted(self.operators.items()) if weight > 0}

    @property
    def fingerprint(self) -> str:
        """sha256 over everything that steers the search: all but the budgets and the archive's path."""
        content = self.model_dump(mode="json", exclude={"budget", "archive"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def diff(self, new: Experiment) -> tuple[Change, ...]:
        """Every key whose value differs, `self` being the old experiment."""
        old_values, new_values = _flatten(self.model_dump(mode="json")), _flatten(new.model_dump(mode="json"))
        return tuple(
            Change(path, old_values.get(path), new_values.get(path))
            for path in sorted(old_values.keys() | new_values.keys())
            if old_values.get(path) != new_values.get(path)
        )

    def resume_conflicts(self, new: Experiment) -> tuple[Change, ...]:
        """Changes that forbid resuming a run of `self` as `new`: all but raised budgets and generations."""
        return tuple(change for change in self.diff(new) if not _is_raise(change))


def available_operators() -> tuple[str, ...]:
    """Names usable in `[operators]`, besides "module:Class" paths."""
    return tuple(sorted(mutations.OPERATORS))


def nearest(word: str, choices: Iterable[str]) -> str:
    """`did you mean "x"?` for the nearest choice, else the list of choices; "" without choices."""
    names = list(choices)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if not close:
        lower = {name.lower(): name for name in names}
        close = [lower[hit] for hit in difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.5)]
    if close:
        return f'did you mean "{close[0]}"?'
    return f"known: {', '.join(sorted(names))}" if names else ""


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        siblings = [str(p) for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        fix = nearest(str(path), siblings) or "give the path of an experiment file (evo new writes one)"
        raise ExperimentError(str(path), [Problem("", "no such file", fix)]) from None
    except IsADirectoryError:
        raise ExperimentError(str(path), [Problem("", "is a folder", "give the path of a .toml file")]) from None
    except OSError as error:
        raise ExperimentError(str(path), [Problem("", f"cannot be read ({error.strerror})")]) from None
    except UnicodeDecodeError as error:
        raise ExperimentError(str(path), [Problem("", f"is not UTF-8 text (byte {error.start})")]) from None
    except tomllib.TOMLDecodeError as error:
        raise ExperimentError(str(path), [Problem("", f"is not valid TOML: {error}")]) from None


def _overridden(data: Mapping[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], list[Problem]]:
    """A deep copy of `data` with `overrides` applied, and what was wrong with them."""
    result: dict[str, Any] = json.loads(json.dumps(data, default=str))
    problems = []
    for setting in overrides:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            problems.append(Problem(f"--set {setting}", "is not KEY=VALUE", "for example --set search.children=8"))
            continue
        reason = _assign(result, key.strip().split("."), _toml_value(text.strip()))
        if reason:
            problems.append(Problem(f"--set {key.strip()}", reason))
    return result, problems


def _toml_value(text: str) -> Any:
    """`text` as a TOML value, or as a bare word where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _assign(root: dict[str, Any], keys: Sequence[str], value: Any) -> str:
    """Set root[k0][k1]... = value; list elements by index. Returns why it cannot be done, or ""."""
    node: Any = root
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(node, list):
            if not key.isdecimal() or int(key) >= len(node):
                return f'"{key}" is not an index of a list of {len(node)}'
            index: Any = int(key)
        elif isinstance(node, dict):
            index = key
            if not last:
                node.setdefault(key, {})
        else:
            return f'"{".".join(keys[:depth])}" is a value, not a table'
        if last:
            node[index] = value
        else:
            node = node[index]
    return ""


def _join(location: Iterable[str | int]) -> str:
    """("task", "shapes", 0, "K") -> "task.shapes[0].K"."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _fields_at(location: Sequence[str | int]) -> tuple[str, ...]:
    """Valid keys of the table that holds `location`'s last part."""
    model: type[BaseModel] = Experiment
    for part in location[:-1]:
        sections: dict[str | int, type[BaseModel]] = {
            "device": DeviceSection,
            "search": SearchSection,
            "llm": LlmSection,
            "pause": PauseSection,
            "budget": BudgetSection,
            "limits": LimitsSection,
            "archive": ArchiveSection,
            "models": ModelChoice,
        }
        model = sections.get(part, model)
    return tuple(model.model_fields)


def _problem(details: ErrorDetails) -> Problem:
    """A pydantic error in our words."""
    location = [part for part in details["loc"] if part not in ("int", "float", "constrained-int", "constrained-float")]
    path = _join(location)
    if details["type"] == "extra_forbidden":
        return Problem(path, "unknown key", nearest(str(location[-1]), _fields_at(location)))
    if details["type"] == "missing":
        return Problem(path, "is required")
    value = details["input"]
    reason = re.sub(r"^(Input|Value) should ", "must ", details["msg"])
    fix = ""
    if details["type"] == "literal_error":
        fix = nearest(str(value), re.findall(r"'([^']+)'", str(details.get("ctx", {}).get("expected", ""))))
    return Problem(path, f"{reason}, not {_shown(value)}", fix)


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _name_problems(name: object) -> list[Problem]:
    """Names become run ids, folder names and parts of REFs."""
    if not isinstance(name, str):
        return []
    if not _NAME.fullmatch(name) or len(name) > 64:
        fix = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64] or "nm24"
        reason = f"{_shown(name)} is no name: 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"
        return [Problem("name", reason, f'for example "{fix}"')]
    if name.isdecimal() or name == "best":
        return [Problem("name", f'"{name}" would be read as a reference to a candidate', f'for example "run-{name}"')]
    return []


def _operator_problems(data: Mapping[str, Any]) -> list[Problem]:
    operators = data.get("operators")
    if not isinstance(operators, Mapping):
        return []
    names = available_operators()
    problems = [
        Problem(f"operators.{name}", "no such operator", f"{nearest(name, names)} (available: {', '.join(names)})")
        for name in operators
        if name not in names and ":" not in name
    ]
    weights = [weight for weight in operators.values() if isinstance(weight, int | float)]
    if weights == list(operators.values()) and not any(weight > 0 for weight in weights):
        problems.append(Problem("operators", "no operator has a weight > 0", "for example tune = 1"))
    return problems


def _gpu_problems(device: object) -> list[Problem]:
    name = device.get("gpu") if isinstance(device, Mapping) else None
    if not isinstance(name, str) or name.lower() in {known.lower() for known in gpus.known()}:
        return []
    return [Problem("device.gpu", f"{_shown(name)} is not described", nearest(name, gpus.known()))]


def _task_problems(task: object) -> list[Problem]:
    if not isinstance(task, Mapping):
        return []
    from fitness.task import Task, TaskError

    try:
        Task.from_spec(task)
    except TaskError as error:
        return [
            Problem(path if path == "task" or path.startswith(("task.", "task[")) else f"task.{path}", reason, fix)
            for path, reason, fix in error.errors
        ]
    return []


def _unique(problems: Iterable[Problem]) -> list[Problem]:
    """First problem of each path and reason, in order."""
    return list({(problem.path, problem.reason): problem for problem in problems}.values())


def _flatten(value: object, prefix: str = "") -> dict[str, object]:
    """Leaves by dotted path; lists are leaves (a list is changed as a whole)."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    leaves: dict[str, object] = {}
    for key, inner in value.items():
        leaves |= _flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return leaves


def _is_raise(change: Change) -> bool:
    """True for a budget (or number of generations) that became larger or unlimited, or a moved archive."""
    if change.path == "archive.path":
        return True
    if not change.path.startswith("budget.") and change.path != "search.generations":
        return False
    if change.new is None:
        return True
    return isinstance(change.old, int | float) and isinstance(change.new, int | float) and change.new > change.old
