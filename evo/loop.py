"""The run: plan -> propose -> prepare -> judge -> tell, until a stop condition; then confirm the best.

Every fact is archived before the search sees it, and the search sees facts only in order of n. So a
killed run loses at most what was in flight, `resume` goes on exactly where an uninterrupted run would be,
and the number of workers changes nothing but the order in which rows are written.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from evo import confirm, resuming, starting
from evo.archive import Archive, Entry
from evo.archive.lock import run_lock
from evo.baseline import intended, time_baseline
from evo.budget import TIMES, Budget
from evo.ending import ErrorsToArchive
from evo.errors import ArchiveError, EvoError
from evo.evaluator import Evaluator
from evo.experiment import Experiment
from evo.generation import OutOfTimeError, enter_all, judge_all
from evo.injecting import Injections
from evo.interrupts import terminable
from evo.ledger import ArchiveLibrary, RunRecorder
from evo.llm.connect import Connection
from evo.llm.proposer import Proposer, in_use
from evo.llm.recorded import Recorded
from evo.merit import speedup
from evo.observer import Observer, RunInfo, RunSummary, Silent, Status
from evo.pause import AskedError, Pauses
from evo.propose import load_operators, propose, shares
from evo.search import INJECTED, Search, Settings
from evo.seed_reasons import seed_name, seed_reason
from evo.seeding import Seed, baseline_kernel, refusal, why_not
from evo.session import Session
from evo.sharing import Shared
from evo.starting import Start
from evo.summary import summarise
from evo.tally import timings_of
from fitness import gpu as gpus
from fitness.outcome import Timed
from mutations.launches import servings
from mutations.llm.recording import ReplayError
from mutations.operator import Candidate, Context, Judged, Operator, Plan

FIRST = "llm_translate"
"""Operator that makes the first kernels where a task has no seeds."""

SEEDLESS = 4
"""First kernels that a model is asked for then, one for each island at least."""

_END_REASONS = {
    "generations": "all generations done",
    "evaluations": "budget of evaluations spent",
    "minutes": "budget of minutes spent",
    "gpu_minutes": "budget of GPU minutes spent",
}


def run_experiment(
    experiment: Experiment,
    archive: Archive,
    *,
    pool: Evaluator,
    observer: Observer | None = None,
    resume: bool | str = False,
    replay: str | None = None,
    connection: Connection | None = None,
    notes: Sequence[str] = (),
    shared: Shared | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> RunSummary:
    """Run an experiment to its end, resume its latest unfinished run, or replay one.

    Args:
        experiment: what to search.
        archive: open for writing.
        pool: open; its device is recorded, and a resumed run must have had the same.
        observer: told of everything; None is `Silent`.
        resume: continue the latest unfinished run, or the one of this id, instead of starting anew.
        replay: id of a run to repeat with its recorded answers; nothing is sent.
        connection: models that can be asked; None: built-in operators only.
        notes: of a person, for the prompts from now on.
        shared: verdicts of other runs of the same command, to which those of this one are added.
        clock: seconds, monotonic (it may end a run, nothing else).

    Returns:
        The summary; `status` "interrupted" after Ctrl-C or SIGTERM (nothing is lost, it can be resumed).

    Raises:
        SeedError: no start is possible. BaselineError: no speedup would mean anything.
        ResumeError: nothing to resume, a changed experiment, or the run is under way elsewhere.
        ArchiveError: the archive failed; what it holds is whole and can be resumed.
        EvoError: an operator cannot be loaded, none is left without a model, or a replay comes apart.
    """
    observer = observer or Silent()
    operators = load_operators(list(experiment.weights))
    baseline = baseline_kernel(experiment.checked_task)
    if replay is not None:
        start = starting.replayed(experiment, archive, pool.device, replay)
    else:
        start = starting.begun(experiment, archive, pool.device, resume, seedless=connection is not None)
    with run_lock(archive.path, start.record.id), terminable(), ErrorsToArchive(archive, start.record.id):
        earlier_s = resuming.earlier_s(archive, start.record.id)
        limits = experiment.budget if replay is None else experiment.budget.model_copy(update={"minutes": None})
        shared = shared or Shared()
        lost = _recalled(shared, archive, start, resume=bool(resume))
        scope = shared.scope(experiment, pool.device)
        budget = Budget(limits, clock, earlier_s)
        session = Session(experiment, archive, start.record, pool, observer, budget, scope)
        recorded = Recorded(archive, replay or start.record.id, replay=replay is not None)
        for run_id in lost:
            session.event("warning", {"message": f"verdicts of {run_id} are not in this archive: not shared any more"})
        proposer = Proposer(session, gpus.load(start.record.gpu), connection, recorded, notes)
        return _Run(session, start, baseline, operators, proposer).execute()


def _recalled(shared: Shared, archive: Archive, start: Start, *, resume: bool) -> list[str]:
    """Make what earlier runs of the same command found known again; those that this archive cannot tell of."""
    if start.replay_of is not None:
        return shared.recall_before(archive, start.replay_of)
    if resume:
        return shared.go_on(archive, start.record.id)
    shared.begin(archive, start.record.id)
    return []


class _Run:
    """One session of a run, from its first line to its summary."""

    def __init__(
        self,
        session: Session,
        start: Start,
        baseline: Seed,
        operators: Mapping[str, Operator],
        proposer: Proposer,
    ) -> None:
        self._session = session
        self._start = start
        self._baseline = baseline
        self._operators = in_use(operators, proposer)
        self._makers = self._operators if start.seeds else {**self._operators, **load_operators([FIRST])}
        self._proposer = proposer
        self._injections = Injections(session, start.replay_of)
        search = session.experiment.search
        self._search = Search(
            Settings(
                rng_seed=session.experiment.rng_seed,
                seeds=len(start.seeds) or max(SEEDLESS, search.islands),
                generations=search.generations,
                children=search.children,
                islands=search.islands,
                operators=shares(session.experiment.weights, self._operators),
                stagnation=search.stagnation,
                first="seed" if start.seeds else FIRST,
            )
        )
        self._gpu = gpus.load(session.record.gpu)
        self._recorder = RunRecorder(session.archive, session.run_id, session.observer)
        self._library = ArchiveLibrary(session.archive, session.run_id, self._gpu.arch)
        self._pauses = Pauses(session)
        session.tally.seeds = self._search.settings.seeds

    def execute(self) -> RunSummary:
        """Run to the end; the archive says how it ended, whatever happens."""
        session = self._session
        status: Status = "failed"
        try:
            session.archive.set_experiment(session.run_id, session.experiment.model_dump(mode="json"))
            session.archive.set_status(session.run_id, "running")
            session.archive.add_event(session.run_id, "session", {"resumed": session.resumed})
            session.observer.on_start(self._info())
            try:
                status, reason = self._search_and_confirm()
            except KeyboardInterrupt as signal:
                status, reason = "interrupted", f"by {str(signal) or 'Ctrl-C'}; continue with --resume"
            session.archive.add_event(session.run_id, "end", {"status": status, "reason": reason})
        finally:
            with contextlib.suppress(ArchiveError):  # the error that ended the run is the one to show
                session.archive.set_status(session.run_id, status)
        summary = self._summary(status, reason)
        session.observer.on_end(summary)
        return summary

    def _search_and_confirm(self) -> tuple[Status, str]:
        time_baseline(self._session, self._baseline)
        try:
            end = self._generations()
        except OutOfTimeError as out:
            end = out.kind
        except AskedError as asked:
            return "paused", f"{asked.cause.message}; continue with --resume (--note TEXT tells the model something)"
        except ReplayError as apart:
            if not apart.ended:
                raise EvoError(f"the replay comes apart: {apart}", "use the version of evo that made the run") from None
            return "stopped", "the recording ends here"
        if self._session.ranking() and not confirm.confirm_best(self._session):
            self._session.event("warning", {"message": "none of the best candidates could be confirmed"})
        status: Status = "stopped" if end in ("evaluations", "minutes", "gpu_minutes") else "finished"
        return status, _END_REASONS.get(end, end)

    # the generations

    def _generations(self) -> str:
        """Generations until a stop condition; which one."""
        session, search = self._session, self._search
        while True:
            end = search.end or session.budget.exhausted()
            if end is not None and not (end in TIMES and session.knows(search.generation + 1)):
                return end  # what is archived takes no time: a run whose time is over is told to its end
            plans = self._ask()
            session.tally.generation = search.generation
            self._one_generation(plans)
            session.observer.on_generation(search.stats[-1], session.tally.state())
            if self._target_reached():
                return f"target speedup of {session.experiment.search.target_speedup:g} confirmed"
            self._pauses.consider(search.stats)

    def _ask(self) -> Sequence[Plan]:
        """Plans of the next generation, with the weights that operators have earned and what people add."""
        session, search, generation = self._session, self._search, self._search.generation + 1
        self._proposer.make_plan(generation, search.stats)
        favour = self._proposer.favour(generation)
        if any(factor != 1.0 for factor in favour.values()) and not session.knows(generation):
            session.event("choice", {"generation": generation, "factors": dict(favour)})
        left = session.budget.left("evaluations")
        return search.ask(
            None if left is None else int(left),
            favour=favour,
            injected=self._injections.due(generation),
            narrow=self._pauses.narrow(search.stats),
        )

    def _one_generation(self, plans: Sequence[Plan]) -> None:
        session = self._session
        best = self._search.best()
        self._proposer.propose(plans, self._makers, self._context)
        candidates = enter_all(session, plans, self._make)
        refills = self._search.refill(len(plans) - len(candidates))
        self._proposer.propose(refills, self._makers, self._context)
        candidates += enter_all(session, refills, self._make)
        judge_all(session, candidates, best.time_us if best else None, full=self._search.generation == 0)
        for plan in (*plans, *refills):
            judged = session.judged.get(plan.n)
            outcome = judged.outcome if judged is not None else None
            self._search.tell(plan.n, outcome, self._served(judged))
        if self._start.seeds and self._search.generation == 0:
            self._check_seeds()

    def _served(self, judged: Judged | None) -> tuple[tuple[int, ...], ...]:
        """Which launches serve each timed shape; empty for what cannot be run."""
        if judged is None or not isinstance(judged.outcome, Timed):
            return ()
        found = servings(judged.candidate.kernel, self._session.task, gpus.load(self._session.experiment.device.gpu))
        return tuple(places for places, _ in found)

    def _make(self, plan: Plan) -> Entry:
        session = self._session
        if plan.operator == "seed":
            seed = self._start.seeds[plan.n]
            return Candidate(plan, seed.kernel, seed_reason(seed))
        if plan.operator == INJECTED:
            return self._injections.make(plan)
        parents = [session.judged[n] for n in plan.parents]
        made = self._proposer.take(plan.n)
        return propose(plan, self._makers[plan.operator], parents, self._context(plan), session.ledger, made)

    def _context(self, plan: Plan) -> Context:
        session = self._session
        return Context(
            task=session.task,
            target=self._gpu,
            rng=self._search.rng(plan.n),
            inspirations=[session.judged[n] for n in plan.inspirations],
            ledger=session.ledger,
            library=self._library,
            recorder=self._recorder,
        )

    def _check_seeds(self) -> None:
        """A seed that is wrong ends the run; one that this card or simulator cannot run is left behind, aloud.

        Raises:
            SeedError: a wrong seed, or none that is valid.
        """
        judged = [self._session.judged[n] for n in range(len(self._start.seeds)) if n in self._session.judged]
        verdicts = [(seed_name(entry.candidate.reason), entry.outcome) for entry in judged]
        refused = refusal(verdicts)
        if refused is not None:
            raise refused
        for name, outcome in verdicts:
            if not isinstance(outcome, Timed):
                self._session.event("seed_failed", {"seed": name, "outcome": outcome.kind, "why": why_not(outcome)})

    def _target_reached(self) -> bool:
        """True once a confirmed candidate reaches the target; refuted ones leave the search."""
        session, target = self._session, self._session.experiment.search.target_speedup
        if target <= 0 or session.baseline is None:
            return False
        for judged in session.ranking():
            n = judged.candidate.plan.n
            if speedup(session.baseline[1], timings_of(judged)) < target:
                return False
            confirm.confirm(session, [judged])
            if session.confirmations[n].verdict == "confirmed":
                return True
            self._search.refute(n)
        return False

    # facts for people

    def _info(self) -> RunInfo:
        session, record = self._session, self._session.record
        search = session.experiment.search
        return RunInfo(
            run_id=record.id,
            name=record.name,
            rng_seed=record.rng_seed,
            archive=str(session.archive.path),
            device=record.device,
            gpu=record.gpu,
            arch=record.arch,
            clock=starting.clock_of(session.pool.device),
            shapes=session.task.shapes,
            floor_us=tuple(session.task.floor_us(shape, self._gpu) for shape in session.task.shapes),
            operators={name: session.experiment.weights[name] for name in self._operators},
            model=", ".join(model.name for model in self._proposer.models) or None,
            seeds=self._start.notes,
            baseline=intended(session, self._baseline),
            generations=search.generations,
            children=search.children,
            islands=search.islands,
            workers=len(session.pool.worker_pids()),
            resumed=session.resumed,
            limits=session.budget.lines(),
        )

    def _summary(self, status: Status, reason: str) -> RunSummary:
        session = self._session
        return summarise(
            run_id=session.run_id,
            name=session.record.name,
            status=status,
            reason=reason,
            clock=starting.clock_of(session.pool.device),
            baseline=session.baseline,
            ranking=session.ranking(),
            seed=session.best_seed(),
            confirmations=session.confirmations,
            state=session.tally.state(),
            generations=self._search.stats,
        )
