"""N:M storage: the contract at several ratios, slots of sparser groups, and refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fitness.formats import FormatError
from fitness.formats.nm import Nm
from fitness.formats.testing import FormatContract


class TestNm24(FormatContract):
    storage = Nm()
    pattern = {"kind": "nm", "n": 2, "m": 4}  # noqa: RUF012
    column_step = 4
    fixed = {"ratio": "2:4"}  # noqa: RUF012


class TestNm18Float32(FormatContract):
    storage = Nm()
    pattern = {"kind": "nm", "n": 1, "m": 8}  # noqa: RUF012
    column_step = 8
    fixed = {"ratio": "1:8"}  # noqa: RUF012
    dtype = np.dtype(np.float32)


class TestNm416Bfloat16(FormatContract):
    storage = Nm()
    pattern = {"kind": "nm", "n": 4, "m": 16}  # noqa: RUF012
    column_step = 16
    fixed = {"ratio": "4:16"}  # noqa: RUF012
    dtype = np.dtype(ml_dtypes.bfloat16)


def test_slots_ascend_and_empty_ones_take_the_lowest_columns() -> None:
    w = np.array([[0, 0, 7, 9, 0, 0, 0, 5, 0, 0, 0, 0]], np.float32)
    packed = Nm().pack(w, {"ratio": "2:4", "order": "row"})
    np.testing.assert_array_equal(packed["values"], [[7, 9, 0, 5, 0, 0]])
    np.testing.assert_array_equal(packed["indices"], [[2, 3, 0, 3, 0, 1]])
    assert Nm().stored_mask(w, {"ratio": "2:4", "order": "row"}).sum() == 6


def test_a_row_that_ends_within_a_group_is_padded() -> None:
    w = np.array([[1, 0, 0, 0, 2]], np.float32)
    packed = Nm().pack(w, {"ratio": "1:4", "order": "row"})
    np.testing.assert_array_equal(packed["values"], [[1, 2]])


def test_too_many_nonzeros_are_located() -> None:
    w = np.zeros((4, 16), np.float32)
    w[2, 8:11] = 1
    with pytest.raises(FormatError, match=r"row 2, group 2 \(columns 8 to 11\) has 3 nonzeros; 2:4 allows 2"):
        Nm().pack(w, {"ratio": "2:4", "order": "row"})
    Nm().validate(w, {"ratio": "4:8", "order": "row"})
