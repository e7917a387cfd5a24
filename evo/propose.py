"""Plans -> entries: loading the operators and asking them for children."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import mutations
from evo.archive import Entry, Refused
from evo.errors import EvoError
from evo.ledger import RunLedger
from evo.population import Share
from fitness.registry import UnknownNameError
from mutations.operator import Candidate, Context, Judged, Operator, Plan, Proposal, Refusal, Unavailable

REPROPOSALS = 8
"""How often an operator may try again when its child is already part of the run. Such a child would cost
nothing, its verdict being known, but it would waste a place of the generation."""


LAST_RESORT = "tune"
"""The built-in operator that works in place of a model that does not answer."""


def load_operators(names: Sequence[str]) -> dict[str, Operator]:
    """Operators by their names in the experiment ("tune", or a dotted path "package.module:Class").

    Raises:
        EvoError: the path cannot be imported or holds no operator.
    """
    return {name: _load(name) for name in sorted(names)}


def shares(weights: Mapping[str, float], operators: Mapping[str, Operator]) -> dict[str, Share]:
    """What the population needs to know of the operators."""
    return {
        name: Share(weights[name], operator.arity, bool(getattr(operator, "repairs", False)))
        for name, operator in operators.items()
    }


def propose(
    plan: Plan,
    operator: Operator,
    parents: Sequence[Judged],
    context: Context,
    ledger: RunLedger,
    made: Proposal | Refusal | None = None,
) -> Entry:
    """Make the child of one plan; a child the run has already is asked for again, a bounded number of times.

    The operator draws on from the same generator, so the outcome depends on the plan and the run's
    earlier candidates only. `made` is what a model's operator has come to already; where no model answered,
    the built-in `tune` takes its place and says so in the reason.
    """
    child = made if made is not None else operator.propose(parents, context)
    if isinstance(child, Unavailable):
        return _instead(plan, child, parents, context, ledger)
    for _ in range(REPROPOSALS):
        if isinstance(child, Refusal) or child.model is not None or not ledger.tried(child.kernel.id):
            break
        again = operator.propose(parents, context)
        if isinstance(again, Refusal):
            break
        child = again
    if isinstance(child, Refusal):
        return Refused(plan, child.why)
    return Candidate(plan, child.kernel, child.reason, child.model)


def _instead(plan: Plan, lost: Unavailable, parents: Sequence[Judged], context: Context, ledger: RunLedger) -> Entry:
    """The child of a plan whose model did not answer: the built-in operator's, if the parent is valid."""
    if not parents or not parents[0].outcome.valid:
        return Refused(plan, lost.why)
    entry = propose(plan, mutations.load_operator(LAST_RESORT), parents[:1], context, ledger)
    if isinstance(entry, Refused):
        return Refused(plan, f"{lost.why}; {LAST_RESORT}: {entry.why}")
    return dataclasses.replace(entry, reason=f"{LAST_RESORT} instead, {lost.why}: {entry.reason}"[:400])


def _load(name: str) -> Operator:
    try:
        operator = mutations.load_operator(name)
    except (UnknownNameError, TypeError) as error:
        raise EvoError(f"operators.{name} cannot be loaded: {error}", 'write a known name or "module:Class"') from error
    if not callable(getattr(operator, "propose", None)) or not isinstance(getattr(operator, "arity", None), int):
        raise EvoError(f"operators.{name} is no operator", "it needs name, arity and propose()")
    return operator
