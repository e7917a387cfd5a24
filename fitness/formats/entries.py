"""The nonzeros of W with their places: what most formats are made from, so that W need not exist densely."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fitness.formats.format import Array, BaseFormat, FormatError, Options, Shape, check_count

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Entries:
    """The nonzeros of a matrix (M, K), by row and then by column, each place once.

    Attributes:
        shape: M, K.
        rows, columns: (nnz,) places; values: (nnz,), none of them zero.
    """

    shape: Shape
    rows: Indices
    columns: Indices
    values: Array

    @classmethod
    def of(cls, w: Array) -> Self:
        """The nonzeros of a dense matrix, -0.0 being a zero; raises FormatError for an array that is no matrix."""
        if w.ndim != 2:
            raise FormatError(f"formats store a matrix, not an array of {w.ndim} dimensions")
        rows, columns = np.nonzero(w)
        return cls((w.shape[0], w.shape[1]), rows, columns, np.ascontiguousarray(w[rows, columns]))

    @classmethod
    def from_triplets(cls, shape: Shape, rows: NDArray[Any], columns: NDArray[Any], values: Array) -> Self:
        """From coordinates in any order; values at the same place are added, zeros dropped.

        Sums are made in float64 and rounded once to the type of `values`.

        Raises:
            FormatError: a place outside the matrix, named by its number.
        """
        rows, columns = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
        outside = (rows < 0) | (rows >= shape[0]) | (columns < 0) | (columns >= shape[1])
        if outside.any():
            first = int(np.flatnonzero(outside)[0])
            place = f"row {rows[first]}, column {columns[first]}"
            raise FormatError(f"entry {first} at {place} lies outside the {shape[0]} x {shape[1]} matrix")
        order = np.lexsort((columns, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        fresh = np.ones(len(rows), np.bool_)
        fresh[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
        if not fresh.all():
            wide = np.add.reduceat(values.astype(np.float64), np.flatnonzero(fresh))
            rows, columns, values = rows[fresh], columns[fresh], wide.astype(values.dtype)
        kept = values != 0
        return cls(shape, rows[kept], columns[kept], np.ascontiguousarray(values[kept]))

    @property
    def nnz(self) -> int:
        """How many."""
        return len(self.values)

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""
        return int(self.values.itemsize)

    @cached_property
    def row_counts(self) -> Indices:
        """(M,) nonzeros of each row."""
        return np.bincount(self.rows, minlength=self.shape[0])

    @property
    def longest(self) -> int:
        """Nonzeros of the longest row."""
        return int(self.row_counts.max(initial=0))

    def dense(self) -> Array:
        """(M, K), zeros elsewhere."""
        w = np.zeros(self.shape, self.values.dtype)
        w[self.rows, self.columns] = self.values
        return w

    def permuted(self, rows: Indices | None = None, columns: Indices | None = None) -> Entries:
        """The same nonzeros where row `rows[i]` becomes row i and column `columns[j]` column j; None: unmoved."""
        new_rows = self.rows if rows is None else inverse(rows)[self.rows]
        new_columns = self.columns if columns is None else inverse(columns)[self.columns]
        order = np.lexsort((new_columns, new_rows))
        return Entries(self.shape, new_rows[order], new_columns[order], self.values[order])


def inverse(order: Indices) -> Indices:
    """Where each item of a permutation has gone."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def distinct(numbers: Indices) -> Indices:
    """Each number once, ascending: faster than np.unique, whose hashing takes up to 1 us a number (NumPy 2.4)."""
    ordered = np.sort(numbers, kind="stable")  # numbers of blocks by row are runs, which it merges
    fresh = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    once: Indices = ordered[fresh]
    return once


def row_pointers(counts: NDArray[Any]) -> NDArray[np.int32]:
    """(rows,) lengths -> (rows + 1,) starts: 0, then the running sum."""
    pointers = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=pointers[1:])
    return pointers


def positions(counts: Indices, rows: Indices) -> Indices:
    """Of items sorted by row: the number of each within its row."""
    return np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]


class EntryFormat(BaseFormat, ABC):
    """Base of the formats made from entries. `packed` also stores a matrix that never was dense."""

    name: str

    @abstractmethod
    def packed(self, entries: Entries, options: Options) -> dict[str, Array]:
        """The arrays by argument name; raises FormatError as `check`."""

    @abstractmethod
    def entry_bytes(self, entries: Entries, options: Options) -> int:
        """Bytes of all arrays, without making them."""

    @abstractmethod
    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""

    def check(self, entries: Entries, options: Options) -> None:  # noqa: ARG002
        """Raise FormatError where the entries cannot be stored with these options."""
        check_count(self.name, entries.nnz)

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """The arrays; raises FormatError where W cannot be stored."""
        return self.packed(Entries.of(w), options)

    def validate(self, w: Array, options: Options) -> None:
        """Raise FormatError where W cannot be stored."""
        self.check(Entries.of(w), options)

    def bytes(self, w: Array, options: Options) -> int:
        """Bytes of all arrays."""
        return self.entry_bytes(Entries.of(w), options)

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:  # noqa: ARG002
        """The nonzeros; a format that stores more says so."""
        stored: NDArray[np.bool_] = w != 0
        return stored
