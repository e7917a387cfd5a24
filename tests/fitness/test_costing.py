"""Times in the task's terms, the floor, and whether a smaller K may stand for the full one."""

from __future__ import annotations

import pytest

from fitness.costing import below_floor, is_linear, mean_us, predicts, timing_of
from fitness.devices.device import Checks, Compiled, Measurement, Program, ResolvedLaunch
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


def launched(launches: int, blocks: int) -> Program:
    launch = ResolvedLaunch("gemm", (blocks, 1, 1), (32, 1, 1), 0, ())
    return Program(Compiled("sm_90a", "", b"", "", {}), (launch,) * launches)


@pytest.mark.parametrize(
    ("launches", "sample", "steps", "known"),
    [
        (1, None, 20 * 8100, True),  # all 20 blocks, each as long as the line says
        (1, (0, 5, 19), 3 * 8100, True),
        (1, (0, 5, 19), 20 * 8100, False),  # these three did the work of twenty
        (1, (0, 5, 19), 3 * 7000, False),
        (2, None, 20 * 8100, False),  # which launch took how many is not told
    ],
)
def test_the_runs_that_costed_a_kernel_predict_other_blocks(
    launches: int, sample: tuple[int, ...] | None, steps: int, known: bool
) -> None:
    points = ((0.125, 1100.0), (0.25, 2100.0))
    checks = Checks(blocks=None if sample is None else (sample,))
    assert predicts(points, launched(launches, 20), checks, steps) is known


def test_what_was_costed_at_full_size_needs_no_prediction_and_what_is_unknown_gets_none() -> None:
    assert predicts((), launched(1, 20), Checks(), 1)
    assert not predicts(None, launched(1, 20), Checks(), 1)
