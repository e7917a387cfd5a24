"""The operators that ask a model. Each says what its prompt is made of; `conversation` does the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fitness.outcome import Timed
from mutations.llm import describe, prompt
from mutations.llm.access import Access
from mutations.llm.conversation import Conversation, repair_sections
from mutations.llm.feedback import repair_kind
from mutations.llm.prompt import Section
from mutations.llm.quoting import phrase
from mutations.operator import Context, Judged, Proposal, Refusal, Unavailable


class LlmOperator:
    """What these operators share: surroundings in the prompt, one conversation, and a word where there is no model."""

    name: ClassVar[str] = ""
    arity: ClassVar[int] = 1
    form: ClassVar[str] = "answer_file"
    asks_model: ClassVar[bool] = True

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        """One child; `Unavailable` where no model could be asked, another refusal where its answer is no kernel."""
        access = context.llm
        if access is None:
            return Unavailable("no model is in use")
        return self.converse(parents, context, access)

    def converse(self, parents: Sequence[Judged], context: Context, access: Access) -> Proposal | Refusal:
        """Ask with this operator's own prompt."""
        base = parents[0] if parents else None
        form = prompt.render(self.form)
        sections = [*self.sections(parents, context, access), Section("answer", form)]
        purpose = self.name.removeprefix("llm_")
        return Conversation(context, access, purpose, form, base).child(sections)

    def sections(self, parents: Sequence[Judged], context: Context, access: Access) -> list[Section]:
        """The user message, without the answer format."""
        labels = "AB"
        return [
            *prompt.format_sections(context.task, self.formats(parents, context)),
            *[prompt.kernel_section(labels[place], parent) for place, parent in enumerate(parents)],
            *surroundings(context, access),
            Section("ask", self.ask(parents, context)),
        ]

    def formats(self, parents: Sequence[Judged], context: Context) -> tuple[str, ...]:
        """Formats whose layout the prompt explains: the parents'."""
        del context
        return tuple(dict.fromkeys(parent.candidate.kernel.format.name for parent in parents))

    def ask(self, parents: Sequence[Judged], context: Context) -> str:
        """The task of this operator in words."""
        raise NotImplementedError


class LlmEdit(LlmOperator):
    """One deliberate change, as edits of the parent."""

    name = "llm_edit"
    form = "answer_edit"

    def ask(self, parents: Sequence[Judged], context: Context) -> str:  # noqa: ARG002 - the common signature
        """Names the shape with the most room."""
        return prompt.render("ask_edit", focus=_focus(parents[0]))


class LlmRewrite(LlmOperator):
    """Another idea, as a whole file."""

    name = "llm_rewrite"

    def formats(self, parents: Sequence[Judged], context: Context) -> tuple[str, ...]:
        """The parent's, then all others that can store W."""
        return every_format(parents, context)

    def ask(self, parents: Sequence[Judged], context: Context) -> str:
        """Names the formats that the parent does not use."""
        return prompt.render("ask_rewrite", others=self.formats(parents, context)[1:])


class LlmCrossover(LlmOperator):
    """What each of two parents does best, in one file."""

    name = "llm_crossover"
    arity = 2

    def ask(self, parents: Sequence[Judged], context: Context) -> str:  # noqa: ARG002
        """Says who is faster where."""
        one, other = parents
        lines = describe.strengths(one, other) or [
            "one of them has no times: find out what it has that the other lacks"
        ]
        return prompt.render("ask_crossover", strengths=lines)


class LlmOptimise(LlmOperator):
    """The limiter of the profile removed, as edits of the parent."""

    name = "llm_optimise"
    form = "answer_edit"

    def ask(self, parents: Sequence[Judged], context: Context) -> str:  # noqa: ARG002
        """Names limiter and shape."""
        worst = describe.focus(parents[0])
        limiter = phrase(worst.limiter) if worst is not None else ""
        return prompt.render("ask_optimise", focus=_focus(parents[0]), limiter=limiter)


class LlmRepair(LlmOperator):
    """A failed candidate put right; another prompt for each kind of failure. `repairs`: it takes failed parents."""

    name = "llm_repair"
    form = "answer_edit"
    repairs: ClassVar[bool] = True

    def converse(self, parents: Sequence[Judged], context: Context, access: Access) -> Proposal | Refusal:
        """Ask for the repair that the verdict calls for."""
        (parent,) = parents
        kind = repair_kind(parent.outcome)
        if kind is None:
            return Refusal("the parent passed every gate: there is nothing to repair")
        sections = repair_sections(parent, kind, context)
        sections[-2:-2] = surroundings(context, access)
        return Conversation(context, access, f"repair:{kind}", prompt.render(self.form), parent).child(sections)


class LlmTranslate(LlmOperator):
    """The parent's ideas in another format; without a parent the first, minimal kernel of a task."""

    name = "llm_translate"

    def formats(self, parents: Sequence[Judged], context: Context) -> tuple[str, ...]:
        """The format to translate to comes first, then the parent's; children in turn take the formats in turn."""
        known = every_format(parents, context)
        if not parents or len(known) == 1:
            return known[:1]
        others, access = known[1:], context.llm
        target = others[access.n % len(others)] if access is not None else others[0]
        return target, known[0]

    def sections(self, parents: Sequence[Judged], context: Context, access: Access) -> list[Section]:
        """Without a parent: the formats and the task alone, so that nothing distracts from what is minimal."""
        if parents:
            return super().sections(parents, context, access)
        text = prompt.render("ask_first", module=access.module)
        return [
            *prompt.format_sections(context.task, self.formats(parents, context)),
            *experience_sections(access),
            *_notes(access),
            Section("ask", text),
        ]

    def ask(self, parents: Sequence[Judged], context: Context) -> str:
        """Says from what to what."""
        target = self.formats(parents, context)[0]
        here = parents[0].candidate.kernel.format.name
        what = "format" if target != here else "architecture"
        return prompt.render("ask_translate", what=what, target=target, arch=context.target.arch)


def every_format(parents: Sequence[Judged], context: Context) -> tuple[str, ...]:
    """Formats that can store the task's W: the parents' first, then the one made for its pattern, then the others."""
    own = dict.fromkeys(parent.candidate.kernel.format.name for parent in parents)
    usable = sorted(describe.usable_formats(context.task), key=lambda name: (name == "dense", name != "nm24", name))
    return (*own, *(name for name in usable if name not in own))


def surroundings(context: Context, access: Access) -> list[Section]:
    """Inspirations, experience, history, notes and plan."""
    sections = []
    for place, judged in enumerate(context.inspirations[:2]):
        name, note = ("second inspiration", ", another kind") if place else ("inspiration", ", the best of others")
        sections.append(prompt.inspiration_section(name, judged, note))
    sections += experience_sections(access)
    if access.history:
        sections.append(Section("history", prompt.render("history", lines=access.history)))
    sections += _notes(access)
    if access.plan:
        sections.append(Section("plan", prompt.render("plan_section", plan=access.plan)))
    return sections


def experience_sections(access: Access) -> list[Section]:
    """Verified kernels of similar tasks; dropped first where the prompt is too long."""
    note = ", verified for a similar task in an earlier run"
    return [prompt.inspiration_section("experience", judged, note) for judged in access.experience]


def _notes(access: Access) -> list[Section]:
    return [Section("notes", prompt.render("notes", notes=access.notes))] if access.notes else []


def _focus(parent: Judged) -> str:
    worst = describe.focus(parent)
    if worst is None or not isinstance(parent.outcome, Timed):
        return ""
    return f"{describe.shape_text(worst.shape)}, which takes {worst.time_us / worst.floor_us:.1f} times its floor"
