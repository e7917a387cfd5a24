"""The rule `raster`: the contract, and what its children look like."""

from __future__ import annotations

import pytest

from mutations.rewrite.raster import Raster
from tests.mutations.rewrite.kernels import RuleContract, children


class TestRaster(RuleContract):
    rule = Raster
    seed = "spmm/csr_rows"


@pytest.mark.parametrize("tiles", [1, 3, 8, 13])
@pytest.mark.parametrize("others", [1, 2, 5])
@pytest.mark.parametrize("group", [2, 8])
def test_groups_visit_every_tile_once(tiles: int, others: int, group: int) -> None:
    seen = set()
    for block in range(tiles * others):
        first = block // (group * others) * group
        inside = block % (group * others)
        rows = min(tiles - first, group)
        seen.add((first + inside % rows, inside // rows))
    assert seen == {(a, b) for a in range(tiles) for b in range(others)}


def test_grids_of_another_form_stay() -> None:
    assert not children(Raster(), "gemm/fused_mma")
