"""Speedup over generations of one run: best so far, median and quartiles, seeds, baseline and floor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evo.plots.picture import BLUE, FLOOR, GREY, PALE, VERMILION, Table, axes_of, decimal, factor, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TALLEST = 24.0  # the axis shows speedups down to this factor below the best; slower seeds are named with theirs
_MARGIN = 0.025  # of the generations, left and right: room for a whole marker
_LINES = 17  # of 6 pt text that fit beside the axes
_NAMED = 10  # of more seeds than there is room for, so many are named, the fastest
_NARROW = 8.0  # an axis over fewer octaves than three gets ticks between the powers of two


@dataclass(frozen=True)
class SeedLine:
    """A starting kernel: a short `label` and its `speedup` over the baseline (geometric mean of the shapes)."""

    label: str
    speedup: float


@dataclass(frozen=True)
class Generation:
    """What one generation holds; speedups over the baseline, of its valid candidates.

    `best` is the best of the whole history up to here, None while nothing is valid; `low`, `median` and
    `high` are the quartiles of this generation, None where it has no valid candidate.
    """

    number: int
    judged: int
    valid: int
    best: float | None
    low: float | None
    median: float | None
    high: float | None


@dataclass(frozen=True)
class History:
    """All that the plot shows.

    Attributes:
        title: what was computed, where ("spmm nm24 float16, H200").
        baseline: what a speedup of 1 is.
        clock: "modelled" or "measured"; named on the axis, always.
        generations: in order, from 0 (the seeds).
        seeds: the starting kernels that are valid.
        floor_speedup: baseline / roofline floor: no honest kernel is above. None if unknown.
    """

    title: str
    baseline: str
    clock: str
    generations: tuple[Generation, ...]
    seeds: tuple[SeedLine, ...]
    floor_speedup: float | None = None

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.55

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        title = f"{self.title}\nbaseline: {self.baseline}"
        axes = axes_of(figure, title, "generation (0: seeds)", f"speedup ({self.clock} time, ×)")
        axes.set_yscale("log", base=2)
        _draw_seeds(axes, self)
        _draw_generations(axes, self.generations)
        _draw_marks(axes, self)
        if all(g.best is None for g in self.generations):
            judged = sum(g.judged for g in self.generations)
            text = f"no valid candidate among {judged}" if judged else "no candidate judged"
            axes.text(0.5, 0.45, text, transform=axes.transAxes, ha="center", va="center")
        legend_below(figure, axes, columns=4)

    def table(self) -> Table:
        """One row per generation, then one per seed, then the floor; empty cells where there is none."""
        rows: list[tuple[object, ...]] = [
            ("generation", g.number, g.judged, g.valid, g.best, g.low, g.median, g.high) for g in self.generations
        ]
        rows += [("seed", seed.label, 1, 1, seed.speedup, None, None, None) for seed in self.seeds]
        if self.floor_speedup is not None:
            rows.append(("floor", "roofline", None, None, self.floor_speedup, None, None, None))
        header = ("kind", "name", "judged", "valid", "best", "quartile_low", "median", "quartile_high")
        return Table(header, tuple(rows))


def summarise(points: Iterable[tuple[int, float | None]]) -> tuple[Generation, ...]:
    """Fold candidates into generations.

    Args:
        points: per judged candidate, in order of n: its generation and its speedup, None if not valid.
    """
    groups: dict[int, list[float | None]] = {}
    for generation, speedup in points:
        groups.setdefault(generation, []).append(speedup)
    generations: list[Generation] = []
    best: float | None = None
    for number in range(max(groups, default=-1) + 1):
        here = groups.get(number, [])
        valid = [speedup for speedup in here if speedup is not None]
        if valid:
            best = max([*valid, best or 0.0])
            low, median, high = (float(q) for q in np.percentile(valid, [25, 50, 75]))
            generations.append(Generation(number, len(here), len(valid), best, low, median, high))
        else:
            generations.append(Generation(number, len(here), 0, best, None, None, None))
    return tuple(generations)


def _draw_generations(axes: Axes, generations: Sequence[Generation]) -> None:
    """Best so far, the median and the band between the quartiles."""
    from matplotlib.ticker import MaxNLocator

    best = [(g.number, g.best) for g in generations if g.best is not None]
    band = [(g.number, g.low, g.median, g.high) for g in generations if g.median is not None]
    if band:
        x, low, median, high = zip(*band, strict=True)
        axes.fill_between(x, low, high, color=VERMILION, alpha=0.22, linewidth=0, label="quartiles")
        axes.plot(x, median, color=VERMILION, linewidth=1.1, linestyle=(0, (4, 1.5)), label="median")
    if best:
        x, y = zip(*best, strict=True)
        axes.plot(x, y, color=BLUE, linewidth=1.4, marker="o", markersize=2.6, label="best so far")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if generations:
        last = max(generations[-1].number, 1)
        axes.set_xlim(-_MARGIN * last, (1 + _MARGIN) * last)


def _draw_seeds(axes: Axes, history: History) -> None:
    """One thin line per seed, named at the right end; names are moved apart where lines are close.

    Of many seeds the fastest are named, and the lines of the others are paler.
    """
    if not history.seeds:
        return
    top, bottom = _limits(history)
    ordered = sorted(history.seeds, key=lambda seed: (seed.speedup, seed.label))
    named = ordered if len(ordered) <= _LINES - 2 else ordered[-_NAMED:]
    others = ordered[: -len(named)]
    for seeds, colour, what in ((others, PALE, "other seeds"), (named, GREY, "fastest seeds" if others else "seeds")):
        for index, seed in enumerate(seeds):
            label = what if index == 0 else None
            axes.axhline(seed.speedup, color=colour, linewidth=0.55, linestyle=(0, (1, 1.6)), label=label)
    step = np.log2(top / bottom) / _LINES
    heights = _apart([float(np.log2(max(seed.speedup, bottom))) for seed in named], step)
    for index, (seed, wanted) in enumerate(zip(named, heights, strict=True)):
        lowest, highest = np.log2(bottom) + index * step, np.log2(top) - (len(named) - 1 - index) * step
        height = min(max(wanted, lowest), highest)  # beside the axis, with those below and above it
        axes.annotate(
            seed.label if seed.speedup >= bottom else f"{seed.label} {factor(seed.speedup, 0)}",
            xy=(1.0, max(seed.speedup, bottom)),
            xytext=(1.05, 2.0**height),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            fontsize=6,
            color=GREY,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "linewidth": 0.4,
                "color": GREY,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0.0, 0.5),
            },
        )


def _draw_marks(axes: Axes, history: History) -> None:
    """The baseline at 1, the roofline floor, and ticks that read as factors."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    _draw_mark(axes, 1.0, "baseline", (0, ()), above=False)
    if history.floor_speedup is not None:
        _draw_mark(axes, history.floor_speedup, FLOOR, (0, (6, 2, 1, 2)), above=True)
    top, bottom = _limits(history)
    axes.set_ylim(bottom, top)
    narrow = top / bottom < _NARROW
    axes.yaxis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.5) if narrow else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(decimal if narrow else factor))


def _draw_mark(axes: Axes, height: float, text: str, dashes: tuple[int, tuple[int, ...]], *, above: bool) -> None:
    """A named horizontal line; its name at the right, above or below it."""
    axes.axhline(height, color="black", linewidth=0.7, linestyle=dashes)
    name = axes.annotate(
        text,
        xy=(0.985, height),
        xycoords=axes.get_yaxis_transform(),
        xytext=(0, 1.0 if above else -1.5),
        textcoords="offset points",
        fontsize=6,
        ha="right",
        va="bottom" if above else "top",
    )
    name.set_in_layout(False)  # before the limits are set it may be miles away, and no room is left for the axes


def _limits(history: History) -> tuple[float, float]:
    """Top and bottom of the axis: what matters is near the best, so seeds far below it stay outside.

    At least a factor of four, at most `_TALLEST` below the best; a little air.
    """
    values = [1.0, *(seed.speedup for seed in history.seeds)]
    bests = [g.best for g in history.generations if g.best is not None]
    for g in history.generations:
        values += [value for value in (g.best, g.low, g.high) if value is not None]
    if history.floor_speedup is not None:
        values.append(history.floor_speedup)
    lowest = max(min(values), max([1.0, *bests]) / _TALLEST)
    if history.floor_speedup is not None:  # a bound is never outside, wherever the baseline is
        lowest = min(lowest, history.floor_speedup)
    top, bottom = max(values) * 1.35, min(lowest, 1.0) / 1.15
    short = max(1.0, 4.0 / (top / bottom)) ** 0.5
    return top * short, bottom / short


def _apart(heights: Sequence[float], step: float) -> list[float]:
    """Ascending `heights` moved as little as it takes for neighbours to be `step` apart (pools of neighbours)."""
    pools: list[list[float]] = []  # of one pool: [sum of wanted heights of its first line, number of lines]
    for height in heights:
        pools.append([height, 1])
        while len(pools) > 1 and _first(pools[-1]) < _first(pools[-2]) + pools[-2][1] * step:
            total, count = pools.pop()
            below = pools[-1]
            below[0] += total - below[1] * step * count
            below[1] += count
    return [_first(pool) + step * line for pool in pools for line in range(int(pool[1]))]


def _first(pool: Sequence[float]) -> float:
    """Height of the lowest line of a pool."""
    return pool[0] / pool[1]
