"""N:M: how many nonzeros the groups of m neighbours hold, along K as kernels want it, and along M."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fitness.matrices.mask import Strip

GROUPS: Final = (2, 4, 8, 16, 32)
"""Sizes m of groups along K; along M only groups of 4 are counted."""
ACROSS: Final = 4


@dataclass(frozen=True)
class Ratios:
    """Groups by how many nonzeros they hold.

    Attributes:
        along: m -> (m + 1,) groups along K with 0, 1, ... m nonzeros; a cut last group counts as one.
        across: the same for groups of 4 along M.
    """

    along: Mapping[int, tuple[int, ...]]
    across: tuple[int, ...]

    def share(self, n: int, m: int) -> float:
        """Share of the groups of m along K with at most n nonzeros, 0..1."""
        return _share(self.along[m], n)

    def share_across(self, n: int) -> float:
        """Share of the groups of 4 along M with at most n nonzeros."""
        return _share(self.across, n)

    def exact(self, m: int) -> int:
        """The least n such that every group of m along K has at most n nonzeros."""
        return max((n for n, groups in enumerate(self.along[m]) if groups), default=0)


def _share(groups: tuple[int, ...], n: int) -> float:
    total = sum(groups)
    return sum(groups[: n + 1]) / total if total else 1.0


class RatioCounter:
    """Counts over all strips of a matrix of K columns."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._along = {m: np.zeros(m + 1, np.int64) for m in GROUPS}
        self._across = np.zeros(ACROSS + 1, np.int64)

    def add(self, strip: Strip) -> None:
        """Count one strip, which begins at a multiple of four rows."""
        if strip.bits is not None:
            self._add_bits(strip.bits.view(np.uint8))
        else:
            self._add_coordinates(strip)

    def result(self) -> Ratios:
        """All counts."""
        return Ratios(
            {m: tuple(int(n) for n in counts) for m, counts in self._along.items()},
            tuple(int(n) for n in self._across),
        )

    def _add_bits(self, counts: NDArray[np.uint8]) -> None:
        four = _sums(_sums(counts, 0), 0)
        self._across += [np.count_nonzero(four == n) for n in range(ACROSS + 1)]
        for m in GROUPS:
            counts = _sums(counts, 1)
            self._along[m] += [np.count_nonzero(counts == n) for n in range(m + 1)]

    def _add_coordinates(self, strip: Strip) -> None:
        shift = max(1, strip.columns - 1).bit_length()
        for m in GROUPS:
            width = m.bit_length() - 1
            keys = (strip.row << shift | strip.column) >> width if width <= shift else strip.row
            _add_runs(self._along[m], keys, strip.rows * -(-self._columns // m))
        keys = np.sort(strip.row // ACROSS << shift | strip.column, kind="stable")  # runs: merged, not sorted anew
        _add_runs(self._across, keys, -(-strip.rows // ACROSS) * self._columns)


def _add_runs(groups: NDArray[np.int64], keys: NDArray[np.int64], total: int) -> None:
    """Add lengths of the runs of equal keys, and the groups without any, to a histogram."""
    if len(keys):
        ends = np.append(np.flatnonzero(keys[1:] != keys[:-1]), len(keys) - 1)
        lengths = np.diff(ends)
        groups += np.bincount(lengths, minlength=len(groups))
        groups[ends[0] + 1] += 1
        total -= len(ends)
    groups[0] += total


def _sums(counts: NDArray[np.uint8], axis: int) -> NDArray[np.uint8]:
    """Neighbours along an axis added; a last one alone stays."""
    first, second = (counts[0::2], counts[1::2]) if axis == 0 else (counts[:, 0::2], counts[:, 1::2])
    added = first.copy()
    if axis == 0:
        added[: len(second)] += second
    else:
        added[:, : second.shape[1]] += second
    return added
