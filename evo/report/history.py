"""Archive -> the history that `evo.plots` draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from evo import merit
from evo.archive import Archive, RunRecord
from evo.errors import EvoError
from evo.plots import History, SeedLine, summarise
from evo.resuming import seed_name
from fitness.outcome import Outcome, Timed, Timing
from mutations.operator import Judged


def speedup_over(baseline: Sequence[Timing], outcome: Outcome) -> float | None:
    """Speedup of a candidate (see `evo.merit`); None if it is not valid, or was stopped as hopeless."""
    if not isinstance(outcome, Timed) or merit.fitness_us(outcome) is None:
        return None
    return merit.speedup(baseline, outcome.timings)


def history_of(archive: Archive, run: RunRecord) -> History:
    """Everything the plot of a run shows.

    Raises:
        EvoError: the run ended before its baseline was timed, so there is no speedup to plot.
    """
    named = archive.baseline(run.id)
    if named is None:
        raise EvoError(f"run {run.id} ended before its baseline was timed", "resume it: evo run ... --resume")
    name, baseline = named
    judged = archive.judged(run.id)
    points = [(one.candidate.plan.generation, speedup_over(baseline, one.outcome)) for one in judged]
    floor = 1 / merit.floor_fraction(baseline)
    return History(title_of(run), name, run.clock, summarise(points), _seed_lines(judged, baseline), floor)


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


def _seed_lines(judged: Sequence[Judged], baseline: Sequence[Timing]) -> tuple[SeedLine, ...]:
    """The valid seeds, by the part of their names that differs."""
    seeds = [one for one in judged if one.candidate.plan.operator == "seed"]
    labels = short_names([seed_name(one.candidate.reason) for one in seeds])
    lines = []
    for label, one in zip(labels, seeds, strict=True):
        speedup = speedup_over(baseline, one.outcome)
        if speedup is not None:
            lines.append(SeedLine(label, speedup))
    return tuple(lines)


def short_names(names: Sequence[str]) -> list[str]:
    """File stems without the words all of them begin with: spmm/nm24_mma, spmm/nm24_mma_sp -> mma, mma_sp."""
    stems = [PurePath(name).name.removesuffix(".cu") for name in names]
    words = [stem.split("_") for stem in stems]
    while len(words) > 1 and all(len(word) > 1 for word in words) and len({word[0] for word in words}) == 1:
        words = [word[1:] for word in words]
    return ["_".join(word) for word in words]
