"""Best so far of several runs, against generations, evaluations, seconds or dollars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.plots.picture import Table, axes_of, factor_axis, legend_below, legend_height, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
_RESAMPLES = 2000
_ENOUGH = 3  # of fewer runs a bootstrap only repeats the lowest and the highest


@dataclass(frozen=True)
class RunCurve:
    """One run: `points` are (x, best speedup so far) where it rises, and the last x; x does not fall."""

    run_id: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Group:
    """Runs of one experiment, which differ in their random seed."""

    label: str
    runs: tuple[RunCurve, ...]


@dataclass(frozen=True)
class Band:
    """Geometric mean over runs and its interval, at ascending `x`."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Progress:
    """Best speedup so far of groups of runs; groups of several get a mean with a band: 95 %, of two runs their range.

    Attributes:
        title, clock: as elsewhere; over: what x counts ("evaluations").
        groups: the runs, by experiment.
    """

    title: str
    clock: str
    over: str
    groups: tuple[Group, ...]

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.4 + legend_height([*map(_label, self.groups), "baseline"])

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        axes = axes_of(figure, self.title, self.over, f"best speedup so far ({self.clock}, ×)")
        axes.set_yscale("log", base=2)
        for index, group in enumerate(self.groups):
            _draw_group(axes, group, index, alone=len(self.groups) == 1)
        values = [y for group in self.groups for run in group.runs for _, y in run.points]
        axes.axhline(1.0, color="black", linewidth=0.6, label="baseline")
        high, low = max([*values, 1.0]) * 1.06, min([*values, 1.0]) / 1.06
        axes.set_ylim(low, high)
        axes.set_xlim(left=0)
        factor_axis(axes.yaxis, low, high)
        legend_below(figure, axes)

    def table(self) -> Table:
        """Every run's points, then the mean and band of each group of several."""
        rows: list[tuple[object, ...]] = []
        for group in self.groups:
            rows += [(group.label, run.run_id, float(x), y, None, None) for run in group.runs for x, y in run.points]
            if len(group.runs) > 1:
                band = band_of([run.points for run in group.runs])
                numbers = zip(band.x, band.mean, band.low, band.high, strict=True)
                rows += [(group.label, "mean", *(float(value) for value in row)) for row in numbers]
        return Table(("group", "run", self.over, "best_speedup", "low", "high"), tuple(rows))


def band_of(runs: Sequence[Sequence[tuple[float, float]]]) -> Band:
    """Geometric mean of several step curves and a 95 % percentile bootstrap interval (Efron 1979) over the runs.

    Of two runs a bootstrap draws nothing but either or both: the interval is their range, and no 95 % is claimed.
    From the x where the last run has its first value; a run that ends early keeps its best. The resamples come
    from a fixed generator, so the band of the same runs is the same.
    """
    start = max(points[0][0] for points in runs)
    x = np.array(sorted({start, *(point[0] for points in runs for point in points if point[0] >= start)}))
    logs = np.stack([np.log(_steps(points, x)) for points in runs])
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(runs), size=(_RESAMPLES, len(runs)))
    weights = np.stack([(draws == run).sum(axis=1) for run in range(len(runs))], axis=1) / len(runs)
    low, high = np.percentile(weights @ logs, [2.5, 97.5], axis=0)
    return Band(x, np.exp(logs.mean(axis=0)), np.exp(low), np.exp(high))


def _steps(points: Sequence[tuple[float, float]], x: Floats) -> Floats:
    """Values of a right-continuous step curve at x."""
    xs = np.array([point[0] for point in points])
    ys = np.array([point[1] for point in points])
    values: Floats = ys[np.maximum(np.searchsorted(xs, x, side="right") - 1, 0)]
    return values


def _draw_group(axes: Axes, group: Group, index: int, *, alone: bool) -> None:
    """A group's curve; markers, which tell groups apart, only where there are others."""
    style = look(index) | ({"marker": ""} if alone else {})
    single = len(group.runs) == 1
    for run in group.runs:
        x, y = zip(*run.points, strict=True)
        if single:
            axes.step(x, y, where="post", linewidth=1.3, label=_label(group), **style, markersize=2.6,
                      markevery=max(1, len(x) // 8), clip_on=False)  # fmt: skip
        else:
            axes.step(x, y, where="post", color=style["color"], linewidth=0.4, alpha=0.55)
    if not single:
        band = band_of([run.points for run in group.runs])
        axes.fill_between(band.x, band.low, band.high, step="post", color=style["color"], alpha=0.2, linewidth=0)
        axes.step(band.x, band.mean, where="post", linewidth=1.4, **style,
                  markersize=2.6, markevery=max(1, len(band.x) // 6), clip_on=False,
                  label=_label(group))  # fmt: skip


def _label(group: Group) -> str:
    """Its name and, of several runs, how many there are and what their band is."""
    if len(group.runs) == 1:
        return group.label
    return f"{group.label} ({len(group.runs)} runs: mean, {'95 %' if len(group.runs) >= _ENOUGH else 'range'})"
