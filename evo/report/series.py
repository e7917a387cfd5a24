"""Archive -> the pictures of `evo.plots`. One function per kind; `KINDS` names them for the command line.

Every function takes an open archive and runs, and raises `EvoError` where they hold nothing to draw.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from evo import merit
from evo.archive import Archive, RunRecord, facts
from evo.archive.calls import spendings
from evo.errors import EvoError
from evo.lineage import Lineage
from evo.plots.hardware import Pareto, Roofline, RooflinePoint
from evo.plots.operators import Credit, Validity
from evo.plots.phylogeny import Phylogeny, Twig
from evo.plots.picture import Picture
from evo.plots.progress import Group, Progress, RunCurve
from evo.plots.shapes import Bar, ShapeBars, Sweep
from evo.progress import shape_text
from evo.report.history import history_of, title_of
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
        groups.setdefault(run.name, []).append(RunCurve(run.id, _best_so_far(archive, run, over)))
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
    seeds = {row["n"] for row in facts.seeds(archive, run.id)}
    roles = dict.fromkeys(seeds, "seed") | {best: "best"}
    name = functools.cache(lambda shape: _short_shape(run, json.loads(shape)))
    points = [
        RooflinePoint(n, roles.get(n, "candidate"), name(shape), tflops * 1e3 / gb_per_s, tflops)
        for n, shape, tflops, gb_per_s in facts.rates(archive, run.id)
    ]
    for _, timings in facts.baselines(archive, run.id):
        points += [
            RooflinePoint(None, "baseline", _short_shape(run, t.shape), t.tflops * 1e3 / t.gb_per_s, t.tflops)
            for t in timings
        ]
    if not any(point.role != "baseline" for point in points):
        raise EvoError(f"run {run.id} has no valid candidate", "nothing to plot yet; its report says what failed")
    return Roofline(title_of(run), run.clock, card.tflops[dtype], card.bandwidth_gb_per_s, tuple(points))


def pareto(archive: Archive, runs: Sequence[RunRecord]) -> Pareto:
    """Times at the least and the most work of the task's shapes; with one shape, time against registers."""
    run = _only(runs)
    shapes = list(run.experiment["task"]["shapes"])
    order = sorted(range(len(shapes)), key=lambda i: math.prod(shapes[i].values()))
    times: dict[int, dict[int, float]] = {}
    for row in facts.timings(archive, run.id):
        times.setdefault(row["n"], {})[row["position"]] = row["time_us"]
    _needed(times, run)
    baseline = next(facts.baselines(archive, run.id), None)
    if len(shapes) == 1:
        registers = {row["n"]: row["registers"] for row in facts.steps(archive, run.id) if row["n"] in times}
        points = tuple((n, float(registers[n]), own[0]) for n, own in times.items())
        return Pareto(title_of(run), "registers per thread", f"time (us, {run.clock})", points)
    x, y = order[0], order[-1]
    labels = [f"us at {_short_shape(run, shapes[i])} ({run.clock})" for i in (x, y)]
    mark = (baseline[1][x].time_us, baseline[1][y].time_us) if baseline else None
    return Pareto(title_of(run), labels[0], labels[1], tuple((n, own[x], own[y]) for n, own in times.items()), mark)


def validity(archive: Archive, runs: Sequence[RunRecord]) -> Validity:
    """What became of each generation's candidates."""
    run = _only(runs)
    counts: dict[int, dict[str, int]] = {}
    for row in facts.steps(archive, run.id):
        generation = counts.setdefault(row["generation"], {})
        ending = _ending(row)
        if ending is not None:
            generation[ending] = generation.get(ending, 0) + 1
    _needed(counts, run)
    gates = [gate.name.lower().replace("_", " ") for gate in Gate]
    order = ["valid", "duplicate", "refused", *(f"failed: {gate}" for gate in gates)]
    there = [ending for ending in order if any(ending in row for row in counts.values())]
    rows = tuple(tuple(counts.get(g, {}).get(ending, 0) for ending in there) for g in range(max(counts) + 1))
    return Validity(title_of(run), tuple(there), rows)


def credit(archive: Archive, runs: Sequence[RunRecord]) -> Credit:
    """Factors by which each operator improved the best, the best seed aside."""
    run = _only(runs)
    best: float | None = None
    factors: dict[str, list[tuple[int, float]]] = {}
    last = 0
    for row in facts.steps(archive, run.id):
        last = row["n"]
        mine = factors.setdefault(row["operator"], []) if row["operator"] != "seed" else []
        time_us = row["fitness_us"]
        if time_us is None or row["reused_from"] is not None:
            continue
        if best is not None and time_us < best:
            mine.append((row["n"], (mine[-1][1] if mine else 1.0) * best / time_us))
        best = time_us if best is None else min(best, time_us)
    _needed(factors, run)
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
    floors = tuple(timing.time_us / timing.floor_us for timing in baselines[0][1])
    shapes = tuple(_short_shape(run, t.shape) for t in best)
    return ShapeBars(title_of(run), run.clock, shapes, tuple(series), floors)


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
    base = lineage.baseline_us
    twigs = tuple(
        Twig(
            row["n"],
            row["generation"],
            row["parent"],
            row["operator"],
            base / row["time_us"] if base and row["time_us"] else None,
        )
        for row in facts.steps(archive, run.id)
    )
    _needed(twigs, run)
    best = lineage.best()
    path = tuple(facts.line(archive, run.id, best.n, all_parents=False)) if best is not None else ()
    return Phylogeny(title_of(run), run.clock, twigs, path)


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


def _best_so_far(archive: Archive, run: RunRecord, over: str) -> tuple[tuple[float, float], ...]:
    """(x, best speedup) where it rises, and where the run ended."""
    baseline = facts.baseline_us(archive, run.id)
    if baseline is None:
        raise EvoError(f"run {run.id} ended before its baseline was timed", "resume it: evo run ... --resume")
    clock = _Elapsed([event.at for event in archive.events(run.id, "session")])
    usd = _dollars(archive, run) if over == "dollars" else {}
    points: list[tuple[float, float]] = []
    x, best, count, spent = 0.0, None, 0, 0.0
    rows: Iterable[facts.Row] = facts.steps(archive, run.id)
    if over == "seconds":
        rows = sorted((row for row in rows if row["judged_at"]), key=lambda row: (row["judged_at"], row["n"]))
    for row in rows:
        spent += usd.get(row["n"], 0.0)
        if row["kind"] is None:
            continue
        count += row["reused_from"] is None
        x = {"generations": row["generation"], "evaluations": count, "dollars": spent}.get(over, 0.0)
        x = clock.at(row["judged_at"]) if over == "seconds" else float(x)
        if row["time_us"] is not None and (best is None or baseline / row["time_us"] > best):
            best = baseline / row["time_us"]
            points = [*points[:-1], (x, best)] if points and points[-1][0] == x else [*points, (x, best)]
    if best is None:
        raise EvoError(f"run {run.id} has no valid candidate", "nothing to plot yet; its report says what failed")
    return tuple(points) if points[-1][0] == x else (*points, (x, best))


def _dollars(archive: Archive, run: RunRecord) -> dict[int | None, float]:
    """What each candidate spent on models."""
    usd: dict[int | None, float] = {}
    for n, model, spent in spendings(archive, run.id):
        if spent.usd is None:
            raise EvoError(f"the price of {model} was not known to run {run.id}", "plot evaluations or seconds instead")
        usd[n] = usd.get(n, 0.0) + spent.usd
    if not any(usd.values()):
        raise EvoError(f"run {run.id} spent nothing on a model", "plot evaluations or seconds instead")
    return usd


class _Elapsed:
    """Seconds a run has been under way, the time between its sessions left out. Ask in ascending order."""

    def __init__(self, starts: Sequence[str]) -> None:
        self._starts = sorted(_moment(start) for start in starts)
        self._before = 0.0
        self._session = 0
        self._last = self._starts[0] if self._starts else None

    def at(self, moment: str) -> float:
        now = _moment(moment)
        if self._last is None:
            self._starts, self._last = [now], now
        while self._session + 1 < len(self._starts) and now >= self._starts[self._session + 1]:
            self._before += max(0.0, self._last - self._starts[self._session])
            self._session += 1
            self._last = self._starts[self._session]
        self._last = max(self._last, now)
        return self._before + now - self._starts[self._session]


def _moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def _ending(row: facts.Row) -> str | None:
    """What became of a candidate in a word or two; None while it waits for its verdict."""
    if row["kernel_id"] is None:
        return "refused"
    if row["kind"] is None:
        return None
    if row["reused_from"] is not None:
        return "duplicate"
    return "valid" if row["fitness_us"] is not None else f"failed: {row['stage'].lower().replace('_', ' ')}"


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
    return [*subjects, ("roofline floor", floors)]


def _baselines(archive: Archive, run: RunRecord) -> list[tuple[str, tuple[Timing, ...]]]:
    found = list(facts.baselines(archive, run.id))
    if not found:
        raise EvoError(f"run {run.id} ended before its baseline was timed", "resume it: evo run ... --resume")
    return found


def _answer(archive: Archive, run: RunRecord) -> int:
    return Lineage(archive, run).answer().n


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
        Bar(ratio, base.low_us / own.high_us, base.high_us / own.low_us)
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


def _needed(found: object, run: RunRecord) -> None:
    if not found:
        raise EvoError(f"run {run.id} has nothing to plot yet", "let it run on; evo watch shows how it stands")
