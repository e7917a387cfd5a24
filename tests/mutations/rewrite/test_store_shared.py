"""The rule `store_shared`: the contract, and what its children look like."""

from __future__ import annotations

import pytest

from fitness.kernel import parse_kernel
from fitness.task import Task
from mutations.operator import Refusal
from mutations.rewrite.store_shared import StoreShared
from mutations.testing import context, judged, seed_kernel
from tests.mutations.rewrite.kernels import SHAPES, RuleContract, assert_right, children, task_of


class TestStoreShared(RuleContract):
    rule = StoreShared
    seed = "spmm/csr_scalar"


@pytest.mark.parametrize("seed", ["gemm/dense_naive", "spmm/bsr_scalar", "spmm/nm24_scalar"])
def test_any_loop_of_one_sum_will_do(seed: str) -> None:
    assert_right(children(StoreShared(), seed)[0], task_of(seed))


@pytest.mark.parametrize("layout", ["row", "col"])
def test_operands_of_the_epilogue_follow_the_output(layout: str) -> None:
    """Bias and residual are read by the thread that stores, in either layout of Y."""
    task = Task.from_spec(
        {
            "op": "spmm",
            "shapes": SHAPES,
            "pattern": {"kind": "random", "density": 0.1},
            "x_layout": layout,
            "y_layout": layout,
            "epilogue": ["bias", "residual", "relu"],
        }
    )
    assert_right(children(StoreShared(), "spmm/csr_scalar")[0], task)


def test_it_is_done_once() -> None:
    child = children(StoreShared(), "spmm/csr_scalar")[0]
    assert isinstance(StoreShared().propose([judged(child)], context(task_of("spmm/csr_scalar"))), Refusal)


def test_blocks_along_x_alone_have_no_other_dimension() -> None:
    kernel = seed_kernel("spmm/csr_scalar")
    flat = parse_kernel(kernel.source.replace('["BN", "BM"]', '["BN * BM"]'))
    assert isinstance(StoreShared().propose([judged(flat)], context(task_of("spmm/csr_scalar"))), Refusal)


@pytest.mark.parametrize("seed", ["gemm/dense_tiled", "spmm/csr_rows", "gemm/fused_mma"])
def test_kernels_of_another_form_stay(seed: str) -> None:
    assert not children(StoreShared(), seed)
