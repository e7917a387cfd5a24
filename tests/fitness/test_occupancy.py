"""Occupancy against the CUDA occupancy calculator's results."""

from __future__ import annotations

import pytest

from fitness import gpu
from fitness.devices.device import Entry
from fitness.occupancy import occupancy, resident


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
    found = resident(gpu.load(card), threads=threads, registers=registers, shared_bytes=shared)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)
    assert found.warps_per_sm == blocks * -(-threads // 32)
    assert found.fraction == pytest.approx(found.warps_per_sm / gpu.load(card).limits.warps_per_sm)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "word"),
    [
        (2048, 32, 0, "threads per block"),
        (1024, 128, 0, "registers"),
        (32, 32, 228 * 1024, "shared memory"),
        (32, 256, 0, "registers per thread"),
    ],
)
def test_what_does_not_fit_is_named(threads: int, registers: int, shared: int, word: str) -> None:
    found = resident(gpu.load("H200"), threads=threads, registers=registers, shared_bytes=shared)
    assert (found.blocks_per_sm, found.limiter) == (0, word)


def test_static_and_dynamic_shared_memory_add_up() -> None:
    entry = Entry("k", (), registers=32, shared_bytes=40 * 1024, local_bytes=0, spill_store_bytes=0, spill_load_bytes=0)
    assert occupancy(gpu.load("H200"), entry, (16, 8, 1), 8 * 1024).blocks_per_sm == 4
