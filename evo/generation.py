"""One generation: plans -> entries -> verdicts. Equal kernels are judged once, whoever is first in order of n."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from evo.archive import Entry, Refused
from evo.observer import Stage
from evo.session import Session
from evo.sharing import Found
from fitness.compile import DAMAGED_CACHE
from fitness.kernel import Kernel
from fitness.outcome import Cost, Finding, Gate, Outcome
from mutations.operator import Candidate, Plan


class OutOfTimeError(Exception):
    """A time budget ran out in the middle of a generation; `kind` names it."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def enter_all(session: Session, plans: Sequence[Plan], make: Callable[[Plan], Entry]) -> list[Candidate]:
    """Entries of all plans, archived; those an earlier session archived are taken as they are.

    Args:
        session: the run.
        plans: in order of n; there must be budget for as many evaluations.
        make: makes the entry of a plan; called in order of n.

    Returns:
        The candidates among the entries.
    """
    if not plans:
        return []
    session.budget.reserve("evaluations", len(plans))
    session.tally.planned += len(plans)
    session.stage(Stage.PROPOSE, len(plans))
    entries = []
    for plan in plans:
        entry = session.archived_entry(plan) or make(plan)
        session.enter(entry)
        session.tally.step()
        entries.append(entry)
    session.archive_entries(entries)
    return [entry for entry in entries if not isinstance(entry, Refused)]


def judge_all(session: Session, candidates: Sequence[Candidate], incumbent_us: float | None, *, full: bool) -> None:
    """Verdicts on all candidates of a generation into the session.

    Raises:
        OutOfTimeError: a time budget ran out; the verdicts so far are kept.
    """
    open_ = []
    for candidate in candidates:
        known = session.archived_outcome(candidate.plan.n)
        if known is not None:
            session.verdict(candidate, *known)
        else:
            open_.append(candidate)
    _Round(session, open_, incumbent_us, full).run()


class _Round:
    """The candidates of a generation without a verdict yet, and who waits for whose."""

    def __init__(
        self, session: Session, candidates: Sequence[Candidate], incumbent_us: float | None, full: bool
    ) -> None:
        self._session = session
        self._candidates = {candidate.plan.n: candidate for candidate in candidates}
        self._incumbent_us = incumbent_us
        self._full = full
        self._waiting: dict[int, list[int]] = {}
        self._known_keys: dict[int, str] = {}

    def run(self) -> None:
        keys = self._prepare(self._uncompiled(self._unseen()))
        keys |= self._known_keys
        owners: dict[str, int] = {}
        own = []
        for n in sorted(keys):
            owner = self._session.owner_of(keys[n])
            first = owners.setdefault(keys[n], n) if owner is None else owner
            if first == n:
                own.append(n)
            else:
                self._reuse(n, first)
        self._judge(self._unjudged(own, keys), keys)

    def _unseen(self) -> list[int]:
        """Numbers whose exact kernel is new to the run; the others reuse the first one's verdict."""
        unseen = []
        for n, candidate in self._candidates.items():
            first = self._session.ledger.first(candidate.kernel.id)
            if first is None or first == n:
                unseen.append(n)
            else:
                self._reuse(n, first)
        return unseen

    def _uncompiled(self, numbers: Sequence[int]) -> list[int]:
        """Numbers whose kernel no other run of this command has compiled; the others have their key or verdict."""
        left = []
        for n in numbers:
            kernel = self._candidates[n].kernel
            key = self._session.shared.code_key(kernel)
            if key is not None:
                self._known_keys[n] = key
            elif not self._shared(n, kernel.id):
                left.append(n)
        return left

    def _unjudged(self, numbers: Sequence[int], keys: dict[int, str]) -> list[int]:
        """Numbers whose code no other run of this command has had judged."""
        return [n for n in numbers if not self._shared(n, keys[n])]

    def _shared(self, n: int, name: str) -> bool:
        """Give n the verdict of another run, if there is one."""
        session = self._session
        found = session.shared.verdict(name, run_id=session.run_id, full=self._full, incumbent_us=self._incumbent_us)
        if found is not None:
            self._settle(n, dataclasses.replace(found.outcome, cost=Cost()), shared=found)
        return found is not None

    def _prepare(self, numbers: Sequence[int]) -> dict[int, str]:
        """Code keys of the kernels that compile; the others have their verdict."""
        session = self._session
        session.stage(Stage.PREPARE, len(numbers))
        keys = {}
        for n, result in session.pool.prepare(session.task, self._jobs(numbers), stop=self._out_of_time):
            kernel = self._candidates[n].kernel
            self._tell_of_damage(n, result.findings)
            if isinstance(result, Outcome):
                self._share(n, kernel.id, result)
                self._settle(n, result)
            else:
                keys[n] = result.code_key
                session.shared.prepared(kernel, result.code_key)
                session.step()
        self._check_time(len(keys) + sum(n in session.judged for n in numbers) < len(numbers))
        return keys

    def _tell_of_damage(self, n: int, findings: Sequence[Finding]) -> None:
        """Say aloud where the compile cache had to be repaired: the verdict, which compiles nothing, will not."""
        for finding in findings:
            if finding.kind == DAMAGED_CACHE:
                self._session.event("warning", {"message": f"#{n}: {finding.message}"})

    def _judge(self, numbers: Sequence[int], keys: dict[int, str]) -> None:
        session = self._session
        session.stage(Stage.JUDGE, len(numbers))
        jobs = self._jobs(numbers)
        for n, outcome in session.pool.judge(
            session.task, jobs, Gate.TIMING, self._incumbent_us, full=self._full, stop=self._out_of_time
        ):
            judged = dataclasses.replace(outcome, code_key=keys[n])
            self._share(n, keys[n], judged)
            self._settle(n, judged)
        self._check_time(any(n not in session.judged for n in numbers))

    def _share(self, n: int, name: str, outcome: Outcome) -> None:
        """Let other runs of this command know a verdict."""
        session = self._session
        session.shared.judged(name, outcome, full=self._full, run_id=session.run_id, what=str(n))

    def _out_of_time(self) -> bool:
        """Asked by the pool while it waits, so that no hanging worker holds a run beyond its time."""
        return self._session.budget.exhausted_time() is not None

    def _check_time(self, unfinished: bool) -> None:
        """Raise OutOfTimeError where the pool gave up."""
        kind = self._session.budget.exhausted_time()
        if unfinished and kind is not None:
            raise OutOfTimeError(kind)

    def _jobs(self, numbers: Sequence[int]) -> list[tuple[int, Kernel]]:
        return [(n, self._candidates[n].kernel) for n in numbers]

    def _reuse(self, n: int, first: int) -> None:
        """Give n the verdict of `first`, now or as soon as there is one."""
        known = self._session.judged.get(first)
        if known is None:
            self._waiting.setdefault(first, []).append(n)
        else:
            self._settle(
                n,
                dataclasses.replace(known.outcome, cost=Cost()),
                first if known.reused_from is None else known.reused_from,
            )

    def _settle(self, n: int, outcome: Outcome, reused_from: int | None = None, shared: Found | None = None) -> None:
        """Record a verdict and those that wait for it.

        Raises:
            OutOfTimeError: a time budget ran out.
        """
        self._session.verdict(self._candidates[n], outcome, reused_from, shared)
        for waiting in self._waiting.pop(n, []):
            self._reuse(waiting, n)
        kind = self._session.budget.exhausted_time()
        if kind is not None and reused_from is None:
            raise OutOfTimeError(kind)
