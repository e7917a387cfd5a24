"""Proposals in threads; what they need of pool and archive is done by the thread that waits for them.

SQLite connections and the pool belong to one thread. So proposals put what they want into one inbox, and
`Desk.run`, which is called from the thread of the loop, serves it until all proposals are done. Kernels that
are waiting to be judged are judged together.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome
from mutations.llm.access import Place
from mutations.llm.recording import Call
from mutations.operator import Proposal, Refusal

_LOOK_UP_S = 0.5
T = TypeVar("T")
Propose = Callable[[], Proposal | Refusal]
Judge = Callable[[Sequence[Kernel], Gate], Sequence[Outcome]]


@dataclass(frozen=True)
class _Judging:
    """A kernel that waits for its verdict."""

    kernel: Kernel
    depth: Gate
    reply: Future[Outcome]


@dataclass(frozen=True)
class _Done:
    """A proposal that has come to its end."""

    n: int
    result: Proposal | Refusal | Exception


_Item = _Judging | _Done | Callable[[], None]


class StoppedError(RuntimeError):
    """Raised in a proposal whose run has been stopped."""


class Desk:
    """Runs proposals and serves them. Implements `mutations.llm.access.Services`.

    Args:
        concurrency: proposals at once.
        judge: verdicts on several kernels, in order.
        search: texts of the archive for some words.
        say: archive an event and say it aloud.
        keep: archive a call.
        stop: set when the run is to end at once.
        trace: of a kernel's line, thread and block; called in the proposal's thread.
    """

    def __init__(
        self,
        concurrency: int,
        judge: Judge,
        search: Callable[[str], Sequence[str]],
        say: Callable[[str, Mapping[str, object]], None],
        keep: Callable[[Call], None],
        stop: threading.Event,
        trace: Callable[[Kernel, int, Place, Place], str],
    ) -> None:
        self._concurrency = concurrency
        self._judge, self._search, self._say, self._keep = judge, search, say, keep
        self._stop = stop
        self._trace = trace
        self._inbox: queue.SimpleQueue[_Item] = queue.SimpleQueue()

    # for proposals, in their threads

    def judge(self, kernel: Kernel, depth: Gate) -> Outcome:
        """Gates up to `depth` on a kernel."""
        item = _Judging(kernel, depth, Future())
        self._inbox.put(item)
        return self._await(item.reply)

    def trace(self, kernel: Kernel, line: int, thread: Place, block: Place) -> str:
        """What a thread did at a line; it takes a process of its own, so the loop's thread is not waited for."""
        return self._trace(kernel, line, thread, block)

    def search_archive(self, words: str) -> Sequence[str]:
        """Texts of the archive."""
        reply: Future[Sequence[str]] = Future()
        self._inbox.put(lambda: reply.set_result(self._search(words)))
        return self._await(reply)

    def event(self, kind: str, data: dict[str, object]) -> None:
        """Say something aloud."""
        self._inbox.put(lambda: self._say(kind, data))

    def record(self, call: Call) -> None:
        """Keep a call."""
        self._inbox.put(lambda: self._keep(call))

    def _await(self, reply: Future[T]) -> T:
        while True:
            try:
                return reply.result(timeout=_LOOK_UP_S)
            except TimeoutError:
                if self._stop.is_set():
                    raise StoppedError from None

    # for the loop, in its thread

    def run(
        self, proposals: Mapping[int, Propose], done: Callable[[], None], check: Callable[[], None] = lambda: None
    ) -> dict[int, Proposal | Refusal]:
        """What every proposal came to, by its number.

        Args:
            proposals: n -> the work; run in threads, at most `concurrency` at once, started in order.
            done: called, in this thread, as each is finished.
            check: called, in this thread, now and then; what it raises ends everything (time is up).

        Raises:
            Exception: what a proposal raised (a bug, or a replay that has come apart); the others are stopped.
        """
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for n in proposals:
            waiting.put(n)
        for _ in range(min(self._concurrency, len(proposals))):
            threading.Thread(target=self._work, args=(waiting, proposals), daemon=True).start()
        results: dict[int, Proposal | Refusal] = {}
        with contextlib.ExitStack() as ended_early:
            ended_early.callback(self._stop.set)
            while len(results) < len(proposals):
                check()
                for finished in self._serve():
                    if isinstance(finished.result, Exception):
                        raise finished.result
                    results[finished.n] = finished.result
                    done()
            ended_early.pop_all()
        return results

    def _work(self, waiting: queue.SimpleQueue[int], proposals: Mapping[int, Propose]) -> None:
        while not self._stop.is_set():
            try:
                n = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                self._inbox.put(_Done(n, proposals[n]()))
            except StoppedError:
                return
            except Exception as error:  # noqa: BLE001 - carried to the loop's thread and raised there
                self._inbox.put(_Done(n, error))

    def _serve(self) -> list[_Done]:
        """Do what is in the inbox, waiting a little for something; gives the proposals that are finished."""
        try:
            items = [self._inbox.get(timeout=_LOOK_UP_S)]
        except queue.Empty:
            return []
        while not self._inbox.empty():
            items.append(self._inbox.get())
        for item in items:
            if callable(item):
                item()
        judgings = [item for item in items if isinstance(item, _Judging)]
        for depth in sorted({item.depth for item in judgings}):
            batch = [item for item in judgings if item.depth == depth]
            for item, outcome in zip(batch, self._judge([item.kernel for item in batch], depth), strict=True):
                item.reply.set_result(outcome)
        return [item for item in items if isinstance(item, _Done)]
