"""The order of a timed sample: poison, flush, event, runs, event; counts that no candidate decides."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fitness.devices.cuda.clocks import Clocks, Reading
from fitness.devices.cuda.cuda import Cuda
from fitness.devices.cuda.driver import Array
from fitness.devices.cuda.timing import GROUP_US, MOST_RUNS, Session, runs_per_sample
from fitness.timing import FULL, Plan, time_estimate
from tests.fitness.devices.cuda.fake import FakeAudit, FakeCard, peek, poke


class Scripted:
    """A subject that takes a given time and writes the number of its run."""

    def __init__(self, card: FakeCard, name: str, time_us: float, *, lazy: bool = False) -> None:
        self.card, self.name, self.time_us, self.lazy = card, name, time_us, lazy
        self.arena = (card.allocate(64 * 4), 64 * 4)
        self.count = 0

    def clear(self) -> None:
        self.card._do(lambda: self.card.log.append(f"clear {self.name}"))

    def enqueue(self, run: int) -> None:
        def work() -> None:
            self.count += 1
            self.card.log.append(self.name)
            self.card.clock_us += self.time_us
            if not (self.lazy and self.count > 5):
                poke(self.arena[0] + 4 * run, np.array([run + 1], np.int32))

        self.card._do(work)

    def outputs(self, run: int) -> Mapping[str, Array]:
        return {"Y": peek(self.arena[0] + 4 * run, np.zeros(1, np.int32))}

    def intact(self) -> bool:
        return True

    def close(self) -> None:
        self.card.free(self.arena[0])


def session(*subjects: Scripted, runs: int = 4) -> Session:
    card = subjects[0].card
    audit: Any = FakeAudit(card)
    return Session(card, audit, subjects, runs, 1.0)  # type: ignore[arg-type]


def test_counts_follow_the_reference_only() -> None:
    assert runs_per_sample(10.0) == GROUP_US / 10
    assert runs_per_sample(49.0) == 4
    assert runs_per_sample(50.0) == runs_per_sample(5000.0) == 1
    assert runs_per_sample(0.0) == runs_per_sample(0.5) == MOST_RUNS


def test_each_sample_is_poisoned_flushed_and_framed() -> None:
    card = FakeCard()
    a, b = Scripted(card, "a", 10.0), Scripted(card, "b", 30.0)
    timing = session(a, b)
    sampled = timing.sample(Plan(3, 5), np.random.default_rng(0))
    begin = card.log.index("tick") - 2
    samples = " ".join(card.log[begin:]).split("poison poison tick ")[1:]
    frames = {f"clear {n} flush event {' '.join([n] * 4)} event" for n in "ab"}
    assert {sample.strip() for sample in samples} == frames
    assert len(samples) == 2 * (3 * 5 + 1)
    assert [time_estimate(item.samples).value for item in sampled] == [10.0, 30.0]
    timing.close()
    assert card.log.count("drop") == 2


def test_outputs_of_timed_runs_are_handed_back() -> None:
    card = FakeCard()
    (sampled,) = session(Scripted(card, "a", 10.0)).sample(FULL, np.random.default_rng(0))
    assert sampled.outputs
    assert all(1 <= outputs["Y"][0] <= 4 for outputs in sampled.outputs)


def test_a_kernel_that_stops_working_leaves_poison() -> None:
    card = FakeCard()
    (sampled,) = session(Scripted(card, "a", 10.0, lazy=True)).sample(FULL, np.random.default_rng(0))
    assert all(outputs["Y"][0] == -1 for outputs in sampled.outputs)


def test_slow_kernels_get_fewer_samples_of_as_many_runs() -> None:
    card = FakeCard()
    slow = Scripted(card, "a", 50_000.0)
    (sampled,) = session(slow).sample(FULL, np.random.default_rng(0))
    assert sampled.samples.shape == (FULL.blocks, 1)
    assert slow.count == 1 + 4 * (FULL.blocks + 1)


def sharing(folder: Path) -> Cuda:
    """A device without a card, of which only the lock is used."""
    device = Cuda.__new__(Cuda)
    device._lock, device.spent, device.clocks = None, False, Clocks.__new__(Clocks)
    device.clocks._used = 0.0
    device.share(str(folder / "card"))
    return device


def test_a_turn_tells_the_next_when_the_card_worked(tmp_path: Path) -> None:
    first, second = sharing(tmp_path), sharing(tmp_path)
    with first._turn():
        assert first.clocks._used == 0.0, "a card nobody has used is cold, however new the file is"
    ended = time.time()
    with second._turn():
        assert ended - 5 < second.clocks._used <= ended


def test_a_card_that_just_worked_is_warmed_again_where_its_clock_fell(monkeypatch: pytest.MonkeyPatch) -> None:
    burnt: list[int] = []
    clocks = Clocks.__new__(Clocks)
    clocks.card, clocks.audit = SimpleNamespace(wait=lambda _: None), SimpleNamespace(burn=burnt.append)  # type: ignore[assignment]
    clocks._used = time.time()
    mhz = iter((1980, 345, 1980))
    monkeypatch.setattr(clocks, "read", lambda: Reading(next(mhz), 1980, ()))
    assert clocks.warm() == Reading(1980, 1980, ())
    assert not burnt
    assert clocks.warm() == Reading(1980, 1980, ())
    assert burnt


def test_a_turn_keeps_others_off_the_card(tmp_path: Path) -> None:
    device = sharing(tmp_path)
    with open(tmp_path / "card", "ab") as other:
        with device._turn(), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_UN)
        with device._turn():
            device.spent = True  # a kernel that never ends: the card is busy until the process is killed
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
