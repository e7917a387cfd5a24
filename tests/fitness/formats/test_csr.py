"""CSR: the contract, agreement with SciPy, and rows ordered by length."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse

from fitness.formats import FormatError
from fitness.formats.csr import Csr
from fitness.formats.format import Array
from fitness.formats.testing import FormatContract

NATURAL, BY_LENGTH = {"order": "natural"}, {"order": "length"}


class TestCsr(FormatContract):
    storage = Csr()
    pattern = {"kind": "random", "density": 0.1}  # noqa: RUF012


class TestCsrBfloat16(TestCsr):
    dtype = np.dtype(ml_dtypes.bfloat16)


def uneven(seed: int = 0) -> Array:
    """(40, 50) with an empty first and last row, a full one and lengths in no order."""
    rng = np.random.default_rng(seed)
    w = np.where(rng.random((40, 50)) < rng.random((40, 1)), rng.standard_normal((40, 50)), 0).astype(np.float32)
    w[[0, -1]] = 0
    w[7] = 1
    return w


def test_it_is_what_scipy_calls_csr() -> None:
    w = uneven()
    packed, scipys = Csr().pack(w, NATURAL), scipy.sparse.csr_array(w)
    np.testing.assert_array_equal(packed["values"], scipys.data)
    np.testing.assert_array_equal(packed["indices"], scipys.indices)
    np.testing.assert_array_equal(packed["indptr"], scipys.indptr)
    np.testing.assert_array_equal(packed["row_order"], np.arange(40))
    assert {packed[name].dtype for name in ("indices", "indptr", "row_order")} == {np.dtype(np.int32)}


def test_rows_by_length_descend_and_keep_their_elements() -> None:
    w = uneven()
    packed = Csr().pack(w, BY_LENGTH)
    lengths = np.diff(packed["indptr"])
    assert (np.diff(lengths) <= 0).all()
    assert packed["row_order"][0] == 7
    np.testing.assert_array_equal(lengths, np.count_nonzero(w, axis=1)[packed["row_order"]])
    np.testing.assert_array_equal(np.sort(packed["row_order"]), np.arange(40))


def test_only_nonzeros_are_stored() -> None:
    w = uneven()
    np.testing.assert_array_equal(Csr().stored_mask(w, NATURAL), w != 0)


def test_a_vector_is_refused() -> None:
    with pytest.raises(FormatError, match="1 dimensions"):
        Csr().validate(np.zeros(4, np.float32), NATURAL)
