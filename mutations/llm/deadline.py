"""One deadline per proposal: every wait of it ends by then, retries, tools and repairs included."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

T = TypeVar("T")

_LOOK_UP_S: Final = 0.5
_GRACE_S: Final = 0.1  # work that keeps to the deadline by itself says better how it ended


class Deadline:
    """A span that begins when it is first looked at, and a flag that ends every wait at once.

    So a proposal that waits for its turn (`llm.concurrency`) loses nothing of its time.

    Args:
        seconds: how long.
        stop: set to give up early (Ctrl-C); shared by all proposals of a run.
        clock: seconds, monotonic.
    """

    def __init__(
        self, seconds: float, stop: threading.Event | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end: float | None = None
        self._stop = stop or threading.Event()

    @property
    def left_s(self) -> float:
        """Seconds left, never negative; 0 once stopped."""
        now = self._clock()
        if self._end is None:
            self._end = now + self._seconds
        return 0.0 if self._stop.is_set() else max(0.0, self._end - now)

    @property
    def passed(self) -> bool:
        """True once nothing is left."""
        return self.left_s <= 0.0

    def sleep(self, seconds: float) -> bool:
        """Wait; False, without waiting, if the deadline would pass meanwhile, or if stopped."""
        if seconds >= self.left_s:
            return False
        return not self._stop.wait(seconds)


def within(deadline: Deadline, work: Callable[[], T]) -> T:
    """What `work` gives or raises, waited for until the deadline and no longer, whatever it waits for itself.

    It runs in a thread of its own, which is left behind where the deadline passes: names that are never resolved,
    handshakes and headers that drip have no limit of their own in any client.

    Raises:
        TimeoutError: the deadline passed, or was stopped.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits and raised there
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while True:
        left_s = deadline.left_s
        try:
            return done.result(timeout=min(left_s, _LOOK_UP_S) + _GRACE_S)
        except TimeoutError:
            if done.done() or left_s <= 0.0:
                raise
