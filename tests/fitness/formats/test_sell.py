"""SELL-C-sigma: the contract, slices no wider than their longest row, windows of sorting."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fitness.formats.ell import PADDING, Ell
from fitness.formats.sell import Sell
from fitness.formats.testing import FormatContract


class TestSell(FormatContract):
    storage = Sell()
    pattern = {"kind": "power_law", "density": 0.1}  # noqa: RUF012
    fixed = {"c": "8"}  # noqa: RUF012


class TestSellBfloat16(FormatContract):
    storage = Sell()
    pattern = {"kind": "random", "density": 0.1}  # noqa: RUF012
    dtype = np.dtype(ml_dtypes.bfloat16)
    fixed = {"sigma": "64"}  # noqa: RUF012


def lengths(*counts: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    w = np.zeros((len(counts), 10), np.float32)
    for row, count in enumerate(counts):
        w[row, :count] = row + 1
    return w


def test_every_slice_is_as_wide_as_its_own_longest_row() -> None:
    packed = Sell().pack(lengths(1, 0, 2, 1, 7, 0, 0, 0, 3), {"c": "4", "sigma": "1"})
    assert packed["indptr"].tolist() == [0, 4 * 2, 4 * 9, 4 * 12]
    assert packed["row_order"].tolist() == list(range(9))
    # slice 0, slot by slot: rows 0..3
    assert packed["values"][:8].tolist() == [1, 0, 3, 4, 0, 0, 3, 0]
    assert packed["indices"][:8].tolist() == [0, PADDING, 0, 0, PADDING, PADDING, 1, PADDING]


def test_rows_are_sorted_within_windows_only() -> None:
    w = np.zeros((130, 8), np.float32)
    w[63], w[64, :2], w[129, :5] = 1, 1, 1
    packed = Sell().pack(w, {"c": "4", "sigma": "64"})
    order = packed["row_order"]
    assert order[0] == 63
    assert order[64] == 64
    assert order[128] == 129
    for window in range(0, 130, 64):
        assert sorted(order[window : window + 64]) == list(range(window, min(window + 64, 130)))


def test_sorting_spares_padding() -> None:
    rng = np.random.default_rng(0)
    w = (rng.random((512, 64)) < rng.random((512, 1))).astype(np.float32)
    sizes = [Sell().bytes(w, {"c": "32", "sigma": sigma}) for sigma in ("1", "64", "256")]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[0] < Ell().bytes(w, {"order": "column"}) + 4 * 600
