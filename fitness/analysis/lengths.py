"""Rows and columns: how many nonzeros each has, how unequal that is, and what it costs warps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

SLICE_ROWS: Final = 32
"""Rows that the lanes of a warp take side by side."""


@dataclass(frozen=True)
class Lengths:
    """Distribution of nonzeros over rows, or over columns.

    Attributes:
        lines: how many rows (or columns); empty: those without nonzeros.
        least, mean, median, most: nonzeros of one.
        deviation: standard deviation over the mean; 0 where there are no nonzeros.
        imbalance: most over mean, 1 for equal ones.
        edges, counts: histogram; counts[i] lines have from edges[i] to edges[i + 1] - 1 nonzeros: 0, 1, 2-3, 4-7, ...
    """

    lines: int
    empty: int
    least: int
    mean: float
    median: float
    most: int
    deviation: float
    imbalance: float
    edges: tuple[int, ...]
    counts: tuple[int, ...]


def lengths_of(counts: Counts) -> Lengths:
    """Describe nonzeros per row or column, (lines,)."""
    mean = float(counts.mean())
    most = int(counts.max())
    edges = (0, *(1 << i for i in range(most.bit_length() + 1)))
    histogram = np.histogram(counts, bins=np.array(edges, np.int64))[0]
    return Lengths(
        lines=len(counts),
        empty=int(np.count_nonzero(counts == 0)),
        least=int(counts.min()),
        mean=mean,
        median=float(np.median(counts)),
        most=most,
        deviation=float(counts.std()) / mean if mean else 0.0,
        imbalance=most / mean if mean else 1.0,
        edges=edges,
        counts=tuple(int(count) for count in histogram),
    )


def padding(counts: Counts, rows: int = SLICE_ROWS) -> float:
    """Slots that slices of `rows` rows padded to their longest take, over nonzeros; 1 is none wasted.

    It is what a warp loses with a row for each lane, and the size of ELLPACK in slices. 1 where there are none.
    """
    total = int(counts.sum())
    if not total:
        return 1.0
    widths = np.maximum.reduceat(counts, np.arange(0, len(counts), rows))
    sizes = np.full(len(widths), rows)
    sizes[-1] = len(counts) - rows * (len(widths) - 1)
    return float((widths * sizes).sum()) / total
