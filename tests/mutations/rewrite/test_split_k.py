"""The rule `split_k`: the contract, and what its children look like."""

from __future__ import annotations

import pytest

from mutations.operator import Refusal
from mutations.rewrite.split_k import SplitK
from mutations.testing import context, judged
from tests.mutations.rewrite.kernels import RuleContract, assert_right, children, task_of


class TestSplitK(RuleContract):
    rule = SplitK
    seed = "gemm/dense_naive"


def test_the_header_follows() -> None:
    child = children(SplitK(), "gemm/dense_naive")[0]
    assert [launch.kernel for launch in child.header.launches] == ["gemm", "gemm_sum"]
    assert child.header.launches[0].grid[1].text == "SPLITS"
    assert child.header.workspaces[0].name == "partial"
    assert child.header.params["SPLITS"].values == (2, 3, 4, 8, 16)


@pytest.mark.parametrize("seed", ["spmm/csr_scalar", "spmm/bsr_scalar", "spmm/nm24_scalar"])
def test_sparse_kernels_split_their_nonzeros(seed: str) -> None:
    assert_right(children(SplitK(), seed)[0], task_of(seed))


def test_it_is_done_once() -> None:
    child = children(SplitK(), "gemm/dense_naive")[0]
    reply = SplitK().propose([judged(child)], context(task_of("gemm/dense_naive")))
    assert isinstance(reply, Refusal)
