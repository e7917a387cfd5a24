"""Times in the task's terms, the floor, and whether a smaller K may stand for the full one."""

from __future__ import annotations

import pytest

from fitness.costing import below_floor, is_linear, mean_us, timing_of
from fitness.devices.device import Measurement
from tests.fitness.fakes import H200, NumpyDevice, gemm_task

TASK = gemm_task((512, 16, 1024), (512, 64, 1024))


def measured(*times_us: float) -> tuple[Measurement, ...]:
    return tuple(Measurement(t, t - 0.5, t + 0.5, limiter="DRAM") for t in times_us)


def test_mean_is_geometric() -> None:
    assert mean_us(measured(10.0, 1000.0)) == pytest.approx(100.0)


def test_rates_are_of_the_tasks_own_flops_and_bytes() -> None:
    shape = TASK.shapes[0]
    timing = timing_of(TASK, NumpyDevice(), shape, measured(2.0)[0])
    assert (timing.time_us, timing.low_us, timing.high_us, timing.limiter) == (2.0, 1.5, 2.5, "DRAM")
    assert timing.tflops == pytest.approx(2 * 512 * 16 * 1024 / 2e-6 / 1e12)
    assert timing.gb_per_s == pytest.approx(2 * (512 * 1024 + 16 * 1024 + 512 * 16) / 2e-6 / 1e9)


def test_only_times_below_the_floor_are_faults() -> None:
    floors = [TASK.floor_us(shape, H200) for shape in TASK.shapes]
    assert below_floor(TASK, H200, measured(*floors)) is None
    finding = below_floor(TASK, H200, measured(floors[0], 0.9 * floors[1]))
    assert finding is not None
    assert (finding.kind, finding.shape) == ("below_floor", TASK.shapes[1])


@pytest.mark.parametrize(
    ("points", "steps", "linear"),
    [
        (((0.125, 1100), (0.25, 2100)), 8100, True),  # prologue 100, then 8000 K
        (((0.125, 1100), (0.25, 2100)), 8000, True),  # within the tolerance
        (((0.125, 1100), (0.25, 2100)), 7000, False),
        (((0.125, 100), (0.25, 100)), 8100, False),  # does nothing at a smaller K
    ],
)
def test_what_counts_as_linear(points: tuple[tuple[float, int], ...], steps: int, linear: bool) -> None:
    assert is_linear(points, steps) is linear
