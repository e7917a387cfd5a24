"""The rule `cache_hints`: the contract, and what its children look like."""

from __future__ import annotations

from mutations.rewrite.cache_hints import CacheHints
from tests.mutations.rewrite.kernels import RuleContract, children


class TestCacheHints(RuleContract):
    rule = CacheHints
    seed = "spmm/csr_scalar"


def test_every_load_of_one_operand_gets_the_hint() -> None:
    sources = [child.source for child in children(CacheHints(), "spmm/csr_scalar")]
    pointers = [source for source in sources if "__ldcs(&indptr[m])" in source]
    assert len(pointers) == 1
    assert "__ldcs(&indptr[m + 1])" in pointers[0]
    assert "__ldcs(&values" not in pointers[0]


def test_stores_become_calls() -> None:
    sources = [child.source for child in children(CacheHints(), "spmm/csr_scalar")]
    assert any("__stcs(&y[at], evo::Epilogue{bias, residual, scale}(sum, m, at));" in source for source in sources)
