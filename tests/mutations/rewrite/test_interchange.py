"""The rule `interchange`: the contract, and what its children look like."""

from __future__ import annotations

import pytest

from mutations.rewrite.interchange import Interchange
from mutations.rewrite.syntax import Code
from mutations.testing import context, seed_kernel
from tests.mutations.rewrite.kernels import RuleContract, children, task_of


class TestInterchange(RuleContract):
    rule = Interchange
    seed = "gemm/dense_tiled"


def test_heads_change_places_and_bodies_stay() -> None:
    sources = [child.source for child in children(Interchange(), "gemm/dense_tiled")]
    assert len(sources) == 2
    assert all(source.count("for (int i = 0; i < TM; ++i)") == 3 for source in sources)
    before = "for (int i = 0; i < TM; ++i)\n#pragma unroll\n        for (int j = 0; j < TN; ++j) {"
    after = "for (int j = 0; j < TN; ++j)\n#pragma unroll\n        for (int i = 0; i < TM; ++i) {"
    assert any(after in source and before not in source for source in sources)


def test_bounds_that_depend_on_the_outer_variable_keep_the_order() -> None:
    assert not children(Interchange(), "spmm/bsr_scalar")


@pytest.mark.parametrize("seed", ["csr_rows", "csr_adaptive", "csr_vector"])
def test_unrolled_sums_in_registers_stay_for_either_order_gives_the_same_code(seed: str) -> None:
    """Of 26 such pairs in csr_*, ell_rows and sell_slices at random params, NVRTC gave other code for one."""
    assert not children(Interchange(), f"spmm/{seed}")


def test_a_loop_that_is_not_unrolled_whole_changes_places() -> None:
    (child,) = children(Interchange(), "spmm/csr_merge")
    assert "        for (int other = (begin + share.r0) / steps_of(nnz); other < number; ++other)" in child.source


SUM = "sums[c] = fmaf(w[u], v[u][c], sums[c])"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("#pragma unroll", "#pragma unroll 2"),
        (SUM, "sums[c] = fmaf(values[u], v[u][c], sums[c])"),
        (SUM, "sums[c] = load(w[u], v[u][c], sums[c])"),
        (SUM, "v[u][c] = fmaf(w[u], v[u][c], sums[c])"),
    ],
    ids=["unrolled in part", "memory", "a call", "cells of both loops"],
)
def test_what_may_differ_changes_places(before: str, after: str) -> None:
    kernel, pair = seed_kernel("spmm/csr_rows"), f"#pragma unroll\n            for (int c = 0; c < VEC; ++c) {SUM};"
    assert kernel.source.count(pair) == 1
    code = Code(kernel.source.replace(pair, pair.replace(before, after)))
    assert len(list(Interchange().rewrites(kernel, code, context(task_of("spmm/csr_rows"))))) == 1
