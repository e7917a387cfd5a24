"""The rule `warp_reduction`: the contract, and what its children look like."""

from __future__ import annotations

import pytest

from mutations.rewrite.warp_reduction import WarpReduction
from tests.mutations.rewrite.kernels import RuleContract, assert_right, children, task_of


class TestWarpReduction(RuleContract):
    rule = WarpReduction
    seed = "spmm/csr_scalar"


def test_a_block_holds_as_many_outputs_as_fit() -> None:
    child = children(WarpReduction(), "gemm/dense_naive")[0]
    assert child.params["BM"] * child.params["BN"] == 32
    assert [extent.text for extent in child.header.launches[0].block] == ["32", "BM", "BN"]


@pytest.mark.parametrize("seed", ["gemm/dense_naive", "spmm/nm24_scalar"])
def test_loops_of_any_step(seed: str) -> None:
    assert_right(children(WarpReduction(), seed)[0], task_of(seed))


def test_kernels_with_barriers_stay() -> None:
    assert not children(WarpReduction(), "gemm/dense_tiled")
