"""What gate 8 asks on a card beyond fresh seeds and a fresh process.

The same bits again and again, NVIDIA's sanitizer, and times taken beside those of what the kernel is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from fitness.devices.cuda.cuda import Cuda
from fitness.devices.cuda.tools import ToolError
from fitness.devices.device import Execution, Inputs, Measurement, Program, Timeable
from fitness.outcome import Finding, Gate, Outcome, SanitizerFinding, WrongResult
from fitness.shapes import Shape
from fitness.task import Task
from fitness.timing import Estimate

REPEATS: Final = 20
"""Runs that must agree bit by bit."""

SEED: Final = "the best seed"
"""How the note on a ratio calls the best starting kernel."""


def repeated(run: Callable[[], Outcome | Execution], shape: Shape) -> Outcome | None:
    """The outcome that ends a kernel whose runs on the same operands differ, or the first that fails.

    Args:
        run: runs and checks it.
        shape: of the runs.
    """
    first: bytes | None = None
    for number in range(REPEATS):
        seen = run()
        if isinstance(seen, Outcome):
            return seen
        bits = b"".join(np.ascontiguousarray(seen.outputs[name]).tobytes() for name in sorted(seen.outputs))
        first = bits if first is None else first
        if bits != first:
            message = f"run {number + 1} of {REPEATS} gives other bits than the first: a race, or atomics not declared"
            hint = "look for a missing barrier; if the order of additions may differ, set atomics = true"
            finding = Finding(Gate.CORRECTNESS, "nondeterministic", message, None, hint, shape=dict(shape))
            return WrongResult(Gate.CORRECTNESS, (finding,))
    return None


def sanitized(
    device: Cuda, program: Program, inputs: Inputs, shape: Shape
) -> tuple[Outcome | None, tuple[Finding, ...]]:
    """Run under the four tools of compute-sanitizer, at a small shape.

    Returns:
        (what ends the kernel, warnings and notes); without the tool a note says that it was not asked.
    """
    try:
        found = device.sanitize(program, inputs)
    except ToolError as missing:
        return None, (Finding(Gate.CONFIRMATION, "not_sanitized", str(missing), severity="note"),)
    found = tuple(replace(finding, shape=dict(shape)) for finding in found)
    errors = tuple(finding for finding in found if finding.severity == "error")
    return (SanitizerFinding(Gate.CONFIRMATION, errors) if errors else None), found


def times_beside(
    task: Task, device: Cuda, shape: Shape, subject: Timeable, rival: str, seed: Timeable | None
) -> tuple[Measurement, tuple[Finding, ...]]:
    """Time a kernel by the full protocol, interleaved with a vendor routine and the best starting kernel.

    Args:
        task: what all compute.
        device: the card.
        shape: one of the task's.
        subject: the kernel at that shape.
        rival: name of the routine; "" for none.
        seed: the starting kernel at that shape, if there is one to compare with.

    Returns:
        (its measurement, a note for each ratio).

    Raises:
        TimingError: a kernel did not finish.
    """
    from fitness.baselines.measuring import beside

    measured, ratios = beside(task, device, shape, subject, rival, {} if seed is None else {SEED: seed})
    return measured, tuple(_note(name, ratio, shape) for name, ratio in ratios.items())


def _note(name: str, ratio: Estimate, shape: Mapping[str, int]) -> Finding:
    message = f"{ratio.value:.3f}x {name}, interleaved (95 % from {ratio.low:.3f} to {ratio.high:.3f})"
    return Finding(Gate.TIMING, "beside", message, severity="note", shape=dict(shape))
