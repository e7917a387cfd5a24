"""When a run stops to ask a person, or narrows to tuning by itself: `[pause]` of an experiment."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from evo.llm.section import PauseSection
from evo.observer import BudgetLine, GenerationStats
from evo.session import Session

PAUSED_EVENT: Final = "paused"
_HOOK_S: Final = 60.0
_STEADY: Final = ("evaluations",)
"""Budgets that are spent in order of n; a run may be narrowed by these only, or it would not resume the same."""


@dataclass(frozen=True)
class Cause:
    """Why a person is asked: which rule, and the words."""

    rule: str
    message: str


def cause(
    section: PauseSection,
    stats: Sequence[GenerationStats],
    budget: Iterable[BudgetLine],
    target: float,
    asked: Mapping[str, int],
) -> Cause | None:
    """The first rule of `[pause]` that applies, or None.

    Args:
        section: the rules.
        stats: complete generations, in order.
        budget: what is used up.
        target: `search.target_speedup`, which has not been reached.
        asked: rule -> generation after which a person was last asked because of it.
    """
    found = (
        _stagnation(section, stats, asked.get("generations", -1)),
        _failures(section, stats, asked.get("failure_rate", -1)),
        _share(section, budget, target) if "target_share" not in asked else None,
    )
    return next((one for one in found if one is not None), None)


def _stagnation(section: PauseSection, stats: Sequence[GenerationStats], since: int) -> Cause | None:
    recent = [one for one in stats if one.generation > since]
    if not section.generations or len(recent) <= section.generations:
        return None
    before, now = recent[-1 - section.generations].best_us, recent[-1].best_us
    if before is None or now is None or now < before:
        return None
    return Cause("generations", f"no better best for {section.generations} generations")


def _failures(section: PauseSection, stats: Sequence[GenerationStats], since: int) -> Cause | None:
    last = [one for one in stats if one.generation > max(since, 0) and one.judged][-2:]
    if not section.failure_rate or len(last) < 2:
        return None
    rates = [1 - one.valid / one.judged for one in last]
    if min(rates) < section.failure_rate:
        return None
    return Cause("failure_rate", f"{100 * rates[0]:.0f} and {100 * rates[1]:.0f} % of the last two generations failed")


def _share(section: PauseSection, budget: Iterable[BudgetLine], target: float) -> Cause | None:
    if not section.target_share or target <= 0:
        return None
    for line in budget:
        if section.action == "narrow" and line.kind not in _STEADY:
            continue
        if line.limit and line.used >= section.target_share * line.limit:
            share = 100 * line.used / line.limit
            return Cause("target_share", f"{share:.0f} % of {line.kind} used without a speedup of {target:g}")
    return None


def call_hook(command: str, facts: Mapping[str, str]) -> str | None:
    """Run the experiment's command with `facts` in its environment; why it failed, or None.

    The command comes from the person's own experiment file and runs as it stands, without a shell.
    """
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words, env={**os.environ, **facts}, timeout=_HOOK_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        return f"pause.command could not be run: {error}"
    return None if done.returncode == 0 else f"pause.command ended with exit code {done.returncode}"


class AskedError(Exception):
    """The run pauses to ask a person."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause


class Pauses:
    """The rules of `[pause]` at work in one run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._section = session.experiment.pause
        events = session.archive.events(session.run_id, PAUSED_EVENT)
        self._asked = {str(event.data["rule"]): int(event.data["generation"]) for event in events}
        self._said = ""

    def consider(self, stats: Sequence[GenerationStats]) -> None:
        """After a generation: pause where a rule applies, unless an earlier session has been there.

        Raises:
            AskedError: a person is to be asked; archived, and the command has been called.
        """
        session = self._session
        last = max((plan.generation for plan in session.archived_plans()), default=-1)
        if self._section.action != "pause" or stats[-1].generation < last:
            return
        found = self._cause(stats)
        if found is None:
            return
        generation = stats[-1].generation
        session.event(PAUSED_EVENT, {"message": found.message, "rule": found.rule, "generation": generation})
        if self._section.command:
            facts = {"EVO_RUN": session.run_id, "EVO_ARCHIVE": str(session.archive.path), "EVO_REASON": found.message}
            problem = call_hook(self._section.command, facts)
            if problem is not None:
                session.event("warning", {"message": problem})
        raise AskedError(found)

    def narrow(self, stats: Sequence[GenerationStats]) -> bool:
        """Before a generation: True where a rule applies and the action is to go on with `tune` alone."""
        if self._section.action != "narrow":
            return False
        found = self._cause(stats)
        if found is not None and found.rule != self._said and not self._session.knows(stats[-1].generation + 1):
            self._said = found.rule
            self._session.event("narrowed", {"message": f"{found.message}: only tune from here on"})
        return found is not None

    def _cause(self, stats: Sequence[GenerationStats]) -> Cause | None:
        session = self._session
        return cause(
            self._section, stats, session.budget.lines(), session.experiment.search.target_speedup, self._asked
        )
