"""How the search did: what became of candidates, and who found the improvements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evo.plots.picture import (
    BLUE,
    COLOURS,
    GREY,
    HATCHES,
    Table,
    axes_of,
    factor_axis,
    legend_below,
    legend_height,
    look,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ENDINGS = (BLUE, "#9fc5e8", "#d9d9d9", *COLOURS[1:6], GREY, "#000000")


@dataclass(frozen=True)
class Validity:
    """What became of the candidates of each generation.

    Attributes:
        title: as elsewhere.
        endings: in the order of the bars: valid ones, distinct and duplicate, "refused", the gates others failed at.
        counts: per generation, from 0, one count per ending.
    """

    title: str
    endings: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.44 + legend_height(self.endings, 3) if len(self.endings) > 3 else 2.3

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        from matplotlib.ticker import MaxNLocator, PercentFormatter

        axes = axes_of(figure, self.title, "generation (0: seeds)", "share of its candidates")
        bottoms = [0.0] * len(self.counts)
        many = len(self.counts) > 60
        for index, ending in enumerate(self.endings):
            shares = [row[index] / sum(row) if sum(row) else 0.0 for row in self.counts]
            colour = _ENDINGS[index % len(_ENDINGS)]
            if many:  # one area instead of thousands of bars
                tops = [bottom + share for bottom, share in zip(bottoms, shares, strict=True)]
                places = range(len(shares))
                axes.fill_between(places, bottoms, tops, step="mid", color=colour, linewidth=0, label=ending)
            else:
                axes.bar(range(len(shares)), shares, bottom=bottoms, label=ending, color=colour, edgecolor="white",
                         hatch=HATCHES[index % len(HATCHES)], linewidth=0.3)  # fmt: skip
            bottoms = [bottom + share for bottom, share in zip(bottoms, shares, strict=True)]
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        legend_below(figure, axes, columns=3)

    def table(self) -> Table:
        """A row per generation."""
        return Table(("generation", *self.endings), tuple((g, *row) for g, row in enumerate(self.counts)))


@dataclass(frozen=True)
class Credit:
    """Who improved the best: at each new best the factor over the best before is credited to its operator.

    Attributes:
        title, clock: as elsewhere.
        planned: number of candidates.
        steps: operator -> (n, accumulated factor), rising; operators without a new best stay at 1.
    """

    title: str
    clock: str
    planned: int
    steps: tuple[tuple[str, tuple[tuple[int, float], ...]], ...]

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.3 + legend_height([operator for operator, _ in self.steps])

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        axes = axes_of(figure, self.title, "candidates", f"credited gain ({self.clock}, ×)")
        axes.set_yscale("log", base=2)
        for index, (operator, points) in enumerate(self.steps):
            x = [0, *(n for n, _ in points), self.planned]
            y = [1.0, *(value for _, value in points), points[-1][1] if points else 1.0]
            axes.step(x, y, where="post", label=operator, linewidth=1.2, markersize=2.6,
                      markevery=slice(1, -1), **look(index))  # fmt: skip
        high = max([1.05, *(value for _, points in self.steps for _, value in points)]) * 1.03
        axes.set_ylim(1 / 1.02, high)
        axes.set_xlim(0, max(self.planned, 1))
        factor_axis(axes.yaxis, 1 / 1.02, high)
        legend_below(figure, axes)

    def table(self) -> Table:
        """A row per improvement."""
        rows = tuple((operator, n, value) for operator, points in self.steps for n, value in points)
        return Table(("operator", "n", "accumulated_factor"), rows)
