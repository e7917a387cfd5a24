"""The rule `double_buffer`: the contract, and what its children look like."""

from __future__ import annotations

import pytest

from fitness.kernel import parse_kernel
from mutations.operator import Refusal
from mutations.rewrite.double_buffer import DoubleBuffer
from mutations.testing import context, judged, seed_kernel
from tests.mutations.rewrite.kernels import RuleContract, children, task_of

SEED = "spmm/nm24_shared"


class TestDoubleBuffer(RuleContract):
    rule = DoubleBuffer
    seed = SEED


def test_words_copied_as_they_are_become_asynchronous() -> None:
    """W and X are; of the metadata each row takes its half of a word, which a copy cannot do."""
    child = children(DoubleBuffer(), SEED)[0]
    assert child.source.count("evo::cp_async4_zfill(") == 2
    assert "pair" not in child.source
    assert "meta[word] >> (m / 8 % 2 * 16)" in child.source


def test_twice_the_memory_is_asked_for() -> None:
    parent, child = seed_kernel(SEED), children(DoubleBuffer(), SEED)[0]
    old, new = (k.header.launches[0].shared.evaluate(k.params) for k in (parent, child))
    assert new == 2 * (-(-old // 16) * 16)


def refused(old: str, new: str) -> bool:
    kernel = seed_kernel(SEED)
    assert old in kernel.source
    changed = parse_kernel(kernel.source.replace(old, new, 1))
    return isinstance(DoubleBuffer().propose([judged(changed)], context(task_of(SEED))), Refusal)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # what is loaded depends on what was computed from the tile before
        ("const int r = c / (BK / 4), k = k0", "const int r = c / (BK / 4), k = k0 + int(acc[0][0]) * 0"),
        # the tile is used behind the loop
        ("y[n * ldy + m] = ", "y[n * ldy + m] = w_tile[0] * __half(0.0f) + "),
        # the loop may be left between the barriers
        (
            "        for (int k = 0; k < BK; k += 16) {",
            "        if (k0 > K) break;\n        for (int k = 0; k < BK; k += 16) {",
        ),
        # a third barrier: more than one stage
        (
            "        for (int k = 0; k < BK; k += 16) {",
            "        __syncthreads();\n        for (int k = 0; k < BK; k += 16) {",
        ),
    ],
    ids=["carried", "used behind", "left early", "third barrier"],
)
def test_loops_of_another_form_stay(old: str, new: str) -> None:
    assert not refused("// Row strides", "// row strides")
    assert refused(old, new)


@pytest.mark.parametrize("seed", ["gemm/dense_tiled", "gemm/fused_tiled", "gemm/fused_mma", "spmm/csr_scalar"])
def test_kernels_of_another_form_stay(seed: str) -> None:
    assert not children(DoubleBuffer(), seed)


def test_it_is_done_once() -> None:
    child = children(DoubleBuffer(), SEED)[0]
    assert isinstance(DoubleBuffer().propose([judged(child)], context(task_of(SEED))), Refusal)
