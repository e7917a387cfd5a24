"""The children of a run that models are asked for: whom to ask, with what in the prompt, several at once."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evo.archive import Entry, Refused
from evo.archive.calls import add_calls
from evo.errors import EvoError
from evo.generation import OutOfTimeError
from evo.ledger import ArchiveLibrary
from evo.llm import choice
from evo.llm.connect import HINT, Connection, asks_model
from evo.llm.desk import Desk, Propose
from evo.llm.history import history_lines
from evo.llm.planning import statistics_text
from evo.llm.purse import RunPurse
from evo.llm.recorded import EXPERIENCE_EVENT, MODELS_EVENT, NOTE_EVENT, Note, Recorded, experience_data, models_data
from evo.llm.searching import archive_texts
from evo.llm.tracing import trace_text
from evo.merit import fitness_us
from evo.observer import GenerationStats, Stage
from evo.session import Session
from fitness.devices.simulator.tracing import Point
from fitness.gpu import Gpu
from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome, Timed
from mutations.llm import describe, prompt, review
from mutations.llm.access import Access, Place, Services, Settings
from mutations.llm.asking import Answered, Asker
from mutations.llm.deadline import Deadline
from mutations.llm.lookup import References, references
from mutations.llm.messages import Failure, Reply, Request, user
from mutations.llm.prices import Model
from mutations.llm.quoting import quoted
from mutations.llm.recording import Call
from mutations.llm.transport import Transport
from mutations.operator import Context, Judged, Operator, Plan, Proposal, Refusal, Unavailable

_PLAN_LENGTH = 1200


class _Absent:
    """The transport of a run that was begun with models and is resumed without an endpoint."""

    def complete(self, request: Request, deadline: Deadline) -> Reply | Failure:
        """Nothing can be asked."""
        del request, deadline
        return Failure("unreachable", "the environment names no endpoint any more", 0)


class Proposer:
    """Asks models for the children of one run.

    Args:
        session: the run. gpu: its card.
        connection: models that can be asked, None without an endpoint.
        recorded: of the run itself, or of the run it replays.
        notes: of a person, new with this session.
    """

    def __init__(
        self, session: Session, gpu: Gpu, connection: Connection | None, recorded: Recorded, notes: Sequence[str] = ()
    ) -> None:
        self._session, self._gpu, self._recorded = session, gpu, recorded
        self._section = session.experiment.llm
        self.models = self._models_in_use(connection)
        self._transport: Transport | None = None
        if not recorded.replay:
            self._transport = connection.transport if connection is not None else _Absent()
        self._purse = RunPurse(session.budget)
        self._calls: dict[int | None, list[Call]] = defaultdict(list)
        self._proposed: dict[int, Proposal | Refusal] = {}
        self._stop = threading.Event()
        self._planner = recorded.recording(None)
        self.plan = ""
        self._notes = self._all_notes(notes)
        if not recorded.replay:
            for call in recorded.calls:  # paid for by earlier sessions
                self._calls[call.n].append(call)
                self._purse.settle((0, 0.0), (call.tokens_in + call.tokens_out, call.usd or 0.0))
        self._references: References | None = None
        self._experience: tuple[Judged, ...] = ()
        self._module = ""
        self._said: dict[str, object] = {}
        if self.models:
            self._prepare()

    # what a run knows of models

    def _models_in_use(self, connection: Connection | None) -> tuple[Model, ...]:
        """As the run was begun, so that it plans the same when it is resumed or replayed."""
        known = self._recorded.models()
        if known is None:
            known = connection.models if connection is not None else ()
        if self._recorded.replay or self._recorded.models() is None:
            self._session.archive.add_event(self._session.run_id, MODELS_EVENT, models_data(known))
        return known

    def _all_notes(self, new: Sequence[str]) -> tuple[Note, ...]:
        notes = self._recorded.notes()
        fresh = notes if self._recorded.replay else ()
        if new:
            first = 1 + max((plan.generation for plan in self._session.archived_plans()), default=-1)
            fresh = tuple(Note(text, first) for text in new)
            notes += fresh
        for note in fresh:
            data = {"text": note.text, "generation": note.generation}
            self._session.archive.add_event(self._session.run_id, NOTE_EVENT, data)
        return notes

    def _prepare(self) -> None:
        """References, experience and module: read once."""
        session, section = self._session, self._section
        try:
            if "lookup" in section.tools:
                self._references = references(session.task, section.references)
            if section.module:
                self._module = quoted(Path(section.module).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise EvoError(f"[llm]: {error}", "correct llm.references or llm.module") from error
        if section.experience:
            self._experience = self._known_experience()

    def _known_experience(self) -> tuple[Judged, ...]:
        """As the run was begun, so that its prompts stay the same while the archive grows."""
        session = self._session
        known = self._recorded.experience()
        if known is None or self._recorded.replay:
            if known is None:
                library = ArchiveLibrary(session.archive, session.run_id, self._gpu.arch)
                known = library.ranked(session.task, self._section.experience)
            session.archive.add_event(session.run_id, EXPERIENCE_EVENT, experience_data(known))
        return tuple(one for _, one in known)

    # a generation

    def favour(self, generation: int) -> Mapping[str, float]:
        """By what operators' weights are multiplied in a generation; 1 for all without a bandit."""
        if not self.models or not self._section.bandit:
            return {}
        operators = sorted(self._session.experiment.weights)
        weights = choice.factors(self._operator_pulls(), operators, generation)
        return {name: round(weight, 6) for name, weight in weights.items()}

    def propose(
        self,
        plans: Sequence[Plan],
        operators: Mapping[str, Operator],
        context_of: Callable[[Plan], Context],
    ) -> None:
        """Ask for the children of those plans that need a model and are not archived; `take` gives them out."""
        session = self._session
        open_ = [
            plan
            for plan in plans
            if plan.operator in operators
            and asks_model(operators[plan.operator])
            and session.archived_entry(plan) is None
        ]
        if not open_ or not self.models:
            return
        session.stage(Stage.PROPOSE, len(open_))
        desk = Desk(self._section.concurrency, self._judge, self._search_archive, session.event, self._keep, self._stop,
                    self._trace)  # fmt: skip
        weights = choice.factors(self._model_pulls(), [model.name for model in self.models], open_[0].generation)
        reviewing = self._review()
        work: dict[int, Propose] = {}
        for plan in open_:
            access = self._access(plan, desk, weights, reviewing)
            context = replace(context_of(plan), llm=access, recorder=desk)
            parents = [session.judged[n] for n in plan.parents]
            work[plan.n] = _proposal(operators[plan.operator], parents, context)
        self._proposed |= desk.run(work, session.step, self._check_time)
        self._say_unavailable(open_)

    def take(self, n: int) -> Proposal | Refusal | None:
        """What was proposed as candidate n; None where no model was asked."""
        return self._proposed.pop(n, None)

    def make_plan(self, generation: int, stats: Sequence[GenerationStats]) -> None:
        """Let the planner say what the next generations should try, where it is its turn."""
        every = self._section.planner_every
        if not self.models or not every or generation < 1 or (generation - 1) % every:
            return
        task = prompt.json_text(describe.task_facts(self._session.task, self._gpu))
        figures = quoted(statistics_text(stats, self._session.judged))
        text = prompt.render("planner", task=task, gpu=self._gpu.name, statistics=figures)
        deadline = Deadline(self._section.deadline_s, self._stop)
        asker = Asker(None, self._order(-generation % 2**32, {}), self._transport, self._purse, self._keep, deadline,
                      recording=self._planner, max_tokens=self._section.max_tokens,
                      temperature=self._section.temperature)  # fmt: skip
        answered = asker.ask([user(text)], "plan")
        if isinstance(answered, Answered):
            self.plan = quoted(answered.reply.text)[:_PLAN_LENGTH]
            if self._session.knows(generation):
                return
            self._session.event("plan", {"generation": generation, "message": " ".join(self.plan.split())[:300]})

    # one proposal

    def _access(self, plan: Plan, desk: Desk, weights: Mapping[str, float], reviewing: review.Precision) -> Access:
        section, session = self._section, self._session
        asker = Asker(
            plan.n,
            self._order(plan.n, weights),
            self._transport,
            self._purse,
            desk.record,
            Deadline(section.deadline_s, self._stop),
            recording=self._recorded.recording(plan.n),
            max_tokens=section.max_tokens,
            temperature=section.temperature,
        )
        services: Services = desk
        parents = [session.judged[n] for n in plan.parents]
        return Access(
            n=plan.n,
            asker=asker,
            services=services,
            settings=Settings(
                section.prompt_chars, section.answer_retries, section.repairs, section.tools, section.tool_steps
            ),
            history=history_lines(parents, session.judged),
            experience=self._experience,
            notes=tuple(note.text for note in self._notes if note.generation <= plan.generation),
            plan=self.plan,
            references=self._references,
            review=reviewing.review if section.reviewer else "off",
            module=self._module,
        )

    def _order(self, n: int, weights: Mapping[str, float]) -> tuple[Model, ...]:
        return choice.order(self.models, weights, self._session.experiment.rng_seed, n)

    # services, in the loop's thread

    def _judge(self, kernels: Sequence[Kernel], depth: Gate) -> Sequence[Outcome]:
        """Verdicts for tools and repairs. Numbers below the baseline's: they are no candidates."""
        pool, task = self._session.pool, self._session.task
        jobs = [(-2 - place, kernel) for place, kernel in enumerate(kernels)]
        found = dict(
            pool.prepare(task, jobs, stop=self._out_of_time)
            if depth is Gate.COMPILE
            else pool.judge(task, jobs, depth, stop=self._out_of_time)
        )
        if len(found) < len(jobs):
            self._check_time()
        return [_compiled(found[n]) for n, _ in jobs]

    def _check_time(self) -> None:
        """Raise OutOfTimeError once a time budget has run out."""
        kind = self._session.budget.exhausted_time()
        if kind is not None:
            raise OutOfTimeError(kind)

    def _out_of_time(self) -> bool:
        return self._session.budget.exhausted_time() is not None

    def _search_archive(self, words: str) -> Sequence[str]:
        session = self._session
        library = ArchiveLibrary(session.archive, session.run_id, self._gpu.arch)
        return archive_texts(session.archive, library, session.task, words)

    def _trace(self, kernel: Kernel, line: int, thread: Place, block: Place) -> str:
        return trace_text(kernel, self._session.task, self._gpu, Point(line, thread, block))

    def _keep(self, call: Call) -> None:
        add_calls(self._session.archive, self._session.run_id, [call])
        self._calls[call.n].append(call)

    def _say_unavailable(self, plans: Sequence[Plan]) -> None:
        lost = [found for plan in plans if isinstance(found := self._proposed[plan.n], Unavailable)]
        if lost:
            message = f"{len(lost)} of {len(plans)} children could not be asked for, built-in operators make them"
            self._session.event("model_unavailable", {"message": f"{message}: {lost[0].why}", "children": len(lost)})

    # folds over what is archived

    def _operator_pulls(self) -> list[choice.Pull]:
        """Children of all operators; those a built-in operator made in a model's place are nobody's."""
        session = self._session
        pulls = []
        for n, entry in session.entries.items():
            plan = entry.plan
            cost = choice.call_cost(self._calls[n])
            if not plan.parents or (plan.operator.startswith("llm_") and not _by_model(entry) and cost == 0.0):
                continue
            judged = 0.0 if isinstance(entry, Refused) else 1.0
            pulls.append(choice.Pull(plan.operator, plan.generation, self._gain(n), judged + cost))
        return pulls

    def _model_pulls(self) -> list[choice.Pull]:
        pulls = []
        for n, entry in self._session.entries.items():
            for model in self.models:
                calls = [call for call in self._calls[n] if call.model == model.name]
                if calls:
                    own = not isinstance(entry, Refused) and entry.model == model.name
                    gain = self._gain(n) if own else 0.0
                    pulls.append(choice.Pull(model.name, entry.plan.generation, gain, choice.call_cost(calls)))
        return pulls

    def _gain(self, n: int) -> float:
        judged = self._session.judged
        if n not in judged or judged[n].reused_from is not None or not judged[n].candidate.plan.parents:
            return 0.0
        parent = judged.get(judged[n].candidate.plan.parents[0])
        before = fitness_us(parent.outcome) if parent is not None else None
        return choice.improvement(before, fitness_us(judged[n].outcome))

    def _review(self) -> review.Precision:
        """How far the reviewer is trusted now; a change is said aloud."""
        if not self._section.reviewer:
            return review.Precision(0, 0, "off")
        words = []
        for n in self._session.entries:
            answers = [call.answer for call in self._calls[n] if call.purpose == review.PURPOSE]
            texts = [answer.text for answer in answers if isinstance(answer, Reply)]
            if texts:
                judged = self._session.judged.get(n)
                failed = None if judged is None else fitness_us(judged.outcome) is None
                words.append(review.Reviewed(n, review.read(texts[-1])[0], failed))
        found = review.precision(words)
        data: dict[str, object] = {"review": found.review, "right": found.right, "checked": found.checked}
        if found.checked and data != self._said:
            self._said = data
            self._session.event("reviewer", data)
        return found


def _proposal(operator: Operator, parents: Sequence[Judged], context: Context) -> Propose:
    return lambda: operator.propose(parents, context)


def _by_model(entry: Entry) -> bool:
    return not isinstance(entry, Refused) and entry.model is not None


def _compiled(prepared: object) -> Outcome:
    """A verdict on what was only compiled."""
    return prepared if isinstance(prepared, Outcome) else Timed(Gate.COMPILE, getattr(prepared, "warnings", ()))


def in_use(operators: Mapping[str, Operator], proposer: Proposer) -> dict[str, Operator]:
    """The operators that can work: without a model, those that need none.

    Raises:
        EvoError: none is left.
    """
    usable = {name: one for name, one in operators.items() if proposer.models or not asks_model(one)}
    if not usable:
        raise EvoError(
            "every operator of the experiment asks a model, and none is in use", f"{HINT}, or give tune a weight"
        )
    return usable
