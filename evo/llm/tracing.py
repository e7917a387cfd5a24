"""The `trace` tool: one thread at one source line of a kernel a model wrote, in a process with limits of its own."""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from typing import Final

from fitness import feedback
from fitness.devices.simulator.tracing import Point
from fitness.gpu import Gpu
from fitness.kernel import Kernel
from fitness.task import Task

_SECONDS: Final = 60.0
_MEMORY_BYTES: Final = 8 << 30
_STEPS: Final = 40
_ENDED: Final = "the trace ended before it could say anything: it needs too much memory or crashes the simulator"

Limits = tuple[float, int]
"""Seconds of wall clock, bytes of address space."""


def trace_text(kernel: Kernel, task: Task, gpu: Gpu, point: Point, limits: Limits = (_SECONDS, _MEMORY_BYTES)) -> str:
    """What the thread did at the line, as text for a model; what hinders it is text as well.

    The kernel runs in a process that is killed when its time is up, as candidates do.

    Args:
        kernel: any kernel that parses, right or wrong.
        task: its first small shape is run.
        gpu: the card that is simulated.
        point: line, thread and block.
        limits: of the process.
    """
    seconds, memory_bytes = limits
    program = "from evo.llm.tracing import serve; serve()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=pickle.dumps((kernel, task, gpu, point, seconds, memory_bytes)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the trace took longer than {seconds:g} s"
    if done.returncode:
        return _ENDED
    return done.stdout.decode("utf-8", "replace")


def serve() -> None:
    """In the process: read what to trace, set its limits, trace, and write what came of it."""
    kernel, task, gpu, point, seconds, memory_bytes = pickle.load(sys.stdin.buffer)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        text = "\n".join(_lines(feedback.traced(kernel, task, gpu, point, {})))
    except feedback.FeedbackError as error:
        text = f"nothing to trace: {error}"
    except (RuntimeError, MemoryError):  # of libraries: their words name places of this machine
        text = _ENDED
    sys.stdout.buffer.write(text.encode())


def _lines(trace: feedback.Trace) -> list[str]:
    sizes = ", ".join(f"{name} = {size}" for name, size in trace.shape.items())
    said = [f"line {trace.point.line}, thread {trace.point.thread} of block {trace.point.block}, {sizes}:"]
    said.append(f"  {trace.source}")
    for step in trace.steps[:_STEPS]:
        reads, writes = (", ".join(f"{one.name} = {one.value}{_mark(one.known)}" for one in some)
                         for some in (step.reads, step.writes))  # fmt: skip
        told = [step.text.rstrip(";"), *(f"at {place}" for place in step.places)]
        told += [f"reads {reads}"] * bool(reads) + [f"gives {writes}"] * bool(writes)
        said.append(" | ".join(told))
    left = trace.left_out + max(0, len(trace.steps) - _STEPS)
    said += [f"and {left} more instructions of this line"] * bool(left)
    said += [f"found: {finding.message}" for finding in trace.findings[:3]]
    return said


def _mark(known: bool) -> str:
    return "" if known else " (uninitialised)"
