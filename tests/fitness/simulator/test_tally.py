"""The tally turns executed blocks and lane addresses into LaunchCounters."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.devices.simulator import accesses
from fitness.devices.simulator import tally as module
from fitness.devices.simulator.counters import CounterError, LaunchCounters, Op
from fitness.devices.simulator.lanes import Chunk
from fitness.devices.simulator.places import Place
from fitness.devices.simulator.tally import Tally

CODE = (
    (Op("int"), Op("load_global", line=7, site=0)),
    (Op("fp32"), Op("fp32"), Op("other", issues=0.0)),
)


def tally(blocks: int = 2, warps: int = 2) -> Tally:
    sites = [("load_global", 7, 4, True), ("atomic_global", 9, 4, False), ("bulk", 3, 16, False)]
    return Tally(
        "k", CODE, sites, blocks_total=8, blocks_simulated=blocks, warps_per_block=warps, buffers={"X": 4096, "Y": 256}
    )


def lanes_of(*warps: int) -> np.ndarray:
    return np.concatenate([np.arange(32) + 32 * w for w in warps]).astype(np.int64)


def test_executions_lanes_and_traces() -> None:
    t = tally()
    t.execute(0, None, 128)
    t.execute(1, np.array([0, 3]), 40)
    t.execute(1, np.array([3]), 5)
    c = t.finish(traced=[3, 1])
    assert c.executions.tolist() == [[1, 1, 1, 1], [1, 0, 0, 2]]
    assert c.issued().tolist() == [4, 2, 2, 6]
    assert c.by_kind()["fp32"].tolist() == [2, 4]
    assert {warp: trace.tolist() for warp, trace in c.traces} == {1: [0], 3: [0, 1, 1]}
    assert c.lanes_per_instruction() == pytest.approx((2 * 128 + 2 * 45) / 14)


def test_default_traces_are_of_the_block_that_issued_most() -> None:
    t = tally()
    t.execute(0, np.array([2, 3]), 64)
    assert [warp for warp, _ in t.finish().traces] == [2, 3]


def test_footprints_per_block_and_their_union() -> None:
    t = tally()
    lanes = lanes_of(0, 1, 2, 3)
    t.global_access(0, "X", np.tile(4 * np.arange(64), 2).astype(np.int64), lanes, write=False)  # both the same 256 B
    t.global_access(0, "X", 1024 + 4 * np.arange(32, dtype=np.int64), lanes_of(2), write=False)
    c = t.finish()
    x = c.buffers["X"]
    assert (x.read_per_block, x.read_union, x.written_union) == (8 + 8 + 4, 12, 0)
    assert (c.sites[0].requests, c.sites[0].sectors, c.sites[0].lanes) == (5, 20, 160)


def test_reuse_is_counted_by_how_much_a_block_read_in_between() -> None:
    t = tally(blocks=1, warps=1)
    for start in (0, 0, 128, 256, 384, 512, 0):  # 4 sectors each; again at once, and again 20 sectors later
        t.global_access(0, "X", start + 4 * np.arange(32, dtype=np.int64), lanes_of(0), write=False)
    reuse = t.finish().buffers["X"].reuse
    assert reuse[:6] == (0, 0, 4, 0, 4, 0)
    assert sum(reuse) == 8


def test_warps_of_a_block_reading_the_same_sectors_at_once_count_as_reuse() -> None:
    t = tally(blocks=1, warps=2)
    t.global_access(0, "X", np.tile(4 * np.arange(32), 2).astype(np.int64), lanes_of(0, 1), write=False)
    assert t.finish().buffers["X"].reuse[0] == 4


def test_atomics_count_addresses_and_contention() -> None:
    t = tally()
    t.atomic(1, "Y", np.repeat(np.array([0, 4]), 16).astype(np.int64), lanes_of(0))
    t.atomic(1, "Y", np.zeros(32, dtype=np.int64), lanes_of(1))
    c = t.finish()
    y = c.buffers["Y"]
    assert (y.atomic_lanes, y.atomic_addresses, y.atomic_max) == (64, 2, 48)
    assert c.sites[1].serial == 16 + 32
    assert y.written_union == 1


def test_bulk_copies_touch_every_sector_between_start_and_end() -> None:
    t = tally()
    t.bulk_access(2, "X", np.array([48]), 64, 1, write=False)
    c = t.finish()
    assert (c.sites[2].sectors, c.sites[2].ideal_sectors, c.buffers["X"].read_union) == (3, 2, 3)


def test_added_joins_disjoint_blocks() -> None:
    a, b = tally(), tally()
    for t in (a, b):
        t.execute(0, None, 128)
        t.global_access(0, "X", 4 * np.arange(32, dtype=np.int64), lanes_of(0), write=False)
    both = a.finish().added(b.finish())
    assert both.blocks_simulated == 4
    assert both.executions.shape == (2, 8)
    assert both.sites[0].sectors == 8
    assert both.buffers["X"].read_union == 8


def test_inconsistent_counters_are_a_fault() -> None:
    c = tally().finish()
    with pytest.raises(CounterError, match="executions"):
        LaunchCounters("k", 8, 2, 2, CODE, c.executions[:, :1], c.lane_executions)
    with pytest.raises(CounterError, match="3 blocks"):
        LaunchCounters("k", 2, 3, 2, CODE, np.zeros((2, 6), dtype=np.int64), c.lane_executions)
    other = Tally("other", CODE, [], blocks_total=8, blocks_simulated=2, warps_per_block=2, buffers={}).finish()
    with pytest.raises(CounterError, match="other"):
        c.added(other)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_addresses_that_never_repeat_are_counted_together_as_one_by_one(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(misses: int) -> object:
        monkeypatch.setattr(module, "_MISSES", misses)
        rng = np.random.default_rng(7)
        t = Tally("k", CODE, [("load_shared", 7, size, False)], blocks_total=8, blocks_simulated=2, warps_per_block=2,
                  buffers={})  # fmt: skip
        for number in range(1500):
            lanes = lanes_of(0, 1, 2, 3) if number % 3 else np.sort(rng.choice(128, 50, replace=False))
            t.shared_access(0, size * rng.integers(0, 4096, lanes.size), lanes)
        return t.finish().sites[0]

    assert counted(misses=0) == counted(misses=10**9)


def random_reads_and_writes(t: Tally, rng: np.random.Generator, steps: int) -> LaunchCounters:
    """Scattered and regular accesses of several sites and buffers in random order, some of them bulk copies."""
    regular = 4 * np.arange(128, dtype=np.int64)
    for number in range(steps):
        lanes = lanes_of(0, 1, 2, 3) if number % 3 else np.sort(rng.choice(128, 50, replace=False))
        buffer = ("X", "Y")[int(rng.integers(2))]
        size = (8, 4)[int(rng.integers(2))]
        scattered = size * rng.integers(0, 4096 // size, lanes.size)
        kind = int(rng.integers(7))
        if kind < 3:
            t.global_access(kind, buffer, scattered, lanes, write=kind == 2, bytes_per_lane=size)
        elif kind < 5:
            offsets = regular[: lanes.size] + 128 * int(rng.integers(4))
            t.global_access(kind, buffer, offsets, lanes, write=False)
        elif kind == 5:
            t.bulk_access(5, buffer, np.array([64 * int(rng.integers(8))]), 256, int(rng.integers(2)), write=False)
        else:
            t.atomic(6, buffer, 4 * rng.integers(0, 64, lanes.size), lanes)
    return t.finish()


@pytest.mark.parametrize("batch", [100, 1 << 16])
def test_scattered_reads_and_writes_are_counted_together_as_one_by_one(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("load_global", "load_global", "store_global", "load_global", "load_global", "bulk", "atomic_global")
    sites = [(kind, 7, 4, number in (0, 3)) for number, kind in enumerate(kinds)]

    def counted(misses: int) -> LaunchCounters:
        monkeypatch.setattr(module, "_MISSES", misses)
        t = Tally("k", CODE, sites, blocks_total=8, blocks_simulated=2, warps_per_block=2,
                  buffers={"X": 4096, "Y": 4096})  # fmt: skip
        return random_reads_and_writes(t, np.random.default_rng(11), 600)

    monkeypatch.setattr(accesses, "BACKLOG_LANES", batch)
    together, one_by_one = counted(misses=0), counted(misses=10**9)
    assert together.sites == one_by_one.sites
    assert together.buffers == one_by_one.buffers
    assert sum(together.buffers["X"].reuse) > 0


@pytest.mark.parametrize("misses", [0, 10**9])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_shared_accesses_a_constant_number_of_words_apart_cost_the_same(
    size: int, misses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MISSES", misses)
    rng = np.random.default_rng(5)
    sites = [("load_shared", 7, size, False)] * 3
    lanes = lanes_of(0, 1)
    chunk = Chunk((1, 1, 1), (64, 1, 1), [0], 1 << 16, 0)
    apart, looked_up = (
        Tally("k", CODE, sites, blocks_total=1, blocks_simulated=1, warps_per_block=2, buffers={}) for _ in range(2)
    )
    for _ in range(40):
        place = Place((size * rng.integers(64, 1024, lanes.size)).astype(np.uint64), chunk.all)
        for site, offset in enumerate((-4 * size, 0, 37 * size)):
            looked_up.shared_at(site, place, offset, lanes, 0)
            apart.shared_access(site, place.address.astype(np.int64) + offset, lanes)
    sites_of = apart.finish().sites
    assert looked_up.finish().sites == sites_of
    assert sites_of[0].wavefronts > sites_of[0].ideal_wavefronts
