"""What all gates of an evaluation share, and the first three: does a kernel fit, may it compile, does it compile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from fitness.cases import CaseCache
from fitness.compile import CompileError, CompilerName, compile_source
from fitness.correctness import check
from fitness.devices.device import Checks, Compiled, Device, Execution, Measurement, Program
from fitness.inputs import Case
from fitness.kernel import Kernel
from fitness.kernel_fit import arch_violation
from fitness.outcome import (
    CompileFailed,
    Cost,
    Finding,
    Gate,
    LaunchFailed,
    Outcome,
    Rejected,
    Unsupported,
    WrongResult,
)
from fitness.program import LaunchProblem, build_program
from fitness.screen import screen
from fitness.shapes import Shape
from fitness.task import Task
from fitness.verdict import abnormal, code_key, wrong_result

_CASE_BYTES: Final = 96 * 2**20

OnGate = Callable[[Gate], None]

_cases = CaseCache(_CASE_BYTES)


class Evaluation:
    """One kernel on its way through the gates: what has come of it so far, and gates 1 to 3."""

    def __init__(
        self,
        kernel: Kernel,
        task: Task,
        device: Device,
        *,
        full: bool = False,
        steps: int = 0,
        on_gate: OnGate | None = None,
    ) -> None:
        self.kernel, self.task, self.device = kernel, task, device
        self.full, self.steps, self.on_gate = full, steps, on_gate
        self.seed = 0
        self.rivals: Sequence[str] = ()
        self.against: Kernel | None = None
        self.compiler: CompilerName = "nvrtc"
        self.compiled: Compiled | None = None
        self.code_key: str | None = None
        self.notes: list[Finding] = []
        self.programs: list[Program] = []
        self.irregular: list[Shape] = []
        self.measurements: tuple[Measurement, ...] = ()
        self.started = time.perf_counter()
        self.compile_s = 0.0
        self.timing_s = 0.0

    # -- what every outcome carries -----------------------------------------------------------------------------------

    def enter(self, gate: Gate) -> None:
        """Tell whoever wants to know that a gate begins."""
        if self.on_gate is not None:
            self.on_gate(gate)

    def cost(self) -> Cost:
        """Seconds so far."""
        return Cost(self.compile_s, time.perf_counter() - self.started, self.timing_s)

    def concluded(self, outcome: Outcome) -> Outcome:
        """The outcome with all notes, each once, its cost and the code key."""
        findings: list[Finding] = []
        for finding in (*outcome.findings, *self.notes):
            if finding not in findings:
                findings.append(finding)
        return replace(outcome, findings=tuple(findings), cost=self.cost(), code_key=self.code_key)

    # -- gates 1 to 3 -------------------------------------------------------------------------------------------------

    def prepare(self) -> Outcome | None:
        """Gates 1 to 3: the failure, if there is one."""
        self.enter(Gate.PARSE)
        violations = self.task.domain_violations(self.kernel)
        if violations:
            return Rejected(Gate.PARSE, violations)
        if elsewhere := arch_violation(self.kernel, self.device.gpu.arch):
            return Rejected(Gate.PARSE, (elsewhere,))
        self.enter(Gate.SCREEN)
        found = screen(self.kernel)
        if any(finding.severity == "error" for finding in found):
            return Rejected(Gate.SCREEN, found)
        self.notes.extend(found)
        # Made before the compiler's clock starts: the first candidate of a process pays for them.
        cases = [self.case(shape) for shape in self.task.shapes]
        self.enter(Gate.COMPILE)
        return self.compile() or self.resolve(cases)

    def compile(self) -> Outcome | None:
        """Compile the kernel for the card: the failure, if there is one."""
        header = self.kernel.header
        defines = (*self.task.defines, *self.kernel.defines)
        result = compile_source(
            self.kernel.source,
            defines=defines,
            flags=header.options,
            arch=self.device.gpu.arch,
            compiler=self.compiler,
        )
        self.compile_s = result.seconds
        if isinstance(result, CompileError):
            return CompileFailed(Gate.COMPILE, result.findings)
        self.compiled = result
        self.notes.extend(result.warnings)
        return None

    def resolve(self, cases: Sequence[Case]) -> Outcome | None:
        """Launches at every timed shape are possible; they are part of the code key."""
        for case in cases:
            program = self.program(case)
            if isinstance(program, Outcome):
                return program
            self.programs.append(program)
        self.code_key = code_key(self.kernel, self.task, self.programs)
        return None

    def case(self, shape: Shape, seed: int = 0, data: str = "normal") -> Case:
        """Operands of a shape in the kernel's format; kept for the candidates that follow."""
        return _cases.get(self.task, shape, self.kernel.format, seed=seed, data=data, gpu=self.device.gpu)

    def program(self, case: Case, gate: Gate = Gate.COMPILE) -> Program | Outcome:
        """The launches for a case, or why they are impossible."""
        assert self.compiled is not None
        built = build_program(self.kernel, self.compiled, case, self.device.gpu)
        if not isinstance(built, LaunchProblem):
            return built
        finding = replace(built.finding, gate=gate)
        return Unsupported(gate, (finding,)) if built.unsupported else LaunchFailed(gate, (finding,))

    # -- one run -------------------------------------------------------------------------------------------------------

    def checked(self, gate: Gate, case: Case, checks: Checks) -> Outcome | Execution:
        """Run one case and compare: the execution if all is well."""
        program = self.program(case, gate)
        if isinstance(program, Outcome):
            return program
        execution = self.device.run(program, case.inputs, checks)
        failure = abnormal(execution, gate, case.shape)
        if failure is not None:
            return failure
        self.note_output(execution, gate)
        sampled = checks.blocks is not None
        if sampled and _too_little_written(program, execution, case, checks):
            # Sampled blocks that leave out what is theirs: only the whole grid tells whose it is.
            return self.checked(gate, case, replace(checks, blocks=None))
        wrong = check(case, execution.outputs, execution.written, sampled=sampled)
        return execution if wrong is None else WrongResult(gate, (wrong_result(wrong, gate, case),))

    def note_output(self, execution: Execution, gate: Gate) -> None:
        """Keep what a run printed, and its warnings, as notes."""
        if execution.printed:
            message = f"the kernel prints; nobody reads it: {execution.printed[:80]!r}"
            self.notes.append(Finding(gate, "printf", message, severity="note"))
        self.notes.extend(replace(finding, gate=gate) for finding in execution.findings if finding.severity != "error")


def _too_little_written(program: Program, execution: Execution, case: Case, checks: Checks) -> bool:
    """True if sampled blocks wrote less than half of what as many average blocks must write."""
    assert checks.blocks is not None
    grid = program.launches[0].grid
    total = grid[0] * grid[1] * grid[2]
    written = case.logical_written(execution.written)
    return bool(np.count_nonzero(written) < 0.5 * written.size * len(checks.blocks[0]) / total)
