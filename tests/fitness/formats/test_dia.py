"""Diagonals: the contract, and agreement with SciPy, which counts along columns instead."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse

from fitness.formats.dia import Dia
from fitness.formats.testing import FormatContract


class TestDia(FormatContract):
    storage = Dia()
    pattern = {"kind": "random", "density": 0.02}  # noqa: RUF012


class TestDiaBfloat16(TestDia):
    dtype = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("shape", [(7, 7), (5, 9), (9, 4)])
def test_diagonals_are_those_of_scipy(shape: tuple[int, int]) -> None:
    w = np.diag(np.arange(1.0, 10), 1)[: shape[0], : shape[1]].astype(np.float32)
    w += np.eye(*shape, -2, dtype=np.float32)
    packed, scipys = Dia().pack(w, {"order": "diagonal"}), scipy.sparse.dia_array(w)
    assert packed["offsets"].tolist() == [-2, 1] == scipys.offsets.tolist()
    for values, along, offset in zip(packed["values"], scipys.data, scipys.offsets, strict=True):
        for row in range(shape[0]):
            column = row + int(offset)
            inside = 0 <= column < min(shape[1], len(along))
            assert values[row] == (along[column] if inside else 0)


def test_orders_are_each_others_transpose() -> None:
    w = np.tri(6, dtype=np.float32)
    by_diagonal, by_row = (Dia().pack(w, {"order": order})["values"] for order in ("diagonal", "row"))
    np.testing.assert_array_equal(by_diagonal, by_row.T)
    assert by_row.flags.c_contiguous


def test_whole_diagonals_are_stored() -> None:
    w = np.zeros((4, 6), np.float32)
    w[2, 3] = 1
    assert np.argwhere(Dia().stored_mask(w, {"order": "row"})).tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
