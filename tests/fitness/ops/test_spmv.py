"""spmv passes the contract and is spmm with one column; shapes leave N out."""

from __future__ import annotations

import pytest

from fitness.gpu import load
from fitness.ops.spmv import Spmv
from fitness.ops.testing import OpContract
from fitness.task import Task, TaskError

TABLE = {"op": "spmv", "pattern": {"kind": "random", "density": 0.1}, "dtype": "float32"}


class TestSpmv(OpContract):
    op = Spmv()


def task(**changes: object) -> Task:
    return Task.from_spec({**TABLE, "shapes": [{"M": 256, "K": 512}], **changes})


def test_shapes_have_one_column() -> None:
    made = task()
    assert made.shapes == ({"M": 256, "N": 1, "K": 512},)
    assert made.free == ()
    assert made.seeds == ("spmv/*",)
    shapes = (*made.small_shapes(), *made.full_shapes(), *made.hidden_shapes(0))
    assert {shape["N"] for shape in shapes} == {1}
    assert task(shapes=[{"M": 256, "N": 1, "K": 512}]).shapes == made.shapes


def test_other_columns_are_refused() -> None:
    with pytest.raises(TaskError, match="breaks 'N == 1' of the domain"):
        task(shapes=[{"M": 256, "N": 2, "K": 512}])
    with pytest.raises(TaskError, match="free: 'N' is not a dimension"):
        task(free=["N"])


def test_own_domains_keep_the_one_column() -> None:
    assert [c.text for c in task(domain=["M % 2 == 0"], free=["M"]).domain] == ["N == 1", "M % 2 == 0"]
    hidden = task(domain=["M % 2 == 0"], free=["M"]).hidden_shapes(1)
    assert {shape["M"] % 2 for shape in hidden} == {0}
    assert len({shape["M"] for shape in hidden}) > 1


def test_floor_is_the_matrix_once_and_both_vectors() -> None:
    made, shape = task(), {"M": 256, "N": 1, "K": 512}
    bits = made.structure.index_bits((256, 512))
    expected = made.nnz(shape) * (4 + bits / 8) + 4 * (256 + 512)
    assert made.minimal_bytes(shape) == pytest.approx(expected)
    assert made.flops(shape) == pytest.approx(2 * 0.1 * 256 * 512)
    assert made.floor_us(shape, load("H200")) > 1.0
