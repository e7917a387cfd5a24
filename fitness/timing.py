"""Statistics of measured times: medians per block, bootstrap intervals over blocks, paired comparison.

Samples of one block are taken close together; what drifts (clocks, temperature, neighbours) differs between
blocks. So blocks, not samples, are resampled (B. Efron, "Bootstrap methods", 1979; block bootstrap), and two
subjects are compared by the ratio of their medians within each block. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]
"""(blocks, samples per block) microseconds."""

RESAMPLES: Final = 2000
LEVEL: Final = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with the bounds of its 95 % interval; `low <= value <= high`."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Plan:
    """How many samples of each subject are taken: `blocks` x `per_block`.

    Where all of them would take longer than `longest_us`, as many fewer per block as that asks for, one at least.
    """

    blocks: int
    per_block: int
    longest_us: float = 2e6

    def affordable(self, round_us: float) -> Plan:
        """The plan for subjects that take `round_us` together, one sample each."""
        most = int(self.longest_us / (round_us * self.blocks))
        return replace(self, per_block=max(1, min(self.per_block, most)))


SCREEN: Final = Plan(5, 6)
FULL: Final = Plan(10, 8, longest_us=1e5)
CONFIRM: Final = Plan(10, 20)
"""At least 30 samples to screen; 200 pairs in 10 blocks to confirm."""


def block_medians(samples: Samples) -> NDArray[np.float64]:
    """(blocks,) median of each block."""
    medians: NDArray[np.float64] = np.median(samples, axis=1)
    return medians


def time_estimate(samples: Samples) -> Estimate:
    """Median of the block medians, with its bootstrap interval."""
    return _bootstrap(block_medians(samples))


def ratio_estimate(reference: Samples, subject: Samples) -> Estimate:
    """Reference time / subject time (a speedup above 1), from pairs of blocks taken together.

    Args:
        reference: samples of what is compared with.
        subject: of the same shape; row i of both was sampled interleaved.

    Raises:
        ValueError: the shapes differ: such samples are no pairs.
    """
    if reference.shape != subject.shape:
        raise ValueError(f"samples {reference.shape} and {subject.shape} are no pairs")
    logs = np.log(block_medians(reference) / block_medians(subject))
    found = _bootstrap(logs)
    return Estimate(*(float(np.exp(value)) for value in (found.value, found.low, found.high)))


def is_win(ratio: Estimate, delta: float) -> bool:
    """True if the subject is faster than the reference beyond what two equal kernels differ by.

    Args:
        ratio: of `ratio_estimate`.
        delta: 99th percentile of |log ratio| in A/A runs (see `calibrate`).
    """
    return ratio.low > 1.0 + delta


def calibrate(ratios: Sequence[float]) -> float:
    """The `delta` of `is_win`: 99th percentile of |log ratio| over A/A comparisons on this machine.

    Raises:
        ValueError: fewer than 20 ratios tell nothing about a 99th percentile.
    """
    if len(ratios) < 20:
        raise ValueError(f"{len(ratios)} A/A ratios; at least 20 are needed")
    return float(np.quantile(np.abs(np.log(np.asarray(ratios))), 0.99))


def _bootstrap(values: NDArray[Any]) -> Estimate:
    """Median and percentile interval; the same values give the same interval."""
    middle = float(np.median(values))
    chosen = np.random.default_rng(values.size).integers(0, values.size, (RESAMPLES, values.size))
    medians = np.median(values[chosen], axis=1)
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(middle, min(float(low), middle), max(float(high), middle))


def interleave(
    subjects: int, plan: Plan, rng: np.random.Generator, sample: Callable[[int], float]
) -> NDArray[np.float64]:
    """Sample all subjects in turn, in an order drawn anew for every round (AB, BA, BA, ...).

    Args:
        subjects: how many.
        plan: rounds of one block, and blocks.
        rng: draws the orders.
        sample: takes one sample of a subject, microseconds.

    Returns:
        (subjects, blocks, per_block) microseconds.
    """
    taken = np.empty((subjects, plan.blocks, plan.per_block))
    for block in range(plan.blocks):
        for number in range(plan.per_block):
            for subject in rng.permutation(subjects):
                taken[subject, block, number] = sample(int(subject))
    return taken
