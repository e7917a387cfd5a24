"""Statistics of measured times."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.timing import (
    CONFIRM,
    FULL,
    SCREEN,
    Estimate,
    Plan,
    block_medians,
    calibrate,
    interleave,
    is_win,
    ratio_estimate,
    time_estimate,
)


def noisy(mean_us: float, rng: np.random.Generator, plan: Plan = CONFIRM, drift: float = 0.01) -> np.ndarray:
    """Samples whose blocks drift together and whose samples jitter, with a rare outlier."""
    blocks = mean_us * (1 + drift * rng.standard_normal((plan.blocks, 1)))
    samples = blocks * (1 + 0.005 * rng.standard_normal((plan.blocks, plan.per_block)))
    return np.where(rng.random(samples.shape) < 0.02, 3 * samples, samples)


def test_estimate_holds_the_time_and_shrugs_off_outliers() -> None:
    found = time_estimate(noisy(20.0, np.random.default_rng(1)))
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx(20.0, rel=0.02)
    assert found.high - found.low < 1.0


def test_equal_samples_give_an_exact_interval() -> None:
    assert time_estimate(np.full((5, 6), 7.0)) == Estimate(7.0, 7.0, 7.0)


def test_interval_covers_the_truth_most_of_the_time() -> None:
    covered = 0
    for seed in range(200):
        found = time_estimate(noisy(10.0, np.random.default_rng(seed)))
        covered += found.low <= 10.0 <= found.high
    assert covered >= 170


def test_pairing_removes_what_drifts_together() -> None:
    rng = np.random.default_rng(3)
    drift = 1 + 0.2 * rng.standard_normal((10, 1)).clip(-0.5, 0.5)
    a = 10.0 * drift * (1 + 0.002 * rng.standard_normal((10, 20)))
    b = 10.3 * drift * (1 + 0.002 * rng.standard_normal((10, 20)))
    ratio = ratio_estimate(b, a)
    assert ratio.value == pytest.approx(1.03, rel=0.003)
    assert ratio.low > 1.02


def test_ratio_needs_pairs() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        ratio_estimate(np.ones((5, 6)), np.ones((5, 5)))


def test_slower_control_is_found_and_equal_kernels_rarely_win() -> None:
    def ratio(seed: int, factor: float) -> Estimate:
        rng = np.random.default_rng(seed)
        drift = 1 + 0.01 * rng.standard_normal((10, 1))
        draw = [drift * (1 + 0.005 * rng.standard_normal((10, 20))) for _ in range(2)]
        return ratio_estimate(factor * draw[0], draw[1])

    delta = calibrate([ratio(seed, 1.0).value for seed in range(100)])
    false_wins = sum(is_win(ratio(seed, 1.0), delta) for seed in range(1000, 1200))
    detected = sum(is_win(ratio(seed, 1.03), delta) for seed in range(2000, 2100))
    assert false_wins <= 10
    assert detected >= 95


def test_calibration_needs_enough() -> None:
    with pytest.raises(ValueError, match="at least 20"):
        calibrate([1.0] * 19)


def test_interleaving_mixes_the_order_and_counts_right() -> None:
    order: list[int] = []

    def sample(subject: int) -> float:
        order.append(subject)
        return float(subject)

    taken = interleave(2, SCREEN, np.random.default_rng(0), sample)
    assert taken.shape == (2, SCREEN.blocks, SCREEN.per_block)
    assert (taken[0] == 0).all()
    assert (taken[1] == 1).all()
    rounds = [tuple(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert set(rounds) == {(0, 1), (1, 0)}
    assert SCREEN.blocks * SCREEN.per_block >= 30
    assert CONFIRM.blocks >= 10
    assert CONFIRM.blocks * CONFIRM.per_block >= 200


def test_medians_are_per_block() -> None:
    assert block_medians(np.array([[1.0, 9.0, 2.0], [5.0, 5.0, 5.0]])).tolist() == [2.0, 5.0]


def test_a_slow_session_takes_fewer_samples_a_block() -> None:
    assert FULL.affordable(500.0) == FULL
    assert FULL.affordable(5_000.0) == Plan(10, 2, FULL.longest_us)
    assert FULL.affordable(1e9).per_block == 1
    assert SCREEN.affordable(10_000.0) == SCREEN, "30 samples, however slow"
