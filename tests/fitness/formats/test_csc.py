"""CSC: the contract and agreement with SciPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import scipy.sparse

from fitness.formats.csc import Csc
from fitness.formats.testing import FormatContract


class TestCsc(FormatContract):
    storage = Csc()
    pattern = {"kind": "random", "density": 0.1}  # noqa: RUF012


class TestCscBfloat16(TestCsc):
    dtype = np.dtype(ml_dtypes.bfloat16)


def test_it_is_what_scipy_calls_csc() -> None:
    w = np.array([[0, 3, 0, 4], [0, 0, 0, 0], [5, 0, 0, 6]], np.float32)
    packed, scipys = Csc().pack(w, {}), scipy.sparse.csc_array(w)
    np.testing.assert_array_equal(packed["values"], scipys.data)
    np.testing.assert_array_equal(packed["indices"], scipys.indices)
    np.testing.assert_array_equal(packed["indptr"], scipys.indptr)
