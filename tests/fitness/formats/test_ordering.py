"""Orders are permutations; similar rows come together, empty ones last."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fitness.formats.ordering import ROW_ORDERS, by_length, by_similarity, row_order


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 60), st.floats(0, 1), st.integers(0, 2**16), st.sampled_from(ROW_ORDERS))
def test_every_order_is_a_permutation(rows: int, columns: int, density: float, seed: int, choice: str) -> None:
    mask: NDArray[np.bool_] = np.random.default_rng(seed).random((rows, columns)) < density
    places = np.nonzero(mask)
    order = row_order(choice, places[0], places[1], rows, 4)
    assert sorted(order.tolist()) == list(range(rows))
    if choice != "natural":
        empty = np.count_nonzero(mask, axis=1)[order] == 0
        assert (np.diff(empty.astype(int)) >= 0).all()


def test_longest_first_and_stable() -> None:
    assert by_length(np.array([1, 3, 3, 0, 2])).tolist() == [1, 2, 4, 0, 3]


@pytest.mark.parametrize("width", [1, 8])
def test_equal_rows_are_neighbours(width: int) -> None:
    rng = np.random.default_rng(1)
    kinds = rng.permutation(np.repeat(np.arange(12), 5))
    mask = (rng.random((12, 30 * width)) < 0.1 / width)[kinds]
    mask[:, 0] |= kinds % 2 == 0
    places = np.nonzero(mask)
    order = by_similarity(places[0], places[1], len(kinds), width)
    patterns = [tuple(np.flatnonzero(row.reshape(-1, width).any(axis=1))) for row in mask[order]]
    changes = sum(a != b for a, b in itertools.pairwise(patterns))
    assert changes == len(set(patterns)) - 1
