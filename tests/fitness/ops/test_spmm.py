"""spmm passes the contract and has the layouts of the design."""

from __future__ import annotations

import pytest

from fitness.ops.spmm import Spmm
from fitness.ops.testing import OpContract


class TestSpmm(OpContract):
    op = Spmm()


@pytest.mark.parametrize(("kind", "layout"), [("nm", "col"), ("block", "row"), ("random", "row")])
def test_default_layouts(kind: str, layout: str) -> None:
    assert Spmm().default_layouts(kind) == (layout, layout)


def test_needs_a_pattern() -> None:
    assert Spmm().sparse
