"""Archive -> the history that `evo.plots` draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from evo import merit
from evo.archive import Archive, RunRecord, columns, facts
from evo.plots import History, SeedLine, summarise
from evo.report.missing import untimed
from evo.seed_reasons import seed_name


def history_of(archive: Archive, run: RunRecord) -> History:
    """Everything the plot of a run shows.

    Raises:
        EvoError: the run ended before its baseline was timed, so there is no speedup to plot.
    """
    named = next(facts.baselines(archive, run.id), None)
    baseline_us = facts.baseline_us(archive, run.id)
    if named is None or baseline_us is None:
        raise untimed(run)
    points = (
        (generation, baseline_us / time_us if time_us is not None else None)
        for generation, kind, time_us in columns.steps(archive, run.id, "generation", "kind", "time_us")
        if kind is not None
    )
    floor = 1 / merit.floor_fraction(named[1])
    seeds = _seed_lines(archive, run, baseline_us)
    return History(title_of(run), named[0], run.clock, summarise(points), seeds, floor)


def title_of(run: RunRecord) -> str:
    """What was computed and where, short enough for one line above the plot."""
    task = run.experiment["task"]
    what = f"{task['op']} {pattern_text(task.get('pattern'))} {task.get('dtype', 'float16')}"
    return f"{what} {shapes_text(task['shapes'])}, {run.gpu}"


def shapes_text(shapes: Sequence[Mapping[str, int]]) -> str:
    """W and the values of N where all share one W and they are few ("4096x4096, N = 16"), else their number."""
    sizes = {(shape.get("M"), shape.get("K")) for shape in shapes}
    text = f"{shapes[0].get('M')}x{shapes[0].get('K')}, N = " + ", ".join(str(shape.get("N")) for shape in shapes)
    return text if len(sizes) == 1 and len(text) <= 26 else f"{len(shapes)} shapes"


def pattern_text(pattern: Mapping[str, Any] | None) -> str:
    """{"kind": "nm", "n": 2, "m": 4} -> "2:4"; others by kind and values."""
    if not pattern:
        return "dense"
    if pattern.get("kind") == "nm":
        return f"{pattern['n']}:{pattern['m']}"
    return " ".join(str(value) for value in pattern.values())


def _seed_lines(archive: Archive, run: RunRecord, baseline_us: float) -> tuple[SeedLine, ...]:
    """The valid seeds, by the part of their names that differs."""
    seeds = list(facts.seeds(archive, run.id))
    labels = short_names([seed_name(row["reason"]) for row in seeds])
    return tuple(
        SeedLine(label, baseline_us / row["time_us"])
        for label, row in zip(labels, seeds, strict=True)
        if row["time_us"] is not None
    )


def short_names(names: Sequence[str]) -> list[str]:
    """File stems without the words all of them begin with: spmm/nm24_mma, spmm/nm24_mma_sp -> mma, mma_sp."""
    stems = [PurePath(name).name.removesuffix(".cu") for name in names]
    words = [stem.split("_") for stem in stems]
    while len(words) > 1 and all(len(word) > 1 for word in words) and len({word[0] for word in words}) == 1:
        words = [word[1:] for word in words]
    return ["_".join(word) for word in words]
