"""`Session`: the facts of one run while it is under way, archived before anyone hears of them."""

from __future__ import annotations

from collections.abc import Mapping

from evo.archive import Archive, Entry, Refused, RunRecord
from evo.budget import Budget
from evo.errors import ResumeError
from evo.evaluator import Evaluator
from evo.experiment import Experiment
from evo.ledger import RunLedger
from evo.merit import fitness_us
from evo.observer import Confirmation, Observer, Stage
from evo.sharing import SHARED, Found, Scope
from evo.tally import Tally
from fitness.outcome import Outcome, Timing
from fitness.task import Task
from mutations.operator import Candidate, Judged, Plan


class Session:
    """One process's share of a run: what is archived already, what is known so far, how to record more.

    Attributes:
        experiment, task, archive, record, pool, observer: what the run works on and with.
        shared: verdicts of other runs on the same task, and theirs of this one.
        budget, tally, ledger: of the whole run, earlier sessions included.
        entries: n -> candidate or refusal, told so far. judged: n -> verdict, known so far.
        baseline: (name, times), once known. confirmations: n -> verdict of gate 8, in use so far.
    """

    def __init__(
        self,
        experiment: Experiment,
        archive: Archive,
        record: RunRecord,
        pool: Evaluator,
        observer: Observer,
        budget: Budget,
        shared: Scope | None = None,
    ) -> None:
        self.experiment = experiment
        self.task: Task = experiment.checked_task
        self.archive = archive
        self.record = record
        self.pool = pool
        self.observer = observer
        self.budget = budget
        self.shared = shared or Scope()
        self.tally = Tally(experiment.search.generations, budget)
        self.ledger = RunLedger()
        self.entries: dict[int, Entry] = {}
        self.judged: dict[int, Judged] = {}
        self.baseline: tuple[str, tuple[Timing, ...]] | None = None
        self.confirmations: dict[int, Confirmation] = {}
        self._codes: dict[str, int] = {}
        self._old_entries = {entry.plan.n: entry for entry in archive.entries(record.id)}
        self._old_outcomes = archive.outcomes(record.id)
        self._old_confirmations = archive.confirmations(record.id)
        self._old_shared = {event.data["n"] for event in archive.events(record.id, SHARED)}

    @property
    def run_id(self) -> str:
        """Id of the run in the archive."""
        return self.record.id

    @property
    def resumed(self) -> int:
        """Verdicts the archive held when this session began."""
        return len(self._old_outcomes)

    # entries

    def archived_entry(self, plan: Plan) -> Entry | None:
        """What an earlier session made of this plan, or None.

        Raises:
            ResumeError: the archive has another plan of that number: not the same search.
        """
        entry = self._old_entries.get(plan.n)
        if entry is not None and entry.plan != plan:
            raise ResumeError(
                f"run {self.run_id} cannot be continued: candidate {plan.n} is archived as {entry.plan},"
                f" this evo ({self.record.version} then) plans {plan}",
                "use the version of evo that began it, or start a new run",
            )
        return entry

    def archived_plans(self) -> tuple[Plan, ...]:
        """Plans that earlier sessions archived, in order of n."""
        return tuple(entry.plan for _, entry in sorted(self._old_entries.items()))

    def knows(self, generation: int) -> bool:
        """True where an earlier session archived children of this generation: nothing of it is news."""
        return any(entry.plan.generation == generation for entry in self._old_entries.values())

    def enter(self, entry: Entry) -> None:
        """Take a candidate or refusal into the run, in order of n."""
        self.entries[entry.plan.n] = entry
        if isinstance(entry, Refused):
            self.tally.refused += 1
            self.budget.settle("evaluations", 1, 0)
        else:
            self.ledger.add(entry)

    def archive_entries(self, entries: list[Entry]) -> None:
        """Archive the entries no earlier session archived, in one transaction."""
        fresh = [entry for entry in entries if entry.plan.n not in self._old_entries]
        if fresh:
            self.archive.add_entries(self.run_id, fresh)

    # verdicts

    def archived_outcome(self, n: int) -> tuple[Outcome, int | None] | None:
        """(verdict, reused_from) an earlier session archived, or None."""
        return self._old_outcomes.get(n)

    def owner_of(self, code_key: str) -> int | None:
        """The first candidate known to have this code, or None."""
        return self._codes.get(code_key)

    def verdict(
        self, candidate: Candidate, outcome: Outcome, reused_from: int | None, shared: Found | None = None
    ) -> None:
        """Take the verdict on a candidate into the run; archived first, then counted, then shown.

        `shared`: where it comes from if another run of this command had it judged; it costs no evaluation then.
        """
        n = candidate.plan.n
        replayed = n in self._old_outcomes
        foreign = shared is not None or (replayed and n in self._old_shared)
        if not replayed:
            if shared is not None:
                self.archive.add_event(self.run_id, SHARED, {"n": n, "from": shared.where})
            self.archive.add_outcome(self.run_id, n, outcome, reused_from)
        judged = Judged(candidate, outcome, reused_from)
        self.judged[n] = judged
        self.ledger.judged(judged)
        if reused_from is None and outcome.code_key is not None:
            self._codes.setdefault(outcome.code_key, n)
        self.budget.settle("evaluations", 1, 1 if reused_from is None and not foreign else 0)
        if self.record.clock == "measured":
            self.budget.spend("gpu_minutes", outcome.cost.evaluate_s / 60)
        self.tally.judged(judged, replayed=replayed, shared=foreign)
        if not replayed:
            self.tally.step()
            self.observer.on_judged(judged, self.tally.state())

    def ranking(self) -> list[Judged]:
        """Valid candidates that own their code and were not refuted, fastest first, then by n."""
        timed = [
            (time_us, n, judged)
            for n, judged in self.judged.items()
            if judged.reused_from is None
            and not self._refuted(n)
            and (time_us := fitness_us(judged.outcome)) is not None
        ]
        return [judged for _, _, judged in sorted(timed, key=lambda item: item[:2])]

    def best_seed(self) -> Judged | None:
        """The fastest valid starting kernel, or None."""
        return next((judged for judged in self.ranking() if judged.candidate.plan.generation == 0), None)

    # confirmations

    def archived_confirmation(self, n: int) -> Confirmation | None:
        """Verdict of gate 8 that an earlier session archived, or None."""
        return self._old_confirmations.get(n)

    def confirm(self, confirmation: Confirmation, timings: tuple[Timing, ...] = ()) -> None:
        """Take a verdict of gate 8 into the run."""
        if confirmation.n not in self._old_confirmations:
            self.archive.add_confirmation(self.run_id, confirmation, timings)
        self.confirmations[confirmation.n] = confirmation
        if confirmation.verdict == "refuted":
            self.tally.refuted(self.ranking())
        facts: dict[str, object] = {"n": confirmation.n, "speedup": confirmation.speedup}
        self.observer.on_event(confirmation.verdict, facts | dict(confirmation.evidence))

    def _refuted(self, n: int) -> bool:
        found = self.confirmations.get(n)
        return found is not None and found.verdict == "refuted"

    # watching

    def stage(self, stage: Stage, total: int) -> None:
        """Enter a stage of `total` items and say so."""
        self.tally.stage(stage, total)
        self.observer.on_stage(self.tally.state())

    def step(self) -> None:
        """One more item of the stage is done; say so."""
        self.tally.step()
        self.observer.on_stage(self.tally.state())

    def event(self, kind: str, data: Mapping[str, object]) -> None:
        """Archive an event and say it aloud."""
        self.archive.add_event(self.run_id, kind, data)
        self.observer.on_event(kind, data)
