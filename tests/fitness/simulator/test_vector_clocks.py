"""Vector clocks: what barriers, mbarriers and waits order."""

from __future__ import annotations

import numpy as np

from fitness.devices.simulator.lanes import Chunk
from fitness.devices.simulator.vector_clocks import COPY, PRODUCT, VectorClocks


def clocks(blocks: int = 2, warps: int = 4, cluster: int = 1) -> VectorClocks:
    return VectorClocks(Chunk((blocks, 1, 1), (32 * warps, 1, 1), range(blocks), 16, 16, (cluster, 1, 1)))


def array(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def ordered(found: VectorClocks, viewer: int, before: int, clock: int) -> bool:
    return not found.unordered(array(viewer), array(before), array(clock))[0]


def test_warps_are_unordered_until_they_meet() -> None:
    found = clocks()
    assert not ordered(found, 1, 0, 1)
    found.blocks(np.array([True, False]))
    assert ordered(found, 1, 0, 1)
    assert not ordered(found, 1, 0, 2)  # what comes after the barrier
    assert not ordered(found, 5, 4, 1)  # the other block


def test_a_phase_orders_arrivals_before_waits_only() -> None:
    found = clocks()
    heard = found.new_barrier(2)
    found.release(array(0, 0, 1), array(0, 0, 0), heard)
    told = heard.copy()
    found.release(array(2), array(0), heard)  # arrives in the next phase
    found.acquire(array(3, 3), array(0, 0), told)
    assert ordered(found, 3, 0, 1)
    assert ordered(found, 3, 1, 1)
    assert not ordered(found, 3, 2, 1)
    assert not ordered(found, 3, 0, 2)  # done after arriving
    assert not ordered(found, 0, 3, 1)


def test_order_is_passed_on() -> None:
    """0 releases to 1, which releases to 2."""
    found = clocks()
    first, second = found.new_barrier(2), found.new_barrier(2)
    found.release(array(0), array(0), first)
    found.acquire(array(1), array(0), first)
    found.release(array(1), array(0), second)
    found.acquire(array(2), array(0), second)
    assert ordered(found, 2, 0, 1)


def test_copies_and_products_are_known_to_those_who_waited() -> None:
    found = clocks()
    heard = found.new_barrier(2)
    copy, clock = found.pseudo(COPY, 1)
    assert not ordered(found, 4, copy, clock)
    found.blocks(None)
    assert not ordered(found, 4, copy, clock)
    found.landed(copy, clock, 1, heard)
    found.acquire(array(4), array(1), heard)
    assert ordered(found, 4, copy, clock)
    assert not ordered(found, 5, copy, clock)
    product, clock = found.pseudo(PRODUCT, 1)
    found.finished(array(4, 5), array(1, 1), array(clock, clock))
    assert ordered(found, 5, product, clock)
    assert not ordered(found, 6, product, clock)


def test_clusters_meet_at_their_barrier() -> None:
    found = clocks(blocks=4, cluster=2)
    found.blocks(np.array([True, True, False, False]), 2)
    assert ordered(found, 4, 0, 1)
    assert not ordered(found, 12, 8, 1)
    np.testing.assert_array_equal(found.cluster_of(array(0, 7, 8, found.pseudo(COPY, 3)[0])), [0, 0, 1, 1])
