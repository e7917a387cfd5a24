"""The `dispatch` operator: a crossover by shape, one kernel for small sizes and another for large ones."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fitness.kernel import Kernel
from fitness.outcome import Timed, Timing
from mutations.combination import CombinationError, Split, combine
from mutations.launches import launchable
from mutations.operator import Context, Judged, Proposal, Refusal

LEAST_GAIN: Final = 0.02
"""Part by which a child's mean time must be expected below that of the better one of its parents."""

_TRIED: Final = 64  # pairs that are combined before giving up, the best ones
_DIMS: Final = ("N", "M", "K")

Times = tuple[Timing, ...]


@dataclass(frozen=True)
class _Plan:
    """Which of two kernels serves which shapes: sizes of `dim` up to `below` go to `low`, from `above` on to `high`."""

    low: Judged
    high: Judged
    dim: str
    below: int
    above: int
    us: float


class Dispatch:
    """Combines its parent with the kernel of the run that is fastest where the parent is slow.

    Where tasks have several shapes, no setting of params gives each its own tile sizes. The child launches one of two
    kernels, by a threshold on a size of the task that stands between two timed shapes. The partner is the one for
    which the times seen promise most. Nothing is left to chance.
    """

    name = "dispatch"
    arity = 1

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        """One child of a parent and a partner from the ledger, or a refusal if none promises to be clearly faster."""
        (parent,) = parents
        if len(context.task.shapes) < 2:
            return Refusal("the task has one shape only: there is nothing to divide")
        if _timings(parent, context) is None:
            return Refusal("the parent has not been timed at every shape")
        plans = sorted(_plans(parent, context), key=lambda plan: round(plan.us, 9))
        reasons: Counter[str] = Counter()
        for plan in plans[:_TRIED]:
            reply = _child(plan, context)
            if isinstance(reply, Kernel):
                return Proposal(reply, _reason(plan, context))
            reasons[reply] += 1
        if not reasons:
            return Refusal(f"with no kernel of the run would it be {LEAST_GAIN:.0%} faster than the better of the two")
        why = "; ".join(f"{count} of {len(plans[:_TRIED])} partners: {reason}" for reason, count in reasons.items())
        return Refusal(f"no partner can be combined with it: {why}")


def _plans(parent: Judged, context: Context) -> Iterator[_Plan]:
    """The best division between the parent and each timed kernel of the run, where it is worth it."""
    ours = _timings(parent, context) or ()
    for other in context.ledger.timed():
        theirs = _timings(other, context)
        if theirs is None or other.candidate.kernel == parent.candidate.kernel:
            continue
        plan = min(_divisions(parent, ours, other, theirs), key=lambda plan: round(plan.us, 9), default=None)
        if plan is not None and plan.us < (1 - LEAST_GAIN) * min(_mean(ours), _mean(theirs)):
            yield plan


def _divisions(parent: Judged, ours: Times, other: Judged, theirs: Times) -> Iterator[_Plan]:
    """Every threshold on every size, either way round."""
    for dim in _DIMS:
        sizes = [timing.shape.get(dim, 0) for timing in ours]
        for below, above in itertools.pairwise(sorted(set(sizes))):
            for low, high, first, second in ((parent, other, ours, theirs), (other, parent, theirs, ours)):
                served = [a if size <= below else b for size, a, b in zip(sizes, first, second, strict=True)]
                yield _Plan(low, high, dim, below, above, _mean(served))


def _child(plan: _Plan, context: Context) -> Kernel | str:
    """The kernel, or why there is none."""
    child = _combined(plan.low.candidate.kernel, plan.high.candidate.kernel, _split(plan, context))
    if isinstance(child, str):
        return child
    if context.ledger.tried(child.id):
        return "the run has that combination already"
    if not launchable(child, context.task, context.target):
        return "the combination cannot be launched on this card"
    unfit = any(finding.severity == "error" for finding in context.task.domain_violations(child))
    return "the combination does not fit the task" if unfit else child


@functools.lru_cache(maxsize=256)
def _combined(low: Kernel, high: Kernel, split: Split) -> Kernel | str:
    """The two in one, or why not; the same pairs are asked about for child after child."""
    try:
        return combine(low, high, split)
    except CombinationError as error:
        return str(error)


def _split(plan: _Plan, context: Context) -> Split:
    """Powers of two from the smallest timed size to below the largest one; to begin with, the geometric middle."""
    sizes = [shape[plan.dim] for shape in context.task.shapes]
    powers = [1 << n for n in range(max(sizes).bit_length())]
    values = [power for power in powers if min(sizes) <= power < max(sizes)]
    within = [value for value in values if plan.below <= value < plan.above]
    if not within:
        within = [plan.below]
        values = sorted({*values, plan.below})
    middle = math.sqrt(plan.below * plan.above)
    return Split(plan.dim, tuple(values), min(within, key=lambda value: abs(math.log(value / middle))))


def _timings(one: Judged, context: Context) -> Times | None:
    outcome = one.outcome
    if not isinstance(outcome, Timed) or len(outcome.timings) != len(context.task.shapes):
        return None
    return tuple(outcome.timings)


def _mean(timings: Sequence[Timing]) -> float:
    """Geometric mean, us."""
    return math.exp(sum(math.log(timing.time_us) for timing in timings) / len(timings))


def _reason(plan: _Plan, context: Context) -> str:
    """Who serves what, with the times that made it so."""
    low = [t for t in _timings(plan.low, context) or () if t.shape[plan.dim] <= plan.below]
    high = [t for t in _timings(plan.high, context) or () if t.shape[plan.dim] >= plan.above]
    split = _split(plan, context).value
    return (
        f"{plan.dim} <= {split} as #{plan.low.candidate.plan.n} ({_at(low, plan.dim)}), "
        f"else as #{plan.high.candidate.plan.n} ({_at(high, plan.dim)}); {plan.us:.3g} us expected"
    )


def _at(timings: Sequence[Timing], dim: str) -> str:
    """The times at the sizes of a dimension."""
    return ", ".join(f"{timing.time_us:.3g} us at {dim}={timing.shape[dim]}" for timing in timings)
