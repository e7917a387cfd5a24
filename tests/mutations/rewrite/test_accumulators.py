"""The rule `accumulators`: the contract, and what its children look like."""

from __future__ import annotations

from mutations.rewrite.accumulators import Accumulators
from tests.mutations.rewrite.kernels import RuleContract, children


class TestAccumulators(RuleContract):
    rule = Accumulators
    seed = "spmm/csr_scalar"


def test_the_tail_is_summed_too() -> None:
    source = children(Accumulators(), "gemm/dense_naive")[0].source
    assert source.count("for (; k") == 2
    assert "sum += sum_1" in source


def test_other_loops_stay() -> None:
    assert not children(Accumulators(), "gemm/fused_mma")
