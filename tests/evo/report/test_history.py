"""Archive -> what the plot shows."""

from __future__ import annotations

import dataclasses

import pytest

from evo.archive import Archive
from evo.errors import EvoError
from evo.report import history
from fitness.outcome import Gate
from mutations.operator import Candidate, Plan
from tests.evo import archives


@pytest.fixture
def archive() -> Archive:
    return Archive.memory()


def test_speedups_are_geometric_means_over_the_shapes(archive: Archive) -> None:
    found = history.history_of(archive, archives.fill(archive))
    assert [g.number for g in found.generations] == [0, 1, 2]
    # baseline 16, 32: seeds 64, 128 and 16, 16; children 8, 16 and 8, 8
    assert found.generations[0].best == pytest.approx(2**0.5)
    assert found.generations[1].best == pytest.approx(2.0)
    assert found.generations[2].best == pytest.approx(8**0.5)
    assert found.generations[1].judged == 2
    assert found.generations[1].valid == 1
    assert found.floor_speedup == pytest.approx(4.0)


def test_names_what_is_shown(archive: Archive) -> None:
    found = history.history_of(archive, archives.fill(archive))
    assert found.title == "spmm 2:4 float16 4096x4096, N = 16, 256, H200"
    assert found.baseline == "gemm/dense_mma_pipelined"
    assert found.clock == "modelled"
    assert [(seed.label, round(seed.speedup, 3)) for seed in found.seeds] == [("scalar", 0.25), ("mma", 1.414)]


def test_a_run_without_baseline_cannot_be_plotted(archive: Archive) -> None:
    run = archive.add_run(dataclasses.replace(archives.fill(archive), name="early"))
    with pytest.raises(EvoError, match="ended before its baseline was timed; resume it"):
        history.history_of(archive, run)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["spmm/nm24_mma", "spmm/nm24_mma_sp"], ["mma", "mma_sp"]),
        (["spmm/nm24_mma"], ["nm24_mma"]),
        (["a_x", "b_y"], ["a_x", "b_y"]),
        (["own/k.cu", "own/k_2.cu"], ["k", "k_2"]),
        ([], []),
    ],
)
def test_short_names(names: list[str], short: list[str]) -> None:
    assert history.short_names(names) == short


@pytest.mark.parametrize(
    ("pattern", "text"), [(None, "dense"), ({"kind": "nm", "n": 1, "m": 4}, "1:4"), ({"kind": "dense"}, "dense")]
)
def test_pattern_text(pattern: dict[str, object] | None, text: str) -> None:
    assert history.pattern_text(pattern) == text


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([{"M": 64, "K": 32, "N": 8}], "64x32, N = 8"),
        ([{"M": 64, "K": 32, "N": 8}, {"M": 64, "K": 64, "N": 8}], "2 shapes"),
        ([{"M": 4096, "K": 4096, "N": 2**n} for n in range(9)], "9 shapes"),
    ],
)
def test_shapes_text(shapes: list[dict[str, int]], text: str) -> None:
    assert history.shapes_text(shapes) == text


def test_a_hopeless_candidate_is_no_point_of_the_plot(archive: Archive) -> None:
    run = archives.fill(archive)
    for n, stage in ((6, Gate.TIMING), (7, Gate.TIMING_SCREEN)):
        child = Candidate(Plan(n, 3, 0, "tune", (5,)), archives.kernel(f"k{n}"), "slower")
        archive.add_entries(run.id, [child])
        archive.add_outcome(run.id, n, dataclasses.replace(archives.timed(f"k{n}", 32.0, 64.0), stage=stage))
    last = history.history_of(archive, run).generations[-1]
    assert (last.judged, last.valid) == (2, 1)
    assert last.median == pytest.approx(0.5)
