"""The tree of a run: who descends from whom, and how fast each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evo.plots.picture import GREY, MANY, VERMILION, Table, axes_of, factor_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Twig(NamedTuple):
    """One candidate: its first parent (None for a seed), and its speedup (None where it has no time)."""

    n: int
    generation: int
    parent: int | None
    operator: str
    speedup: float | None


@dataclass(frozen=True)
class Phylogeny:
    """The genealogy by first parents, generation by generation.

    Attributes:
        title, clock: as elsewhere.
        twigs: every candidate, in order of n.
        path: numbers from the seed to the answer, drawn thick.
    """

    title: str
    clock: str
    twigs: tuple[Twig, ...]
    path: tuple[int, ...] = ()

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return float(np.clip(1.2 + 0.016 * len(self.twigs), 2.6, 5.0))

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        from matplotlib.colors import LogNorm
        from matplotlib.ticker import MaxNLocator

        axes = axes_of(figure, self.title, "generation (0: seeds)", "", grid="x")
        heights = heights_of(self.twigs)
        places = {twig.n: (float(twig.generation), heights[twig.n]) for twig in self.twigs}
        many = len(self.twigs) > MANY
        edges = [(*places[t.parent], *places[t.n], np.nan, np.nan) for t in self.twigs if t.parent in places]
        broken = np.array(edges).reshape(-1, 2)  # one line with gaps: an artist for each edge takes seconds of many
        axes.plot(broken[:, 0], broken[:, 1], color="#b5b5b5", linewidth=0.4, rasterized=many, zorder=1)
        failed = np.array([places[t.n] for t in self.twigs if t.speedup is None]).reshape(-1, 2)
        axes.plot(failed[:, 0], failed[:, 1], linestyle="none", marker="x", color=GREY, markersize=5**0.5,
                  markeredgewidth=0.4, rasterized=many, zorder=1.5)  # fmt: skip
        valid = [t for t in self.twigs if t.speedup is not None]
        if valid:
            values = [t.speedup for t in valid if t.speedup is not None]
            low = max(min(values), max(values) / 3)
            norm = LogNorm(low / 1.001, max(values) * 1.001, clip=True)
            x, y = np.array([places[t.n] for t in valid]).T
            look: Any = {"cmap": "cividis", "norm": norm, "linewidths": 0, "zorder": 3, "rasterized": many}
            drawn = axes.scatter(x, y, s=4 if many else 9, c=values, **look)
            bar = figure.colorbar(drawn, ax=axes, orientation="horizontal", aspect=40, pad=0.02, extend="min")
            bar.set_label(f"speedup ({self.clock}, ×); x: no time", fontsize=6.5)
            factor_axis(bar.ax.xaxis, low, max(values))
            bar.outline.set_linewidth(0.4)
        on_path = [places[n] for n in self.path if n in places]
        if on_path:
            axes.plot(*zip(*on_path, strict=True), color=VERMILION, linewidth=1.3, zorder=2)
            axes.plot(*on_path[-1], marker="*", color=VERMILION, markersize=8, markeredgecolor="black",
                      markeredgewidth=0.4, zorder=4)  # fmt: skip
            axes.annotate(f"#{self.path[-1]}", on_path[-1], (5, 0), textcoords="offset points", fontsize=6, va="center")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.margins(x=0.05, y=0.03)

    def table(self) -> Table:
        """A row per candidate."""
        path = set(self.path)
        rows = tuple((*twig, int(twig.n in path)) for twig in self.twigs)
        return Table((*Twig._fields, "on_path"), rows)


def heights_of(twigs: Sequence[Twig]) -> Mapping[int, float]:
    """Heights that let no two branches cross: leaves get places of their own, parents the middle of their children."""
    children: dict[int | None, list[int]] = {}
    there = {twig.n for twig in twigs}
    for twig in twigs:
        children.setdefault(twig.parent if twig.parent in there else None, []).append(twig.n)
    heights: dict[int, float] = {}
    leaves = 0
    stack: list[tuple[int, bool]] = [(n, False) for n in reversed(children.get(None, []))]
    while stack:
        n, done = stack.pop()
        mine = children.get(n, [])
        if done:
            heights[n] = (heights[mine[0]] + heights[mine[-1]]) / 2
        elif mine:
            stack.append((n, True))
            stack += [(child, False) for child in reversed(mine)]
        else:
            heights[n] = float(leaves)
            leaves += 1
    return heights
