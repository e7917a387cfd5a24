"""Sectors, wavefronts and atomic runs against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.devices.simulator.coalescing import PatternCache, global_pattern, longest_runs, spread, wavefronts

LANES = np.arange(32, dtype=np.int64)
ROW = np.zeros(1, dtype=np.int64)


@pytest.mark.parametrize(
    ("offsets", "size", "expected"),
    [
        (4 * LANES, 4, 1),  # consecutive words
        (0 * LANES, 4, 1),  # broadcast
        (8 * LANES, 4, 2),  # stride 2
        (128 * LANES, 4, 32),  # one bank
        (132 * LANES, 4, 1),  # padded rows
        (8 * LANES, 8, 2),
        (16 * LANES, 16, 4),
        (128 * LANES, 16, 32),  # eight lanes of a phase on the same four banks
        (144 * LANES, 16, 4),  # rows padded by 16 bytes: the classic ldmatrix layout
        (2 * LANES, 2, 1),  # two halves share a word
        (LANES, 1, 1),
    ],
)
def test_shared_wavefronts(offsets: np.ndarray, size: int, expected: int) -> None:
    assert wavefronts(offsets[None, :], size).tolist() == [expected]


def test_phases_without_active_lanes_cost_nothing() -> None:
    active = np.zeros((1, 32), dtype=bool)
    active[0, :16] = True  # ldmatrix.x2
    assert wavefronts((144 * LANES)[None, :] % (144 * 16), 16, active).tolist() == [2]


@pytest.mark.parametrize(
    ("offsets", "size", "sectors", "ideal"),
    [
        (4 * LANES, 4, 4, 4),
        (4 * LANES + 4, 4, 5, 4),  # misaligned by one word
        (16 * LANES, 16, 16, 16),
        (2 * LANES, 2, 2, 2),
        (4096 * LANES, 2, 32, 2),  # column walk through a row-major matrix
        (0 * LANES, 4, 1, 1),
    ],
)
def test_global_sectors(offsets: np.ndarray, size: int, sectors: int, ideal: int) -> None:
    pattern = global_pattern(offsets[None, :], ROW, size)
    assert (pattern.sectors, pattern.ideal_sectors) == (sectors, ideal)


def test_wavefronts_of_global_loads_are_lines_or_bytes_whichever_is_more() -> None:
    assert global_pattern((16 * LANES)[None, :], ROW, 16).wavefronts == 4
    assert global_pattern((4096 * LANES)[None, :], ROW, 4).wavefronts == 32


def test_inactive_lanes_repeat_an_active_one() -> None:
    lanes = np.array([3, 5, 64 + 31], dtype=np.int64)
    full, active = spread(np.array([10, 20, 30], dtype=np.int64), lanes)
    assert full.shape == (2, 32)
    assert set(full[0].tolist()) == {10, 20}
    assert set(full[1].tolist()) == {30}
    assert np.flatnonzero(active).tolist() == [3, 5, 63]


def test_runs_on_one_address_count_active_lanes_only() -> None:
    lanes = np.concatenate([np.arange(6), 32 + np.arange(32)]).astype(np.int64)
    addresses = np.concatenate([[8, 8, 8, 4, 4, 0], np.arange(32) // 16]).astype(np.int64)
    assert longest_runs(addresses, lanes).tolist() == [3, 16]


def test_a_remembered_pattern_equals_a_fresh_one_and_a_changed_one_is_not_confused() -> None:
    rng = np.random.default_rng(0)
    cache = PatternCache(warps_per_block=2)
    lanes = np.arange(64, dtype=np.int64) + 3 * 64
    for _ in range(50):
        offsets = 4 * rng.integers(0, 512, 64) + 128 * int(rng.integers(0, 9))
        offsets[[0, 32, 63]] = offsets.min()  # same key fields, different middles
        pattern, base, block = cache.find(offsets, lanes, 4, shared=False)
        fresh = global_pattern(offsets.reshape(2, 32), np.zeros(2, dtype=np.int64), 4)
        assert (pattern.sectors, pattern.wavefronts) == (fresh.sectors, fresh.wavefronts)
        assert np.array_equal(pattern.unique + base // 32, fresh.unique)
        assert (block, pattern.blocks) == (3, 1)


def test_sectors_are_distinct_per_block_and_counted_per_warp() -> None:
    cache = PatternCache(warps_per_block=2)
    lanes = np.arange(128, dtype=np.int64)  # two blocks of two warps, all four on the same 128 bytes
    pattern, _, _ = cache.find(np.tile(4 * LANES, 4), lanes, 4, shared=False)
    assert (pattern.sectors, pattern.unique.size, pattern.unique_block.tolist()) == (16, 8, [0] * 4 + [1] * 4)
