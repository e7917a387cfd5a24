"""Buffers between guard zones, and operand sets that rotate."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fitness.devices.cuda.audit import poison_words
from fitness.devices.cuda.memory import GUARD, OperandCache, Slab, layout
from fitness.devices.cuda.timing import MOST_RUNS, runs_per_sample
from fitness.devices.device import ResolvedWorkspace
from tests.fitness.devices.cuda.fake import FakeAudit, FakeCard, copy_inputs, copy_program, peek, poke


@pytest.mark.parametrize("align", [2, 16, 64, 128])
def test_buffers_are_aligned_to_what_is_promised_and_no_more(align: int) -> None:
    places, size = layout({"a": 1, "b": 1000, "c": 4097, "d": 0}, align)
    assert all(place.offset % (2 * align) == align for place in places.values())
    ordered = sorted(places.values(), key=lambda place: place.offset)
    assert ordered[0].offset >= GUARD
    assert all(b.offset - (a.offset + a.size) >= GUARD for a, b in pairwise(ordered))
    assert size - (ordered[-1].offset + ordered[-1].size) >= GUARD


def test_poison_is_nan_in_every_type_and_never_the_hardwares() -> None:
    words = poison_words(100_000, np.random.default_rng(0))
    assert np.isnan(words.view(np.float32)).all()
    assert np.isnan(words.view(np.float16)).all()
    assert np.isnan((words.view(np.uint16).astype(np.uint32) << 16).view(np.float32)).all()  # as bfloat16
    assert not np.isin(words.view(np.uint16), [0x7FFF, 0x7E00, 0xFFFF]).any()
    assert len(np.unique(words)) > 100


def slab(**changes: Any) -> Slab:
    program = copy_program(ResolvedWorkspace("S", 64, changes.get("init", "zero_once")))
    made = Slab(FakeCard(), program, copy_inputs(), 7)  # type: ignore[arg-type]
    made.place()
    return made


def test_a_clean_run_leaves_nothing_to_find() -> None:
    run = slab()
    poke(run.addresses["Y"], np.arange(100, dtype=np.float16))
    run.read()
    assert run.overrun() is None
    assert run.changed("X") is None
    assert run.changed("S") is None
    np.testing.assert_array_equal(run.output("Y"), np.arange(100, dtype=np.float16))
    assert run.written("Y").all()
    run.close()
    assert not run.card.held  # type: ignore[attr-defined]


def test_what_a_kernel_leaves_out_is_known() -> None:
    run = slab()
    poke(run.addresses["Y"], np.full(60, np.nan, np.float16))  # a NaN of its own counts as written
    run.read()
    np.testing.assert_array_equal(run.written("Y"), np.arange(100) < 60)
    assert np.isnan(run.output("Y")[60:]).all()


@pytest.mark.parametrize(("name", "offset"), [("Y", 200), ("Y", -2), ("X", 200), ("S", 64), ("Y", 2000)])
def test_writes_outside_are_found_and_placed(name: str, offset: int) -> None:
    run = slab()
    poke(run.addresses[name] + offset, np.zeros(1, np.float16))
    run.read()
    assert run.overrun() == (name, offset)


def test_written_inputs_and_dirty_workspaces_are_found() -> None:
    run = slab()
    poke(run.addresses["X"] + 10, np.array([99], np.float16))
    poke(run.addresses["S"] + 3, np.array([1], np.uint8))
    run.read()
    assert run.changed("X") in (10, 11)
    assert run.changed("S") == 3


def test_workspaces_begin_as_they_say() -> None:
    zero, poison = slab(init="zero"), slab(init="poison")
    like = np.zeros(16, np.float32)
    assert not peek(zero.addresses["S"], like).any()
    assert np.isnan(peek(poison.addresses["S"], like)).all()


def test_sets_outsize_the_cache_and_are_made_once() -> None:
    card = FakeCard()
    audit: Any = FakeAudit(card)
    cache = OperandCache(card, audit, 4096)  # type: ignore[arg-type]
    inputs = copy_inputs()
    sets = cache.get(inputs)
    assert len(sets.bases) * sets.bytes >= 5 * 4096
    assert cache.get(inputs) is sets
    for addresses in sets.addresses:
        np.testing.assert_array_equal(peek(addresses["X"], inputs.buffers["X"]), inputs.buffers["X"])
    assert len({addresses["X"] for addresses in sets.addresses}) == len(sets.bases)
    assert cache.intact(sets)


def test_a_changed_set_is_found_and_dropped() -> None:
    card = FakeCard()
    audit: Any = FakeAudit(card)
    cache = OperandCache(card, audit, 4096)  # type: ignore[arg-type]
    inputs = copy_inputs()
    sets = cache.get(inputs)
    poke(sets.addresses[3]["X"], np.array([5], np.float16))
    assert not cache.intact(sets)
    cache.drop(sets)
    assert not card.held
    assert cache.get(inputs) is not sets


def test_large_operands_have_two_sets() -> None:
    card = FakeCard()
    audit: Any = FakeAudit(card)
    assert len(OperandCache(card, audit, 16).get(copy_inputs()).bases) == 2  # type: ignore[arg-type]


def test_small_operands_have_no_more_sets_than_a_sample_has_runs() -> None:
    """A hundred nonzeros had sets by the thousand, each allocated, copied and summed up for every candidate."""
    card = FakeCard()
    audit: Any = FakeAudit(card)
    sets = OperandCache(card, audit, 50 << 20).get(copy_inputs())  # type: ignore[arg-type]
    assert len(sets.bases) == MOST_RUNS == runs_per_sample(0.1)
