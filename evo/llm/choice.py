"""Weighing operators and models by what they bring per cost: a bandit whose state is a fold over archived facts.

Probability matching with decay (Thierens, 2005, "An adaptive pursuit strategy for allocating operator
probabilities"; here the plain matching rule): an arm's weight is multiplied by its rate of improvement per cost over
the pooled rate. Improvement is ln(parent's time / child's time) where positive. Cost counts an evaluation as 1,
10,000 tokens as 1, or a cent where the price is known. Everything halves in about three generations. Wall time enters
nowhere, so that a resumed or replayed run chooses the same.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mutations.llm.prices import Model
from mutations.llm.recording import Call

DECAY: Final = 0.8
TOKENS_PER_UNIT: Final = 10_000
USD_PER_UNIT: Final = 0.01
PRIOR_PULLS: Final = 4
"""Pulls at the pooled rate that every arm is credited with: few trials decide little."""

MOST: Final = 4.0
"""A weight changes by at most this factor, up or down: every arm stays in use."""


@dataclass(frozen=True)
class Pull:
    """One use of an arm: what it gained and what it cost, in units of evaluations."""

    arm: str
    generation: int
    gain: float
    cost: float


def improvement(parent_us: float | None, child_us: float | None) -> float:
    """ln(parent / child) where the child is faster, else 0. Times in microseconds, None for no time."""
    if parent_us is None or child_us is None:
        return 0.0
    return max(0.0, math.log(parent_us / child_us))


def call_cost(calls: Iterable[Call]) -> float:
    """What requests cost, in units of evaluations."""
    return sum(
        call.usd / USD_PER_UNIT if call.usd else (call.tokens_in + call.tokens_out) / TOKENS_PER_UNIT for call in calls
    )


def factors(pulls: Sequence[Pull], arms: Iterable[str], generation: int) -> dict[str, float]:
    """By what each arm's weight is to be multiplied in a generation; 1 where nothing is known of any."""
    names = sorted(arms)
    gains: dict[str, float] = defaultdict(float)
    costs: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    for pull in pulls:
        share = DECAY ** (generation - 1 - pull.generation)
        gains[pull.arm] += share * pull.gain
        costs[pull.arm] += share * pull.cost
        counts[pull.arm] += share
    gain, cost, count = (math.fsum(table[name] for name in names) for table in (gains, costs, counts))
    if gain <= 0.0 or cost <= 0.0:
        return dict.fromkeys(names, 1.0)
    pooled, prior = gain / cost, PRIOR_PULLS * cost / count
    rates = {name: (gains[name] + pooled * prior) / (costs[name] + prior) for name in names}
    return {name: min(MOST, max(1 / MOST, rate / pooled)) for name, rate in rates.items()}


def order(models: Sequence[Model], weights: Mapping[str, float], rng_seed: int, n: int) -> tuple[Model, ...]:
    """The models in the order in which candidate n asks them: drawn without replacement, by weight.

    The generator is the candidate's own, apart from the one its operator draws from.
    """
    rng = np.random.default_rng(np.random.SeedSequence([rng_seed, n, 1]))
    keys = {model.name: rng.exponential() / (model.weight * weights.get(model.name, 1.0)) for model in models}
    return tuple(sorted(models, key=lambda model: keys[model.name]))
