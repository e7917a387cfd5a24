"""Repetition: rows with the same columns, rows that are shifted copies, patterns that repeat down M or along K."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fitness.matrices.mask import Mask, Strip

Hashes = NDArray[np.uint64]

_CANDIDATES: Final = 64
_SAMPLED_ROWS: Final = 16
_LONGEST_SAMPLED: Final = 2**24


@dataclass(frozen=True)
class Repetition:
    """What repeats. Empty rows take no part in the first three.

    Attributes:
        distinct_rows: number of different sets of columns.
        commonest: share of the rows that have the commonest set.
        stencil: share of the rows that have the commonest set of offsets j - i; None where bits are kept.
        period_rows: least p such that row i + p equals row i everywhere; None where there is none up to M / 2.
        period_columns: least p such that column j + p equals column j everywhere; None likewise.
        digest: sha256 of all row patterns: equal for equal masks.
    """

    distinct_rows: int
    commonest: float
    stencil: float | None
    period_rows: int | None
    period_columns: int | None
    digest: str


class RepetitionCounter:
    """Hashes the rows of all strips of a matrix."""

    def __init__(self, rows: int) -> None:
        self._rows = np.zeros(rows, np.uint64)
        self._offsets: Hashes | None = np.zeros(rows, np.uint64)

    def add(self, strip: Strip) -> None:
        """Hash one strip."""
        if strip.bits is not None:
            self._offsets = None
            column = np.flatnonzero(strip.bits.any(axis=1))
            packed = np.packbits(strip.bits, axis=1)
            for i in column:
                self._rows[strip.first + i] = _digest(packed[i].tobytes())
        elif len(strip.row):
            starts = np.flatnonzero(np.diff(strip.row, prepend=-1))
            places = strip.first + strip.row[starts]
            self._rows[places] = np.add.reduceat(_mixed(strip.column), starts)
            if self._offsets is not None:
                offsets = strip.column - strip.row - strip.first
                self._offsets[places] = np.add.reduceat(_mixed(offsets), starts)

    def result(self, mask: Mask) -> Repetition:
        """Everything that repeats in the matrix the strips are of."""
        filled = mask.row_counts > 0
        distinct, counts = np.unique(self._rows[filled], return_counts=True)
        stencil = None
        if self._offsets is not None:
            _, same = np.unique(self._offsets[filled], return_counts=True)
            stencil = float(same.max() / same.sum()) if len(same) else 0.0
        digest = hashlib.sha256(repr(mask.shape).encode() + self._rows.tobytes()).hexdigest()
        return Repetition(
            distinct_rows=len(distinct),
            commonest=float(counts.max() / counts.sum()) if len(counts) else 0.0,
            stencil=stencil,
            period_rows=_period(self._rows),
            period_columns=_period_columns(mask),
            digest=digest,
        )


def _digest(row: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "little")


def _mixed(values: NDArray[np.int64]) -> Hashes:
    """A hash of each integer whose sums tell sets apart (the finalizer of SplitMix64; Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return mixed ^ mixed >> np.uint64(31)


def _period(items: NDArray[np.generic]) -> int | None:
    """Least p up to half the length with items[p:] == items[:-p]; the first 64 places of a repeat are tried."""
    half = len(items) // 2
    if not half or (items == items[0]).all():
        return 1 if half else None
    for p in np.flatnonzero(items[1 : half + 1] == items[0])[:_CANDIDATES] + 1:
        if (items[p:] == items[:-p]).all():
            return int(p)
    return None


def _period_columns(mask: Mask) -> int | None:
    """The period of all columns: a candidate from some rows, then looked at in every one."""
    filled = np.flatnonzero(mask.row_counts)
    if not len(filled) or mask.shape[1] < 2 or mask.shape[1] * _SAMPLED_ROWS > _LONGEST_SAMPLED:
        return None
    rows = filled[np.linspace(0, len(filled) - 1, min(_SAMPLED_ROWS, len(filled))).astype(np.int64)]
    sample = np.concatenate([mask.window(slice(row, row + 1), slice(0, mask.shape[1])) for row in rows])
    columns = np.packbits(sample, axis=0)  # one or two bytes for each column
    codes = columns[0].astype(np.uint16) << 8 | columns[-1]
    p = _period(codes)
    if p is None or any(_breaks(strip, p) for strip in mask.strips()):
        return None
    return p


def _breaks(strip: Strip, p: int) -> bool:
    """True where column j + p differs from column j somewhere."""
    if strip.bits is not None:
        return bool((strip.bits[:, p:] != strip.bits[:, :-p]).any())
    row, column = strip.row, strip.column
    late, early = column >= p, column < strip.columns - p
    return not (
        np.count_nonzero(late) == np.count_nonzero(early)
        and bool((row[late] == row[early]).all())
        and bool((column[late] - p == column[early]).all())
    )
