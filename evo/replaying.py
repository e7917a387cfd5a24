"""Is a replay the same, bit for bit? Compares what two runs decided and found."""

from __future__ import annotations

import dataclasses

from evo.archive import Archive, Entry, Refused
from fitness.outcome import Cost, Outcome


def first_difference(archive: Archive, old_id: str, new_id: str) -> str | None:
    """Where the new run departs from the old one, in words; None where all of the old one is repeated.

    Compared are plans, kernels, reasons, models, verdicts and times of every candidate; not moments, nor seconds.
    """
    old, new = ({entry.plan.n: entry for entry in archive.entries(run)} for run in (old_id, new_id))
    old_outcomes, new_outcomes = archive.outcomes(old_id), archive.outcomes(new_id)
    for n, entry in old.items():
        if n not in new:
            return f"candidate {n} is missing"
        if _facts(entry) != _facts(new[n]):
            return f"candidate {n} is {_facts(new[n])}, it was {_facts(entry)}"
        if n in old_outcomes and n in new_outcomes and _verdict(*old_outcomes[n]) != _verdict(*new_outcomes[n]):
            return f"the verdict on candidate {n} is {new_outcomes[n][0].kind}, it was {old_outcomes[n][0].kind}"
        if n in old_outcomes and n not in new_outcomes:
            return f"candidate {n} has no verdict"
    return None


def _facts(entry: Entry) -> tuple[object, ...]:
    if isinstance(entry, Refused):
        return entry.plan, "refused", entry.why
    return entry.plan, entry.kernel.id, entry.reason, entry.model


def _verdict(outcome: Outcome, reused_from: int | None) -> tuple[Outcome, int | None]:
    return dataclasses.replace(outcome, cost=Cost()), reused_from
