"""Blocks found in entries are those of the dense matrix."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.formats import FormatError
from fitness.formats.blocks import block_places, block_size, find_blocks, grid, ordered, row_major
from fitness.formats.entries import Entries


@pytest.mark.parametrize(("shape", "size"), [((32, 48), (16, 16)), ((21, 50), (8, 32)), ((1, 1), (4, 4))])
def test_blocks_with_a_nonzero_are_found(shape: tuple[int, int], size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    w = np.where(rng.random(shape) < 0.02, rng.standard_normal(shape), 0).astype(np.float32)
    w[-1, -1] = 7
    down, across = grid(shape, size)
    padded = np.pad(w, ((0, down * size[0] - shape[0]), (0, across * size[1] - shape[1])))
    blocks = padded.reshape(down, size[0], across, size[1]).transpose(0, 2, 1, 3)
    found = find_blocks(Entries.of(w), size)
    rows, columns = np.nonzero(blocks.any(axis=(2, 3)))
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.columns, columns)
    np.testing.assert_array_equal(found.elements, blocks[rows, columns])
    np.testing.assert_array_equal(block_places(Entries.of(w), size), rows * across + columns)


@pytest.mark.parametrize("order", ["fragment", "core"])
def test_orders_come_back(order: str) -> None:
    blocks = np.arange(3 * 32 * 48).reshape(3, 32, 48)
    np.testing.assert_array_equal(row_major(ordered(blocks, order), (32, 48), order), blocks)


def test_core_order_holds_matrices_of_eight_by_eight_one_after_another() -> None:
    blocks = np.arange(2 * 16 * 24).reshape(2, 16, 24)
    stored = ordered(blocks, "core")
    assert stored.shape == (2, 2, 3, 8, 8)
    for block, i, j in np.ndindex(2, 2, 3):
        np.testing.assert_array_equal(stored[block, i, j], blocks[block, 8 * i : 8 * i + 8, 8 * j : 8 * j + 8])


def test_small_blocks_have_no_fragments() -> None:
    assert block_size({"r": "8", "c": "16", "order": "row"}) == (8, 16)
    with pytest.raises(FormatError, match="blocks of 8x16 have no fragment order"):
        block_size({"r": "8", "c": "16", "order": "fragment"})
    with pytest.raises(FormatError, match="blocks of 4x16 have no core matrices"):
        block_size({"r": "4", "c": "16", "order": "core"})
