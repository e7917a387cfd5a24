"""Both representations of a mask hold the same matrix and give the same strips."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fitness.matrices.mask import Mask, Strip


def mask_of(bits: NDArray[np.bool_], *, as_bits: bool | None = None) -> Mask:
    compressed = csr_array(bits)
    return Mask.from_csr((bits.shape[0], bits.shape[1]), compressed.indptr, compressed.indices, bits=as_bits)


def dense_of(strips: list[Strip], shape: tuple[int, int]) -> NDArray[np.bool_]:
    made = np.zeros(shape, np.bool_)
    for strip in strips:
        row, column = strip.coordinates()
        assert (np.diff(row * strip.columns + column) > 0).all()
        made[strip.first + row, column] = True
    return made


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 300), st.integers(1, 90), st.sampled_from([0.0, 0.02, 0.3, 1.0]), st.integers(0, 99))
def test_every_representation_gives_the_matrix_back(rows: int, columns: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = rng.random((rows, columns)) < density
    order, places = rng.permutation(rows), rng.permutation(columns)
    moved = np.zeros_like(bits)
    moved[:, places] = bits[order]
    for as_bits in (False, True, None):
        mask = mask_of(bits, as_bits=as_bits)
        assert mask.nnz == bits.sum()
        np.testing.assert_array_equal(mask.row_counts, bits.sum(axis=1))
        np.testing.assert_array_equal(mask.column_counts, bits.sum(axis=0))
        np.testing.assert_array_equal(dense_of(list(mask.strips()), bits.shape), bits)
        np.testing.assert_array_equal(dense_of(list(mask.strips(order, places)), bits.shape), moved)
        np.testing.assert_array_equal(mask.window(slice(0, rows), slice(0, columns)), bits)
        np.testing.assert_array_equal(dense_of(list(mask.transposed().strips()), bits.T.shape), bits.T)


def test_from_strips_chooses_by_density() -> None:
    few, many = np.zeros((70, 64), np.bool_), np.ones((70, 64), np.bool_)
    few[3, 5] = True
    sparse = Mask.from_strips(few.shape, (few[:64], few[64:]))
    assert sparse.bits is None
    assert [array.tolist() for array in sparse.to_csr()][1] == [5]
    assert Mask.from_strips(many.shape, (many[:1], many[1:])).bits is not None


def test_a_missing_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 rows given for a matrix of 2"):
        Mask.from_strips((2, 3), [np.ones((1, 3), np.bool_)])


def test_strips_begin_at_multiples_of_64_and_stay_small() -> None:
    rng = np.random.default_rng(1)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 2000, 5000))])
    indices = np.concatenate([np.sort(rng.choice(4000, n, replace=False)) for n in np.diff(indptr)])
    mask = Mask.from_csr((5000, 4000), indptr, indices, bits=False)
    strips = list(mask.strips())
    assert len(strips) > 2
    assert all(strip.first % 64 == 0 for strip in strips)
    assert all(strip.nnz <= 2_200_000 for strip in strips)
    assert sum(strip.nnz for strip in strips) == mask.nnz
    assert sum(strip.rows for strip in strips) == 5000
    assert sum(strip.nnz for strip in mask.strips(every=2)) < mask.nnz


def test_one_long_row_among_many_empty_ones() -> None:
    indptr = np.zeros(1_000_001, np.int64)
    indptr[7:] = 3
    mask = Mask.from_csr((1_000_000, 9), indptr, np.array([1, 4, 8]))
    row, column = next(iter(mask.strips())).coordinates()
    assert (row.tolist(), column.tolist()) == ([6, 6, 6], [1, 4, 8])
    assert mask.nnz == 3
