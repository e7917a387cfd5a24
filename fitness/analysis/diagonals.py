"""Diagonals: how far nonzeros lie from the main one, and on how few they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fitness.matrices.mask import Shape, Strip

FULLEST: Final = 32


@dataclass(frozen=True)
class Diagonals:
    """Diagonals with nonzeros; the offset of element (i, j) is j - i.

    Attributes:
        occupied: how many have a nonzero.
        lower, upper: largest distance below and above the main diagonal; 0 where nothing lies there.
        fill: nonzeros over all places of the occupied diagonals, 0..1: what a DIA format stores that is no zero.
        fullest: share of the nonzeros on the 32 fullest ones.
        triangular: "lower", "upper", "diagonal" or "".
    """

    occupied: int
    lower: int
    upper: int
    fill: float
    fullest: float
    triangular: str


class DiagonalCounter:
    """Counts over all strips of a matrix."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._counts = np.zeros(shape[0] + shape[1] - 1, np.int64)  # offset + M - 1

    def add(self, strip: Strip) -> None:
        """Count one strip."""
        if strip.bits is not None:
            step = max(64, strip.columns)  # a copy as wide as the rows and columns is made
            for start in range(0, strip.rows, step):
                part = strip.bits[start : start + step]
                first = self._shape[0] - strip.first - start - len(part)  # offset of its lower left corner, + M - 1
                sums = _along_diagonals(part)
                self._counts[first : first + len(sums)] += sums
        elif len(strip.row):
            offsets = strip.column - strip.row + (self._shape[0] - 1 - strip.first)
            least = int(offsets.min())
            counts = np.bincount(offsets - least)
            self._counts[least : least + len(counts)] += counts

    def result(self) -> Diagonals:
        """All of it."""
        rows, columns = self._shape
        places = np.flatnonzero(self._counts)
        if not len(places):
            return Diagonals(0, 0, 0, 0.0, 0.0, "")
        offsets = places - (rows - 1)
        counts = self._counts[places]
        lower, upper = max(0, -int(offsets[0])), max(0, int(offsets[-1]))
        long = np.minimum(np.minimum(rows, columns), np.minimum(columns - offsets, rows + offsets))
        fullest = np.partition(counts, len(counts) - FULLEST)[-FULLEST:] if len(counts) > FULLEST else counts
        triangular = {(True, True): "diagonal", (False, True): "lower", (True, False): "upper"}.get(
            (lower == 0, upper == 0), ""
        )
        nnz = int(counts.sum())
        return Diagonals(len(places), lower, upper, nnz / int(long.sum()), int(fullest.sum()) / nnz, triangular)


def _along_diagonals(bits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(rows, K) -> (rows + K - 1,) sums along diagonals, from the lower left corner on."""
    rows, columns = bits.shape
    # the last row first, each row one further right: rows of a wider array whose rows are one element shorter
    padded = np.zeros((rows, columns + rows), np.uint8)
    padded[:, :columns] = bits[::-1]
    sheared = padded.reshape(-1)[: rows * (columns + rows - 1)].reshape(rows, columns + rows - 1)
    sums: NDArray[np.int64] = sheared.sum(axis=0, dtype=np.int64)
    return sums
