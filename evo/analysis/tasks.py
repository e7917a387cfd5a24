"""Experiment files for matrices on which a sparse kernel can pay: ready for `evo run`, equal layers once."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import seeds
from evo.analysis.job import Result
from evo.errors import ExperimentError, SeedError
from evo.experiment import Experiment
from evo.report.toml import as_toml
from evo.seeding import starting_seeds
from fitness import gpu as gpus
from fitness.analysis.advice import LITTLE
from fitness.analyze import Analysis
from fitness.patterns import FilePattern, PatternError

MOST_COLUMNS: Final = 512
"""Larger N are left to the user: they take the simulator minutes for each candidate."""
MINUTES: Final = 10
_SHAPES: Final = 3
_FAR_LARGER: Final = 2.0
_FULL: Final = 0.98  # share of the slots of an N:M pattern from which the generator stands for the matrix
_ALIKE: Final = {"density": 0.05, "imbalance": 0.25}  # relatively this close, they are one task


@dataclass(frozen=True)
class Written:
    """One experiment file and the matrices it stands for."""

    path: Path
    matrices: tuple[str, ...]


@dataclass(frozen=True)
class Unwritten:
    """Matrices without an experiment file, and why."""

    matrices: tuple[str, ...]
    reason: str


def write_tasks(results: Sequence[Result], folder: Path) -> tuple[list[Written], list[Unwritten]]:
    """Write one file for each group of equal matrices on which a sparse kernel can pay.

    Equal: same shape and type, same recommended format, densities within 5 %, imbalances within 25 %. The first of a
    group gives the pattern.

    Raises:
        OSError: the folder cannot be written.
    """
    written: list[Written] = []
    unwritten: list[Unwritten] = []
    used: set[str] = set()
    for group in _groups(results):
        titles = tuple(result.title for result in group)
        if group[0].analysis.advice.pays == "no":
            unwritten.append(Unwritten(titles, group[0].analysis.advice.verdict))
            continue
        name = _name(group[0], used)
        try:
            text = _comment(group) + as_toml(_experiment(group[0], name))
            Experiment.from_dict(tomllib.loads(text), where=f"{name}.toml")
        except ExperimentError as error:
            unwritten.append(Unwritten(titles, "; ".join(str(problem) for problem in error.problems)))
            continue
        except PatternError as error:
            unwritten.append(Unwritten(titles, str(error)))
            continue
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        used.add(name)
        written.append(Written(path, titles))
    return written, unwritten


def _groups(results: Sequence[Result]) -> list[list[Result]]:
    groups: list[list[Result]] = []
    for result in results:
        for group in groups:
            if _equal(group[0].analysis, result.analysis):
                group.append(result)
                break
        else:
            groups.append([result])
    return groups


def _equal(a: Analysis, b: Analysis) -> bool:
    if a.repetition.digest == b.repetition.digest and a.gpu_dtype == b.gpu_dtype:
        return True
    alike = (a.shape, a.gpu_dtype, a.advice.pays, a.advice.format, dict(a.advice.options)) == (
        b.shape, b.gpu_dtype, b.advice.pays, b.advice.format, dict(b.advice.options),
    )  # fmt: skip
    near = {"density": (a.density, b.density), "imbalance": (a.rows.imbalance, b.rows.imbalance)}
    return alike and all(abs(one - other) <= _ALIKE[name] * max(one, other) for name, (one, other) in near.items())


def _experiment(result: Result, name: str) -> dict[str, Any]:
    found = result.analysis
    columns = _columns(found)
    op = "spmv" if columns == [1] else "spmm"
    shapes = [{"M": found.shape[0], "K": found.shape[1], "N": n} for n in columns]
    experiment: dict[str, Any] = {
        "name": name,
        "rng_seed": 1,
        "task": {
            "op": op,
            "pattern": _pattern(result),
            "dtype": found.gpu_dtype,
            "shapes": shapes,
            **({"free": ["N"]} if op == "spmm" else {"free": []}),
            "seeds": [],
            "baseline": "auto",
        },
        "device": {"kind": "auto", "gpu": found.gpu},
        "search": {"generations": 8, "children": 16, "islands": 2},
        "operators": {"tune": 2, "surrogate": 4, "rewrite": 1, "splice": 1, "dispatch": 1},
        "budget": {"minutes": MINUTES},  # shared where several run: evaluations would go to the first of them
    }
    experiment["task"]["seeds"] = _seeds(found, op, lambda glob: _serving(glob, experiment))
    return experiment


def _columns(found: Analysis) -> list[int]:
    """At most three N on which it can pay, spread: the smallest, the middle, the largest."""
    paying = sorted(n for n, gain in found.advice.gain.items() if gain >= LITTLE)
    kept = [n for n in paying if n <= MOST_COLUMNS] or paying[:1]
    if len(kept) > 1:
        kept = [n for n in kept if n > 1]
    return sorted({kept[0], kept[len(kept) // 2], kept[-1]})[:_SHAPES]


def _pattern(result: Result) -> dict[str, Any]:
    """N:M by its generator, so that kernels are right for every such matrix; anything else from the file itself."""
    found = result.analysis
    for m in (4, 8, 16, 2):
        n = found.ratios.exact(m)
        if 0 < n < m and found.density >= _FULL * n / m and found.shape[1] % (64 if m == 4 else m) == 0:
            return {"kind": "nm", "n": n, "m": m}
    path = str(result.path.resolve())
    pattern = {"kind": "file", "path": path, **({"matrix": result.name} if result.name else {})}
    return {**pattern, "sha256": FilePattern(path, result.name, "").digest}


def _seeds(found: Analysis, op: str, serving: Callable[[str], list[str]]) -> list[str]:
    """Seeds in the recommended format and those with the least floors; compressed rows where they are not far larger.

    Of these, which serve the task; where none does, those of the format with the least floor that has some. Compressed
    rows store anything, so there are always such.
    """
    globs = {name: f"{op}/{name}_*" for name in (found.advice.format, *found.advice.best.values(), "csr")}
    there = {name: kept for name, glob in globs.items() if (kept := serving(glob))}
    sizes = {size.format: size.bytes for size in found.sizes.stored}
    if len(there) > 1 and sizes.get("csr", 0) > _FAR_LARGER * min(sizes[name] for name in there if name in sizes):
        there.pop("csr", None)
    if there:
        return list(itertools.chain(*there.values()))
    by_floor = sorted(found.floors, key=lambda floor: floor.time_us)
    others = (serving(f"{op}/{name}_*") for name in dict.fromkeys(floor.format for floor in by_floor))
    return next(filter(None, others))


def _serving(glob: str, experiment: dict[str, Any]) -> list[str]:
    """The seeds of that glob that are written for the task (its type, its shapes, the card): it, or the few by name."""
    if not seeds.seed_paths(glob):
        return []
    asked = Experiment.from_dict({**experiment, "task": {**experiment["task"], "seeds": [glob]}}, where=glob)
    try:
        kept, notes = starting_seeds(asked.checked_task, arch=gpus.load(asked.device.gpu).arch)
    except SeedError:
        return []
    return [glob] if 2 * len(kept) > len(notes) else [seed.name for seed in kept]


def _name(result: Result, used: set[str]) -> str:
    stem = result.path.name.split(".")[0]
    words = result.name.removesuffix(".weight") or (
        stem if stem.lower() not in ("model", "pytorch_model") else result.path.parent.name
    )
    base = re.sub(r"[^A-Za-z0-9_-]+", "-", words).strip("-_")[-48:].lstrip("-_") or "matrix"
    if base.isdecimal() or base == "best":
        base = f"matrix-{base}"
    name, i = base, 2
    while name in used:
        name, i = f"{base}-{i}", i + 1
    return name


def _comment(group: Sequence[Result]) -> str:
    found = group[0].analysis
    lines = [
        f"{found.shape[0]} x {found.shape[1]}, {found.nnz} nonzeros (density {found.density:.3%}), {found.gpu_dtype}.",
        found.advice.verdict + ".",
        f"Recommended format: {found.advice.format}: {found.advice.why}.",
        "Written by evo analyze for:",
        *(f"  {result.title}" for result in group),
    ]
    return "".join(f"# {line}\n" for line in lines) + "\n"
