"""Coordinates: sorted, duplicates added, zeros dropped, places outside refused; overflow of int32 counts refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.formats import FORMATS, FormatError, get_format
from fitness.formats.csr import Csr
from fitness.formats.entries import Entries, positions
from fitness.formats.format import MAX_COUNT, check_count


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 60), st.integers(0, 2**16))
def test_duplicates_are_added_as_scipy_does(rows: int, columns: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    i, j = rng.integers(rows, size=count), rng.integers(columns, size=count)
    values = rng.integers(-2, 3, count).astype(np.float32)
    entries = Entries.from_triplets((rows, columns), i, j, values)
    np.testing.assert_array_equal(entries.dense(), scipy.sparse.coo_array((values, (i, j)), (rows, columns)).toarray())
    same = Entries.of(entries.dense())
    for name in ("rows", "columns", "values"):
        np.testing.assert_array_equal(getattr(entries, name), getattr(same, name))


def test_many_small_duplicates_are_not_lost() -> None:
    values = np.array([2048, *[1] * 64], np.float16)  # in float16, 2048 + 1 = 2048
    entries = Entries.from_triplets((1, 1), np.zeros(65), np.zeros(65), values)
    assert entries.values.tolist() == [2112]


@pytest.mark.parametrize(("row", "column"), [(3, 0), (0, 4), (-1, 0), (0, -1)])
def test_places_outside_are_refused(row: int, column: int) -> None:
    with pytest.raises(FormatError, match=f"entry 1 at row {row}, column {column} lies outside the 3 x 4 matrix"):
        Entries.from_triplets((3, 4), np.array([0, row]), np.array([0, column]), np.ones(2, np.float32))


def test_permutations_move_rows_and_columns() -> None:
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    rows, columns = np.array([2, 0, 1]), np.array([3, 1, 0, 2])
    np.testing.assert_array_equal(Entries.of(w).permuted(rows, columns).dense(), w[rows][:, columns])
    np.testing.assert_array_equal(Entries.of(w).permuted(columns=columns).dense(), w[:, columns])


def test_positions_count_within_rows() -> None:
    assert positions(np.array([2, 0, 3]), np.array([0, 0, 2, 2, 2])).tolist() == [0, 1, 0, 1, 2]


def test_more_than_int32_counts_is_refused() -> None:
    check_count("csr", MAX_COUNT)
    with pytest.raises(FormatError, match="at most 2147483647; this operand has 2147483648"):
        check_count("csr", MAX_COUNT + 1)
    # a matrix of too many rows, without the memory it would take
    huge = Entries((2**31, 1), np.array([5]), np.array([0]), np.ones(1, np.float32))
    with pytest.raises(FormatError, match="csr counts"):
        Csr().check(huge, {"order": "natural"})


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_vector_is_refused(name: str) -> None:
    storage = get_format(name)
    options = {option: choices[0] for option, choices in storage.options.items()}
    with pytest.raises(FormatError, match="1 dimensions"):
        storage.validate(np.zeros(64, np.float16), options)
