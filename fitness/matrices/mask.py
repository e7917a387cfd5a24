"""`Mask`: where a matrix is nonzero, without its values, small enough for 10^8 nonzeros.

Two representations, chosen by density: sorted column indices by row (4 bytes a nonzero), or one bit an element.
Everything that is measured of a matrix is measured strip by strip: some rows at a time, in either form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, int]
Indices = NDArray[np.int64]

STRIP_ROWS: Final = 64
"""Strips begin at multiples of this, the largest block measured, except the last."""

BITS_FROM_DENSITY: Final = 1 / 16
"""From here on bits: eight times less memory than indices at most, and faster to count."""

_STRIP_NONZEROS: Final = 2_000_000
_STRIP_ELEMENTS: Final = 8_000_000
_INDICES_AT_ONCE: Final = 2**24  # NumPy counts them as 8 bytes each


@dataclass(frozen=True, eq=False)
class Strip:
    """Some neighbouring rows of a matrix (perhaps permuted): elements as bools, or coordinates.

    Attributes:
        first, rows: which rows; columns: K.
        bits: (rows, K) bool, None where coordinates are kept.
        row, column: of each nonzero, row relative to the strip; sorted by row, then column.
    """

    first: int
    rows: int
    columns: int
    bits: NDArray[np.bool_] | None
    row: Indices
    column: Indices

    @cached_property
    def nnz(self) -> int:
        """Nonzeros of the strip."""
        return len(self.row) if self.bits is None else int(np.count_nonzero(self.bits))

    def coordinates(self) -> tuple[Indices, Indices]:
        """Row (relative) and column of each nonzero, sorted by row, then column."""
        if self.bits is None:
            return self.row, self.column
        row, column = np.nonzero(self.bits)
        return row, column


_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Mask:
    """Where a matrix (M, K) is nonzero.

    Attributes:
        shape: M, K.
        indptr: (M + 1,) starts of rows in `indices`, None where bits are kept.
        indices: (nnz,) int32 columns, ascending and distinct in a row.
        bits: (M, ceil(K / 8)) uint8, most significant bit first, None where indices are kept.
    """

    shape: Shape
    indptr: Indices | None
    indices: NDArray[np.int32] | None
    bits: NDArray[np.uint8] | None

    @classmethod
    def from_csr(cls, shape: Shape, indptr: NDArray[Any], indices: NDArray[Any], *, bits: bool | None = None) -> Self:
        """From sorted, distinct column indices by row.

        Args:
            shape: M, K.
            indptr: (M + 1,) starts of rows.
            indices: (nnz,) columns.
            bits: which representation; None chooses by density.
        """
        starts = np.asarray(indptr, np.int64)
        made = cls(shape, starts, np.asarray(indices, np.int32), None)
        elements = shape[0] * shape[1]
        if bits is None:
            bits = made.nnz > elements * BITS_FROM_DENSITY
        return cls.from_strips(shape, (s.bits for s in _as_bits(made)), bits=True) if bits and elements else made

    @classmethod
    def from_strips(cls, shape: Shape, strips: Iterable[NDArray[np.bool_] | None], *, bits: bool | None = None) -> Self:
        """From bools, some rows at a time in order: (rows, K) each, M rows in all."""
        packed = np.empty((shape[0], -(-shape[1] // 8)), np.uint8)
        first = nnz = 0
        for strip in strips:
            assert strip is not None
            packed[first : first + len(strip)] = np.packbits(strip, axis=1)
            first += len(strip)
            nnz += int(np.count_nonzero(strip))
        if first != shape[0]:
            raise ValueError(f"{first} rows given for a matrix of {shape[0]}")
        made = cls(shape, None, None, packed)
        if bits is None:
            bits = nnz > shape[0] * shape[1] * BITS_FROM_DENSITY
        return made if bits else made._with_indices(nnz)

    def _with_indices(self, nnz: int) -> Self:
        indptr = np.zeros(self.shape[0] + 1, np.int64)
        indices = np.empty(nnz, np.int32)
        for strip in self.strips():
            row, column = strip.coordinates()
            counts = np.bincount(row, minlength=strip.rows)
            end = indptr[strip.first] + len(column)
            indices[indptr[strip.first] : end] = column
            indptr[strip.first + 1 : strip.first + strip.rows + 1] = indptr[strip.first] + np.cumsum(counts)
        return type(self)(self.shape, indptr, indices, None)

    @cached_property
    def row_counts(self) -> Indices:
        """(M,) nonzeros of each row."""
        if self.indptr is not None:
            return np.diff(self.indptr)
        assert self.bits is not None
        counts: Indices = np.bitwise_count(self.bits).sum(axis=1, dtype=np.int64)
        return counts

    @cached_property
    def column_counts(self) -> Indices:
        """(K,) nonzeros of each column."""
        counts = np.zeros(self.shape[1], np.int64)
        if self.indices is not None:
            for first in range(0, len(self.indices), _INDICES_AT_ONCE):
                part = self.indices[first : first + _INDICES_AT_ONCE]
                counts += np.bincount(part, minlength=self.shape[1])
        else:
            for strip in self.strips():
                assert strip.bits is not None
                counts += strip.bits.sum(axis=0, dtype=np.int64)
        return counts

    @cached_property
    def nnz(self) -> int:
        """Nonzeros."""
        return int(self.indptr[-1]) if self.indptr is not None else int(self.row_counts.sum())

    @property
    def density(self) -> float:
        """Share of nonzeros, 0..1; 0 where there are no elements."""
        elements = self.shape[0] * self.shape[1]
        return self.nnz / elements if elements else 0.0

    @property
    def nbytes(self) -> int:
        """Memory of the representation."""
        return sum(part.nbytes for part in (self.indptr, self.indices, self.bits) if part is not None)

    def strips(self, order: Indices | None = None, columns: Indices | None = None, every: int = 1) -> Iterator[Strip]:
        """All rows, some at a time.

        Args:
            order: (M,) rows in the order wanted; None: as they are.
            columns: (K,) new place of each column; None: as they are.
            every: of how many strips one is given, for samples.
        """
        for i, (first, last) in enumerate(self._bounds(order)):
            if i % every == 0:
                rows = np.arange(first, last) if order is None else order[first:last]
                yield self._strip(first, rows, columns)

    def _bounds(self, order: Indices | None) -> Iterator[tuple[int, int]]:
        rows = self.shape[0]
        if self.indptr is None:
            step = STRIP_ROWS * max(1, _STRIP_ELEMENTS // max(1, STRIP_ROWS * self.shape[1]))
            yield from ((first, min(rows, first + step)) for first in range(0, rows, step))
            return
        counts = self.row_counts if order is None else self.row_counts[order]
        ends = np.append(np.cumsum(counts)[STRIP_ROWS - 1 :: STRIP_ROWS], self.nnz)  # after whole groups of rows
        group, done = 0, 0
        groups = -(-rows // STRIP_ROWS)
        while group < groups:
            last = max(group + 1, int(np.searchsorted(ends, done + _STRIP_NONZEROS, side="right")))
            last = min(last, group + _STRIP_ELEMENTS // STRIP_ROWS, groups)
            yield group * STRIP_ROWS, min(rows, last * STRIP_ROWS)
            group, done = last, int(ends[last - 1])

    def _strip(self, first: int, rows: Indices, columns: Indices | None) -> Strip:
        if self.bits is not None:
            bits = np.unpackbits(self.bits[rows], axis=1, count=self.shape[1]).view(np.bool_)
            if columns is not None:
                moved = np.empty_like(bits)
                moved[:, columns] = bits
                bits = moved
            return Strip(first, len(rows), self.shape[1], bits, _NONE, _NONE)
        assert self.indptr is not None
        assert self.indices is not None
        starts = self.indptr[rows]
        lengths = self.row_counts[rows]
        row = np.repeat(np.arange(len(rows)), lengths)
        if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
            column = self.indices[starts[0] : starts[-1] + lengths[-1]].astype(np.int64)
        else:
            before = np.cumsum(lengths) - lengths
            column = self.indices[np.repeat(starts - before, lengths) + np.arange(len(row))].astype(np.int64)
        if columns is not None:
            width = max(1, self.shape[1])
            key = np.sort(row * width + columns[column], kind="stable")  # rows are in order: runs to merge
            row, column = np.divmod(key, width)
        return Strip(first, len(rows), self.shape[1], None, row, column)

    def to_csr(self) -> tuple[Indices, NDArray[np.int32]]:
        """`indptr` (M + 1,) and `indices` (nnz,), whatever is kept."""
        made = self if self.indptr is not None else self._indexed
        assert made.indptr is not None
        assert made.indices is not None
        return made.indptr, made.indices

    @cached_property
    def _indexed(self) -> Mask:
        return self._with_indices(self.nnz)

    def window(self, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """A part of the matrix as bools."""
        first, last, _ = rows.indices(self.shape[0])
        if self.bits is not None:
            bits = np.unpackbits(self.bits[first:last], axis=1, count=self.shape[1])
            return np.ascontiguousarray(bits[:, columns]).view(np.bool_)
        assert self.indptr is not None
        assert self.indices is not None
        left, right, _ = columns.indices(self.shape[1])
        column = self.indices[self.indptr[first] : self.indptr[last]]
        row = np.repeat(np.arange(last - first), self.row_counts[first:last])
        inside = (column >= left) & (column < right)
        part = np.zeros((last - first, right - left), np.bool_)
        part[row[inside], column[inside] - left] = True
        return part

    def transposed(self) -> Mask:
        """The mask of the transpose (K, M)."""
        from scipy.sparse import csr_array

        indptr, indices = self.to_csr()
        turned = csr_array((np.ones(len(indices), np.bool_), indices, indptr), shape=self.shape).tocsc()
        return Mask.from_csr((self.shape[1], self.shape[0]), turned.indptr, turned.indices, bits=self.bits is not None)


def _as_bits(mask: Mask) -> Iterator[Strip]:
    """The strips of a mask of indices, as bools of bounded size."""
    step = STRIP_ROWS * max(1, _STRIP_ELEMENTS // max(1, STRIP_ROWS * mask.shape[1]))
    for first in range(0, mask.shape[0], step):
        rows = slice(first, min(mask.shape[0], first + step))
        part = mask.window(rows, slice(0, mask.shape[1]))
        yield Strip(first, len(part), mask.shape[1], part, _NONE, _NONE)
