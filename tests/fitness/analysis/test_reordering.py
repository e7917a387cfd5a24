"""Orders find structure that was shuffled away, and promise none where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.analysis.blocks import count_blocks
from fitness.analysis.reordering import MAX_DENSITY, cuthill_mckee, try_orders
from tests.fitness.matrices.test_mask import mask_of


def fills(bits: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> dict[str, float]:
    mask = mask_of(bits)
    return {order.name: order.fill[16, 16] for order in try_orders(mask, count_blocks(mask)).orders}


def test_row_clustering_brings_shuffled_blocks_together() -> None:
    rng = np.random.default_rng(0)
    bits = np.kron(rng.random((32, 32)) < 0.1, np.ones((16, 16))) > 0
    found = fills(bits[rng.permutation(512)])
    assert found["natural"] < 0.15
    assert found["row_clustering"] > 0.8


def test_column_and_both_clusterings() -> None:
    rng = np.random.default_rng(1)
    bits = np.kron(rng.random((32, 32)) < 0.1, np.ones((16, 16))) > 0
    assert fills(bits[:, rng.permutation(512)])["column_clustering"] > 0.8


def test_cuthill_mckee_narrows_a_shuffled_band() -> None:
    rng = np.random.default_rng(2)
    band = np.abs(np.subtract.outer(np.arange(600), np.arange(600))) <= 3
    order = rng.permutation(600)
    shuffled = band[np.ix_(order, order)]
    rows, columns = cuthill_mckee(mask_of(shuffled))
    ordered = shuffled[np.ix_(rows, columns)]
    assert np.abs(np.subtract(*np.nonzero(ordered))).max() <= 8
    assert fills(shuffled)["reverse_cuthill_mckee"] > 5 * fills(shuffled)["natural"]


def test_cuthill_mckee_of_a_rectangular_matrix() -> None:
    bits = np.random.default_rng(3).random((50, 90)) < 0.05
    rows, columns = cuthill_mckee(mask_of(bits))
    assert sorted(rows) == list(range(50))
    assert sorted(columns) == list(range(90))


def test_length_sorting_takes_padding_away() -> None:
    rng = np.random.default_rng(4)
    bits = rng.random((640, 300)) < np.where(np.arange(640) % 32 == 0, 0.5, 0.01)[:, None]
    mask = mask_of(bits)
    orders = {order.name: order for order in try_orders(mask, count_blocks(mask)).orders}
    assert orders["natural"].padding > 5
    assert orders["row_length"].padding < 1.6


def test_random_nonzeros_gain_nothing() -> None:
    found = fills(np.random.default_rng(5).random((512, 512)) < 0.05)
    assert max(found.values()) < 1.2 * found["natural"]


@pytest.mark.parametrize(
    ("density", "reason"), [(MAX_DENSITY + 0.2, "dense"), (0.0, "no nonzeros"), (0.4, "all are alike")]
)
def test_nothing_is_tried_where_nothing_can_be_won(density: float, reason: str) -> None:
    mask = mask_of(np.random.default_rng(6).random((70, 70)) < density)
    found = try_orders(mask, count_blocks(mask))
    assert [order.name for order in found.orders] == ["natural"]
    assert reason in found.skipped
