"""What each operator and each model contributed to a run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from evo.archive import Archive, columns
from evo.archive.calls import Spending, spendings


@dataclass(frozen=True)
class Share:
    """Contribution of one operator or model.

    Attributes:
        name: of the operator or the model ("none" for candidates without a model).
        planned: plans it got; refused: those it made no child for; valid, duplicates, distinct: of its children, as
            `evo.archive.counts.Counts` has them.
        faster: children faster than their first parent; bests: children faster than every valid one before them.
        median_gain, best_gain: over the first parent's time, of distinct valid children; None without any.
        judged_s: seconds its children took to compile and judge; tokens, usd: of its model calls, of a model those it
            was asked (usd None where a price is not known). "planner" has what was asked for no child.
    """

    name: str
    planned: int
    refused: int
    valid: int
    duplicates: int
    distinct: int
    faster: int
    bests: int
    median_gain: float | None
    best_gain: float | None
    judged_s: float
    tokens: int
    usd: float | None


_NOTHING = Spending()


class _Step(NamedTuple):
    """What one candidate came to; times in microseconds, null without."""

    kernel_id: str | None
    reused_from: int | None
    time_us: Any
    fitness_us: Any
    judged_s: float
    parent_us: float | None


_VERDICT = _Step._fields


@dataclass
class _Tally:
    planned: int = 0
    refused: int = 0
    valid: int = 0
    duplicates: int = 0
    distinct: int = 0
    bests: int = 0
    gains: list[float] = field(default_factory=list)
    judged_s: float = 0.0
    spent: Spending = field(default_factory=Spending)


def shares(archive: Archive, run_id: str, by: Literal["operator", "model"] = "operator") -> tuple[Share, ...]:
    """Contributions, by name. Duplicates count as planned but neither as faster nor as best.

    Args:
        archive: open.
        run_id: the run.
        by: what to group by.

    Raises:
        ArchiveError: the archive cannot be read.
    """
    operators, models = all_shares(archive, run_id)
    return operators if by == "operator" else models


def all_shares(archive: Archive, run_id: str) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
    """Contributions of the operators and of the models, in one pass over the run.

    Raises:
        ArchiveError: the archive cannot be read.
    """
    spent: dict[int | None, Spending] = {}
    operators: dict[str, _Tally] = {}
    models: dict[str, _Tally] = {}
    for n, model, mine in spendings(archive, run_id):
        spent[n] = spent.get(n, Spending()) + mine
        models.setdefault(model, _Tally()).spent += mine
    best: float | None = None
    for n, operator, model, *verdict in columns.steps(archive, run_id, "n", "operator", "model", *_VERDICT):
        step = _Step(*verdict)
        own = step.reused_from is None and step.fitness_us is not None
        is_best = own and best is not None and step.fitness_us < best
        if own and (best is None or is_best):
            best = step.fitness_us
        for tallies, name in ((operators, operator), (models, model or "none")):
            _count(tallies.setdefault(name, _Tally()), step, own=own, is_best=is_best)
        if n in spent:
            operators[operator].spent += spent.pop(n)
    if spent:
        operators.setdefault("planner", _Tally()).spent += sum(spent.values(), _NOTHING)
    return tuple(_share(*one) for one in sorted(operators.items())), tuple(
        _share(*one) for one in sorted(models.items())
    )


def _count(tally: _Tally, step: _Step, *, own: bool, is_best: bool) -> None:
    """Add one candidate; `own`: valid and no duplicate."""
    tally.planned += 1
    tally.refused += step.kernel_id is None
    tally.duplicates += step.reused_from is not None
    tally.valid += step.fitness_us is not None
    tally.distinct += own
    tally.bests += is_best
    tally.judged_s += step.judged_s
    if own and step.parent_us is not None:
        tally.gains.append(step.parent_us / step.time_us)


def _share(name: str, tally: _Tally) -> Share:
    gains: Iterable[float] = tally.gains
    return Share(
        name=name,
        planned=tally.planned,
        refused=tally.refused,
        valid=tally.valid,
        duplicates=tally.duplicates,
        distinct=tally.distinct,
        faster=sum(gain > 1.0 for gain in gains),
        bests=tally.bests,
        median_gain=statistics.median(tally.gains) if tally.gains else None,
        best_gain=max(tally.gains, default=None),
        judged_s=tally.judged_s,
        tokens=tally.spent.tokens,
        usd=tally.spent.usd,
    )
