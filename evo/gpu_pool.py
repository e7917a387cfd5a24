"""The pool for real cards: compiling and the simulator's checks on the CPUs ahead, one worker per card behind.

Gates 1 to 4 run in CPU workers, gate 4 on the simulator, which sees what a card cannot tell: reads out of bounds,
races, uninitialised values. What survives, and what the simulator cannot run, is judged on a card while the CPUs work
on the next ones. A card has a few workers that pass a lock round: one kernel is on the card at a time, and what only
needs the CPU (operands, references, comparing) goes on beside it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from evo.evaluator import never
from evo.pool import CandidateLimits, DeviceSpec, Pool
from fitness.baselines import VENDORS, fastest_names
from fitness.compile import CompilerName
from fitness.evaluate import Prepared
from fitness.kernel import Kernel
from fitness.outcome import Finding, Gate, Outcome, TimedOut, Unsupported
from fitness.task import Task

if TYPE_CHECKING:
    from fitness.baselines import BaselineTimes

CARD = "cuda"
"""Kind of device that the workers behind open."""

PER_CARD = 4
"""Worker processes of one card. They take turns on it: while one times, the others compare results on the CPU."""

_ASK_S = 0.5  # how often `stop` is asked


class GpuPool:
    """Evaluates kernels on real cards. Use as a context manager; one call at a time.

    Args:
        gpu: name of the cards' data sheet.
        cards: indices of the cards to use, as the driver counts.
        workers: CPU worker processes.
        limits: what one candidate may take.
        per_card: worker processes of each card.
        compiler: what candidates are compiled with.
    """

    def __init__(
        self,
        gpu: str,
        cards: Iterable[int],
        workers: int,
        limits: CandidateLimits | None = None,
        *,
        per_card: int = PER_CARD,
        compiler: CompilerName = "nvrtc",
    ) -> None:
        self.device = DeviceSpec(CARD, gpu, compiler=compiler)
        limits = limits or CandidateLimits()
        self._ahead = Pool(replace(self.device, kind="simulator"), workers, limits)
        self._locks = tempfile.TemporaryDirectory(prefix="evo-cards-")
        specs = [replace(self.device, visible=_visible(card), lock=f"{self._locks.name}/{card}") for card in cards]
        self._cards = tuple(Pool(spec, 1, limits) for spec in specs for _ in range(per_card))
        self._rivals: dict[str, tuple[str, ...]] = {}
        self._against: dict[str, Kernel] = {}

    def __enter__(self) -> GpuPool:
        self._ahead.__enter__()
        for card in self._cards:
            card.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers at once. Safe to call twice."""
        for pool in (self._ahead, *self._cards):
            pool.close()
        self._locks.cleanup()

    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of all workers."""
        return tuple(pid for pool in (self._ahead, *self._cards) for pid in pool.worker_pids())

    def prepare(
        self, task: Task, kernels: Iterable[tuple[int, Kernel]], *, stop: Callable[[], bool] = never
    ) -> Iterator[tuple[int, Prepared | Outcome]]:
        """Gates 1 to 3 of each (n, kernel), on the CPUs."""
        return self._ahead.prepare(task, kernels, stop=stop)

    def baselines(self, task: Task) -> tuple[BaselineTimes, ...]:
        """Times of the vendor routines that `baseline = "auto"` means, and of the task's own, on the first card.

        Raises:
            PoolError: the measurement failed.
        """
        names = dict.fromkeys((*VENDORS, *([task.baseline_routine] if task.baseline_routine else [])))
        times = self._cards[0].vendor_times(task, tuple(names))
        self._rivals[task.fingerprint] = fastest_names(times)
        return times

    def compare_with(self, task: Task, kernel: Kernel) -> None:
        """From now on confirmations of a task are interleaved with this kernel, besides the vendor routine."""
        self._against[task.fingerprint] = kernel

    def _fastest(self, task: Task) -> tuple[str, ...]:
        """The fastest vendor routine of each shape: timed once, each in a process it may break."""
        if self.device.kind != "cuda":  # a stand-in of the tests
            return ()
        if task.fingerprint not in self._rivals:
            self.baselines(task)
        return self._rivals[task.fingerprint]

    def judge(
        self,
        task: Task,
        kernels: Iterable[tuple[int, Kernel]],
        depth: Gate = Gate.TIMING,
        incumbent_us: float | None = None,
        *,
        full: bool = False,
        stop: Callable[[], bool] = never,
    ) -> Iterator[tuple[int, Outcome]]:
        """All gates up to `depth` of each (n, kernel): (n, outcome), as they complete, until `stop` says True.

        Raises:
            PoolError: see `Pool`.
        """
        rivals = self._fastest(task) if depth >= Gate.CONFIRMATION else ()
        how = _How(depth, incumbent_us, full, rivals, self._against.get(task.fingerprint), stop)
        stream = _Stream(self._ahead, self._cards, task, dict(kernels), how)
        try:
            yield from stream.results()
        finally:
            stream.close()


class _How(NamedTuple):
    """The other arguments of `judge`."""

    depth: Gate
    incumbent_us: float | None
    full: bool
    rivals: tuple[str, ...]
    against: Kernel | None
    stop: Callable[[], bool]


class _Stream:
    """One call of `judge`: a thread for the CPU workers, one for each card."""

    def __init__(
        self,
        ahead: Pool,
        cards: tuple[Pool, ...],
        task: Task,
        kernels: dict[int, Kernel],
        how: _How,
    ) -> None:
        self._ahead, self._task, self._kernels = ahead, task, kernels
        self._how = how
        self._results: queue.Queue[tuple[int, Outcome] | BaseException] = queue.Queue()
        self._survivors: queue.Queue[tuple[int, tuple[Finding, ...]] | None] = queue.Queue()
        self._stop = threading.Event()
        work: list[Callable[[], None]] = [self._look_ahead]
        work += [functools.partial(self._measure, card) for card in cards]
        self._cards = len(cards)
        self._threads = ThreadPoolExecutor(len(work))
        for each in work:
            self._threads.submit(each).add_done_callback(self._thread_ended)

    def results(self) -> Iterator[tuple[int, Outcome]]:
        """Every kernel's outcome, as they complete; raises what ended a thread early."""
        for _ in self._kernels:
            result = self._next()
            if result is None:
                return
            if isinstance(result, BaseException):
                raise result
            yield result

    def _next(self) -> tuple[int, Outcome] | BaseException | None:
        """The next result; None once it is time to stop."""
        while not self._ended():
            with contextlib.suppress(queue.Empty):
                return self._results.get(timeout=_ASK_S)
        return None

    def _ended(self) -> bool:
        return self._stop.is_set() or self._how.stop()

    def close(self) -> None:
        """End the threads; what they have in hand is given up."""
        self._stop.set()
        for _ in range(self._cards):
            self._survivors.put(None)
        self._threads.shutdown()

    def _look_ahead(self) -> None:
        kernels = self._kernels.items()
        ahead = self._ahead.judge(self._task, kernels, Gate.SMALL_RUN, None, full=self._how.full, stop=self._ended)
        for n, outcome in ahead:
            notes = go_on(outcome)
            if notes is None:
                self._results.put((n, outcome))
            else:
                self._survivors.put((n, notes))

    def _measure(self, card: Pool) -> None:
        how = self._how
        while (item := self._survivors.get()) is not None and not self._ended():
            n, notes = item
            jobs = [(n, self._kernels[n])]
            judged = card.judge(
                self._task,
                jobs,
                how.depth,
                how.incumbent_us,
                full=how.full,
                rivals=how.rivals,
                against=how.against,
                stop=self._ended,
            )
            for _, outcome in judged:
                self._results.put((n, replace(outcome, findings=(*outcome.findings, *notes))))

    def _thread_ended(self, work: Future[None]) -> None:
        """What ended a thread early is raised again in the one that waits for results."""
        error = work.exception()
        if error is not None:
            self._results.put(error)


def go_on(outcome: Outcome) -> tuple[Finding, ...] | None:
    """None if the simulator's verdict stands; else the kernel goes to a card, with notes on what was not checked."""
    if outcome.valid:
        return ()
    if outcome.stage == Gate.SMALL_RUN and isinstance(outcome, Unsupported | TimedOut):
        why = outcome.findings[0].message if outcome.findings else outcome.kind
        message = f"not checked for races and uninitialised values: the simulator cannot run it ({why})"
        return (Finding(Gate.SMALL_RUN, "not_simulated", message, severity="note"),)
    return None


def _visible(card: int) -> str:
    """CUDA_VISIBLE_DEVICES that shows one card only, by what the parent sees."""
    seen = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
    return seen[card] if card < len(seen) else str(card)
