"""The rule `vector_loads`: the contract, and what its children look like."""

from __future__ import annotations

from mutations.rewrite.vector_loads import VectorLoads
from tests.mutations.rewrite.kernels import RuleContract, assert_right, children, task_of


class TestVectorLoads(RuleContract):
    rule = VectorLoads
    seed = "gemm/dense_naive"


def test_heads_and_tails_are_read_one_by_one() -> None:
    child = children(VectorLoads(), "spmm/csr_scalar")[0]
    assert child.source.count("evo::load_vector<") == 2
    assert_right(child, task_of("spmm/csr_scalar"))


def test_the_prelude_with_vectors_is_included() -> None:
    assert '#include "task.cuh"' in children(VectorLoads(), "gemm/dense_naive")[0].source
