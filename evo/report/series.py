"""Archive -> the pictures of `evo.plots`. One function per kind; `KINDS` names them for the command line.

Every function takes an open archive and runs, and raises `EvoError` where they hold nothing to draw.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evo import merit
from evo.archive import Archive, RunRecord, columns, facts
from evo.errors import EvoError
from evo.lineage import Lineage
from evo.plots.hardware import PAIRS, RATES, Pareto, Roofline, RooflinePoint
from evo.plots.operators import Credit, Validity
from evo.plots.phylogeny import TWIGS, Phylogeny
from evo.plots.picture import FLOOR, Picture
from evo.plots.progress import Group, Progress, RunCurve
from evo.plots.shapes import Bar, ShapeBars, Sweep
from evo.progress import shape_text
from evo.report.best_so_far import best_so_far
from evo.report.history import history_of, title_of
from evo.report.missing import untimed, without_numbers
from fitness import gpu as gpus
from fitness.outcome import Gate, Timing

OVER = ("generations", "evaluations", "seconds", "dollars")


def speedup(archive: Archive, runs: Sequence[RunRecord]) -> Picture:
    """One run: best, median, quartiles and seeds. Several: their best with confidence bands."""
    return history_of(archive, runs[0]) if len(runs) == 1 else progress(archive, runs, "generations")


def progress(archive: Archive, runs: Sequence[RunRecord], over: str) -> Progress:
    """Best so far against one of `OVER`; runs of one name and task are a group."""
    groups: dict[str, list[RunCurve]] = {}
    clock = one_clock(runs)
    for run in runs:
        groups.setdefault(run.name, []).append(RunCurve(run.id, best_so_far(archive, run, over)))
    singles = all(len(curves) == 1 for curves in groups.values())
    named = {name: curves[0].run_id if singles else name for name, curves in groups.items()}
    title = title_of(runs[0]) if len({title_of(run) for run in runs}) == 1 else f"{len(runs)} runs, {runs[0].gpu}"
    return Progress(title, clock, over, tuple(Group(named[name], tuple(curves)) for name, curves in groups.items()))


def roofline(archive: Archive, runs: Sequence[RunRecord]) -> Roofline:
    """Every valid candidate of a run at every shape."""
    run = _only(runs)
    card = gpus.load(run.gpu)
    dtype = str(run.experiment["task"].get("dtype", "float16"))
    best = _answer(archive, run)
    roles = {row["n"]: "seed" for row in facts.seeds(archive, run.id)} | {best: "best"}
    rates = np.fromiter(columns.rates(archive, run.id), RATES)
    _needed(len(rates), archive, run)
    shapes = tuple(_short_shape(run, timing.shape) for timing in _timings(archive, run, best))
    baselines = tuple(
        RooflinePoint(_short_shape(run, t.shape), t.tflops * 1e3 / t.gb_per_s, t.tflops)
        for _, timings in facts.baselines(archive, run.id)
        for t in timings
    )
    peak, bandwidth = card.tflops[dtype], card.bandwidth_gb_per_s
    return Roofline(title_of(run), run.clock, peak, bandwidth, shapes, rates, roles, baselines)


def pareto(archive: Archive, runs: Sequence[RunRecord]) -> Pareto:
    """Times at the least and the most work of the task's shapes; with one shape, time against registers."""
    run = _only(runs)
    shapes = list(run.experiment["task"]["shapes"])
    order = sorted(range(len(shapes)), key=lambda i: math.prod(shapes[i].values()))
    x, y = order[0], order[-1]
    if len(shapes) == 1:
        known = columns.steps(archive, run.id, "n", "registers", "time_us")
        points = np.fromiter((row for row in known if None not in row), PAIRS)
        _needed(len(points), archive, run)
        return Pareto(
            title_of(run), "registers per thread", f"time (us, {run.clock})", points, best=_answer(archive, run)
        )
    points = np.fromiter(columns.pairs(archive, run.id, x, y), PAIRS)
    _needed(len(points), archive, run)
    baseline = next(facts.baselines(archive, run.id), None)
    labels = [f"time at {_short_shape(run, shapes[i])} (us, {run.clock})" for i in (x, y)]
    mark = (baseline[1][x].time_us, baseline[1][y].time_us) if baseline else None
    return Pareto(title_of(run), labels[0], labels[1], points, mark, _answer(archive, run))


def validity(archive: Archive, runs: Sequence[RunRecord]) -> Validity:
    """What became of each generation's candidates."""
    run = _only(runs)
    counts: dict[int, dict[str, int]] = {}
    names = ("generation", "kernel_id", "kind", "reused_from", "fitness_us", "stage")
    for generation, *verdict in columns.steps(archive, run.id, *names):
        here = counts.setdefault(generation, {})
        ending = _ending(*verdict)
        if ending is not None:
            here[ending] = here.get(ending, 0) + 1
    _needed(counts, archive, run)
    gates = [gate.name.lower().replace("_", " ") for gate in Gate]
    order = [_DISTINCT, _DUPLICATE, "refused", *(f"failed: {gate}" for gate in gates)]
    there = [ending for ending in order if any(ending in row for row in counts.values())]
    rows = tuple(tuple(counts.get(g, {}).get(ending, 0) for ending in there) for g in range(max(counts) + 1))
    return Validity(title_of(run), tuple(there), rows)


def credit(archive: Archive, runs: Sequence[RunRecord]) -> Credit:
    """Factors by which each operator improved the best, the best seed aside."""
    run = _only(runs)
    best: float | None = None
    factors: dict[str, list[tuple[int, float]]] = {}
    last = 0
    for n, operator, time_us, reused_from in columns.steps(
        archive, run.id, "n", "operator", "fitness_us", "reused_from"
    ):
        last = n
        mine = factors.setdefault(operator, []) if operator != "seed" else []
        if time_us is None or reused_from is not None:
            continue
        if best is not None and time_us < best:
            mine.append((n, (mine[-1][1] if mine else 1.0) * best / time_us))
        best = time_us if best is None else min(best, time_us)
    _needed(factors, archive, run)
    return Credit(
        title_of(run), run.clock, last, tuple((name, tuple(steps)) for name, steps in sorted(factors.items()))
    )


def shape_bars(archive: Archive, runs: Sequence[RunRecord]) -> ShapeBars:
    """The answer of a run against each baseline, and the best seed against the first, shape by shape."""
    run = _only(runs)
    baselines = _baselines(archive, run)
    best = _timings(archive, run, _answer(archive, run))
    series = [(f"best over {name}", _bars(timings, best)) for name, timings in baselines]
    seed = _best_seed(archive, run)
    if seed is not None:
        series.append((f"best seed over {baselines[0][0]}", _bars(baselines[0][1], _timings(archive, run, seed))))
    shapes = tuple(_short_shape(run, t.shape) for t in best)
    return ShapeBars(title_of(run), run.clock, shapes, tuple(series))


def sweep(archive: Archive, runs: Sequence[RunRecord]) -> Sweep:
    """Times over the one dimension in which a run's shapes differ; of several runs over their density."""
    clock = one_clock(runs)
    if len(runs) == 1:
        return _size_sweep(archive, runs[0])
    densities = {density(run.experiment["task"].get("pattern")) for run in runs}
    if None in densities or len(densities) < 2:
        raise EvoError(
            "these runs do not differ in density", "name one run with several sizes, or runs of several densities"
        )
    series: dict[str, list[tuple[float, float, float, float]]] = {}
    for run in sorted(runs, key=lambda run: density(run.experiment["task"].get("pattern")) or 0.0):
        x = density(run.experiment["task"].get("pattern")) or 0.0
        for label, timings in _subjects(archive, run):
            means = [
                merit.geometric_mean(getattr(t, name) for t in timings) for name in ("time_us", "low_us", "high_us")
            ]
            series.setdefault(label, []).append((x, means[0], means[1], means[2]))
    count = len(runs[0].experiment["task"]["shapes"])
    title = f"{runs[0].experiment['task']['op']}, {runs[0].gpu}" + (f", mean over {count} shapes" if count > 1 else "")
    return Sweep(title, clock, "density", tuple((label, tuple(points)) for label, points in series.items()))


def phylogeny(archive: Archive, runs: Sequence[RunRecord]) -> Phylogeny:
    """The tree of a run, with the path to its answer."""
    run = _only(runs)
    lineage = Lineage(archive, run)
    base = lineage.baseline_us or math.nan
    operators: dict[str, int] = {}
    rows = columns.steps(archive, run.id, "n", "generation", "parent", "operator", "time_us")
    twigs = np.fromiter(
        (
            (
                n,
                generation,
                -1 if parent is None else parent,
                operators.setdefault(operator, len(operators)),
                math.nan if time_us is None else base / time_us,
            )
            for n, generation, parent, operator, time_us in rows
        ),
        TWIGS,
    )
    _needed(len(twigs), archive, run)
    best = lineage.best()
    path = tuple(facts.line(archive, run.id, best.n, all_parents=False)) if best is not None else ()
    return Phylogeny(title_of(run), run.clock, twigs, tuple(operators), path)


@dataclass(frozen=True)
class Kind:
    """A kind of plot: what it shows in one line, the function that makes it, whether it takes several runs."""

    about: str
    make: Callable[[Archive, Sequence[RunRecord]], Picture]
    several: bool = False


KINDS: dict[str, Kind] = {
    "speedup": Kind("speedup over generations: best, median, quartiles, seeds; several runs with bands", speedup, True),
    "evaluations": Kind("best so far against evaluations", functools.partial(progress, over="evaluations"), True),
    "seconds": Kind("best so far against seconds of the run", functools.partial(progress, over="seconds"), True),
    "dollars": Kind("best so far against dollars spent on models", functools.partial(progress, over="dollars"), True),
    "roofline": Kind("achieved rate of every candidate under the card's ceilings", roofline),
    "pareto": Kind("times at two shapes, and the candidates no other beats in both", pareto),
    "validity": Kind("what became of each generation's candidates, by gate", validity),
    "credit": Kind("which operator improved the best, over time", credit),
    "shapes": Kind("speedup per shape against each baseline, with intervals", shape_bars),
    "sweep": Kind("time over size, or over the density of several runs, against the baseline", sweep, True),
    "phylogeny": Kind("the tree of the run", phylogeny),
}
"""Name on the command line -> what it is."""


def one_clock(runs: Sequence[RunRecord]) -> str:
    """The clock of the runs.

    Raises:
        EvoError: modelled and measured runs together: their times are never mixed.
    """
    clocks = {run.clock for run in runs}
    if len(clocks) > 1:
        raise EvoError("modelled and measured times are not shown in one plot", "name runs of one clock")
    return runs[0].clock


def density(pattern: Mapping[str, object] | None) -> float | None:
    """Share of nonzeros that a task's pattern asks for; None where only the matrix would say."""
    if pattern is None:
        return 1.0
    if pattern.get("kind") == "nm":
        return float(str(pattern["n"])) / float(str(pattern["m"]))
    value = pattern.get("density")
    return float(value) if isinstance(value, int | float) else None


_DISTINCT, _DUPLICATE = "valid (distinct)", "valid (duplicate)"
"""Together what is valid, as `evo.archive.counts` has it."""


def _ending(
    kernel_id: str | None, kind: str | None, reused_from: int | None, fitness_us: float | None, stage: str
) -> str | None:
    """What became of a candidate in a word or two; None while it waits for its verdict."""
    if kernel_id is None:
        return "refused"
    if kind is None:
        return None
    if fitness_us is None:
        return f"failed: {stage.lower().replace('_', ' ')}"
    return _DISTINCT if reused_from is None else _DUPLICATE


def _size_sweep(archive: Archive, run: RunRecord) -> Sweep:
    shapes = [dict(timing.shape) for timing in _baselines(archive, run)[0][1]]
    varying = [name for name in shapes[0] if len({shape[name] for shape in shapes}) > 1]
    if len(varying) != 1:
        raise EvoError(
            f"the shapes of run {run.id} differ in {' and '.join(varying) or 'nothing'}",
            "a sweep needs shapes that differ in one dimension",
        )
    order = sorted(range(len(shapes)), key=lambda i: shapes[i][varying[0]])
    series = []
    for label, timings in _subjects(archive, run):
        points = [
            (float(shapes[i][varying[0]]), timings[i].time_us, timings[i].low_us, timings[i].high_us) for i in order
        ]
        series.append((label, tuple(points)))
    return Sweep(title_of(run), run.clock, varying[0], tuple(series))


def _subjects(archive: Archive, run: RunRecord) -> list[tuple[str, tuple[Timing, ...]]]:
    """Baselines, best seed, answer and floor of a run with their times."""
    baselines = _baselines(archive, run)
    subjects = list(baselines)
    seed = _best_seed(archive, run)
    if seed is not None:
        subjects.append(("best seed", _timings(archive, run, seed)))
    subjects.append(("best", _timings(archive, run, _answer(archive, run))))
    floors = tuple(
        Timing(t.shape, t.clock, t.floor_us, t.floor_us, t.floor_us, t.floor_us, 0, 0) for t in baselines[0][1]
    )
    return [*subjects, (FLOOR, floors)]


def _baselines(archive: Archive, run: RunRecord) -> list[tuple[str, tuple[Timing, ...]]]:
    found = list(facts.baselines(archive, run.id))
    if not found:
        raise untimed(run)
    return found


def _answer(archive: Archive, run: RunRecord) -> int:
    best = Lineage(archive, run).best()
    if best is None:
        raise without_numbers(archive, run)
    return best.n


def _best_seed(archive: Archive, run: RunRecord) -> int | None:
    timed = [(row["fitness_us"], row["n"]) for row in facts.seeds(archive, run.id) if row["fitness_us"] is not None]
    return min(timed)[1] if timed else None


def _timings(archive: Archive, run: RunRecord, n: int) -> tuple[Timing, ...]:
    """Times of a candidate: those of its confirmation where it has one (fresh data, next to the baseline)."""
    confirmed = archive.confirmation_timings(run.id, n)
    outcome = facts.outcome(archive, run.id, n)
    return confirmed or getattr(outcome, "timings", ())


def _bars(reference: Sequence[Timing], timings: Sequence[Timing]) -> tuple[Bar, ...]:
    """Speedups per shape; the interval from the bounds of both times."""
    return tuple(
        Bar(ratio, base.low_us / own.high_us, base.high_us / own.low_us, base.time_us / base.floor_us)
        for ratio, base, own in zip(merit.ratios(reference, timings), reference, timings, strict=True)
    )


def _short_shape(run: RunRecord, shape: Mapping[str, int]) -> str:
    """The dimensions in which the run's shapes differ ("N=16"); all of them where there is one shape."""
    shapes = run.experiment["task"]["shapes"]
    varying = {name: size for name, size in shape.items() if len({other.get(name) for other in shapes}) > 1}
    return shape_text(varying or shape)


def _only(runs: Sequence[RunRecord]) -> RunRecord:
    if len(runs) != 1:
        raise EvoError(
            "this kind of plot shows one run",
            "name one REF; speedup, evaluations, seconds, dollars and sweep take several",
        )
    return runs[0]


def _needed(found: object, archive: Archive, run: RunRecord) -> None:
    if not found:
        raise without_numbers(archive, run)
