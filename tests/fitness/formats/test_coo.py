"""COO: the contract, both orders."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fitness.formats.coo import Coo
from fitness.formats.testing import FormatContract

W = np.array([[0, 3, 0, 4], [0, 0, 0, 0], [5, 0, 0, 6]], np.float32)


class TestCoo(FormatContract):
    storage = Coo()
    pattern = {"kind": "random", "density": 0.1}  # noqa: RUF012


class TestCooBfloat16(TestCoo):
    dtype = np.dtype(ml_dtypes.bfloat16)


def test_orders() -> None:
    by_row, by_column = (Coo().pack(W, {"order": order}) for order in ("row", "column"))
    assert by_row["values"].tolist() == [3, 4, 5, 6]
    assert by_row["rows"].tolist() == [0, 0, 2, 2]
    assert by_row["indices"].tolist() == [1, 3, 0, 3]
    assert by_column["values"].tolist() == [5, 3, 4, 6]
    assert by_column["indices"].tolist() == [0, 1, 3, 3]
