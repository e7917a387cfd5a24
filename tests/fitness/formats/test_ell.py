"""ELLPACK: the contract, both orders, and padding that is no element."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fitness.formats.ell import PADDING, Ell
from fitness.formats.testing import FormatContract

W = np.array([[0, 3, 0, 4], [0, 0, 0, 0], [5, 0, 0, 0]], np.float32)


class TestEll(FormatContract):
    storage = Ell()
    pattern = {"kind": "power_law", "density": 0.1}  # noqa: RUF012


class TestEllBfloat16(TestEll):
    dtype = np.dtype(ml_dtypes.bfloat16)


def test_rows_are_padded_to_the_longest() -> None:
    packed = Ell().pack(W, {"order": "row"})
    np.testing.assert_array_equal(packed["values"], [[3, 4], [0, 0], [5, 0]])
    np.testing.assert_array_equal(packed["indices"], [[1, 3], [PADDING, PADDING], [0, PADDING]])


def test_columns_are_the_transpose() -> None:
    by_row, by_column = (Ell().pack(W, {"order": order}) for order in ("row", "column"))
    for name in ("values", "indices"):
        np.testing.assert_array_equal(by_column[name], by_row[name].T)


def test_padding_is_not_stored() -> None:
    np.testing.assert_array_equal(Ell().stored_mask(W, {"order": "row"}), W != 0)


def test_one_full_row_costs_every_row() -> None:
    w = np.zeros((64, 100), np.float16)
    w[5] = 1
    assert Ell().bytes(w, {"order": "row"}) == 64 * 100 * 6
