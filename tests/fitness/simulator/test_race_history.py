"""Accesses that the race detector puts off, while every granule is one lane's alone, against judging each at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator import races
from fitness.devices.simulator.faults import Findings
from fitness.devices.simulator.lanes import Chunk, Context
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.race_history import History
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.sites import Site

BLOCKS, THREADS, CELLS = 3, 64, 64
Lanes = NDArray[np.int64]
Step = Callable[[races.Races, Chunk, dict[str, Any]], None]


def sites() -> list[Site]:
    """Narrow and wide reads, writes and atomics of shared memory and of a buffer."""
    found: list[Site] = []
    for space in ("shared", "global"):
        for verb in ("reads", "writes", "updates"):
            for count in (1, 2, 4):
                found.append(Site(len(found), verb, space, np.uint32, count, 0, len(found) + 1, "an access"))
                found[-1].atomic = verb == "updates"
    return found


def access(site: int, lanes: Lanes, cells: Lanes) -> Step:
    """Lanes touch a cell each, of the size of the site's."""

    def run(detector: races.Races, chunk: Chunk, held: dict[str, Any]) -> None:
        chosen = held["sites"][site]
        context = Context(chunk, lanes)
        if chosen.space == "shared":
            detector.shared(context, cells * chosen.bytes, chosen, chosen.bytes)
        else:
            offsets = (cells + CELLS * (chunk.blocks[context.slot] % held["parts"])) * chosen.bytes
            detector.global_(context, held["region"], offsets, chosen, chosen.bytes)

    return run


def barrier(random: np.random.Generator) -> Step:
    """Of all blocks, of some, or of some warps."""
    what = random.random()
    slots, warps = random.random(BLOCKS) < 0.5, np.flatnonzero(random.random(BLOCKS * THREADS // 32) < 0.5)

    def run(detector: races.Races, _chunk: Chunk, _held: dict[str, Any]) -> None:
        if what < 0.3:
            detector.warp_barrier(warps)
        else:
            detector.block_barrier(None if what < 0.75 else slots)

    return run


def steps(random: np.random.Generator, count: int) -> list[Step]:
    """Accesses that are mostly each lane's own, and barriers."""
    found: list[Step] = []
    while len(found) < count:
        if random.random() < 0.15:
            found.append(barrier(random))
            continue
        lanes = np.flatnonzero(random.random(BLOCKS * THREADS) < random.choice([0.2, 1.0]))
        cells = lanes % THREADS
        if random.random() < 0.08:
            cells = random.permutation(cells) if random.random() < 0.5 else cells // 2
        verb = random.choice(3, p=[0.48, 0.48, 0.04])
        place = int(9 * (random.random() < 0.3) + 3 * verb + random.choice(3, p=[0.97, 0.02, 0.01]))
        if lanes.size:
            found.append(access(place, lanes, cells))
    return found


def judged(made: list[Step], parts: int = 2 * BLOCKS) -> tuple[list[Any], list[Any]]:
    """What the detector finds, and which lanes wrote one place in each step; `parts` blocks have one of the buffer."""
    findings, listed = Findings(limit=1000), sites()
    region = Region("y", 1 << 46, np.zeros(2 * BLOCKS * CELLS * 16, np.uint8), "output", np.dtype(np.uint32))
    detector = races.Races(listed, findings, Memory([region], findings, track=False), fenced=False, vector=False)
    collided: list[Any] = []
    for start in (0, BLOCKS):
        chunk = Chunk((2 * BLOCKS, 1, 1), (THREADS, 1, 1), range(start, start + BLOCKS), CELLS * 16, 16)
        detector.begin(chunk)
        for step in made:
            detector.collided = None
            step(detector, chunk, {"sites": listed, "region": region, "parts": parts})
            collided.append(None if detector.collided is None else detector.collided.tolist())
    return findings.items, collided


def never_put_off(granules: int, buffer: str, **_: bool) -> History:
    """A history that judges every access at once."""
    return History(granules, buffer, exclusive=False)


@pytest.mark.parametrize("limit", [3, 512])
@pytest.mark.parametrize("seed", range(60))
def test_putting_accesses_off_changes_nothing(seed: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, parts = steps(np.random.default_rng(seed), 12 + seed), BLOCKS * (1 + seed % 2)
    monkeypatch.setattr(races, "_LOG_LIMIT", limit)
    put_off = judged(made, parts)
    monkeypatch.setattr(races, "History", never_put_off)
    assert judged(made, parts) == put_off


def test_the_random_accesses_hold_races_and_quiet_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would compare nothing."""
    found = [judged(steps(np.random.default_rng(seed), 12 + seed)) for seed in range(60)]
    assert sum(not findings for findings, _ in found) >= 3
    assert sum(len(findings) > 3 for findings, _ in found) >= 20
    calls: list[Any] = []
    monkeypatch.setattr(races.Races, "_access", lambda *arguments: calls.append(arguments))
    for seed in range(60):
        judged(steps(np.random.default_rng(seed), 12 + seed))
    assert 100 < len(calls) < 0.8 * 2 * sum(12 + seed for seed in range(60))
