"""The tree of a run: who descends from whom, and how fast each is."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evo.plots.picture import GREY, MANY, VERMILION, Table, axes_of, factor_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TWIGS = np.dtype([("n", "i8"), ("generation", "i8"), ("parent", "i8"), ("operator", "i4"), ("speedup", "f8")])
"""A candidate: its first parent (-1 for a seed), the index of its operator, its speedup (NaN where it has no time)."""
_SHADES = 48
"""Colours that many marks are drawn in: those of one colour are one artist, whose mark is drawn once and copied."""


@dataclass(frozen=True, eq=False)
class Phylogeny:
    """The genealogy by first parents, generation by generation.

    Attributes:
        title, clock: as elsewhere.
        twigs: of `TWIGS`: every candidate, in order of n.
        operators: their names.
        path: numbers from the seed to the answer, drawn thick.
    """

    title: str
    clock: str
    twigs: NDArray[np.void]
    operators: tuple[str, ...]
    path: tuple[int, ...] = ()

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return float(np.clip(1.2 + 0.016 * len(self.twigs), 2.6, 5.0))

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        from matplotlib.ticker import MaxNLocator

        axes = axes_of(figure, self.title, "generation (0: seeds)", "", grid="x")
        x, y = self.twigs["generation"].astype(float), heights_of(self.twigs["n"], self.twigs["parent"])
        many = len(self.twigs) > MANY
        places = places_of(self.twigs["n"], self.twigs["parent"])
        _draw_edges(axes, x, y, places, many=many)
        failed = np.isnan(self.twigs["speedup"])
        axes.plot(x[failed], y[failed], linestyle="none", marker="x", color=GREY, markersize=5**0.5,
                  markeredgewidth=0.4, rasterized=many, zorder=1.5)  # fmt: skip
        if not failed.all():
            self._draw_valid(figure, axes, x[~failed], y[~failed], self.twigs["speedup"][~failed])
        self._draw_path(axes, x, y)
        axes.set_yticks([])
        axes.invert_yaxis()  # the first seed above, as reports and `evo lineage --tree` have it
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.margins(x=0.05, y=0.03)

    def _draw_valid(self, figure: Figure, axes: Axes, x: Floats, y: Floats, speedups: Floats) -> None:
        """Those with a time, coloured by their speedup, and the bar that says which colour is which."""
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import LogNorm

        low, high = float(max(speedups.min(), speedups.max() / 3)), float(speedups.max())
        colours = ScalarMappable(LogNorm(low / 1.001, high * 1.001, clip=True), "cividis")
        if len(self.twigs) > MANY:
            shares = np.log(np.maximum(speedups, low) / low) / np.log(high * 1.001 / low)
            shades = np.minimum((shares * _SHADES).astype(int), _SHADES - 1)
            for shade in np.unique(shades):
                mine = shades == shade
                axes.plot(x[mine], y[mine], linestyle="none", marker="o", markersize=2, markeredgewidth=0,
                          color=colormaps["cividis"]((shade + 0.5) / _SHADES), rasterized=True, zorder=3)  # fmt: skip
        else:
            look: Any = {"cmap": "cividis", "norm": colours.norm, "linewidths": 0, "zorder": 3}
            axes.scatter(x, y, s=9, c=speedups, **look)
        bar = figure.colorbar(colours, ax=axes, orientation="horizontal", aspect=40, pad=0.02, extend="min")
        bar.set_label(f"speedup ({self.clock}, ×); x: no time", fontsize=6.5)
        factor_axis(bar.ax.xaxis, low, high)
        bar.outline.set_linewidth(0.4)

    def _draw_path(self, axes: Axes, x: Floats, y: Floats) -> None:
        """The line from the seed to the answer."""
        on_path = np.flatnonzero(np.isin(self.twigs["n"], self.path))
        if len(on_path):
            end = (float(x[on_path[-1]]), float(y[on_path[-1]]))
            axes.plot(x[on_path], y[on_path], color=VERMILION, linewidth=1.3, zorder=2)
            axes.plot(*end, marker="*", color=VERMILION, markersize=8, markeredgecolor="black", markeredgewidth=0.4,
                      zorder=4)  # fmt: skip
            axes.annotate(f"#{self.path[-1]}", end, (5, 0), textcoords="offset points", fontsize=6, va="center")

    def table(self) -> Table:
        """A row per candidate."""
        return Table(("n", "generation", "parent", "operator", "speedup", "on_path"), self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        path = set(self.path)
        for start in range(0, len(self.twigs), MANY):
            for n, generation, parent, operator, speedup in self.twigs[start : start + MANY].tolist():
                known, of = None if math.isnan(speedup) else speedup, None if parent < 0 else parent
                yield n, generation, of, self.operators[operator], known, int(n in path)


def _draw_edges(axes: Axes, x: Floats, y: Floats, places: Ints, *, many: bool) -> None:
    """From each candidate to its parent: one line with gaps, since an artist for each takes seconds of many."""
    children = np.flatnonzero(places >= 0)
    gap = np.full(len(children), np.nan)
    lines = [np.stack([at[places[children]], at[children], gap], axis=1).ravel() for at in (x, y)]
    axes.plot(*lines, color="#b5b5b5", linewidth=0.4, rasterized=many, zorder=1)


def places_of(numbers: Ints, parents: Ints) -> Ints:
    """Index of each one's parent among the ascending `numbers`; -1 where it is not there."""
    if not len(numbers):
        return np.zeros(0, np.int64)
    found = np.minimum(np.searchsorted(numbers, parents), len(numbers) - 1)
    return np.where(numbers[found] == parents, found, -1)


def heights_of(numbers: Ints, parents: Ints) -> Floats:
    """Heights that let no two branches cross: leaves get places of their own, parents the middle of their children.

    Args:
        numbers: of the candidates, ascending.
        parents: of each, a smaller number, or one that is not there.
    """
    parent = array("q", places_of(numbers, parents).tobytes())  # lists of objects take four times as much
    count = len(parent)
    leaves = array("q", bytes(8 * count))  # below each
    for i in range(count - 1, -1, -1):  # children come after their parents
        leaves[i] = leaves[i] or 1
        if parent[i] >= 0:
            leaves[parent[i]] += leaves[i]
    free, roots = array("q", bytes(8 * count)), 0  # the next place below each that is not taken
    for i in range(count):
        up = parent[i]
        if up < 0:
            free[i] = roots
            roots += leaves[i]
        else:
            free[i] = free[up]
            free[up] += leaves[i]
    first, last = (array("d", [-1.0]) * count for _ in range(2))  # heights of the first and the last child
    heights = array("d", bytes(8 * count))
    for i in range(count - 1, -1, -1):
        heights[i] = float(free[i]) if last[i] < 0 else (first[i] + last[i]) / 2
        if parent[i] >= 0:
            first[parent[i]] = heights[i]
            if last[parent[i]] < 0:
                last[parent[i]] = heights[i]
    return np.array(heights)
