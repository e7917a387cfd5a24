"""What the card allows and what the candidates trade: roofline and Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evo.plots.picture import BLUE, COLOURS, GREY, MANY, MARKERS, YELLOW, Table, axes_of, decimal, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RATES = np.dtype([("n", "i8"), ("shape", "i4"), ("flop_per_byte", "f8"), ("tflops", "f8")])
"""A candidate at one shape: its number, the index of the shape, arithmetic intensity, rate."""
PAIRS = np.dtype([("n", "i8"), ("x", "f8"), ("y", "f8")])
"""A candidate's number and the two things it trades."""


class RooflinePoint(NamedTuple):
    """The baseline at one shape."""

    shape: str
    flop_per_byte: float
    tflops: float


@dataclass(frozen=True, eq=False)
class Roofline:
    """Achieved rate against arithmetic intensity, under the card's data-sheet ceilings (Williams et al. 2009).

    FLOPs are those of the nonzeros, bytes the least that must cross DRAM; so all candidates of a shape share an
    intensity, and the distance to the roof is what is left to gain.

    Attributes:
        title, clock: as elsewhere.
        peak_tflops, bandwidth_gb_per_s: ceilings of the card.
        shapes: their labels.
        rates: of `RATES`: every valid candidate at every shape.
        roles: "seed" or "best" by number; the others are candidates.
        baselines: their points.
    """

    title: str
    clock: str
    peak_tflops: float
    bandwidth_gb_per_s: float
    shapes: tuple[str, ...]
    rates: NDArray[np.void]
    roles: Mapping[int, str]
    baselines: tuple[RooflinePoint, ...]

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.6

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        axes = axes_of(figure, self.title, "FLOP / byte", f"TFLOP/s ({self.clock})", grid="both")
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = self._draw_roof(axes)
        best = np.isin(self.rates["n"], [n for n, role in self.roles.items() if role == "best"])
        for index, shape in enumerate(self.shapes):
            mine = self.rates[(self.rates["shape"] == index) & ~best]
            axes.plot(mine["flop_per_byte"], mine["tflops"], linestyle="none", alpha=0.35,
                      marker=MARKERS[index % len(MARKERS)], markersize=3, color=COLOURS[index % len(COLOURS)],
                      markeredgewidth=0, label=shape, rasterized=len(self.rates) > MANY)  # fmt: skip
        axes.plot([p.flop_per_byte for p in self.baselines], [p.tflops for p in self.baselines], "x", color="black",
                  markersize=4, label="baseline")  # fmt: skip
        axes.plot(self.rates["flop_per_byte"][best], self.rates["tflops"][best], linestyle="none", marker="*",
                  color=YELLOW, markersize=7, markeredgecolor="black", markeredgewidth=0.5, label="best")  # fmt: skip
        lowest = min([float(self.rates["tflops"].min()), *(p.tflops for p in self.baselines)])
        axes.set_xlim(low, high)
        axes.set_ylim(lowest / 2, self.peak_tflops * 2.2)
        legend_below(figure, axes)

    def _draw_roof(self, axes: Axes) -> tuple[float, float]:
        """The two ceilings with their names; returns the ends of the axis."""
        ridge = self.peak_tflops * 1e3 / self.bandwidth_gb_per_s
        there = [*(p.flop_per_byte for p in self.baselines), *np.unique(self.rates["flop_per_byte"])]
        low, high = float(min(min(there) / 2, ridge / 4)), float(max(max(there) * 2, ridge * 4))
        roof = [low * self.bandwidth_gb_per_s / 1e3, self.peak_tflops, self.peak_tflops]
        axes.plot([low, ridge, high], roof, color="black", linewidth=1.0)
        axes.annotate(f"{self.peak_tflops:,.0f} TFLOP/s", (high, self.peak_tflops), (-1, 2), fontsize=6,
                      textcoords="offset points", ha="right")  # fmt: skip
        axes.annotate(f"{self.bandwidth_gb_per_s / 1e3:.1f} TB/s", (low, roof[0]), (2, 15), fontsize=6,
                      textcoords="offset points", rotation=0)  # fmt: skip
        return low, high

    def table(self) -> Table:
        """Every point, then the baselines and the ceilings."""
        return Table(("role", "n", "shape", "flop_per_byte", "tflops"), self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for n, shape, flop_per_byte, tflops in _plain(self.rates):
            yield self.roles.get(n, "candidate"), n, self.shapes[shape], flop_per_byte, tflops
        yield from (("baseline", None, *point) for point in self.baselines)
        yield "ceiling", None, "peak", None, self.peak_tflops
        yield "ceiling", None, "bandwidth_gb_per_s", None, self.bandwidth_gb_per_s


@dataclass(frozen=True, eq=False)
class Pareto:
    """Two things to be small: every valid candidate and those no other beats in both.

    Attributes:
        title: as elsewhere; x_label, y_label: with units and clock.
        points: of `PAIRS`.
        baseline: its (x, y), None where it has none.
        best: number of the run's answer, None where it has none.
    """

    title: str
    x_label: str
    y_label: str
    points: NDArray[np.void]
    baseline: tuple[float, float] | None = None
    best: int | None = None

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.5

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        axes = axes_of(figure, self.title, self.x_label, self.y_label, grid="both")
        front = front_of(self.points)
        rest = self.points[~np.isin(self.points["n"], front["n"])]
        axes.plot(rest["x"], rest["y"], linestyle="none", marker="o", markersize=3, color=GREY, alpha=0.45,
                  markeredgewidth=0, label="dominated", rasterized=len(rest) > MANY)  # fmt: skip
        axes.step(front["x"], front["y"], where="post", color=BLUE, linewidth=1.2, marker="D", markersize=3.2,
                  label="Pareto front")  # fmt: skip
        if self.baseline is not None:
            axes.plot(*self.baseline, "x", color="black", markersize=5, label="baseline")
        best = self.points[self.points["n"] == self.best]
        if len(best):
            axes.plot(best["x"], best["y"], linestyle="none", marker="*", color=YELLOW, markersize=7, zorder=4,
                      clip_on=False, markeredgecolor="black", markeredgewidth=0.5, label="best")  # fmt: skip
        self._limit(axes, np.concatenate((front, best)))
        self._count_outside(axes)
        legend_below(figure, axes, columns=3)

    def _count_outside(self, axes: Axes) -> None:
        """An entry of the legend that says how many candidates are beyond the axes."""
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        x, y = self.points["x"], self.points["y"]
        outside = len(x) - int(((left <= x) & (x <= right) & (bottom <= y) & (y <= top)).sum())
        if outside:
            axes.plot([], [], linestyle="none", label=f"{outside} slower, not shown")

    def _limit(self, axes: Axes, front: NDArray[np.void]) -> None:
        """Show what is near the front: a good twice its best, and all of it; a logarithmic axis where it is long."""
        from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

        for index, name in enumerate("xy"):
            axis = getattr(axes, f"{name}axis")
            best, worst = float(front[name].min()), float(front[name].max())
            if self.baseline is not None:
                worst = max(worst, self.baseline[index])
            high = min(float(self.points[name].max()), max(2.2 * best, 1.05 * worst)) * 1.06
            low = best / 1.06
            if high / low > 20:
                getattr(axes, f"set_{name}scale")("log")
            else:
                axis.set_major_locator(MaxNLocator(5))
                axis.set_major_formatter(FuncFormatter(decimal))
                axis.set_minor_formatter(NullFormatter())
            getattr(axes, f"set_{name}lim")(low, high)

    def table(self) -> Table:
        """Every point and whether it is on the front."""
        return Table(("n", self.x_label, self.y_label, "on_front", "is_best"), self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        chosen = set(front_of(self.points)["n"].tolist())
        yield from ((n, x, y, int(n in chosen), int(n == self.best)) for n, x, y in _plain(self.points))
        if self.baseline is not None:
            yield "baseline", *self.baseline, None, None


def front_of(points: NDArray[np.void]) -> NDArray[np.void]:
    """Points (of `PAIRS`) no other beats in one without losing in the other, by x; of equal points the first n."""
    ordered = points[np.lexsort((points["n"], points["y"], points["x"]))]
    lowest_before = np.concatenate(([np.inf], np.minimum.accumulate(ordered["y"])[:-1]))
    front: NDArray[np.void] = ordered[ordered["y"] < lowest_before]
    return front


def _plain(rows: NDArray[np.void]) -> Iterator[tuple[Any, ...]]:
    """Rows of an array as tuples of Python's numbers, some thousand at a time."""
    for start in range(0, len(rows), MANY):
        yield from rows[start : start + MANY].tolist()
