"""The rule `change_format`: the contract, and what its children look like."""

from __future__ import annotations

import pytest

from mutations.rewrite.change_format import ChangeFormat
from tests.mutations.rewrite.kernels import RuleContract, children


class TestChangeFormat(RuleContract):
    rule = ChangeFormat
    seed = "spmm/csr_scalar"


def test_the_header_follows() -> None:
    made = children(ChangeFormat(), "spmm/csr_scalar")
    assert sorted(str(child.format.options["order"]) for child in made) == ["column", "row"]
    for child in made:
        assert child.format.name == "ell"
        assert "W.indptr" not in child.header.launches[0].args
        assert "W.max_row" in child.header.launches[0].args
        assert "indptr" not in child.source.split("---*/")[1]


@pytest.mark.parametrize("seed", ["spmm/csr_rows", "spmm/bsr_scalar", "gemm/dense_naive"])
def test_kernels_of_another_form_stay(seed: str) -> None:
    assert not children(ChangeFormat(), seed)
