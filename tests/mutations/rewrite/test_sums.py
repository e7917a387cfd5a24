"""Loops that only sum: what counts as one, and what does not."""

from __future__ import annotations

import pytest

from mutations.rewrite.sums import dot_kernel, sum_loops
from mutations.rewrite.syntax import Code
from mutations.testing import seed_kernel


def found(body: str) -> list[str]:
    code = Code(
        f"__global__ void f(const float* a, float* y, int n) {{ float sum = 0.0f; int c = 0; {body} y[0] = sum; }}"
    )
    return [item.sum for item in sum_loops(code)]


@pytest.mark.parametrize(
    "statement", ["sum += a[i];", "sum = fmaf(a[i], a[i + 1], sum);", "{ float v = a[i]; sum += v; }"]
)
def test_sums(statement: str) -> None:
    assert found(f"for (int i = 0; i < n; ++i) {statement}") == ["sum"]


@pytest.mark.parametrize(
    "statement",
    [
        "sum *= a[i];",
        "sum = a[i] - sum;",
        "sum += a[i] * sum;",
        "{ sum += a[i]; y[i] = 0; }",
        "{ sum += a[i]; ++c; }",
        "c += 1;",
        "{ sum += a[i]; if (i > 3) break; }",
        "{ sum += a[i]; __syncthreads(); }",
    ],
)
def test_other_loops(statement: str) -> None:
    assert found(f"for (int i = 0; i < n; ++i) {statement}") == []


def test_kernels_with_one_sum_for_each_thread() -> None:
    for seed, yes in (("gemm/dense_naive", True), ("spmm/bsr_scalar", True), ("gemm/dense_tiled", False)):
        assert (dot_kernel(Code(seed_kernel(seed).source)) is not None) is yes
