"""Which blocks are costed."""

from __future__ import annotations

from fitness.devices.device import Dim3, ResolvedLaunch
from fitness.devices.simulator.sampling import sample_blocks


def launch(grid: Dim3, cluster: Dim3 = (1, 1, 1), cooperative: bool = False) -> ResolvedLaunch:
    return ResolvedLaunch("k", grid, (128, 1, 1), 0, (), cluster=cluster, cooperative=cooperative)


def test_sixteen_blocks_first_and_last_one_in_each_stratum() -> None:
    chosen = sample_blocks(launch((1600, 1, 1)))
    assert len(chosen) == 16
    assert (chosen[0], chosen[-1]) == (0, 1599)
    assert [block // 100 for block in chosen] == list(range(16))


def test_the_same_launch_gives_the_same_blocks_and_a_larger_one_the_same_places() -> None:
    small, large = sample_blocks(launch((100, 4, 1))), sample_blocks(launch((100, 4, 10)))
    assert small == sample_blocks(launch((100, 4, 1)))
    assert all(abs(a / 400 - b / 4000) < 0.003 for a, b in zip(small, large, strict=True))


def test_small_and_cooperative_grids_run_whole() -> None:
    assert sample_blocks(launch((3, 5, 1))) == tuple(range(15))
    assert sample_blocks(launch((100, 1, 1), cooperative=True)) == tuple(range(100))


def test_clusters_are_taken_whole() -> None:
    chosen = sample_blocks(launch((64, 8, 1), cluster=(2, 2, 1)))
    clusters: dict[tuple[int, int], int] = {}
    for block in chosen:
        where = (block % 64 // 2, block // 64 // 2)
        clusters[where] = clusters.get(where, 0) + 1
    assert set(clusters.values()) == {4}
    assert len(chosen) == 16


def test_blocks_that_exchange_data_are_taken_in_rows() -> None:
    chosen = sample_blocks(launch((128, 1, 1)), together=12)
    assert chosen == (*range(12), *range(108, 120))
    assert sample_blocks(launch((20, 1, 1)), together=12) == tuple(range(12))
    assert len(sample_blocks(launch((1000, 1, 1)), 36, together=12)) == 36
