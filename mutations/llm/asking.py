"""Asking a model on behalf of one proposal: which model, with whose money, until when, on the record.

Models are asked in a given order: the next one on failure. What no model answers is `Unanswered`, an outcome.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mutations.llm.deadline import Deadline
from mutations.llm.messages import Failure, Message, Reply, Request, Usage
from mutations.llm.prices import Model
from mutations.llm.recording import TOOL, Call, Recording
from mutations.llm.transport import Transport


class Purse(Protocol):
    """The run's tokens and dollars (implemented by evo). Safe to call from several threads."""

    def reserve(self, tokens: int, usd: float) -> bool:
        """Set both aside for a request that starts now; False, and nothing set aside, where they do not fit."""

    def settle(self, reserved: tuple[int, float], spent: tuple[int, float]) -> None:
        """Give a reservation (tokens, usd) back and book what was spent."""


@dataclass(frozen=True)
class Answered:
    """A reply, and the model that was asked (its name in the experiment)."""

    reply: Reply
    model: Model


@dataclass(frozen=True)
class Unanswered:
    """No model gave an answer; one reason per model, in order."""

    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.reasons) or "no model is named"


class Asker:
    """The requests of one proposal.

    Args:
        n: the candidate; None for the planner.
        models: in the order in which they are asked.
        transport: None in a replay: nothing is ever sent.
        purse: of the run.
        record: told of every call as it is made.
        deadline: of the whole proposal.
        recording: what is given back instead of being asked again.
        max_tokens: longest answer. temperature: None leaves it to the endpoint.
    """

    def __init__(
        self,
        n: int | None,
        models: Sequence[Model],
        transport: Transport | None,
        purse: Purse,
        record: Callable[[Call], None],
        deadline: Deadline,
        *,
        recording: Recording | None = None,
        max_tokens: int = 8192,
        temperature: float | None = None,
    ) -> None:
        self._n = n
        self._models = tuple(models)
        self._transport = transport
        self._purse = purse
        self._record = record
        self._deadline = deadline
        self._recording = recording or Recording(strict=transport is None)
        self._max_tokens = max_tokens
        self._temperature = temperature

    def ask(
        self, messages: Sequence[Message], purpose: str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Answered | Unanswered:
        """The first answer that a model gives, in their order; the one that answered goes first from then on.

        Raises:
            ReplayError: a replay that has come apart.
        """
        reasons = []
        for model in self._models:
            request = Request(model.name, tuple(messages), self._max_tokens, tuple(tools), self._temperature)
            answer = self._one(model, request, purpose)
            if isinstance(answer, Reply):
                self._models = (model, *(other for other in self._models if other != model))
                return Answered(answer, model)
            reasons.append(f"{model.name}: {answer.message}")
        return Unanswered(tuple(reasons))

    def tool(self, name: str, arguments: str, call: Callable[[], str]) -> str:
        """What a tool says, recorded: a replay does not run it again."""
        known = self._recording.tool(name, arguments)
        if known is not None:
            self._take(known)
            return known.reply
        started = time.monotonic()
        text = call()
        seconds = time.monotonic() - started
        self._record(Call(self._n, TOOL + name, "", None, arguments, text, 0, 0, None, seconds, "ok"))
        return text

    @property
    def out_of_time(self) -> bool:
        """True once the deadline has passed (never while answers come from a recording)."""
        return self._transport is not None and self._deadline.passed

    def _one(self, model: Model, request: Request, purpose: str) -> Reply | Failure:
        known = self._recording.answer(request, purpose)
        if known is not None:
            self._take(known)
            return known.answer
        if self._transport is None:
            raise AssertionError("a strict recording has an answer or raises")
        most = Usage(request.most_tokens - request.max_tokens, request.max_tokens)
        reserved = most.total, model.usd(most) or 0.0
        if not self._purse.reserve(*reserved):
            failure = Failure("no_budget", "what is left of the budget may not cover the request", 0)
            self._record(_failed(self._n, purpose, model, request, failure, 0.0))
            return failure
        spent = (0, 0.0)
        started = time.monotonic()
        try:
            answer = self._transport.complete(request, self._deadline)
            if isinstance(answer, Reply):
                spent = answer.usage.total, model.usd(answer.usage) or 0.0
        finally:
            self._purse.settle(reserved, spent)
        seconds = time.monotonic() - started
        self._record(
            _failed(self._n, purpose, model, request, answer, seconds)
            if isinstance(answer, Failure)
            else _answered(self._n, purpose, model, request, answer, seconds)
        )
        return answer

    def _take(self, known: Call) -> None:
        """A recorded call counts again where it is not this run's own (see `Recording.strict`)."""
        if self._recording.strict:
            self._purse.settle((0, 0.0), (known.tokens_in + known.tokens_out, known.usd or 0.0))
            self._record(known)


def _answered(n: int | None, purpose: str, model: Model, request: Request, reply: Reply, seconds: float) -> Call:
    usage = reply.usage
    status = "estimated" if usage.estimated else "ok"
    return Call(n, purpose, model.name, reply.model, request.text, reply.to_json(), usage.tokens_in,
                usage.tokens_out, model.usd(usage), seconds, status)  # fmt: skip


def _failed(n: int | None, purpose: str, model: Model, request: Request, failure: Failure, seconds: float) -> Call:
    return Call(n, purpose, model.name, None, request.text, failure.to_json(), 0, 0, None, seconds, failure.kind)
