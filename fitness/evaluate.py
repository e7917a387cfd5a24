"""The gates of an evaluation, in order, on any device: kernel + task + device -> Outcome.

Expected failures are outcomes; an exception from here is a fault of the engine or the machine. On the
modelled clock nothing depends on the wall clock, on other candidates or on the process: the same kernel
gets the same verdict and the same times. There the timing screen (cheap) precedes the correctness run at
the timed shapes (dear), and one timing is both screen and result, having no noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from fitness import costing, sampling
from fitness.compile import CompilerName
from fitness.correctness import check
from fitness.devices.device import (
    Checks,
    Device,
    Inputs,
    Measurement,
    Program,
    Timeable,
    TimingError,
)
from fitness.evaluation import Evaluation, OnGate
from fitness.inputs import Case, full_runs, small_runs
from fitness.kernel import Kernel
from fitness.outcome import Cost, Finding, Gate, Outcome, Timed, Unsupported, WrongResult
from fitness.shapes import Shape
from fitness.task import Task
from fitness.verdict import abnormal, resources, same_path, without_shape, wrong_result

#: A candidate this many times slower than the incumbent stops at the timing screen.
HOPELESS: Final = 4.0
#: Seed of the hidden shapes that gate 5 uses; confirmation draws others.
HIDDEN_SEED: Final = 0
#: Added to every seed when confirming: operands, hidden shapes and sampled blocks no search has met.
FRESH_SEED: Final = 1_000_000
#: A small run gets this part of the step budget: enough for the plainest kernel, many times over.
SMALL_STEPS_DIVISOR: Final = 10


@dataclass(frozen=True)
class Prepared:
    """A kernel that passed gates 1 to 3.

    `code_key` is equal for kernels that compute the same in the same way on this task and card, so that
    they share one verdict; `findings` are warnings and notes.
    """

    code_key: str
    findings: tuple[Finding, ...] = ()
    cost: Cost = field(default_factory=Cost)


def prepare(
    kernel: Kernel,
    task: Task,
    device: Device,
    *,
    compiler: CompilerName = "nvrtc",
    on_gate: OnGate | None = None,
) -> Prepared | Outcome:
    """Gates 1 to 3: does it fit the task, may it be compiled, does it compile, can it be launched.

    Args:
        kernel: the candidate.
        task: what it must compute.
        device: gives the card; nothing runs on it.
        compiler: what it is compiled with.
        on_gate: told of each gate as it is entered.
    """
    evaluation = _Evaluation(kernel, task, device, on_gate=on_gate)
    evaluation.compiler = compiler
    failure = evaluation.prepare()
    if failure is not None:
        return evaluation.concluded(failure)
    assert evaluation.code_key is not None
    return Prepared(evaluation.code_key, tuple(evaluation.notes), evaluation.cost())


def judge(
    kernel: Kernel,
    task: Task,
    device: Device,
    *,
    depth: Gate = Gate.TIMING,
    incumbent_us: float | None = None,
    full: bool = False,
    rivals: Sequence[str] = (),
    against: Kernel | None = None,
    steps: int = 50_000_000,
    compiler: CompilerName = "nvrtc",
    on_gate: OnGate | None = None,
) -> Outcome:
    """Run the gates up to and including `depth`; the outcome of the first that fails, else `Timed`.

    Args:
        kernel: the candidate.
        task: what it must compute.
        device: where it runs.
        depth: the last gate; below the timing screen the `Timed` of a success holds no times. Confirmation
            runs the gates before it with fresh seeds (the pool: in a fresh process).
        incumbent_us: geometric mean time of the best known kernel; one more than `HOPELESS` times slower
            ends as `Timed` at the timing screen with a note "hopeless", its large-shape results unchecked.
        full: the full correctness lists (seeds, confirmation) instead of the short ones.
        rivals: per shape of the task, the vendor routine that a confirmation on a card is interleaved with; "" or
            none at all: it is timed alone.
        against: the kernel that such a confirmation is interleaved with besides: the best starting kernel.
        steps: warp instructions of one run before it counts as hanging.
        compiler: what it is compiled with.
        on_gate: told of each gate as it is entered.
    """
    evaluation = _Evaluation(kernel, task, device, full=full, steps=steps, on_gate=on_gate)
    evaluation.seed = FRESH_SEED if depth >= Gate.CONFIRMATION else 0
    evaluation.rivals, evaluation.against, evaluation.compiler = rivals, against, compiler
    outcome = evaluation.prepare() or evaluation.run(depth, incumbent_us)
    return evaluation.concluded(outcome)


class _Evaluation(Evaluation):
    """The gates that run the kernel."""

    # -- the order of gates 4 to 7 ------------------------------------------------------------------------------------

    def run(self, depth: Gate, incumbent_us: float | None) -> Outcome:
        for gate, step in self.steps_of(incumbent_us):
            if gate <= depth:
                self.enter(gate)
                outcome = step()
                if outcome is not None:
                    return outcome
        return self.timed(depth)

    def steps_of(self, incumbent_us: float | None) -> Iterator[tuple[Gate, Callable[[], Outcome | None]]]:
        correctness = (Gate.CORRECTNESS, self.correctness)
        screening = (Gate.TIMING_SCREEN, lambda: self.timing_screen(incumbent_us))
        yield Gate.SMALL_RUN, self.small_run
        yield from (screening, correctness) if self.device.clock == "modelled" else (correctness, screening)
        yield Gate.TIMING, self.timing

    # -- gates 4 and 5: right? ----------------------------------------------------------------------------------------

    def small_run(self) -> Outcome | None:
        """Gate 4: whole launches at small shapes, all checks on."""
        checks = Checks(steps=max(1, self.steps // SMALL_STEPS_DIVISOR))
        for run in full_runs(self.task, seed=self.seed) if self.full else small_runs(self.task):
            case = self.case(run.shape, run.seed, run.data)
            seen = self.checked(Gate.SMALL_RUN, case, checks)
            if isinstance(seen, Outcome):
                return seen
        return None

    def correctness(self) -> Outcome | None:
        """Gate 5: the timed shapes and a hidden one, sampled where the device is a simulator."""
        hidden = self.task.hidden_shapes(HIDDEN_SEED + self.seed)
        for place, shape in enumerate(self.task.shapes):
            seen = self.at_full_size(shape, "normal")
            if isinstance(seen, Outcome):
                return seen
            if self.device.clock == "modelled" and self.measurements:
                costed = self.measurements[place].reduced_steps
                if not self.regular(*seen, costed):
                    self.irregular.append(shape)
        for shape in hidden if self.full else hidden[:1]:
            seen = self.at_full_size(shape, "positive")
            if isinstance(seen, Outcome):
                return without_shape(seen)
        return self.on_card() if self.device.clock == "measured" and self.seed else None

    def on_card(self) -> Outcome | None:
        """When confirming on a card: the same bits again and again, unless `atomics`; NVIDIA's sanitizer."""
        from fitness import confirmation
        from fitness.devices.cuda.cuda import Cuda

        case = self.case(self.task.shapes[0], self.seed)
        checks = Checks(races=False, uninitialised=False, steps=self.steps)
        if not self.kernel.header.atomics:
            failure = confirmation.repeated(lambda: self.checked(Gate.CORRECTNESS, case, checks), case.shape)
            if failure is not None:
                return failure
        small = self.case(self.task.small_shapes()[0], self.seed)
        program = self.program(small, Gate.CONFIRMATION)
        if not isinstance(program, Program) or not isinstance(self.device, Cuda):
            return None
        failure, notes = confirmation.sanitized(self.device, program, small.inputs, small.shape)
        self.notes.extend(notes)
        return failure

    def at_full_size(self, shape: Shape, data: str) -> Outcome | tuple[Case, Checks, int]:
        """Check one large shape; if right, what was run and how many warp instructions it took."""
        case = self.case(shape, self.seed, data)
        program = self.program(case, Gate.CORRECTNESS)
        if isinstance(program, Outcome):
            return program
        checks = Checks(races=False, uninitialised=False, steps=self.steps)
        if self.device.clock == "modelled" and sampling.cooperates(program):
            case = self.case(sampling.fewer_rows(self.task, shape), self.seed, data)
        elif self.device.clock == "modelled" and (whole := sampling.whole_grid(self.task, shape)) != shape:
            complete = self.checked(Gate.CORRECTNESS, self.case(whole, self.seed, data), checks)
            if isinstance(complete, Outcome):
                return complete
            (launch,) = program.launches
            count = sampling.blocks_for(shape, launch.grid)
            blocks = sampling.sample_blocks(launch.grid, count, self.generator(shape))
            checks = replace(checks, blocks=(blocks,))
        execution = self.checked(Gate.CORRECTNESS, case, checks)
        return execution if isinstance(execution, Outcome) else (case, checks, execution.steps)

    def regular(self, case: Case, checks: Checks, steps: int, costed: costing.Points | None) -> bool:
        """True if the times stand: a smaller K predicts how many instructions the run at full K took.

        A kernel that takes another path at a smaller K (by design, or to look fast) is costed at the full K. The
        runs that costed it (`Measurement.reduced_steps`) are asked first; only where their blocks tell nothing of
        these, since others do other work, the same blocks run again.
        """
        program = self.program(case)
        if not isinstance(program, Program) or costing.predicts(costed, program, checks, steps):
            return True
        points = []
        for scale, small, inputs in self.at_smaller_k(program, case.shape):
            execution = self.device.run(small, inputs, checks)
            points.append((scale, execution.steps))
        return not points or costing.is_linear(points, steps)

    def generator(self, shape: Shape) -> np.random.Generator:
        """Draws which blocks are looked at: other ones for other code, the same for the same."""
        text = f"{self.code_key} {sorted(shape.items())}" + (f" {self.seed}" if self.seed else "")
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))

    # -- gates 6 and 7: how fast? -------------------------------------------------------------------------------------

    def timing_screen(self, incumbent_us: float | None) -> Outcome | None:
        failure = self.measure(screen=True)
        if failure is not None:
            return failure
        mean = costing.mean_us(self.measurements)
        if incumbent_us is None or mean <= HOPELESS * incumbent_us:
            return None
        message = f"{mean:.4g} us against {incumbent_us:.4g} us of the incumbent: more than {HOPELESS:g}x slower"
        self.notes.append(Finding(Gate.TIMING_SCREEN, "hopeless", message, severity="note"))
        return self.timed(Gate.TIMING_SCREEN)

    def timing(self) -> Outcome | None:
        if self.device.clock == "modelled" and self.measurements and not self.irregular:
            return None
        return self.measure(screen=False)

    def measure(self, *, screen: bool) -> Outcome | None:
        """Time every shape that has no time yet, or none that stands."""
        known: dict[int, Measurement] = {}
        if self.device.clock == "modelled":  # no noise: a time that stands would come out the same again
            known = {n: m for n, m in enumerate(self.measurements) if self.task.shapes[n] not in self.irregular}
        subjects = {}
        for place, shape in enumerate(self.task.shapes):
            if place in known:
                continue
            subject = self.timeable(shape)
            if isinstance(subject, Outcome):
                return subject
            subjects[place] = subject
        try:
            timed = self.take_times(subjects, screen=screen)
        except TimingError as failed:
            ended = abnormal(failed.execution, Gate.TIMING_SCREEN, {})
            if ended is None:
                raise
            return ended
        self.timing_s += sum(measured.seconds for measured in timed)
        known |= zip(subjects, timed, strict=True)
        self.measurements = tuple(known[place] for place in range(len(self.task.shapes)))
        impossible = costing.below_floor(self.task, self.device.gpu, self.measurements)
        if impossible is not None:
            return Unsupported(Gate.TIMING_SCREEN, (impossible,))
        return self.right_while_timed()

    def take_times(self, subjects: Mapping[int, Timeable], *, screen: bool) -> tuple[Measurement, ...]:
        """The device's times; when confirming on a card, taken beside the fastest vendor routine and `against`."""
        if screen or self.device.clock == "modelled" or not self.seed:
            return self.device.time(list(subjects.values()), screen=screen)
        from fitness.confirmation import times_beside
        from fitness.devices.cuda.cuda import Cuda

        assert isinstance(self.device, Cuda)
        taken = []
        for place, subject in subjects.items():
            shape = self.task.shapes[place]
            rival = self.rivals[place] if self.rivals else ""
            measured, notes = times_beside(self.task, self.device, shape, subject, rival, self.opponent(shape))
            taken.append(measured)
            self.notes.extend(notes)
        return tuple(taken)

    def opponent(self, shape: Shape) -> Timeable | None:
        """The kernel this one is to be interleaved with, at a shape; None if there is none or it cannot run there."""
        if self.against is None:
            return None
        other = _Evaluation(self.against, self.task, self.device, steps=self.steps)
        other.compiler = self.compiler
        ready = other.compile() or other.timeable(shape)
        return ready if isinstance(ready, Timeable) else None

    def right_while_timed(self) -> Outcome | None:
        """What timed runs wrote is as right as what the correctness runs wrote; a card hands some of it back."""
        for shape, measured in zip(self.task.shapes, self.measurements, strict=True):
            case = self.case(shape)
            for outputs in measured.outputs:
                written = {name: np.ones(array.shape, np.bool_) for name, array in outputs.items()}
                wrong = check(case, outputs, written, sampled=False)
                if wrong is not None:
                    finding = wrong_result(wrong, Gate.TIMING_SCREEN, case)
                    message = f"right when checked, wrong while timed: {finding.message}"
                    return WrongResult(Gate.TIMING_SCREEN, (replace(finding, message=message),))
        return None

    def timeable(self, shape: Shape) -> Timeable | Outcome:
        case = self.case(shape)
        program = self.program(case, Gate.TIMING_SCREEN)
        if isinstance(program, Outcome):
            return program
        if self.device.clock == "measured":
            # Twice the floor: about what a good kernel takes, known before any candidate.
            return Timeable(program, case.inputs, reference_us=2 * self.task.floor_us(shape, self.device.gpu))
        if shape in self.irregular:
            return Timeable(program, case.inputs)
        return Timeable(program, case.inputs, self.at_smaller_k(program, shape))

    def at_smaller_k(self, program: Program, shape: Shape) -> tuple[tuple[float, Program, Inputs], ...]:
        """The same launches at two smaller K; empty if there are none such."""
        reduced = []
        for smaller in sampling.smaller_k(self.task, shape):
            case = self.case(smaller)
            small = self.program(case)
            if isinstance(small, Outcome) or not same_path(program, small):
                return ()
            reduced.append((smaller["K"] / shape["K"], small, case.inputs))
        return tuple(reduced)

    def timed(self, stage: Gate) -> Timed:
        timings = tuple(
            costing.timing_of(self.task, self.device, shape, measured)
            for shape, measured in zip(self.task.shapes, self.measurements, strict=False)
        )
        occupancies = [measured.occupancy for measured in self.measurements]
        return Timed(stage, clock=self.device.clock, timings=timings, resources=resources(self.programs, occupancies))
