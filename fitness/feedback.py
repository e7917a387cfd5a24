"""Feedback on one kernel beyond its verdict: profiles at the timed shapes, sanitizers at a small one.

The same questions on both devices: the simulator answers from its counters and checks, a card through Nsight
Compute and compute-sanitizer, each in a process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from fitness.compile import CompileError, compile_source
from fitness.devices.device import Checks, Profile, Program
from fitness.gpu import Gpu
from fitness.inputs import Case, make_case
from fitness.kernel import Kernel
from fitness.outcome import Finding
from fitness.program import LaunchProblem, build_program
from fitness.task import Task


class FeedbackError(ValueError):
    """There is nothing to profile or sanitize: the kernel does not compile or cannot be launched."""


def profiles(kernel: Kernel, task: Task, kind: str, gpu: Gpu) -> tuple[tuple[Mapping[str, int], Profile], ...]:
    """(shape, profile) for every timed shape.

    Args:
        kernel: the candidate.
        task: what it computes.
        kind: "simulator" or "cuda".
        gpu: the card, or what is simulated.

    Raises:
        FeedbackError: it cannot be run.
        fitness.devices.cuda.tools.ToolError: ncu is missing or does not work here.
    """
    found = []
    for shape in task.shapes:
        program, case = _program(kernel, task, shape, gpu)
        if kind == "cuda":
            from fitness.devices.cuda.nsight import profile

            found.append((shape, profile(program, case.inputs, gpu)))
        else:
            from fitness.devices import open_device

            found.append((shape, open_device(kind, gpu).profile(program, case.inputs)))
    return tuple(found)


def sanitized(kernel: Kernel, task: Task, kind: str, gpu: Gpu) -> tuple[Finding, ...]:
    """What sanitizers find at the task's first two small shapes: bounds, races, uninitialised values, barriers.

    Raises:
        FeedbackError: it cannot be run.
        fitness.devices.cuda.tools.ToolError: compute-sanitizer is missing or does not work here.
    """
    found: list[Finding] = []
    for shape in task.small_shapes()[:2]:
        program, case = _program(kernel, task, shape, gpu)
        if kind == "cuda":
            from fitness.devices.cuda.sanitizer import sanitize

            found.extend(sanitize(program, case.inputs, gpu))
        else:
            from fitness.devices import open_device

            found.extend(open_device(kind, gpu).run(program, case.inputs, Checks()).findings)
    return tuple(dict.fromkeys(found)) if all(finding.shape is None for finding in found) else tuple(found)


def _program(kernel: Kernel, task: Task, shape: Mapping[str, int], gpu: Gpu) -> tuple[Program, Case]:
    defines = (*task.defines, *kernel.defines)
    compiled = compile_source(kernel.source, defines=defines, flags=kernel.header.options, arch=gpu.arch)
    if isinstance(compiled, CompileError):
        raise FeedbackError(f"it does not compile: {compiled.findings[0].message}")
    case = make_case(task, shape, kernel.format, seed=0, data="normal", gpu=gpu)
    program = build_program(kernel, compiled, case, gpu)
    if isinstance(program, LaunchProblem):
        raise FeedbackError(f"it cannot be launched: {program.finding.message}")
    return program, case
