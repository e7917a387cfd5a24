"""The rule `interchange`: the contract, and what its children look like."""

from __future__ import annotations

from mutations.rewrite.interchange import Interchange
from tests.mutations.rewrite.kernels import RuleContract, children


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
