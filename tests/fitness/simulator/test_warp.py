"""Warp-wide instructions against the pseudo code of the PTX ISA, lane by lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator import warp
from tests.fitness.simulator.engine import clean, kinds, launch, run

Array = NDArray[Any]

RNG = np.random.default_rng(81)
FULL = np.uint32(0xFFFFFFFF)
ALL = np.ones((3, 32), dtype=bool)


def values() -> Array:
    return RNG.integers(0, 2**32, (3, 32), dtype=np.uint64).astype(np.uint32)


def shfl_oracle(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    bval, cval, segmask = b & 31, c & 31, c >> 8 & 31
    max_lane = lane & segmask | cval & ~segmask
    min_lane = lane & segmask
    j = {"up": lane - bval, "down": lane + bval, "bfly": lane ^ bval, "idx": min_lane | bval & ~segmask}[mode]
    p = j >= max_lane if mode == "up" else j <= max_lane
    return (j if p else lane), p


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8, 4])
def test_shfl(mode: str, width: int) -> None:
    value = values()
    # What __shfl_*_sync passes: ((32 - width) << 8) | (0 for up, else 31).
    c = np.uint32((32 - width) << 8 | (0 if mode == "up" else 31))
    offsets: list[Any] = [np.uint32(n) for n in (0, 1, 3, 8, 16, 31)]
    offsets.append(RNG.integers(0, 32, (3, 32)).astype(np.uint32))
    for b in offsets:
        got, predicate, source = warp.shfl(mode, value, b, c)
        for g in range(3):
            for lane in range(32):
                offset = int(b) if np.ndim(b) == 0 else int(b[g, lane])
                j, p = shfl_oracle(mode, lane, offset, int(c))
                assert (got[g, lane], bool(predicate[g, lane]), source[g, lane]) == (value[g, j], p, j)


def test_shuffle_from_an_absent_lane_is_reported() -> None:
    _, _, source = warp.shfl("down", values(), np.uint32(16), np.uint32(31))
    active = ALL.copy()
    active[1, 20] = False
    bad = warp.unreadable(source, active, FULL)
    assert np.argwhere(bad).tolist() == [[1, 4]]
    bad = warp.unreadable(source, ALL, np.uint32(0x0000FFFF))
    assert bad[:, :16].all()  # their sources lie outside the mask


def test_lanes_named_but_absent_are_found() -> None:
    active = ALL.copy()
    active[2, 5] = False
    assert np.argwhere(warp.missing_lanes(active, FULL)).tolist() == [[2, 5]]
    assert not warp.missing_lanes(active, np.uint32(0xFFFFFFDF)).any()


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0F0F0F0F])
def test_votes(mask: int) -> None:
    predicate = RNG.random((3, 32)) < np.array([[0.5], [1.1], [-1.0]])
    active = RNG.random((3, 32)) < 0.8
    got = {m: warp.vote(m, predicate, active, np.uint32(mask)) for m in ("all", "any", "uni")}
    ballots = warp.ballot(predicate, active, np.uint32(mask))
    for g in range(3):
        taking = [lane for lane in range(32) if active[g, lane] and mask >> lane & 1]
        held = [bool(predicate[g, lane]) for lane in taking]
        assert got["all"][g, 0] == all(held)
        assert got["any"][g, 0] == any(held)
        assert got["uni"][g, 0] == (len(set(held)) <= 1)
        assert ballots[g, 0] == sum(1 << lane for lane, h in zip(taking, held, strict=True) if h)
        assert warp.activemask(active)[g, 3] == sum(1 << lane for lane in range(32) if active[g, lane])


def test_match() -> None:
    value = RNG.integers(0, 4, (3, 32)).astype(np.uint32)
    value[2] = 7
    active = RNG.random((3, 32)) < 0.9
    anyone = warp.match_any(value, active, FULL)
    everyone, agree = warp.match_all(value, active, FULL)
    for g in range(3):
        taking = [lane for lane in range(32) if active[g, lane]]
        members = sum(1 << lane for lane in taking)
        for lane in taking:
            assert anyone[g, lane] == sum(1 << m for m in taking if value[g, m] == value[g, lane])
        same = len({int(value[g, lane]) for lane in taking}) == 1
        assert bool(agree[g, 0]) == same
        assert everyone[g, 0] == (members if same else 0)


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x00FF00F0])
def test_redux(mask: int) -> None:
    value = values()
    taking = [lane for lane in range(32) if mask >> lane & 1]
    for g in range(3):
        held = [int(value[g, lane]) for lane in taking]
        signed = [v - 2**32 if v >> 31 else v for v in held]
        conjunction, union, parity = 0xFFFFFFFF, 0, 0
        for v in held:
            conjunction, union, parity = conjunction & v, union | v, parity ^ v
        want = {
            ("add", "s32"): sum(held) % 2**32,
            ("min", "u32"): min(held),
            ("max", "u32"): max(held),
            ("min", "s32"): min(signed) % 2**32,
            ("max", "s32"): max(signed) % 2**32,
            ("and", "b32"): conjunction,
            ("or", "b32"): union,
            ("xor", "b32"): parity,
        }
        for (operation, kind), result in want.items():
            assert warp.redux(operation, kind, value, ALL, np.uint32(mask))[g, 11] == result, (operation, kind)


def test_elect_takes_the_lowest_lane() -> None:
    active = ALL.copy()
    active[0, :3] = False
    leader, elected = warp.elect(active, FULL)
    assert leader[:, 0].tolist() == [3, 0, 0]
    assert elected.sum() == 3
    assert elected[0, 3]


SETS = """
extern "C" __global__ void sets(const unsigned* masks, const int* x, unsigned* y) {
  int lane = threadIdx.x % 32, v = x[threadIdx.x];
  unsigned m = masks[threadIdx.x], *out = y + 8 * threadIdx.x, leader;
  out[0] = __reduce_add_sync(m, v);
  out[1] = __reduce_max_sync(m, v);
  out[2] = __ballot_sync(m, v & 1);
  out[3] = __any_sync(m, v > 40) + 2 * __all_sync(m, v > -40);
  out[4] = __match_any_sync(m, v / 16);
  int same;
  out[5] = __match_all_sync(m, v / 64, &same) + same;
  asm volatile("{.reg .pred p; elect.sync %0|p, %1;}" : "=r"(leader) : "r"(m));
  out[6] = leader;
  out[7] = __shfl_sync(m, v, __ffs(m) - 1) + lane;
}
"""


def sets_of(random: np.random.Generator, count: int) -> list[int]:
    """Masks of the lanes of a warp that fall into `count` disjoint sets."""
    colour = random.integers(0, count, 32)
    masks = [sum(1 << lane for lane in range(32) if colour[lane] == c) for c in range(count)]
    return [masks[c] for c in colour]


def set_oracle(thread: int, mask: int, x: Array) -> list[int]:
    """What SETS gives to one thread whose set is `mask`."""
    held = {lane: int(x[thread // 32 * 32 + lane]) for lane in range(32) if mask >> lane & 1}
    every, mine = list(held.values()), int(x[thread])
    odd = sum(1 << lane for lane, v in held.items() if v & 1)
    like = sum(1 << lane for lane, v in held.items() if int(v / 16) == int(mine / 16))  # C rounds toward zero
    one = len({int(v / 64) for v in every}) == 1
    first = min(held)
    votes = any(v > 40 for v in every) + 2 * all(v > -40 for v in every)
    return [sum(every), max(every), odd, votes, like, mask + 1 if one else 0, first, held[first] + thread % 32]


@pytest.mark.parametrize("count", [1, 2, 5, 32])
def test_disjoint_sets_of_lanes_in_one_instruction(count: int) -> None:
    """As cooperative groups' labelled partitions make them: every set has its own result."""
    random = np.random.default_rng(count)
    masks = np.array([m for _ in range(3) for m in sets_of(random, count)], np.uint32)
    x = random.integers(-50, 50, 96).astype(np.int32)
    y = {"y": np.zeros((96, 8), np.uint32)}
    got = clean(run(SETS, launch("sets", 1, 96, "masks", "x", "y"), {"masks": masks, "x": x}, y)).outputs["y"]
    for thread in range(96):
        want = set_oracle(thread, int(masks[thread]), x)
        np.testing.assert_array_equal(got[thread], np.array(want, np.int64).astype(np.uint32), f"thread {thread}")


def test_masks_that_contradict_each_other_are_found() -> None:
    masks, x = np.full(32, FULL), np.zeros(32, np.int32)
    for wrong in (0x7FFFFFFF, 0xFFFFFFFE):  # the first lane does not name all that name it, or not itself
        masks[0] = wrong
        y = {"y": np.zeros((32, 8), np.uint32)}
        execution = run(SETS, launch("sets", 1, 32, "masks", "x", "y"), {"masks": masks, "x": x}, y)
        assert kinds(execution) == {"barrier_divergence"}
        assert "membermask" in execution.findings[0].message
