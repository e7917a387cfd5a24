"""What is kept of every request and tool call, and how it is given back in the same order.

A recording belongs to one proposal; its calls are made one after the other, so their order is enough. What
depended on the moment (a failure, an empty purse) is recorded as well, so that giving it back decides the same.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from mutations.llm.messages import Failure, Reply, Request

TOOL = "tool:"
"""Purposes of tool calls begin with it."""


class ReplayError(RuntimeError):
    """A recording that does not fit what is asked now: another version, archive or experiment.

    `ended`: it fits as far as it goes, but the run was cut short there.
    """

    def __init__(self, message: str, *, ended: bool = False) -> None:
        super().__init__(message)
        self.ended = ended


@dataclass(frozen=True)
class Call:
    """One request to a model, or one call of a tool.

    Attributes:
        n: the candidate it was for; None for what belongs to no child (the planner).
        purpose: "edit", "repair:compile", "review", "tool:compile", ...
        model: asked; returned_model: as the reply names it, None without a reply.
        request, reply: JSON; of a tool call its arguments and its text.
        tokens_in, tokens_out: as reported; usd: None where no price is known.
        seconds: of the wall clock, for people only.
        status: "ok", "estimated" (tokens counted by us), or the kind of failure.
    """

    n: int | None
    purpose: str
    model: str
    returned_model: str | None
    request: str
    reply: str
    tokens_in: int
    tokens_out: int
    usd: float | None
    seconds: float
    status: str

    @property
    def answer(self) -> Reply | Failure:
        """The reply or failure it holds."""
        if self.status in ("ok", "estimated"):
            return Reply.from_json(self.reply)
        return Failure(**json.loads(self.reply))

    @property
    def charged(self) -> bool:
        """True where a model gave an answer."""
        return self.returned_model is not None


class Recording:
    """Calls to be given back, in order.

    Args:
        calls: of one proposal.
        strict: a request that is not the recorded one, or one too many, is an error (replay); otherwise the
            rest of the recording is dropped and the endpoint asked (resume).
    """

    def __init__(self, calls: Iterable[Call] = (), *, strict: bool = False) -> None:
        self._calls = deque(calls)
        self.strict = strict

    def answer(self, request: Request, purpose: str) -> Call | None:
        """The recorded call of this request, or None where there is none (never if strict).

        Raises:
            ReplayError: strict, and another request was recorded here.
        """
        return self._next(purpose, request.model, request.text)

    def tool(self, name: str, arguments: str) -> Call | None:
        """The recorded call of a tool, as `answer`."""
        return self._next(TOOL + name, "", arguments)

    def _next(self, purpose: str, model: str, request: str) -> Call | None:
        if self._calls:
            call = self._calls[0]
            if (call.purpose, call.model, call.request) == (purpose, model, request):
                return self._calls.popleft()
        if self.strict:
            raise ReplayError(self._divergence(purpose, model, request), ended=not self._calls)
        self._calls.clear()
        return None

    def _divergence(self, purpose: str, model: str, request: str) -> str:
        what = f"{purpose}{f' of {model}' if model else ''}"
        if not self._calls:
            return f"the recording ends before {what}: it was cut short there"
        call = self._calls[0]
        same = sum(1 for _ in _common(call.request, request))
        return (
            f"the recording has {call.purpose} of candidate {call.n} where {what} is asked; the requests differ from"
            f" character {same} on: recorded {call.request[same : same + 60]!r}, now {request[same : same + 60]!r}"
        )


def _common(one: str, other: str) -> Iterable[str]:
    for a, b in zip(one, other, strict=False):
        if a != b:
            return
        yield a
