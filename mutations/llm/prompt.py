"""Facts -> messages: Jinja templates, put together within a bounded size.

The system message holds what never changes within a run (rules, file contract, task, card), so that endpoints
can cache it. The user message is made of sections; when it is too long whole sections are dropped, the least
needed first (`DROPPED_FIRST`), and the prompt says which.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from fitness.gpu import Gpu
from fitness.task import Task
from mutations.llm import describe
from mutations.llm.messages import Message, system, user
from mutations.llm.quoting import phrase, quoted
from mutations.llm.strategies import card, pattern_hint
from mutations.operator import Judged

DROPPED_FIRST: Final = (
    "experience", "other formats", "worked example", "second inspiration", "inspiration", "strategy", "history", "plan",
)  # fmt: skip
"""Sections in the order in which they are left out of a prompt that is too long. All others always stay."""

_C_TYPES: Final = {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "int8": "int8_t",
                   "int32": "int32_t", "float8_e4m3": "__nv_fp8_e4m3", "float8_e5m2": "__nv_fp8_e5m2"}  # fmt: skip


@dataclass(frozen=True)
class Section:
    """A part of the user message; `name` decides whether it may be dropped."""

    name: str
    text: str


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("mutations.llm"),
        undefined=StrictUndefined,
        keep_trailing_newline=False,
        autoescape=False,
    )
    environment.filters["quoted"] = quoted
    return environment


def render(template: str, **values: object) -> str:
    """A template of this package with its values; one that is missing is an error."""
    return _environment().get_template(f"{template}.j2").render(**values).strip()


def system_message(task: Task, gpu: Gpu) -> str:
    """Rules, file contract, task and card."""
    return render(
        "system",
        example=example_kernel(task),
        formats=describe.usable_formats(task),
        includes=describe.includes(),
        preludes=describe.own_headers(),
        task=json_text(describe.task_facts(task, gpu)),
        pattern=json_text(describe.pattern_facts(task)),
        gpu=json_text(describe.gpu_facts(gpu)),
    )


def example_kernel(task: Task) -> str:
    """The example of the file contract: a dense product in the task's types and layouts; it is right."""
    return render(
        "example_dense.cu",
        bfloat16="bfloat16" in (task.dtype, task.out_dtype),
        type=_C_TYPES[task.dtype],
        out_type=_C_TYPES[task.out_dtype],
        x_index="n * ldx + k" if task.x_layout == "col" else "k * ldx + n",
        y_index="n * ldy + m" if task.y_layout == "col" else "m * ldy + n",
    )


def messages(task: Task, gpu: Gpu, sections: Sequence[Section], limit: int) -> tuple[Message, Message]:
    """System and user message, at most `limit` characters together where dropping sections allows it."""
    rules = system_message(task, gpu)
    return system(rules), user(fitted(sections, limit - len(rules)))


def fitted(sections: Sequence[Section], limit: int) -> str:
    """Sections joined; the droppable ones are left out in order until the text fits, and the text says so."""
    kept = [section for section in sections if section.text]
    left_out: list[str] = []
    for name in DROPPED_FIRST:
        if sum(len(section.text) + 2 for section in kept) <= limit:
            break
        if any(section.name == name for section in kept):
            kept = [section for section in kept if section.name != name]
            left_out.append(name)
    text = "\n\n".join(section.text for section in kept)
    return f"{text}\n\n(Left out for length: {', '.join(left_out)}.)" if left_out else text


def kernel_section(label: str, judged: Judged) -> Section:
    """A parent: source, params, how it came about, verdict, profile, findings."""
    candidate = judged.candidate
    text = render(
        "parent",
        label=label,
        n=candidate.plan.n,
        params=describe.params_text(candidate.kernel),
        reason=phrase(candidate.reason),
        source=quoted(candidate.kernel.source),
        verdict=f"Verdict: {describe.verdict_text(judged.outcome)}",
        profile=describe.timing_lines(judged.outcome),
        findings=describe.finding_lines(judged.outcome, candidate.kernel),
    )
    return Section("parent", text)


def format_sections(task: Task, names: Sequence[str]) -> list[Section]:
    """Layout, worked example and strategy card of the first format, the layout of the others, the rest by name."""
    return list(_format_sections(task, tuple(names), describe.usable_formats(task)))


@functools.lru_cache(maxsize=64)
def _format_sections(task: Task, names: tuple[str, ...], usable: tuple[str, ...]) -> tuple[Section, ...]:
    sections = []
    for place, name in enumerate(names):
        facts = describe.format_facts(task, name)
        text = render("format", **{**facts, "layout": quoted(facts["layout"])})
        sections.append(Section("other formats" if place else "format", text))
        if place == 0:
            example = render("format_example", name=name, lines=facts["example"])
            sections.append(Section("worked example", example))
            hint = pattern_hint(str((task.pattern or {}).get("kind", "")))
            sections.append(Section("strategy", f"## Strategy for {name}\n{card(name)}\n{hint}".rstrip()))
    rest = {name: describe.format_summary(name) for name in usable if name not in names}
    if rest:
        sections.append(Section("other formats", render("other_formats", formats=rest)))
    return tuple(sections)


def inspiration_section(name: str, judged: Judged, note: str = "") -> Section:
    """Another good kernel."""
    candidate = judged.candidate
    text = render(
        "inspiration",
        n=candidate.plan.n,
        note=note,
        verdict=describe.verdict_text(judged.outcome),
        params=describe.params_text(candidate.kernel),
        reason=phrase(candidate.reason),
        source=quoted(candidate.kernel.source),
    )
    return Section(name, text)


def json_text(facts: Mapping[str, Any]) -> str:
    """Facts as one line of JSON."""
    return json.dumps(facts, ensure_ascii=False)
