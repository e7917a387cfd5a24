"""Groups that split and meet again: their registers, and what is not copied because neither part changed it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fitness.devices.simulator.groups import merge
from fitness.devices.simulator.lanes import Chunk, Context, gather

LANES = 64


def whole() -> Context:
    return Chunk((1, 1, 1), (LANES, 1, 1), [0], 16, 16).all


def halves(context: Context, seed: int = 0) -> tuple[Context, Context]:
    return context.split(np.random.default_rng(seed).random(context.n) < 0.4)


def test_what_neither_part_changes_is_the_parents_array_itself() -> None:
    context = whole()
    kept, changed, uniform = np.arange(LANES), np.arange(LANES, dtype=np.float32), np.uint32(7)
    yes, no = halves(context)
    ours, theirs = yes.draw((kept, changed, uniform, False)), no.draw((kept, changed, uniform, False))
    ours = (ours[0], ours[1] + 1, *ours[2:])
    met, values = merge([(yes, ours), (no, theirs)])
    assert met is context
    assert values[0] is kept
    assert values[2] is uniform
    assert values[3] is False
    assert yes.where is not None
    want = changed.copy()
    want[yes.where] += 1
    np.testing.assert_array_equal(values[1], want)


def test_parts_of_two_splits_are_put_together_anew() -> None:
    """The same contexts (splits are remembered), but values of another time."""
    context = whole()
    before, after = np.arange(LANES), np.arange(LANES) * 10
    yes, no = halves(context)
    early = yes.draw((before,))
    no.draw((before,))
    late = no.draw((after,))
    _, (value,) = merge([(yes, early), (no, late)])
    assert yes.where is not None
    assert no.where is not None
    want = np.empty(LANES, dtype=before.dtype)
    want[yes.where], want[no.where] = before[yes.where], after[no.where]
    np.testing.assert_array_equal(value, want)


def test_registers_that_change_places_keep_their_values() -> None:
    context = whole()
    a, b = np.arange(LANES), -np.arange(LANES)
    yes, no = halves(context)
    ours, theirs = yes.draw((a, b)), no.draw((a, b))
    _, values = merge([(yes, ours[::-1]), (no, theirs)])  # swapped in one part only
    assert yes.where is not None
    first, second = a.copy(), b.copy()
    first[yes.where], second[yes.where] = b[yes.where], a[yes.where]
    np.testing.assert_array_equal(values[0], first)
    np.testing.assert_array_equal(values[1], second)


def test_random_splits_and_meetings() -> None:
    """Nested splits, some registers changed on the way, against arrays that are changed in place."""
    random = np.random.default_rng(5)
    for _ in range(200):
        context = whole()
        values: tuple[Any, ...] = tuple(random.integers(0, 99, LANES) for _ in range(4))
        want = [value.copy() for value in values]

        def descend(context: Context, values: tuple[Any, ...], want: list[Any], depth: int) -> tuple[Any, ...]:
            lanes = context.lanes
            held = list(values)
            for place in np.flatnonzero(random.random(4) < 0.3):
                held[place] = held[place] + 1
                want[place][lanes] += 1
            taken = random.random(context.n) < 0.5
            if depth == 0 or taken.all() or not taken.any():
                return tuple(held)
            parts = context.split(taken)
            inner = [(part, descend(part, part.draw(tuple(held)), want, depth - 1)) for part in parts]
            met, joined = merge(inner)
            assert met is context
            return joined

        got = descend(context, values, want, 4)
        for mine, theirs in zip(got, want, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_gather_leaves_uniform_values_alone() -> None:
    array, scalar = np.arange(5), np.float32(2)
    found = gather((array, scalar, False), np.array([3, 1]))
    np.testing.assert_array_equal(found[0], [3, 1])
    assert found[1] is scalar
    assert found[2] is False
