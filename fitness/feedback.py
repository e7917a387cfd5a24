"""Feedback on one kernel beyond its verdict: profiles at the timed shapes, sanitizers and traces at a small one.

On a card also what a call costs from end to end. The same questions on both devices: the simulator answers from its
counters and checks, a card through Nsight Compute and compute-sanitizer, each in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitness.compile import CompileError, CompilerName, compile_source
from fitness.devices.device import Checks, Execution, Profile, Program
from fitness.devices.simulator.simulator import Simulator
from fitness.devices.simulator.tracing import Point, Step, Tracer, code_lines
from fitness.formats import get_format
from fitness.gpu import Gpu
from fitness.inputs import Case, make_case
from fitness.kernel import Kernel
from fitness.outcome import Finding
from fitness.program import LaunchProblem, build_program
from fitness.task import Task

if TYPE_CHECKING:
    from fitness.devices.cuda.endtoend import CallCost
    from fitness.devices.cuda.nsys import KernelTime


class FeedbackError(ValueError):
    """Nothing to profile, sanitize or trace: the kernel does not compile, cannot be launched or never gets there."""


@dataclass(frozen=True)
class Trace:
    """What one thread did at one source line, on the simulator.

    Attributes:
        shape: of the run. point: where. source: the line's text. steps: in order; left_out: further ones not kept.
        findings: of the whole run, all checks on; a fault ends it.
    """

    shape: Mapping[str, int]
    point: Point
    source: str
    steps: tuple[Step, ...]
    left_out: int
    findings: tuple[Finding, ...]


def profiles(
    kernel: Kernel, task: Task, kind: str, gpu: Gpu, compiler: CompilerName = "nvrtc"
) -> tuple[tuple[Mapping[str, int], Profile], ...]:
    """(shape, profile) for every timed shape.

    Args:
        kernel: the candidate.
        task: what it computes.
        kind: "simulator" or "cuda".
        gpu: the card, or what is simulated.
        compiler: what it is compiled with.

    Raises:
        FeedbackError: it cannot be run.
        fitness.devices.cuda.tools.ToolError: ncu is missing or does not work here.
    """
    found = []
    for shape in task.shapes:
        program, case = _program(kernel, task, shape, gpu, compiler)
        if kind == "cuda":
            from fitness.devices.cuda.nsight import profile

            found.append((shape, profile(program, case.inputs, gpu)))
        else:
            from fitness.devices import open_device

            found.append((shape, open_device(kind, gpu).profile(program, case.inputs)))
    return tuple(found)


def sanitized(kernel: Kernel, task: Task, kind: str, gpu: Gpu, compiler: CompilerName = "nvrtc") -> tuple[Finding, ...]:
    """What sanitizers find at the task's first two small shapes: bounds, races, uninitialised values, barriers.

    Raises:
        FeedbackError: it cannot be run.
        fitness.devices.cuda.tools.ToolError: compute-sanitizer is missing or does not work here.
    """
    found: list[Finding] = []
    for shape in task.small_shapes()[:2]:
        program, case = _program(kernel, task, shape, gpu, compiler)
        if kind == "cuda":
            from fitness.devices.cuda.sanitizer import sanitize

            found.extend(sanitize(program, case.inputs, gpu))
        else:
            from fitness.devices import open_device

            found.extend(open_device(kind, gpu).run(program, case.inputs, Checks()).findings)
    return tuple(dict.fromkeys(found)) if all(finding.shape is None for finding in found) else tuple(found)


def traced(
    kernel: Kernel, task: Task, gpu: Gpu, point: Point, sizes: Mapping[str, int], compiler: CompilerName = "nvrtc"
) -> Trace:
    """Registers and addresses of one thread at one source line, step by step; always on the simulator.

    Args:
        kernel: the candidate.
        task: what it computes.
        gpu: the card that is simulated.
        point: where.
        sizes: what to change of the task's first small shape.
        compiler: what it is compiled with.

    Raises:
        FeedbackError: it cannot be run, or the thread executes nothing of that line.
    """
    shape = {**task.small_shapes()[0], **sizes}
    program, case = _program(kernel, task, shape, gpu, compiler)
    execution, tracer = Simulator(gpu).trace(program, case.inputs, point)
    source = kernel.source.splitlines()
    text = source[point.line - 1].strip() if 0 < point.line <= len(source) else ""
    if not tracer.steps:
        raise FeedbackError(_nothing_traced(program, point, tracer, execution))
    return Trace(shape, point, text, tuple(tracer.steps), tracer.left_out, execution.findings)


@dataclass(frozen=True)
class EndToEnd:
    """What a user pays for at one shape besides the kernel, measured on a card.

    Attributes:
        shape: which.
        pack_s: seconds of the host to store W in the kernel's format, once per model.
        calls: upload, launch, stream, graph and request, on warm operands.
        nsys: the kernels of an Nsight Systems report of one run; no_nsys says why there are none.
    """

    shape: Mapping[str, int]
    pack_s: float
    calls: CallCost
    nsys: tuple[KernelTime, ...]
    no_nsys: str


def end_to_end(kernel: Kernel, task: Task, gpu: Gpu, compiler: CompilerName = "nvrtc") -> tuple[EndToEnd, ...]:
    """Packing, upload, launch and request at every timed shape, on the first card.

    Raises:
        FeedbackError: it cannot be run.
        fitness.devices.cuda.tools.ToolError: the measurement failed.
    """
    from fitness.devices.cuda import endtoend, nsys
    from fitness.devices.cuda.tools import ToolError

    found = []
    for shape in task.shapes:
        program, case = _program(kernel, task, shape, gpu, compiler)
        options = {name: str(option) for name, option in case.format.options.items()}
        began = time.perf_counter()
        get_format(case.format.name).pack(case.operands.w, options)
        pack_s = time.perf_counter() - began
        calls = endtoend.measure(program, case.inputs, gpu)
        try:
            reported, why = nsys.kernel_times(program, case.inputs, gpu), ""
        except ToolError as missing:
            reported, why = (), str(missing)
        found.append(EndToEnd(shape, pack_s, calls, reported, why))
    return tuple(found)


def _nothing_traced(program: Program, point: Point, tracer: Tracer, execution: Execution) -> str:
    """Why a trace is empty, and where to look instead."""
    entries = {launch.entry for launch in program.launches}
    if not tracer.reached:
        sizes = "; ".join(f"{launch.entry}: grid {launch.grid}, block {launch.block}" for launch in program.launches)
        return f"there is no thread {point.thread} of block {point.block} at this shape ({sizes})"
    lines = sorted(code_lines(program.compiled.ptx, entries))
    if point.line not in lines:
        near = sorted(lines, key=lambda line: abs(line - point.line))[:4]
        return f"no instruction comes from line {point.line}; some come from lines {', '.join(map(str, sorted(near)))}"
    ended = f" (the run ended before: {execution.findings[0].message})" if execution.ended != "finished" else ""
    return f"thread {point.thread} of block {point.block} executes nothing of line {point.line}{ended}"


def _program(
    kernel: Kernel, task: Task, shape: Mapping[str, int], gpu: Gpu, compiler: CompilerName
) -> tuple[Program, Case]:
    defines = (*task.defines, *kernel.defines)
    compiled = compile_source(
        kernel.source, defines=defines, flags=kernel.header.options, arch=gpu.arch, compiler=compiler
    )
    if isinstance(compiled, CompileError):
        raise FeedbackError(f"it does not compile: {compiled.findings[0].message}")
    case = make_case(task, shape, kernel.format, seed=0, data="normal", gpu=gpu)
    program = build_program(kernel, compiled, case, gpu)
    if isinstance(program, LaunchProblem):
        raise FeedbackError(f"it cannot be launched: {program.finding.message}")
    return program, case
