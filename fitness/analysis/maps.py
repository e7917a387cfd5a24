"""A picture of the matrix in numbers: nonzeros in the cells of a coarse grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fitness.matrices.mask import Shape, Strip

CELLS: Final = 128
"""Along each side, at most."""


@dataclass(frozen=True, eq=False)
class DensityMap:
    """Density of each cell, (cells down, cells across), 0..1; cells differ by one row or column at most."""

    density: NDArray[np.float64]


class MapCounter:
    """Counts over all strips of a matrix."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._cells = (min(CELLS, shape[0]), min(CELLS, shape[1]))
        self._counts = np.zeros(self._cells, np.int64)

    def add(self, strip: Strip) -> None:
        """Count one strip."""
        (rows, columns), (down, across) = self._shape, self._cells
        if strip.bits is None:
            cell = (strip.row + strip.first) * down // rows * across + strip.column * across // columns
            self._counts += np.bincount(cell, minlength=down * across).reshape(down, across)
            return
        of_row = np.arange(strip.first, strip.first + strip.rows) * down // rows
        starts = np.searchsorted(np.arange(columns) * across // columns, np.arange(across))
        wide = np.add.reduceat(strip.bits, starts, axis=1, dtype=np.int32)
        np.add.at(self._counts, of_row, wide)

    def result(self) -> DensityMap:
        """The densities."""
        heights, widths = (
            np.bincount(np.arange(size) * cells // size, minlength=cells)
            for size, cells in zip(self._shape, self._cells, strict=True)
        )
        return DensityMap(self._counts / np.outer(heights, widths))
