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


def test_diagonals_cut_the_merge_path_into_equal_shares() -> None:
    w = uneven()
    packed = Csr().pack(w, NATURAL)
    ends, nnz = packed["indptr"][1:], int(packed["indptr"][-1])
    row = item = 0
    for step in range(40 + nnz):  # the path itself: the end of a row once all its nonzeros are taken, else a nonzero
        if step % 64 == 0:
            assert packed["diagonals"][step // 64] == row, step
        if row < 40 and ends[row] <= item:
            row += 1
        else:
            item += 1
    assert (row, item) == (40, nnz)
    assert packed["diagonals"][-1] == 40
    assert len(packed["diagonals"]) == -(-(40 + nnz) // 64) + 1


def test_bins_count_rows_by_length() -> None:
    w = np.zeros((5, 9), np.float32)
    w[0, :8], w[1, :4], w[2, :3], w[3, :1] = 1, 1, 1, 1
    packed = Csr().pack(w, BY_LENGTH)
    np.testing.assert_array_equal(packed["bins"], [4, 3, 2, 1] + [0] * 28)
    w[0] = 1
    expected = {"rows4": 2, "rows16": 0, "rows64": 0, "rows256": 0, "rows1024": 0, "rows4096": 0}
    assert Csr().measure(packed, w.shape, BY_LENGTH) == expected
    wide = Csr().pack(np.ones((3, 256), np.float32), BY_LENGTH)
    expected |= dict.fromkeys(("rows4", "rows16", "rows64", "rows256"), 3)
    assert Csr().measure(wide, (3, 256), BY_LENGTH) == expected


def test_clustered_rows_are_neighbours_of_their_likes() -> None:
    rng = np.random.default_rng(3)
    kinds = rng.permutation(np.repeat(np.arange(8), 6))
    w = (rng.random((8, 100)) < 0.2).astype(np.float32)[kinds]
    order = Csr().pack(w, {"order": "cluster"})["row_order"]
    assert np.count_nonzero(np.diff(kinds[order])) == 7  # each kind in one piece
