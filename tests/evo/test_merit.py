from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo import merit
from fitness.outcome import Gate, Rejected, Timed, Timing

times = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=5)


def timing(time_us: float, high_us: float | None = None, clock: str = "modelled", n: int = 16) -> Timing:
    return Timing({"N": n}, clock, time_us, time_us, high_us or time_us, 1.0, 1.0, 1.0)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(times)
def test_the_mean_lies_between_the_extremes(values: list[float]) -> None:
    mean = merit.geometric_mean(values)
    assert min(values) * (1 - 1e-12) <= mean <= max(values) * (1 + 1e-12)
    assert merit.geometric_mean([1 / value for value in values]) == pytest.approx(1 / mean)


@pytest.mark.parametrize("values", [[], [0.0], [1.0, -2.0], [math.nan], [math.inf]])
def test_the_mean_refuses_what_has_none(values: list[float]) -> None:
    with pytest.raises(ValueError, match="positive finite"):
        merit.geometric_mean(values)


def test_fitness_is_the_upper_bound_of_checked_times_only() -> None:
    timed = Timed(Gate.TIMING, timings=(timing(2.0, 4.0), timing(2.0, 9.0)))
    assert merit.fitness_us(timed) == pytest.approx(6.0)
    assert merit.fitness_us(Rejected(Gate.PARSE)) is None
    assert merit.fitness_us(Timed(Gate.TIMING_SCREEN, timings=timed.timings)) is None
    assert merit.fitness_us(Timed(Gate.SMALL_RUN)) is None


@settings(max_examples=40, deadline=None)
@given(times)
def test_speedup_over_itself_is_one_and_inverts(values: list[float]) -> None:
    ours = [timing(value, n=n) for n, value in enumerate(values)]
    theirs = [timing(2 * value, n=n) for n, value in enumerate(values)]
    assert merit.speedup(ours, ours) == pytest.approx(1.0)
    assert merit.speedup(theirs, ours) == pytest.approx(2.0)
    assert merit.speedup(ours, theirs) == pytest.approx(0.5)


def test_other_shapes_or_clocks_are_not_compared() -> None:
    with pytest.raises(merit.IncomparableError, match="shapes"):
        merit.speedup([timing(1.0, n=1)], [timing(1.0, n=2)])
    with pytest.raises(merit.IncomparableError, match="clocks"):
        merit.speedup([timing(1.0)], [timing(1.0, clock="measured")])


def test_floor_fraction() -> None:
    assert merit.floor_fraction([timing(2.0), timing(8.0)]) == pytest.approx(0.25)
