from __future__ import annotations

from collections.abc import Iterator

import pytest

from evo.archive import Archive
from evo.errors import RefError
from evo.lineage import Lineage, blame
from fitness.kernel import Kernel, parse_kernel
from mutations.operator import Candidate, Plan
from tests.evo import archives


def with_line(kernel: Kernel, line: str, **params: int) -> Kernel:
    source = kernel.source.replace("    int m =", f"    // {line}\n    int m =")
    return parse_kernel(source, params=dict(kernel.params) | params)


@pytest.fixture
def lineage() -> Iterator[Lineage]:
    """#6 adds a line to #5; #7 adds another line to #0; #8 crosses #6 with #7 and takes both lines."""
    with Archive.memory() as archive:
        run = archives.fill(archive)
        six = with_line(archives.kernel("mma", BM=64), "six")
        seven = with_line(archives.kernel("scalar"), "seven")
        both = with_line(six, "seven", BN=16)
        for n, kernel, parents, times in (
            (6, six, (5,), (4.0, 8.0)),
            (7, seven, (0,), (64.0, 32.0)),
            (8, both, (6, 7), (4.0, 4.0)),
        ):
            archive.add_entries(run.id, [Candidate(Plan(n, 3, 0, "splice", parents), kernel, f"line {n}")])
            archive.add_outcome(run.id, n, archives.timed(str(n), *times))
        yield Lineage(archive, run)


def test_every_line_has_the_ancestor_that_introduced_it(lineage: Lineage) -> None:
    found = blame(lineage, 8)
    assert "\n".join(line.text for line in found.lines) == found.node.kernel.source.rstrip("\n")  # type: ignore[union-attr]
    origin = {line.text.strip(): line.origin for line in found.lines}
    assert origin["// six"] == 6
    assert origin["// seven"] == 7  # came with the crossover, from the second parent
    assert origin["int m = blockIdx.x * BM + threadIdx.x;"] == 1
    assert found.counts() == {1: len(found.lines) - 2, 6: 1, 7: 1}


def test_params_and_gains(lineage: Lineage) -> None:
    found = blame(lineage, 8)
    assert found.params == {"BM": (64, 5), "BN": (16, 8)}
    assert set(found.origins) == {1, 5, 6, 7, 8}
    assert found.gains == pytest.approx({5: 2**0.5, 6: 2**0.5, 7: 2.0, 8: 2**0.5})


def test_a_seed_is_all_its_own(lineage: Lineage) -> None:
    found = blame(lineage, 0)
    assert set(found.counts()) == {0}
    assert found.gains == {}


def test_a_refusal_has_nothing_to_blame(lineage: Lineage) -> None:
    with pytest.raises(RefError, match="no kernel"):
        blame(lineage, 4)
