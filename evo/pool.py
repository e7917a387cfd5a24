"""The pool of worker processes: hands requests to workers, watches their clocks, replaces the lost ones.

A killed or hanging worker, or an unexpected exception in one, is no verdict on a kernel: the request is tried
once more in a fresh worker. If that fails too, the candidate is left aside as `Unsupported` with a finding
"engine_defect", and the run goes on; only where one candidate after another ends so, or where the machine is
at fault (a full disk, a broken installation), `PoolError` ends it. What is the candidate's doing becomes its
outcome: a compilation that overruns its time, a compiler that dies or runs out of memory on it twice.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from evo.evaluator import never
from fitness.baselines import BaselineTimes
from fitness.compiler.cache import check_writable, prune
from fitness.evaluate import Prepared
from fitness.kernel import Kernel
from fitness.outcome import CompileFailed, Cost, Finding, Gate, LaunchFailed, Outcome, TimedOut, Unsupported
from fitness.task import Task
from fitness.worker import (
    Answer,
    BaselineRequest,
    CandidateLimits,
    DeviceSpec,
    Fault,
    JudgeRequest,
    Message,
    OutOfMemory,
    PrepareRequest,
    Ready,
    Request,
    Worker,
)

__all__ = ["CandidateLimits", "DeviceSpec", "Pool", "PoolError"]

_START_S = 300.0
_LOOK_AGAIN_S = 0.02  # how often at most the clocks of workers near a limit are read
_ATTEMPTS = 2
_ASK_S = 0.5  # how often whoever waits is asked whether to give up
_ROUTINE_S = 60.0  # one vendor routine at one shape of a task, its library loaded and its algorithms tried
_DEFECTS_IN_A_ROW = 5  # candidates the engine fails on before it is taken to be broken
_PLACE = re.compile(r'File "(.+)", line (\d+), in (\S+)')
_Result = TypeVar("_Result")


class PoolError(RuntimeError):
    """The machine is at fault, the engine fails on one candidate after another, or workers cannot be started.

    A worker's traceback, where there is one, is a note of the error.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        if traceback:
            self.add_note(f"In the worker:\n{traceback}")


@dataclass
class _Job:
    n: int
    request: Request
    attempts: int = 0
    fresh: bool = False  # in a process that nothing was evaluated in before
    limit_s: float = float("inf")  # wall seconds it may take; beyond them it is over, and not tried again


class _Seat:
    """One place of the pool: a worker, the job it has, and how much of its limits that job has used."""

    def __init__(self, spec: DeviceSpec, limits: CandidateLimits) -> None:
        self.spec, self.limits = spec, limits
        self.job: _Job | None = None
        self.start()

    def start(self) -> None:
        self.worker = Worker(self.spec, self.limits)
        self.ready, self.fresh = False, True
        self.started = time.monotonic()
        self.cpu_started = self.cpu_entered = 0.0

    def replace(self) -> str:
        """A fresh worker for the old one. Returns how the old one ended."""
        how = self.worker.kill()
        self.start()
        return how

    def give(self, job: _Job) -> None:
        job.attempts += 1
        self.job = job
        self.started = time.monotonic()
        self.cpu_started = self.cpu_entered = self.worker.cpu_s()
        self.worker.send(job.request)

    def entered(self) -> None:
        """It works on another gate now."""
        self.cpu_entered = self.worker.cpu_s()

    def left_s(self) -> float:
        """Seconds for which it certainly stays within its limits; none left: it has overrun one.

        A process uses at most one CPU second a second (its libraries have one thread), so nobody needs to look sooner.
        """
        wall_s = time.monotonic() - self.started
        if not self.ready:
            return _START_S - wall_s
        if self.job is None:
            return float("inf")
        cpu_s = self.worker.cpu_s()
        left_s = min(self.limits.hang_s - wall_s, self.limits.worker_s - (cpu_s - self.cpu_started))
        return min(left_s, self.job.limit_s - wall_s, self.compile_left_s())

    def compile_left_s(self) -> float:
        """CPU seconds its compilation may still take; infinite where it does not compile."""
        if self.worker.stage != Gate.COMPILE:
            return float("inf")
        return self.limits.compile_s - (self.worker.cpu_s() - self.cpu_entered)


class Pool:
    """Evaluates kernels in parallel worker processes. Use as a context manager; one call at a time.

    Args:
        device: what every worker opens.
        workers: how many processes.
        limits: what one candidate may take.

    Raises:
        fitness.compiler.cache.CacheError: the compile cache cannot be written.
    """

    def __init__(self, device: DeviceSpec, workers: int, limits: CandidateLimits | None = None) -> None:
        if workers < 1:
            raise ValueError(f"workers = {workers}; at least 1")
        check_writable()
        prune()
        self.device, self.limits = device, limits or CandidateLimits()
        self._seats: list[_Seat] = []
        self._count = workers
        self._defects = 0  # since the last candidate that had its answer
        self._traceback = ""  # of the last exception in a worker

    def __enter__(self) -> Pool:
        for _ in range(self._count):
            self._seats.append(_Seat(self.device, self.limits))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers at once. Safe to call twice."""
        while self._seats:
            self._seats.pop().worker.kill()

    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the workers."""
        return tuple(seat.worker.pid for seat in self._seats)

    def prepare(
        self, task: Task, kernels: Iterable[tuple[int, Kernel]], *, stop: Callable[[], bool] = never
    ) -> Iterator[tuple[int, Prepared | Outcome]]:
        """Gates 1 to 3 of each (n, kernel): (n, `Prepared` or the failure), as they complete.

        Raises:
            PoolError: see the class of that name.
        """
        jobs = [_Job(n, PrepareRequest(task, kernel)) for n, kernel in kernels]
        return cast("Iterator[tuple[int, Prepared | Outcome]]", self._run(jobs, stop))

    def judge(
        self,
        task: Task,
        kernels: Iterable[tuple[int, Kernel]],
        depth: Gate = Gate.TIMING,
        incumbent_us: float | None = None,
        *,
        full: bool = False,
        rivals: tuple[str, ...] = (),
        against: Kernel | None = None,
        stop: Callable[[], bool] = never,
    ) -> Iterator[tuple[int, Outcome]]:
        """All gates up to `depth` of each (n, kernel): (n, outcome), as they complete.

        Every confirmation gets a fresh worker process; on a card it is timed beside `rivals`, a vendor routine per
        shape, and the kernel `against`.
        `stop` is asked twice a second: once it says True, what is in hand is given up and no more results come,
        however long a worker hangs.

        Raises:
            PoolError: see the class of that name.
        """
        fresh = depth >= Gate.CONFIRMATION
        requests = [
            (n, JudgeRequest(task, kernel, depth, incumbent_us, full, rivals, against)) for n, kernel in kernels
        ]
        jobs = [_Job(n, request, fresh=fresh) for n, request in requests]
        return cast("Iterator[tuple[int, Outcome]]", self._run(jobs, stop))

    def vendor_times(self, task: Task, names: tuple[str, ...]) -> tuple[BaselineTimes, ...]:
        """Times of vendor routines, by name; only workers of a card can tell. One that breaks the card is told so.

        Raises:
            PoolError: the pool is not open.
        """
        limit_s = _ROUTINE_S * len(task.shapes)
        jobs = [_Job(n, BaselineRequest(task, (name,)), limit_s=limit_s) for n, name in enumerate(names)]
        found: dict[int, BaselineTimes] = {}
        for n, answer in self._run(jobs, never):
            if isinstance(answer, Outcome):
                found[n] = BaselineTimes(names[n], (), answer.findings[0].message[:300])
            else:
                (found[n],) = cast("tuple[BaselineTimes, ...]", answer)
        return tuple(found[n] for n in range(len(names)))

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _run(self, jobs: list[_Job], stop: Callable[[], bool]) -> Iterator[tuple[int, object]]:
        if not self._seats:
            raise PoolError("the pool is not open; use `with Pool(...) as pool`")
        waiting, left = deque(jobs), len(jobs)
        try:
            while left and not stop():
                self._hand_out(waiting)
                for job, result in self._turn(waiting):
                    left -= 1
                    yield job.n, result
        finally:
            for seat in self._seats:  # left early: what is in hand is of no use any more
                if seat.job is not None:
                    seat.job = None
                    seat.replace()

    def _hand_out(self, waiting: deque[_Job]) -> None:
        for seat in self._seats:
            if not waiting or seat.job is not None or not seat.ready:
                continue
            if (waiting[0].attempts or waiting[0].fresh) and not seat.fresh:
                seat.replace()  # a second attempt must not inherit anything, a confirmation neither
                continue
            job = waiting.popleft()
            try:
                seat.give(job)
            except OSError:
                job.attempts -= 1
                seat.job = None
                waiting.appendleft(job)
                seat.replace()
                continue
            seat.fresh = False

    def _turn(self, waiting: deque[_Job]) -> list[tuple[_Job, object]]:
        """Wait for something to happen; give what was finished by it, requeue what failed."""
        patience_s = min(seat.left_s() for seat in self._seats)
        timeout_s = min(max(patience_s, _LOOK_AGAIN_S), _ASK_S)
        ready = set(wait([seat.worker.connection for seat in self._seats], timeout=timeout_s))
        finished = []
        for seat in self._seats:
            if seat.worker.connection in ready:
                outcome = self._hear(seat, waiting)
            elif seat.left_s() <= 0.0:
                outcome = self._overrun(seat, waiting)
            else:
                continue
            if outcome is not None:
                finished.append(outcome)
        return finished

    def _hear(self, seat: _Seat, waiting: deque[_Job]) -> tuple[_Job, object] | None:
        try:
            message = seat.worker.receive()
        except EOFError:
            return self._died(seat, waiting)
        if isinstance(message, Ready):
            seat.ready = True
            return None
        seat.entered()
        job = seat.job
        if job is None:
            return None
        return self._understand(seat, job, message, waiting)

    def _understand(self, seat: _Seat, job: _Job, message: Message, waiting: deque[_Job]) -> tuple[_Job, object] | None:
        if isinstance(message, Answer):
            seat.job = None
            self._defects = 0
            if message.spent:
                seat.replace()
            return job, message.result
        if isinstance(message, OutOfMemory):
            seat.job = None
            seat.replace()
            return self._again(job, waiting, _out_of_memory(message.gate, self.limits))
        if isinstance(message, Fault):
            seat.job = None
            seat.replace()
            self._traceback = message.traceback
            if message.machine and job.attempts >= _ATTEMPTS:
                where = f"met twice in the {message.gate.name.lower()} gate"
                problem = f"{message.machine} ({where}; nothing judged is lost); then continue with --resume"
                raise PoolError(problem, message.traceback)
            return self._again(job, waiting, _defect(message.gate, message.traceback))
        return None

    def _died(self, seat: _Seat, waiting: deque[_Job]) -> tuple[_Job, object] | None:
        job, stage, was_ready = seat.job, seat.worker.stage, seat.ready
        own_fault = seat.worker.crashed()
        how = seat.worker.kill()
        if not was_ready:
            seat.job = None
            raise PoolError(f"a worker process could not start: {how}")
        spent_s = time.monotonic() - seat.started
        seat.job = None
        seat.start()
        if job is None:
            return None
        if own_fault and stage == Gate.COMPILE:
            return self._again(job, waiting, _compiler_died(how, spent_s))
        return self._again(job, waiting, _defect(stage or Gate.PARSE, f"worker process ended: {how}"))

    def _overrun(self, seat: _Seat, waiting: deque[_Job]) -> tuple[_Job, object] | None:
        job, spent_s, stage = seat.job, time.monotonic() - seat.started, seat.worker.stage
        compiling_too_long = seat.compile_left_s() <= 0.0
        if not seat.ready:
            raise PoolError(f"a worker process did not start within {_START_S:.0f} s: {seat.worker.kill()}")
        seat.job = None
        seat.replace()
        if job is None:
            return None
        if spent_s >= job.limit_s:
            message = f"no answer within {job.limit_s:g} s"
            return job, TimedOut(Gate.TIMING, (Finding(Gate.TIMING, "time_limit", message),))
        if compiling_too_long:
            return job, _compile_overrun(self.limits, spent_s)
        return self._again(job, waiting, _defect(stage or Gate.PARSE, f"no answer within {spent_s:.1f} s"))

    def _again(self, job: _Job, waiting: deque[_Job], verdict: Outcome) -> tuple[_Job, object] | None:
        """Once more in a fresh worker; the second time the verdict.

        Raises:
            PoolError: the verdict is a defect of the engine, and so were the last ones.
        """
        if job.attempts < _ATTEMPTS:
            waiting.append(job)
            return None
        if isinstance(verdict, Unsupported):
            self._defects += 1
            if self._defects >= _DEFECTS_IN_A_ROW:
                why = verdict.findings[0].message
                problem = f"the engine failed on {self._defects} candidates in a row, last on {job.n}: {why}"
                raise PoolError(problem, self._traceback)
        return job, verdict


def _defect(gate: Gate, why: str) -> Outcome:
    """What is left of a candidate the engine fails on: it says nothing of the kernel."""
    place = _PLACE.findall(why)
    where = f" ({Path(place[-1][0]).name}, line {place[-1][1]}, {place[-1][2]})" if place else ""
    message = f"the engine failed on this kernel twice: {why.strip().splitlines()[-1][:300]}{where}"
    hint = "a defect of evo, not of the kernel: please report it with the kernel; the search leaves the kernel aside"
    return Unsupported(gate, (Finding(gate, "engine_defect", message, None, hint),))


def _out_of_memory(gate: Gate, limits: CandidateLimits) -> Outcome:
    message = f"needs more than the {limits.memory_bytes >> 20} MiB a worker process has"
    if gate <= Gate.COMPILE:
        return _compiler_died(message, 0.0)
    finding = Finding(gate, "out_of_memory", f"running it {message}", suggestion="use smaller workspaces")
    return LaunchFailed(gate, (finding,))


def _compiler_died(how: str, seconds: float) -> Outcome:
    message = f"the compiler did not survive this source ({how.splitlines()[0][:200]})"
    hint = "look for unbounded template recursion or huge unrolled loops and initialisers"
    return CompileFailed(Gate.COMPILE, (Finding(Gate.COMPILE, "compile_bomb", message, None, hint),), Cost(seconds))


def _compile_overrun(limits: CandidateLimits, seconds: float) -> Outcome:
    message = f"compiling took more than limits.compile_s = {limits.compile_s:g} CPU seconds"
    hint = "unroll less, use smaller register tiles"
    return TimedOut(Gate.COMPILE, (Finding(Gate.COMPILE, "compile_timeout", message, None, hint),), Cost(seconds))
