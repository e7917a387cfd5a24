"""What was tried with a parent and what it did, compacted to a few lines for prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from evo.merit import fitness_us
from mutations.llm.describe import verdict_text
from mutations.llm.quoting import phrase
from mutations.operator import Judged

_CHILDREN: Final = 8
_ANCESTORS: Final = 4


def history_lines(parents: Sequence[Judged], judged: Mapping[int, Judged]) -> tuple[str, ...]:
    """How the first parent came about, then the latest children of any of the parents, each with its effect."""
    if not parents:
        return ()
    line = [entry for entry in _line(parents[0], judged) if entry.candidate.plan.parents][-_ANCESTORS:]
    numbers = {parent.candidate.plan.n for parent in parents}
    shown = {entry.candidate.plan.n for entry in line}
    children = [
        entry
        for n, entry in sorted(judged.items())
        if n not in shown and numbers.intersection(entry.candidate.plan.parents)
    ]
    return tuple(_text(entry, judged) for entry in (*line, *children[-_CHILDREN:]))


def _line(entry: Judged, judged: Mapping[int, Judged]) -> list[Judged]:
    """From the seed to the candidate, along first parents."""
    path = [entry]
    while path[0].candidate.plan.parents and (before := judged.get(path[0].candidate.plan.parents[0])) is not None:
        path.insert(0, before)
    return path


def _text(entry: Judged, judged: Mapping[int, Judged]) -> str:
    plan = entry.candidate.plan
    return f"#{plan.n} {plan.operator}: {phrase(entry.candidate.reason, 160)}: {effect(entry, judged)}"


def effect(entry: Judged, judged: Mapping[int, Judged]) -> str:
    """A child against its first parent: "12 % faster", "the same time", or how it failed."""
    own = fitness_us(entry.outcome)
    plan = entry.candidate.plan
    parent = judged.get(plan.parents[0]) if plan.parents else None
    before = fitness_us(parent.outcome) if parent is not None else None
    if own is None or before is None:
        return verdict_text(entry.outcome)
    percent = 100 * (before / own - 1)
    if abs(percent) < 0.5:
        return f"the same time as #{plan.parents[0]}"
    return f"{abs(percent):.0f} % {'faster' if percent > 0 else 'slower'} than #{plan.parents[0]}"
