"""The numbers kernels are compared by: fitness, speedup, gain, fraction of the floor. Nowhere else.

All are geometric means over the task's shapes; a ratio is only ever taken between times of one clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fitness.outcome import Gate, Outcome, Timed, Timing


class IncomparableError(ValueError):
    """Two sets of times that do not belong together (other shapes, another clock)."""


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of positive numbers.

    Raises:
        ValueError: no numbers, or one that is not positive and finite.
    """
    numbers = list(values)
    if not numbers or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise ValueError(f"a geometric mean needs positive finite numbers, not {numbers}")
    if len(numbers) == 1:
        return numbers[0]  # exactly, which exp(log(x)) is not
    return math.exp(math.fsum(math.log(number) for number in numbers) / len(numbers))


def fitness_us(outcome: Outcome) -> float | None:
    """What the search minimises: geometric mean of the times' upper bounds; None for a failure.

    None as well for a kernel that stopped as hopeless at the timing screen: it was not checked at the
    timed shapes. On the modelled clock the bound is the time itself; on the measured one it guards against luck.
    """
    if not isinstance(outcome, Timed) or outcome.stage < Gate.TIMING or not outcome.timings:
        return None
    return geometric_mean(timing.high_us for timing in outcome.timings)


def time_us(outcome: Outcome) -> float | None:
    """Geometric mean of the times themselves, what a speedup is the ratio of; None where there is no fitness."""
    if not isinstance(outcome, Timed) or fitness_us(outcome) is None:
        return None
    return geometric_mean(timing.time_us for timing in outcome.timings)


def shape_us(outcome: Outcome) -> tuple[float, ...]:
    """What the fitness is the mean of: upper bounds of the times, in the order of the shapes."""
    return tuple(timing.high_us for timing in outcome.timings) if isinstance(outcome, Timed) else ()


def speedup(reference: Sequence[Timing], timings: Sequence[Timing]) -> float:
    """Geometric mean over shapes of reference time / time.

    The one ratio of the project: *speedup* with the baseline's times as reference, *gain* with the best
    starting seed's.

    Raises:
        IncomparableError: the shapes or clocks differ.
    """
    return geometric_mean(ratios(reference, timings))


def ratios(reference: Sequence[Timing], timings: Sequence[Timing]) -> list[float]:
    """Reference time / time per shape, in order.

    Raises:
        IncomparableError: the shapes or clocks differ.
    """
    if [dict(timing.shape) for timing in reference] != [dict(timing.shape) for timing in timings]:
        raise IncomparableError("times of different shapes are not compared")
    clocks = {timing.clock for timing in (*reference, *timings)}
    if len(clocks) > 1:
        raise IncomparableError(f"times of different clocks are not compared ({', '.join(sorted(clocks))})")
    return [theirs.time_us / ours.time_us for theirs, ours in zip(reference, timings, strict=True)]


def floor_fraction(timings: Sequence[Timing]) -> float:
    """Geometric mean over shapes of floor / time: 1.0 stands on the roofline (launch included)."""
    return geometric_mean(timing.floor_us / timing.time_us for timing in timings)
