"""One matrix: where it is dense, and how long its rows are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evo.plots.picture import BLUE, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class MatrixPicture:
    """A density map above a histogram of row lengths.

    Attributes:
        title: above the map.
        shape: M, K.
        density: (cells down, cells across) density of each cell, 0..1.
        edges, counts: counts[i] rows have from edges[i] to edges[i + 1] - 1 nonzeros.
    """

    title: str
    shape: tuple[int, int]
    density: NDArray[np.float64]
    edges: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def height_in(self) -> float:
        """Room for both."""
        return 4.6

    def draw(self, figure: Figure) -> None:
        """Draw both into an empty figure."""
        from matplotlib.colors import LogNorm

        above, below = figure.subplots(2, 1, height_ratios=(3, 1))
        rows, columns = self.shape
        filled = self.density[self.density > 0]
        low = float(filled.min()) if len(filled) else 0.1
        shown = np.ma.masked_equal(self.density, 0)
        image = above.imshow(
            shown,
            cmap="viridis",
            norm=LogNorm(min(low, 0.999), 1.0),
            extent=(0, columns, rows, 0),
            aspect="auto",
            interpolation="nearest",
        )
        above.set_title(self.title, loc="left")
        above.set_xlabel(f"column of {columns}")
        above.set_ylabel(f"row of {rows}")
        figure.colorbar(image, ax=above, label="density of a cell")
        labels = [_label(low, high - 1) for low, high in zip(self.edges, self.edges[1:], strict=False)]
        below.bar(range(len(self.counts)), self.counts, color=BLUE, width=0.8)
        below.set_xticks(range(len(self.counts)), labels, rotation=45, ha="right")
        below.set_xlabel("nonzeros of a row")
        below.set_ylabel("rows")
        below.spines[["top", "right"]].set_visible(False)

    def table(self) -> Table:
        """Cells of the map by row and column, then the histogram."""
        cells = [("density", i, j, float(self.density[i, j])) for i, j in np.ndindex(*self.density.shape)]
        lengths = [("rows", low, None, count) for low, count in zip(self.edges, self.counts, strict=False)]
        return Table(("panel", "row", "column", "value"), (*cells, *lengths))


def _label(low: int, high: int) -> str:
    return str(low) if low >= high else f"{low}-{high}"
