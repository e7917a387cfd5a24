"""The rule `shared_staging`: the contract by warp and by block, and what its children look like."""

from __future__ import annotations

import pytest

from fitness.kernel import parse_kernel
from mutations.operator import Refusal
from mutations.rewrite.shared_staging import SharedStaging
from mutations.testing import context, judged, seed_kernel
from tests.mutations.rewrite.kernels import RuleContract, assert_right, children, task_of


class TestByWarp(RuleContract):
    rule = SharedStaging
    seed = "spmm/csr_scalar"


class TestByBlock(RuleContract):
    rule = SharedStaging
    seed = "gemm/dense_naive"


def test_a_loop_inside_another_is_staged_too() -> None:
    made = children(SharedStaging(), "spmm/bsr_scalar")
    (child,) = (child for child in made if "__shared__ in_t w_stage" in child.source)
    assert_right(child, task_of("spmm/bsr_scalar"))


def test_no_thread_leaves_before_the_last_barrier() -> None:
    made = [child for child in children(SharedStaging(), "gemm/dense_naive") if "__syncthreads" in child.source]
    assert len(made) == 6
    for child in made:
        head, _, behind = child.source.partition("for (int k_stage")
        assert "return" not in head.split("---*/")[1]
        assert "if (idle) return;" in behind


def test_warps_whose_lanes_differ_are_not_asked_for() -> None:
    kernel = seed_kernel("spmm/csr_scalar")
    narrow = kernel.with_params({"BN": 16, "BM": 4})
    reply = SharedStaging().propose([judged(narrow)], context(task_of("spmm/csr_scalar")))
    assert isinstance(reply, Refusal)


@pytest.mark.parametrize("seed", ["gemm/dense_tiled", "spmm/csr_warp", "spmm/nm24_scalar", "gemm/fused_mma"])
def test_kernels_of_another_form_stay(seed: str) -> None:
    assert not children(SharedStaging(), seed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("i < indptr[m + 1]", "i < indptr[m + 1] - int(threadIdx.x % 2)"),  # lanes would part before the barrier
        ("values[i])", "values[i] + values[i + 0 * threadIdx.x])"),
    ],
)
def test_what_differs_between_lanes_is_not_shared(old: str, new: str) -> None:
    kernel = seed_kernel("spmm/csr_scalar")
    assert old in kernel.source
    changed = parse_kernel(kernel.source.replace(old, new))
    reply = SharedStaging().propose([judged(changed)], context(task_of("spmm/csr_scalar"), tried=()))
    if "values[i + 0" in new:  # the other load of values may be staged, this one stays as it is
        assert "values[i + 0 * threadIdx.x]" in reply.kernel.source  # type: ignore[union-attr]
    else:
        assert isinstance(reply, Refusal)


def test_it_is_done_once() -> None:
    for child in children(SharedStaging(), "gemm/dense_naive"):
        assert isinstance(SharedStaging().propose([judged(child)], context(task_of("gemm/dense_naive"))), Refusal)
