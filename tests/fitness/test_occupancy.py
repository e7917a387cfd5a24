"""Occupancy against the CUDA occupancy calculator's results."""

from __future__ import annotations

import pytest

from fitness import gpu
from fitness.occupancy import OccupancyError, occupancy


@pytest.mark.parametrize(
    ("card", "threads", "registers", "shared", "blocks", "limiter"),
    [
        ("H200", 256, 32, 0, 8, "registers"),  # 64 warps exactly: registers and warps tie
        ("H200", 256, 33, 0, 6, "registers"),  # 40 registers after rounding: 51 -> 48 warps
        ("H200", 128, 16, 0, 16, "warps"),
        ("H200", 32, 16, 0, 32, "blocks"),
        ("H200", 128, 255, 0, 2, "registers"),
        ("H200", 128, 64, 227 * 1024, 1, "shared memory"),
        ("H200", 128, 32, 48 * 1024, 4, "shared memory"),  # 49 KiB each with the reserved one
        ("A100", 128, 32, 163 * 1024, 1, "shared memory"),
        ("L40S", 256, 32, 0, 6, "warps"),
        ("L40S", 32, 16, 0, 24, "blocks"),
    ],
)
def test_resident_blocks(card: str, threads: int, registers: int, shared: int, blocks: int, limiter: str) -> None:
    found = occupancy(gpu.load(card), threads=threads, registers=registers, shared_bytes=shared)
    assert (found.blocks, found.limiter) == (blocks, limiter)
    assert found.warps == blocks * -(-threads // 32)
    assert found.fraction == pytest.approx(found.warps / gpu.load(card).limits.warps_per_sm)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"threads": 2048, "registers": 32, "shared_bytes": 0}, "threads per block"),
        ({"threads": 1024, "registers": 128, "shared_bytes": 0}, "128 registers"),
        ({"threads": 32, "registers": 32, "shared_bytes": 228 * 1024}, "shared memory"),
        ({"threads": 32, "registers": 256, "shared_bytes": 0}, "registers per thread"),
    ],
)
def test_what_does_not_fit_is_named(asked: dict[str, int], word: str) -> None:
    with pytest.raises(OccupancyError, match=word):
        occupancy(gpu.load("H200"), **asked)
