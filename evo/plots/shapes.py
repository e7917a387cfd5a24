"""Shape by shape: bars against each baseline, and sweeps over size or density."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evo.plots.picture import (
    BLUE,
    COLOURS,
    DASHES,
    FLOOR,
    GREEN,
    GREY,
    HATCHES,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Table,
    axes_of,
    decimal,
    legend_below,
    legend_height,
    tick_name,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class _Look(NamedTuple):
    """How a line is drawn."""

    colour: str
    dash: Any
    marker: str
    width: float


_FLOOR_DASH = (0, (6, 2, 1, 2))
_LOOKS = {  # what a plot is about looks the same in all of them
    "best": _Look(BLUE, "-", "o", 1.5),
    "best seed": _Look(VERMILION, DASHES[1], "s", 1.2),
    FLOOR: _Look("black", _FLOOR_DASH, "", 0.8),
}
_BASELINES = (
    _Look(GREEN, "-", "^", 1.0), _Look(PURPLE, DASHES[2], "D", 1.0), _Look(ORANGE, DASHES[4], "v", 1.0),
    _Look(SKY, DASHES[5], "P", 1.0), _Look(GREY, "-", "X", 1.0), _Look(GREEN, DASHES[2], "<", 1.0),
    _Look(PURPLE, "-", ">", 1.0), _Look(ORANGE, DASHES[2], "h", 1.0), _Look(SKY, "-", "d", 1.0),
    _Look(GREY, DASHES[4], "p", 1.0), _Look(GREEN, DASHES[5], "8", 1.0), _Look(PURPLE, DASHES[4], "H", 1.0),
)  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """One speedup with its interval low..high (equal to it on the modelled clock), and what the floor allows."""

    speedup: float
    low: float
    high: float
    at_floor: float


@dataclass(frozen=True)
class ShapeBars:
    """Speedups per shape; one series for each thing compared with.

    Attributes:
        title, clock: as elsewhere.
        shapes: labels of the shapes.
        series: label ("best over gemm/dense_mma") -> one bar per shape.
    """

    title: str
    clock: str
    shapes: tuple[str, ...]
    series: tuple[tuple[str, tuple[Bar, ...]], ...]

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.3 + 0.14 * len(self.series)

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        axes = axes_of(figure, self.title, "", f"speedup ({self.clock}, ×)")
        places = np.arange(len(self.shapes))
        width = 0.8 / len(self.series)
        for index, (label, bars) in enumerate(self.series):
            x = places - 0.4 + width * (index + 0.5)
            heights = [bar.speedup for bar in bars]
            errors = [[bar.speedup - bar.low for bar in bars], [bar.high - bar.speedup for bar in bars]]
            shown = any(value > 0 for side in errors for value in side)
            axes.bar(x, heights, width * 0.92, color=COLOURS[index % len(COLOURS)], edgecolor="white", linewidth=0.3,
                     hatch=HATCHES[index % len(HATCHES)], label=label, yerr=errors if shown else None, capsize=2,
                     error_kw={"linewidth": 0.8})  # fmt: skip
            if len(self.shapes) * len(self.series) <= 14:
                look: Any = {"fontsize": 6, "ha": "center", "bbox": {"facecolor": "white", "linewidth": 0, "pad": 0.4}}
                for place, bar in zip(x, bars, strict=True):
                    where = (float(place), bar.high)
                    axes.annotate(f"{bar.speedup:.2f}", where, (0, 1.5), textcoords="offset points", **look)
            axes.hlines([bar.at_floor for bar in bars], x - width / 2, x + width / 2, color="black", linewidth=0.9,
                        label="" if index else FLOOR)  # fmt: skip
        axes.axhline(1.0, color="black", linewidth=0.6, zorder=0.6)
        crowded = len(self.shapes) > 4
        axes.set_xticks(
            places,
            [tick_name(shape) for shape in self.shapes],
            rotation=30 if crowded else 0,
            ha="right" if crowded else "center",
        )
        axes.margins(y=0.1)
        legend_below(figure, axes, columns=1)

    def table(self) -> Table:
        """A row per bar."""
        rows = tuple(
            (label, shape, bar.speedup, bar.low, bar.high, bar.at_floor)
            for label, bars in self.series
            for shape, bar in zip(self.shapes, bars, strict=True)
        )
        return Table(("series", "shape", "speedup", "low", "high", "at_floor"), rows)


@dataclass(frozen=True)
class Sweep:
    """Times along one quantity.

    Attributes:
        title, clock: as elsewhere; over: what x is ("N", "density").
        series: label -> (x, time_us, low_us, high_us), ascending in x.
    """

    title: str
    clock: str
    over: str
    series: tuple[tuple[str, tuple[tuple[float, float, float, float], ...]], ...]

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.5 + legend_height([label for label, _ in self.series], 2)

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

        axes = axes_of(figure, self.title, self.over, f"time (us, {self.clock})", grid="both")
        axes.set_yscale("log")
        xs = sorted({point[0] for _, points in self.series for point in points})
        if self.over != "density":
            axes.set_xscale("log", base=2)
        others = (label for label, _ in self.series if label not in _LOOKS)
        looks = _LOOKS | {label: _BASELINES[index % len(_BASELINES)] for index, label in enumerate(others)}
        for label, points in self.series:
            x, y, low, high = zip(*points, strict=True)
            look = looks[label]
            axes.plot(x, y, color=look.colour, linewidth=look.width, linestyle=look.dash, marker=look.marker,
                      markersize=3, label=label)  # fmt: skip
            if low != high:
                axes.fill_between(x, low, high, color=look.colour, alpha=0.2, linewidth=0)
        if len(xs) <= 9:
            axes.set_xticks(xs)
        axes.xaxis.set_major_formatter(FuncFormatter(decimal))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(decimal))
        axes.yaxis.set_minor_formatter(NullFormatter())
        legend_below(figure, axes, columns=2)

    def table(self) -> Table:
        """A row per point."""
        rows = tuple((label, *point) for label, points in self.series for point in points)
        return Table(("series", self.over, "time_us", "low_us", "high_us"), rows)
