"""Times as the evaluation uses them: what is handed to a device, and what its measurements mean for a task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from fitness.devices.device import Checks, Device, Measurement, Program
from fitness.gpu import Gpu
from fitness.outcome import Finding, Gate, Timing
from fitness.shapes import Shape
from fitness.task import Task

#: (scale, warp instructions) at two smaller K, scale = smaller K / full K.
Points = Sequence[tuple[float, float]]

#: Relative difference up to which instruction counts at two smaller K predict those at the full K. Kernels
#: whose loops only get longer are exact; the rest take another path (split-K slices shorter than a tile).
LINEAR_TOLERANCE: Final = 0.02


def mean_us(measurements: Sequence[Measurement]) -> float:
    """Geometric mean time over the shapes."""
    return math.exp(sum(math.log(measured.time_us) for measured in measurements) / len(measurements))


def predicts(points: Points | None, program: Program, checks: Checks, steps: int) -> bool:
    """True if the runs a time was extrapolated from predict what a run at full K took, block for block on average.

    Args:
        points: `Measurement.reduced_steps`; where the full size was costed (no points) there is nothing to predict.
        program: what ran at full K.
        checks: which of its blocks.
        steps: the warp instructions they took.
    """
    if not points:
        return points is not None
    if len(program.launches) > 1:
        return False
    x, y, z = program.launches[0].grid
    blocks = x * y * z if checks.blocks is None else len(checks.blocks[0])
    return is_linear(points, steps / blocks)


def is_linear(points: Points, steps: float) -> bool:
    """True if `steps`, counted at full size, lie on the line through two smaller sizes.

    Args:
        points: two (scale, steps), scale = smaller K / full K.
        steps: warp instructions at full K, of the same blocks or per block.
    """
    (first, a), (second, b) = points
    predicted = b + (b - a) * (1.0 - second) / (second - first)
    return abs(predicted - steps) <= LINEAR_TOLERANCE * steps


def below_floor(task: Task, gpu: Gpu, measurements: Sequence[Measurement]) -> Finding | None:
    """A time that nothing honest can reach is a fault of kernel or clock, never a record."""
    for shape, measured in zip(task.shapes, measurements, strict=True):
        floor_us = task.floor_us(shape, gpu)
        if measured.time_us < floor_us:
            message = f"{measured.time_us:.4g} us is below the floor of {floor_us:.4g} us: a fault, not a record"
            return Finding(Gate.TIMING_SCREEN, "below_floor", message, shape=dict(shape))
    return None


def timing_of(task: Task, device: Device, shape: Shape, measured: Measurement) -> Timing:
    """A measurement at a task's shape, with rates by the task's own FLOPs and bytes."""
    seconds = measured.time_us * 1e-6
    return Timing(
        shape=dict(shape),
        clock=device.clock,
        time_us=measured.time_us,
        low_us=measured.low_us,
        high_us=measured.high_us,
        floor_us=task.floor_us(shape, device.gpu),
        tflops=task.flops(shape) / seconds * 1e-12,
        gb_per_s=task.minimal_bytes(shape) / seconds * 1e-9,
        limiter=measured.limiter,
        samples_us=measured.samples_us,
    )
