from __future__ import annotations

import threading
import time

import pytest

from mutations.llm.deadline import Deadline, within


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_begins_when_it_is_first_looked_at() -> None:
    clock = Clock()
    deadline = Deadline(10.0, clock=clock)
    clock.now += 500.0  # waiting for its turn
    assert deadline.left_s == 10.0
    clock.now += 4.0
    assert deadline.left_s == 6.0
    clock.now += 7.0
    assert deadline.left_s == 0.0
    assert deadline.passed


def test_a_wait_beyond_it_is_not_begun() -> None:
    started = time.monotonic()
    assert not Deadline(0.5).sleep(0.6)
    assert time.monotonic() - started < 0.3
    assert Deadline(5.0).sleep(0.01)


def test_stopping_ends_it() -> None:
    stop = threading.Event()
    deadline = Deadline(60.0, stop)
    threading.Timer(0.1, stop.set).start()
    started = time.monotonic()
    assert not deadline.sleep(30.0)
    assert time.monotonic() - started < 5
    assert deadline.passed


def test_work_is_waited_for_until_then_and_no_longer() -> None:
    assert within(Deadline(5.0), lambda: 7) == 7
    with pytest.raises(KeyError):
        within(Deadline(5.0), lambda: dict[str, int]()["x"])
    hang, started = threading.Event(), time.monotonic()
    with pytest.raises(TimeoutError):
        within(Deadline(0.2), lambda: hang.wait(10.0))
    hang.set()
    assert time.monotonic() - started < 2
