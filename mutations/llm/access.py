"""What one proposal may use of models: handed to operators as `Context.llm`, made by evo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome
from mutations.llm.asking import Asker

if TYPE_CHECKING:
    from mutations.llm.lookup import References
    from mutations.operator import Judged

ToolName = Literal["compile", "simulate", "trace", "lookup", "archive_search"]
Place = tuple[int, int, int]
"""Of a thread or a block: x, y, z."""
Review = Literal["off", "watched", "trusted"]
"""A reviewer's word is not asked for, only compared with the verdict, or acted upon."""


@dataclass(frozen=True)
class Settings:
    """How proposals are made.

    Attributes:
        prompt_chars: longest prompt. answer_retries: how often an answer that cannot be used is asked for again.
        repairs: how often a child that fails its check is repaired before it counts.
        tools: which the model may call; tool_steps: most replies with tool calls in one proposal.
    """

    prompt_chars: int = 60_000
    answer_retries: int = 1
    repairs: int = 1
    tools: tuple[ToolName, ...] = ()
    tool_steps: int = 4


class Services(Protocol):
    """What the engine does for a proposal, from whatever thread it is asked (implemented by evo)."""

    def judge(self, kernel: Kernel, depth: Gate) -> Outcome:
        """Gates up to `depth` on a kernel, in an isolated worker. Costs no evaluation of the budget."""

    def trace(self, kernel: Kernel, line: int, thread: Place, block: Place) -> str:
        """What one thread of a kernel did at one source line, as text; in an isolated process with limits."""

    def search_archive(self, words: str) -> Sequence[str]:
        """Verified kernels whose source or reason has the words, and similar tasks: a few texts."""

    def event(self, kind: str, data: dict[str, object]) -> None:
        """Say something aloud and archive it."""


@dataclass(frozen=True)
class Access:
    """One proposal's surroundings.

    Attributes:
        n: number of the child; asker: for requests and tool calls; services: of the engine.
        history: what was tried with these parents and what it did, the latest last.
        experience: verified kernels of similar tasks, the most similar first.
        notes: of the person who runs the search; plan: the planner's, or empty.
        references: for lookup; review: how far the reviewer is trusted now.
        module: PyTorch code the task was given as, or empty.
    """

    n: int
    asker: Asker
    services: Services
    settings: Settings = Settings()
    history: tuple[str, ...] = ()
    experience: tuple[Judged, ...] = ()
    notes: tuple[str, ...] = ()
    plan: str = ""
    references: References | None = None
    review: Review = "off"
    module: str = ""
