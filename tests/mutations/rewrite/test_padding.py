"""The rule `padding`: the contract on named strides and on arrays, and what its children look like."""

from __future__ import annotations

import pytest

from fitness.kernel import Kernel, parse_kernel
from mutations.operator import Judged, Proposal, Refusal
from mutations.rewrite.double_buffer import DoubleBuffer
from mutations.rewrite.padding import Padding
from mutations.rewrite.shared_staging import SharedStaging
from mutations.testing import context, judged, seed_kernel, timed
from tests.mutations.rewrite.kernels import RuleContract, assert_right, children, code_key, task_of


class TestPadding(RuleContract):
    rule = Padding
    seed = "gemm/dense_tiled"


def staged(pad: str = "") -> Kernel:
    """A child of the rule that stages by warp: an array [warps][32]."""
    child = children(SharedStaging(), "spmm/csr_scalar")[-1]
    return parse_kernel(child.source.replace("][32];", f"][32{pad}];"), params=child.params)


class TestArrays(RuleContract):
    rule = Padding
    seed = "spmm/csr_scalar"

    def parents(self) -> tuple[Judged, ...]:
        return (judged(staged(), 0, timed(self.task(), (9.0, 40.0))),)

    def test_a_child_is_other_code_and_right(self) -> None:
        own = code_key(staged(), self.task())
        kernels = {proposal.kernel.id: proposal.kernel for proposal in self.proposals()}
        assert len(kernels) > 1
        for kernel in kernels.values():
            assert code_key(kernel, self.task()) != own
            assert_right(kernel, self.task())


def every(kernel: Kernel, seed: str) -> list[Kernel]:
    found: dict[str, Kernel] = {}
    while True:
        reply = Padding().propose([judged(kernel)], context(task_of(seed), tried=tuple(found)))
        if isinstance(reply, Refusal):
            return list(found.values())
        found[reply.kernel.id] = reply.kernel


def test_the_header_counts_the_pad() -> None:
    child = next(c for c in children(Padding(), "gemm/dense_tiled") if c.params["PAD"] == 8)
    assert "STRIDE = BK + PAD;" in child.source
    assert child.header.launches[0].shared.evaluate(child.params) == (64 + 32) * 2 * (32 + 8)
    assert all("PAD" in text for text in [child.header.launches[0].shared.text, child.header.constraints[-1].text])


def test_rows_stay_as_aligned_as_they_are() -> None:
    """Four floats are read at once from rows padded by eight floats."""
    kernel = next(iter(children(Padding(), "gemm/fused_skinny")))
    assert all(pad % 8 == 0 for pad in kernel.header.params["PAD"].values)


def test_each_of_two_strides_has_its_pad() -> None:
    names = {name for child in children(Padding(), "spmm/nm24_shared") for name in child.params if "PAD" in name}
    assert names == {"W_PAD", "X_PAD"}


def test_a_swizzle_keeps_elements_in_their_row() -> None:
    swizzled = [child for child in every(staged(), "spmm/csr_scalar") if "^" in child.source]
    assert swizzled
    for child in swizzled:
        assert_right(child, task_of("spmm/csr_scalar"))


def test_padded_rows_are_not_swizzled() -> None:
    """Their length is no power of two: the order would leave the row."""
    made = every(staged(" + 1"), "spmm/csr_scalar")
    assert made
    assert not [child for child in made if "^" in child.source]


@pytest.mark.parametrize("use", ["&values_stage[stage_warp][0]", "values_stage[stage_warp]"])
def test_arrays_of_which_a_row_is_handed_on_stay(use: str) -> None:
    kernel = staged()
    source = kernel.source.replace("__syncwarp();", f"__syncwarp(); const auto* row = {use}; (void)row;", 1)
    made = every(parse_kernel(source, params=kernel.params), "spmm/csr_scalar")
    assert all("values_stage[(BN) * (BM) * (1) / 32][32];" in child.source for child in made)


def test_a_size_the_header_does_not_tell_in_these_terms_stays() -> None:
    kernel = seed_kernel("gemm/dense_tiled")
    header, _, code = kernel.source.partition("---*/")
    odd = parse_kernel(
        header.replace("(BM + BN) * (2 * BK + 4)", "2 * BM * BK + 2 * BN * BK + 4 * BM + 4 * BN") + "---*/" + code
    )
    assert isinstance(Padding().propose([judged(odd)], context(task_of("gemm/dense_tiled"))), Refusal)


def test_code_that_counts_the_bytes_by_itself_stays() -> None:
    """Two buffers lie as far from each other as the header's size was: a pad would make them overlap."""
    child = children(DoubleBuffer(), "spmm/nm24_shared")[0]
    assert isinstance(Padding().propose([judged(child)], context(task_of("spmm/nm24_shared"))), Refusal)


@pytest.mark.parametrize("seed", ["gemm/fused_tiled", "gemm/fused_mma", "spmm/csr_scalar"])
def test_kernels_of_another_form_stay(seed: str) -> None:
    assert not children(Padding(), seed)


def test_a_pad_is_a_param_once() -> None:
    child = children(Padding(), "gemm/dense_tiled")[0]
    reply = Padding().propose([judged(child)], context(task_of("gemm/dense_tiled")))
    assert not isinstance(reply, Proposal)
