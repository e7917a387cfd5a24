"""What the card allows and what the candidates trade: roofline and Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evo.plots.picture import BLUE, COLOURS, GREY, MANY, MARKERS, VERMILION, Table, axes_of, decimal, legend_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class RooflinePoint(NamedTuple):
    """One candidate at one shape: `role` is "candidate", "seed", "best" or "baseline" (n None)."""

    n: int | None
    role: str
    shape: str
    flop_per_byte: float
    tflops: float


@dataclass(frozen=True)
class Roofline:
    """Achieved rate against arithmetic intensity, under the card's data-sheet ceilings (Williams et al. 2009).

    FLOPs are those of the nonzeros, bytes the least that must cross DRAM; so all candidates of a shape share an
    intensity, and the distance to the roof is what is left to gain.

    Attributes:
        title, clock: as elsewhere.
        peak_tflops, bandwidth_gb_per_s: ceilings of the card.
        points: every valid candidate at every shape.
    """

    title: str
    clock: str
    peak_tflops: float
    bandwidth_gb_per_s: float
    points: tuple[RooflinePoint, ...]

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.6

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        axes = axes_of(figure, self.title, "FLOP / byte", f"TFLOP/s ({self.clock})", grid="both")
        axes.set_xscale("log")
        axes.set_yscale("log")
        ridge = self.peak_tflops * 1e3 / self.bandwidth_gb_per_s
        low = min(min(p.flop_per_byte for p in self.points) / 2, ridge / 4)
        high = max(max(p.flop_per_byte for p in self.points) * 2, ridge * 4)
        roof = [low * self.bandwidth_gb_per_s / 1e3, self.peak_tflops, self.peak_tflops]
        axes.plot([low, ridge, high], roof, color="black", linewidth=1.0)
        axes.annotate(f"{self.peak_tflops:,.0f} TFLOP/s", (high, self.peak_tflops), (-1, 2), fontsize=6,
                      textcoords="offset points", ha="right")  # fmt: skip
        axes.annotate(f"{self.bandwidth_gb_per_s / 1e3:.1f} TB/s", (low, roof[0]), (2, 10), fontsize=6,
                      textcoords="offset points", rotation=0)  # fmt: skip
        shapes = list(dict.fromkeys(p.shape for p in self.points))
        for index, shape in enumerate(shapes):
            mine = [p for p in self.points if p.shape == shape and p.role in ("candidate", "seed")]
            axes.plot([p.flop_per_byte for p in mine], [p.tflops for p in mine], linestyle="none", alpha=0.35,
                      marker=MARKERS[index % len(MARKERS)], markersize=3, color=COLOURS[index % len(COLOURS)],
                      markeredgewidth=0, label=shape, rasterized=len(self.points) > MANY)  # fmt: skip
        for role, marker, colour in (("baseline", "x", "black"), ("best", "*", VERMILION)):
            mine = [p for p in self.points if p.role == role]
            axes.plot([p.flop_per_byte for p in mine], [p.tflops for p in mine], linestyle="none", marker=marker,
                      color=colour, markersize=7 if role == "best" else 4, markeredgecolor="black" if role == "best"
                      else colour, markeredgewidth=0.5 if role == "best" else 1.0, label=role)  # fmt: skip
        axes.set_xlim(low, high)
        axes.set_ylim(min(p.tflops for p in self.points) / 2, self.peak_tflops * 2.2)
        legend_below(figure, axes)

    def table(self) -> Table:
        """Every point, then the ceilings."""
        rows: list[tuple[object, ...]] = [(p.role, p.n, p.shape, p.flop_per_byte, p.tflops) for p in self.points]
        rows.append(("ceiling", None, "peak", None, self.peak_tflops))
        rows.append(("ceiling", None, "bandwidth_gb_per_s", None, self.bandwidth_gb_per_s))
        return Table(("role", "n", "shape", "flop_per_byte", "tflops"), tuple(rows))


@dataclass(frozen=True)
class Pareto:
    """Two things to be small: every valid candidate and those no other beats in both.

    Attributes:
        title: as elsewhere; x_label, y_label: with units and clock.
        points: (n, x, y).
        baseline: its (x, y), None where it has none.
    """

    title: str
    x_label: str
    y_label: str
    points: tuple[tuple[int, float, float], ...]
    baseline: tuple[float, float] | None = None

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""
        return 2.5

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure."""
        axes = axes_of(figure, self.title, self.x_label, self.y_label, grid="both")
        front = front_of(self.points)
        chosen = {n for n, _, _ in front}
        rest = [(x, y) for n, x, y in self.points if n not in chosen]
        many = len(rest) > MANY
        axes.scatter([x for x, _ in rest], [y for _, y in rest], s=9, color=GREY, alpha=0.45, linewidths=0,
                     label="dominated", rasterized=many)  # fmt: skip
        axes.step([x for _, x, _ in front], [y for _, _, y in front], where="post", color=BLUE, linewidth=1.2,
                  marker="D", markersize=3.2, label="Pareto front")  # fmt: skip
        if self.baseline is not None:
            axes.plot(*self.baseline, "x", color="black", markersize=5, label="baseline")
        self._limit(axes, front)
        legend_below(figure, axes, columns=3)

    def _limit(self, axes: object, front: Sequence[tuple[int, float, float]]) -> None:
        """Show what is near the front: a good twice its best, and all of it; a logarithmic axis where it is long."""
        from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

        for index, name in ((1, "x"), (2, "y")):
            axis = getattr(axes, f"{name}axis")
            best = min(point[index] for point in front)
            worst = max(point[index] for point in front)
            if self.baseline is not None:
                worst = max(worst, self.baseline[index - 1])
            high = min(max(point[index] for point in self.points), max(2.2 * best, 1.05 * worst)) * 1.06
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
        chosen = {n for n, _, _ in front_of(self.points)}
        rows: list[tuple[object, ...]] = [(n, x, y, int(n in chosen)) for n, x, y in self.points]
        if self.baseline is not None:
            rows.append(("baseline", *self.baseline, None))
        return Table(("n", self.x_label, self.y_label, "on_front"), tuple(rows))


def front_of(points: Sequence[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Points no other beats in one without losing in the other, in order of x; of equal points the first n."""
    front: list[tuple[int, float, float]] = []
    lowest = np.inf
    for n, x, y in sorted(points, key=lambda point: (point[1], point[2], point[0])):
        if y < lowest:
            front.append((n, x, y))
            lowest = y
    return front
