"""`Cuda`: the `Device` on a real card.

A run is checked by what a card can tell without tools: guard zones around every buffer, inputs left alone,
outputs poisoned before, the driver's own errors, the wall clock. Reads out of bounds, races and uninitialised
values are seen by the simulator (gate 4) and by compute-sanitizer (gate 8). After a hang or a fault the context is
lost: `spent` says so, and the worker process is replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from fitness.devices.cuda.audit import Audit
from fitness.devices.cuda.clocks import Clocks, Reading
from fitness.devices.cuda.driver import Card, CudaError, HangError
from fitness.devices.cuda.loaded import LoadedProgram, UnrestorableError
from fitness.devices.cuda.memory import OperandCache, Slab
from fitness.devices.cuda.timing import ProgramSubject, Sampled, Session, Subject, runs_per_sample
from fitness.devices.device import (
    Checks,
    Execution,
    Inputs,
    Measurement,
    Profile,
    Program,
    Timeable,
    TimingError,
)
from fitness.gpu import Gpu
from fitness.outcome import Clock, Finding, Gate
from fitness.timing import FULL, SCREEN, Plan, time_estimate

#: CUresult codes of a launch the driver refuses; the context survives them.
_REFUSED: Final = {1, 200, 701, 703, 720, 801, 912}
#: Codes after which a context is lost, and what they mean for the author of a kernel: (kind, ended).
_FAULTS: Final = {
    700: ("out_of_bounds", "fault"),
    714: ("hardware_stack", "fault"),
    715: ("trap", "trap"),
    716: ("misaligned", "fault"),
    717: ("address_space", "fault"),
    718: ("invalid_pc", "fault"),
    719: ("trap", "trap"),
    710: ("trap", "trap"),
}
_HINTS: Final = {
    "out_of_bounds": "check indices and tails; `evo evaluate --sanitize` names thread and line",
    "misaligned": "a vector access needs an address that is a multiple of its size; see the header's `align`",
    "trap": "an assertion, __trap(), or a fault the card does not name; `evo evaluate --sanitize` says which",
}

SubjectMaker = Callable[[Card, OperandCache, int], Subject]
"""Makes a subject with so many runs per sample: how vendor routines are timed beside candidates."""


class Cuda:
    """The first visible card.

    Args:
        gpu: its data sheet; the card must have that architecture.

    Raises:
        ValueError: the card is of another architecture than the data sheet.
        ImportError, CudaError: PyCUDA, the driver or a card is missing.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.spent = False
        self.run_s = 1.0
        self.card = Card()
        major, minor = self.card.capability
        if not gpu.arch.startswith(f"sm_{major}{minor}"):
            raise ValueError(f"the card is {self.card.name} (sm_{major}{minor}), not {gpu.name} ({gpu.arch})")
        self.audit = Audit(self.card, gpu.arch, gpu.l2_bytes)
        self.clocks = Clocks(self.card, self.audit)
        self.operands = OperandCache(self.card, self.audit, gpu.l2_bytes)
        self.reading: Reading | None = None
        self._runs = 0
        self._lock: int | None = None

    @property
    def gpu(self) -> Gpu:
        """The card's data sheet."""
        return self._gpu

    @property
    def clock(self) -> Clock:
        """Times are measured."""
        return "measured"

    def share(self, lock: str) -> None:
        """Take turns on the card with all processes that name the same file, made if it is not there."""
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """The card is this process's alone; the kernel takes the lock from a process that dies."""
        if self._lock is None:
            yield
            return
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # The file says when the last one's turn ended: a card that has just worked needs no warming.
        self.clocks.worked(float(os.pread(self._lock, 32, 0) or 0.0))
        try:
            yield
        finally:
            os.pwrite(self._lock, f"{time.time():.6f}".encode(), 0)
            # A kernel that never ends keeps the card busy until its process is killed: so does the turn.
            if not self.spent:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    # -- right? -------------------------------------------------------------------------------------------------------

    def run(self, program: Program, inputs: Inputs, checks: Checks) -> Execution:
        """Run all launches in order on poisoned outputs between guard zones; what is wrong is in the Execution.

        Raises:
            ValueError: single blocks are asked for.
        """
        if checks.blocks is not None:
            raise ValueError("a card runs whole grids; checks.blocks must be None")
        self._runs += 1
        slab = Slab(self.card, program, inputs, self._runs)
        with self._turn():
            held: list[LoadedProgram | Slab] = []
            try:
                loaded = LoadedProgram(self.card, program)
                held.append(loaded)
                slab.place()
                held.append(slab)
                sizes = {name: place.size for name, place in slab.places.items()}
                loaded.enqueue(slab.addresses, sizes, loaded.arguments(slab.addresses))
                self.card.wait(self.run_s)
                slab.read()
            except (CudaError, HangError, UnrestorableError) as error:
                return self._ended(error, inputs)
            finally:
                self._release(held)
        return Execution(
            outputs={name: slab.output(name) for name in inputs.outputs},
            written={name: slab.written(name) for name in inputs.outputs},
            findings=_findings(slab),
        )

    def _release(self, held: Sequence[LoadedProgram | Slab | Subject | Session]) -> None:
        """Give back what was made; a lost context takes everything with it."""
        if not self.spent:
            for item in reversed(held):
                item.close()

    def _ended(self, error: CudaError | HangError | UnrestorableError, inputs: Inputs) -> Execution:
        """The execution a failure stands for; `spent` is set where the context is lost."""
        ended: Any
        if isinstance(error, UnrestorableError):
            hint = "declare it without static, or use a [[workspace]] buffer"
            finding, ended = Finding(Gate.SMALL_RUN, "module_state", str(error), None, hint), "unsupported"
        elif isinstance(error, HangError):
            self.spent = True
            message = f"no end within {self.run_s:g} s"
            hint = "look for a loop that does not end or a wait nobody signals"
            finding, ended = Finding(Gate.SMALL_RUN, "time_limit", message, None, hint), "time"
        elif error.code in _REFUSED:
            finding, ended = Finding(Gate.SMALL_RUN, "launch_refused", str(error)), "refused"
        elif error.code in _FAULTS:
            self.spent = True
            kind, ended = _FAULTS[error.code]
            finding = Finding(Gate.SMALL_RUN, kind, str(error), None, _HINTS.get(kind, ""))
        else:
            raise error
        written = {name: np.zeros(array.shape, np.bool_) for name, array in inputs.outputs.items()}
        return Execution(dict(inputs.outputs), written, (finding,), ended)

    # -- how fast? ----------------------------------------------------------------------------------------------------

    def time(self, subjects: Sequence[Timeable], *, screen: bool) -> tuple[Measurement, ...]:
        """Time each subject cold, by the full protocol or by a few samples.

        Raises:
            TimingError: a subject did not finish, or wrote to its inputs.
        """
        plan = SCREEN if screen else FULL
        return tuple(self.beside((subject,), (), plan)[0] for subject in subjects)

    def beside(
        self, subjects: Sequence[Timeable], rivals: Sequence[SubjectMaker], plan: Plan
    ) -> tuple[Measurement, ...]:
        """Time programs of one shape and vendor routines beside each other, interleaved.

        Args:
            subjects: at least one; the first gives the shape's reference time.
            rivals: what else is timed, on the same data.
            plan: how many samples.

        Returns:
            Measurements of the subjects, then of the rivals; `samples_us` is row by row of (blocks, per block).

        Raises:
            TimingError: one of the subjects did not finish, or wrote to its inputs.
        """
        with self._turn():
            began = time.perf_counter()
            taken = self._beside(subjects, rivals, plan)
            each_s = (time.perf_counter() - began) / len(taken)
        return tuple(replace(measured, seconds=each_s) for measured in taken)

    def _beside(
        self, subjects: Sequence[Timeable], rivals: Sequence[SubjectMaker], plan: Plan
    ) -> tuple[Measurement, ...]:
        runs = runs_per_sample(subjects[0].reference_us)
        held: list[Subject | Session] = []
        try:
            self.reading = self.clocks.warm()
            programs = []
            for subject in subjects:
                programs.append(ProgramSubject(self.card, self.operands, subject.program, subject.inputs, runs))
                held.append(programs[-1])
            others = []
            for make in rivals:
                others.append(make(self.card, self.operands, runs))
                held.append(others[-1])
            session = Session(self.card, self.audit, (*programs, *others), runs, self.run_s)
            held.append(session)
            sampled = session.sample(plan, np.random.default_rng(self._runs))
            self.clocks.worked()
            occupancies = [program.loaded.occupancy(self._gpu.limits.warps_per_sm) for program in programs]
        except (CudaError, HangError, UnrestorableError) as error:
            raise TimingError(self._ended(error, subjects[0].inputs)) from error
        finally:
            self._release(held)
        occupancies += [0.0] * len(rivals)
        for index, item in enumerate(sampled[: len(subjects)]):
            if not item.intact:
                raise TimingError(_wrote_inputs(subjects[index].inputs))
        return tuple(_measurement(item, share) for item, share in zip(sampled, occupancies, strict=True))

    def routine(self, make: SubjectMaker, reference_us: float, plan: Plan) -> Measurement:
        """Time a vendor routine by itself; what it raises is the caller's."""
        with self._turn():
            return self._routine(make, reference_us, plan)

    def _routine(self, make: SubjectMaker, reference_us: float, plan: Plan) -> Measurement:
        runs = runs_per_sample(reference_us)
        self.reading = self.clocks.warm()
        subject = make(self.card, self.operands, runs)
        session = Session(self.card, self.audit, (subject,), runs, 10 * self.run_s)
        try:
            (sampled,) = session.sample(plan, np.random.default_rng(self._runs))
            self.clocks.worked()
        except (CudaError, HangError):
            self.probe()
            raise
        finally:
            self._release((subject, session))
        return _measurement(sampled, 0.0)

    def probe(self) -> None:
        """Find out whether the context still works; `spent` says so."""
        try:
            self.card.wait(self.run_s)
        except (CudaError, HangError):
            self.spent = True

    def sanitize(self, program: Program, inputs: Inputs) -> tuple[Finding, ...]:
        """What compute-sanitizer's tools find in one run, in a process of its own; nobody else has the card meanwhile.

        Raises:
            ToolError: compute-sanitizer is missing or does not work here.
        """
        from fitness.devices.cuda.sanitizer import sanitize

        with self._turn():
            return sanitize(program, inputs, self._gpu)

    def profile(self, program: Program, inputs: Inputs) -> Profile:
        """Counters and the limiter sentence by Nsight Compute.

        Raises:
            ToolError: ncu is missing or does not work here.
        """
        from fitness.devices.cuda.nsight import profile

        return profile(program, inputs, self._gpu)


def _measurement(sampled: Sampled, occupancy: float) -> Measurement:
    found = time_estimate(sampled.samples)
    samples = tuple(float(value) for value in sampled.samples.reshape(-1))
    return Measurement(found.value, found.low, found.high, samples, occupancy=occupancy, outputs=sampled.outputs)


def _findings(slab: Slab) -> tuple[Finding, ...]:
    """What the memory around and under a run tells."""
    found = []
    overrun = slab.overrun()
    if overrun is not None:
        name, offset = overrun
        where = f"{-offset} bytes before" if offset < 0 else f"{offset - slab.places[name].size} bytes past the end of"
        message = f"something wrote {where} {name}"
        hint = "check indices and tails; `evo evaluate --sanitize` names thread and line"
        found.append(Finding(Gate.SMALL_RUN, "out_of_bounds", message, None, hint))
    for name in slab.inputs.buffers:
        at = slab.changed(name)
        if at is not None:
            message = f"byte {at} of the input {name} was written"
            found.append(Finding(Gate.SMALL_RUN, "input_written", message, None, "inputs are read-only"))
    for space in slab.program.workspaces:
        if space.init == "zero_once" and (at := slab.changed(space.name)) is not None:
            message = f"{space.name} is not zero after the run, first at byte {at}"
            found.append(
                Finding(Gate.SMALL_RUN, "workspace_not_zero", message, None, "leave it zero, or init = 'zero'")
            )
    return tuple(found)


def _wrote_inputs(inputs: Inputs) -> Execution:
    finding = Finding(Gate.TIMING_SCREEN, "input_written", "an input was written while the kernel was timed")
    written = {name: np.zeros(array.shape, np.bool_) for name, array in inputs.outputs.items()}
    return Execution(dict(inputs.outputs), written, (finding,), "fault")
