"""The reviewer: reads a child before it costs an evaluation. Its precision is measured; it acts only while it pays.

At first its word is only compared with the verdict ("watched"). Once enough of its rejections were right it is
"trusted": children it rejects are refused, but for one of `PROBE`, which is evaluated all the same so that its
precision stays measured. When the precision falls below `ENOUGH` it is switched off for the rest of the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mutations.llm import prompt
from mutations.llm.access import Access, Review
from mutations.llm.asking import Answered
from mutations.llm.messages import system, user
from mutations.llm.parse import Answer, one_line
from mutations.llm.quoting import phrase, quoted
from mutations.operator import Context, Judged

PURPOSE: Final = "review"
SAMPLES: Final = 6  # rejections that were checked before it is trusted or sent away
ENOUGH: Final = 0.8
PROBE: Final = 4

_VERDICT: Final = re.compile(r"\b(ACCEPT|REJECT)\b[ \t]*[:\-]?[ \t]*(?P<why>[^\n]*)")


@dataclass(frozen=True)
class Reviewed:
    """One word of the reviewer and what became of the child: `failed` None where it was not evaluated."""

    n: int
    rejected: bool
    failed: bool | None


@dataclass(frozen=True)
class Precision:
    """How good the reviewer's rejections are: `right` of `checked` children it rejected did fail."""

    right: int
    checked: int
    review: Review

    @property
    def value(self) -> float | None:
        """Right / checked; None before there is one."""
        return self.right / self.checked if self.checked else None


def precision(history: Sequence[Reviewed]) -> Precision:
    """State of the reviewer after these words, in order of n. A reviewer sent away stays away."""
    right = checked = 0
    review: Review = "watched"
    for one in sorted(history, key=lambda word: word.n):
        if not one.rejected or one.failed is None:
            continue
        checked += 1
        right += one.failed
        if checked >= SAMPLES and review != "off":
            review = "trusted" if right >= ENOUGH * checked else "off"
    return Precision(right, checked, review)


def read(text: str) -> tuple[bool, str]:
    """(rejected, why) of a reviewer's answer; anything but a clear REJECT accepts."""
    match = _VERDICT.search(text)
    if match is None or match[1] == "ACCEPT":
        return False, ""
    return True, one_line(match["why"]) or "no reason given"


def objection(answer: Answer, parent: Judged, context: Context, access: Access) -> str | None:
    """Why a child is not worth an evaluation, where the reviewer is trusted and says so; else None."""
    text = prompt.render(
        "review",
        parent=quoted(parent.candidate.kernel.source),
        child=quoted(answer.kernel.source),
        reason=phrase(answer.reason),
    )
    rules = system(prompt.system_message(context.task, context.target))
    reply = access.asker.ask((rules, user(text)), PURPOSE)
    if not isinstance(reply, Answered):
        return None
    rejected, why = read(reply.reply.text)
    return why if rejected and access.review == "trusted" and access.n % PROBE else None
