"""One proposal: prompt -> answer, tools in between -> kernel -> check -> repair -> review. Bounded everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fitness.outcome import Gate, Outcome, Rejected
from mutations.llm import prompt, review
from mutations.llm.access import Access
from mutations.llm.asking import Answered, Unanswered
from mutations.llm.feedback import repair_kind
from mutations.llm.messages import Message, assistant, tool_result, user
from mutations.llm.parse import Answer, Problem, parse_answer
from mutations.llm.prompt import Section
from mutations.llm.quoting import phrase
from mutations.llm.tools import call_tool, definitions
from mutations.operator import Candidate, Context, Judged, Plan, Proposal, Refusal, Unavailable


@dataclass
class Conversation:
    """The way from a prompt to a child.

    Attributes:
        context, access: of the proposal. purpose: of its first request ("edit").
        form: the answer format, repeated where an answer could not be used.
        base: the kernel that edits apply to; None where there is none yet.
    """

    context: Context
    access: Access
    purpose: str
    form: str
    base: Judged | None
    model: str | None = None
    steps: int = field(default=0)

    def child(self, sections: Sequence[Section]) -> Proposal | Refusal:
        """The child the model makes of these sections."""
        task, target = self.context.task, self.context.target
        limit = self.access.settings.prompt_chars
        answer = self.answer([*prompt.messages(task, target, sections, limit)], self.purpose, self.base)
        if not isinstance(answer, Answer):
            return self._no_child(answer)
        answer = self._repaired(answer)
        if self.access.review != "off" and self.base is not None:
            why = review.objection(answer, self.base, self.context, self.access)
            if why is not None:
                return Refusal(f"the reviewer rejects it: {why}")
        return Proposal(answer.kernel, answer.reason, self.model)

    def answer(self, messages: list[Message], purpose: str, base: Judged | None) -> Answer | Problem | Unanswered:
        """A usable answer, asked for again a bounded number of times; else the last problem."""
        parent = base.candidate.kernel if base is not None else None
        problem: Problem | None = None
        for attempt in range(1 + self.access.settings.answer_retries):
            asked = self._asked(messages, purpose if attempt == 0 else f"{purpose}:again")
            if isinstance(asked, Unanswered):
                return problem or asked
            self.model = asked.model.name
            parsed = parse_answer(asked.reply, parent)
            if isinstance(parsed, Answer) and self.context.ledger.tried(parsed.kernel.id):
                parsed = Problem("unchanged", "this exact kernel is already part of the run")
            if isinstance(parsed, Answer):
                return parsed
            problem = parsed
            if parsed.kind == "refusal":
                break
            text = prompt.render("reask", problem=phrase(parsed.message), excerpt="", form=self.form)
            messages += [assistant(asked.reply), user(text)]
        assert problem is not None
        return problem

    def _asked(self, messages: list[Message], purpose: str) -> Answered | Unanswered:
        """An answer in words: tool calls before it are served, a bounded number of times."""
        settings = self.access.settings
        while True:
            tools = definitions(settings.tools) if self.steps < settings.tool_steps else ()
            asked = self.access.asker.ask(messages, purpose, tools)
            if isinstance(asked, Unanswered) or not asked.reply.tool_calls or not tools:
                return asked
            self.steps += 1
            messages.append(assistant(asked.reply))
            messages += [tool_result(call, call_tool(call, self.access)) for call in asked.reply.tool_calls]

    def _repaired(self, answer: Answer) -> Answer:
        """The answer, or its repair where its check fails and a repair passes farther."""
        settings = self.access.settings
        for _ in range(settings.repairs):
            outcome = self._checked(answer)
            kind = repair_kind(outcome)
            if kind is None or self.access.asker.out_of_time:
                break
            failed = Judged(Candidate(_PLAN, answer.kernel, answer.reason, self.model), outcome)
            sections = repair_sections(failed, kind, self.context)
            messages = prompt.messages(self.context.task, self.context.target, sections, settings.prompt_chars)
            repaired = self.answer([*messages], f"repair:{kind}", failed)
            if not isinstance(repaired, Answer):
                break
            answer = Answer(repaired.kernel, f"{answer.reason}; repaired ({kind}): {repaired.reason}"[:300])
        return answer

    def _checked(self, answer: Answer) -> Outcome:
        """The child's verdict up to the small run: no evaluation of the budget, and the same in a replay."""
        violations = self.context.task.domain_violations(answer.kernel)
        if violations:
            return Rejected(Gate.PARSE, violations)
        return self.access.services.judge(answer.kernel, Gate.SMALL_RUN)

    def _no_child(self, answer: Problem | Unanswered) -> Refusal:
        if isinstance(answer, Unanswered):
            return Unavailable(f"no model answered ({answer})")
        return Refusal(f"{self.model}: {answer.kind.replace('_', ' ')}: {answer.message}"[:400])


_PLAN = Plan(n=-1, generation=-1, island=0, operator="repair")


def repair_sections(failed: Judged, kind: str, context: Context) -> list[Section]:
    """The prompt of a repair: the kernel with its findings, what to do about this kind of failure."""
    strategy = prompt.render(f"repair_{kind}")
    return [
        *prompt.format_sections(context.task, [failed.candidate.kernel.format.name]),
        prompt.kernel_section("A", failed),
        Section("ask", prompt.render("ask_repair", strategy=strategy)),
        Section("answer", prompt.render("answer_edit")),
    ]
