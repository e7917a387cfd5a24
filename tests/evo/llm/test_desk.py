from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from evo.llm.desk import Desk
from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome, Timed
from mutations.operator import Proposal, Refusal
from tests.evo import fakes

MAIN = threading.main_thread()


class Served:
    """What a desk was asked to do, and in which thread."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Gate]] = []
        self.threads: set[threading.Thread] = set()

    def judge(self, kernels: Sequence[Kernel], depth: Gate) -> Sequence[Outcome]:
        self.threads.add(threading.current_thread())
        self.batches.append((len(kernels), depth))
        time.sleep(0.02)
        return [Timed(depth) for _ in kernels]

    def desk(self, concurrency: int = 4) -> Desk:
        def search(words: str) -> list[str]:
            self.threads.add(threading.current_thread())
            return [words]

        return Desk(
            concurrency, self.judge, search, lambda _k, _d: None, lambda _c: None, threading.Event(), lambda *_: ""
        )


def test_everything_is_served_in_the_loops_thread_and_judged_together() -> None:
    served = Served()
    desk = served.desk(8)
    together = threading.Barrier(6)

    def propose() -> Proposal | Refusal:
        assert threading.current_thread() is not MAIN
        together.wait(timeout=10)
        outcome = desk.judge(fakes.kernel(), Gate.SMALL_RUN)
        assert desk.search_archive("x") == ["x"]
        return Refusal(outcome.kind)

    finished = []
    results = desk.run(dict.fromkeys(range(6), propose), lambda: finished.append(1))
    assert results == dict.fromkeys(range(6), Refusal("Timed"))
    assert len(finished) == 6
    assert served.threads == {MAIN}
    assert sum(count for count, _ in served.batches) == 6
    assert len(served.batches) < 6


def test_no_more_proposals_at_once_than_allowed() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def propose() -> Refusal:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        return Refusal("done")

    Served().desk(3).run(dict.fromkeys(range(9), propose), lambda: None)
    assert most[0] == 3


def test_what_a_proposal_raises_is_raised_to_the_loop_and_stops_the_others() -> None:
    desk = Served().desk(2)

    def broken() -> Refusal:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        desk.run({0: broken, 1: lambda: Refusal("x")}, lambda: None)


def test_time_ends_a_wait() -> None:
    class OutOfTime(Exception):  # noqa: N818
        pass

    def check() -> None:
        raise OutOfTime

    started = time.monotonic()
    with pytest.raises(OutOfTime):
        Served().desk().run({0: lambda: time.sleep(3) or Refusal("late")}, lambda: None, check)  # type: ignore[func-returns-value]
    assert time.monotonic() - started < 2
