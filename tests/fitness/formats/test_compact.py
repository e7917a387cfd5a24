"""Whole rows and whole columns: the contract, and which are kept."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fitness.formats.channels import Channels
from fitness.formats.rows import Rows
from fitness.formats.testing import FormatContract

W = np.array([[0, 0, 0, 0], [0, 3, 0, 4], [0, 0, 0, 0], [0, 0, 0, 5]], np.float32)


class TestRows(FormatContract):
    storage = Rows()
    pattern = {"kind": "rows", "density": 0.4}  # noqa: RUF012


class TestRowsBfloat16(TestRows):
    pattern = {"kind": "random", "density": 0.01}  # noqa: RUF012
    dtype = np.dtype(ml_dtypes.bfloat16)


class TestChannels(FormatContract):
    storage = Channels()
    pattern = {"kind": "rows", "density": 0.4}  # noqa: RUF012


class TestChannelsBfloat16(TestChannels):
    pattern = {"kind": "random", "density": 0.01}  # noqa: RUF012
    dtype = np.dtype(ml_dtypes.bfloat16)


def test_rows_that_stay() -> None:
    packed = Rows().pack(W, {})
    assert packed["values"].tolist() == W[[1, 3]].tolist()
    assert packed["row_order"].tolist() == [1, 3, 0, 2]
    assert Rows().measure(packed, (4, 4), {}) == {"kept": 2}
    np.testing.assert_array_equal(Rows().stored_mask(W, {}).any(axis=1), [False, True, False, True])


def test_columns_that_stay() -> None:
    packed = Channels().pack(W, {})
    assert packed["values"].tolist() == W[:, [1, 3]].tolist()
    assert packed["indices"].tolist() == [1, 3]
    assert Channels().measure(packed, (4, 4), {}) == {"kept": 2}
    np.testing.assert_array_equal(Channels().stored_mask(W, {}).any(axis=0), [False, True, False, True])
