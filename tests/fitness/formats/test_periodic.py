"""A repeated pattern: the contract, indices of one period only, and the order of the values."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fitness.formats.periodic import Periodic
from fitness.formats.testing import FormatContract


class TestPeriodic(FormatContract):
    storage = Periodic()
    pattern = {"kind": "periodic", "shape": [8, 32], "density": 0.2}  # noqa: RUF012
    fixed = {"columns": "32"}  # noqa: RUF012


class TestOtherPatterns(FormatContract):
    storage = Periodic()
    pattern = {"kind": "random", "density": 0.01}  # noqa: RUF012
    dtype = np.dtype(ml_dtypes.bfloat16)
    fixed = {"rows": "4"}  # noqa: RUF012


def test_indices_are_those_of_one_period() -> None:
    tile = np.zeros((2, 8), np.float32)
    tile[0, [1, 6]], tile[1, 3] = 1, 1
    w = np.tile(tile, (2, 2)) * np.arange(1, 5)[:, None]
    packed = Periodic().pack(w.astype(np.float32), {"rows": "2", "columns": "8"})
    assert packed["indptr"].tolist() == [0, 2, 3]
    assert packed["indices"].tolist() == [1, 6, 3]
    # rows 0 and 2, two slots in each of two periods; then rows 1 and 3
    assert packed["values"].tolist() == [1, 1, 1, 1, 3, 3, 3, 3, 2, 2, 4, 4]


def test_a_nonzero_in_one_period_is_stored_in_all() -> None:
    w = np.zeros((4, 20), np.float32)
    w[3, 17] = 1
    stored = Periodic().stored_mask(w, {"rows": "2", "columns": "8"})
    assert np.argwhere(stored).tolist() == [[1, 1], [1, 9], [1, 17], [3, 1], [3, 9], [3, 17]]
