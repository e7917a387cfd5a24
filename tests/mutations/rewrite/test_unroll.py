"""The rule `unroll`: the contract, and what its children look like."""

from __future__ import annotations

from mutations.rewrite.unroll import Unroll
from mutations.testing import seed_kernel
from tests.mutations.rewrite.kernels import RuleContract, children


class TestUnroll(RuleContract):
    rule = Unroll
    seed = "spmm/csr_scalar"


def test_a_factor_is_written_once() -> None:
    for child in children(Unroll(), "spmm/bsr_scalar"):
        assert child.source.count("#pragma unroll") == seed_kernel("spmm/bsr_scalar").source.count("#pragma unroll") + (
            "#pragma unroll 4\n        for (int k" in child.source
        )


def test_loops_unrolled_in_full_stay_so() -> None:
    own = seed_kernel("gemm/fused_mma").source
    for child in children(Unroll(), "gemm/fused_mma"):
        assert child.source.count("#pragma unroll\n") == own.count("#pragma unroll\n")
