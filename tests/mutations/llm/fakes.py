"""A proposal's surroundings without an endpoint: a scripted transport, a purse, services that know every verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome, Timed
from mutations.llm.access import Access, Settings
from mutations.llm.asking import Asker
from mutations.llm.deadline import Deadline
from mutations.llm.messages import Failure, Reply, Request, ToolCall, Usage
from mutations.llm.prices import Model, Price
from mutations.llm.recording import Call, Recording
from mutations.llm.transport import Transport
from mutations.operator import Context
from mutations.testing import context, nm24_task

MODEL = Model("scripted", 1.0, Price(1.0, 10.0))


def reply(text: str, *tools: tuple[str, str], finish: str = "stop", usage: Usage | None = None) -> Reply:
    calls = tuple(ToolCall(f"call_{i}", name, arguments) for i, (name, arguments) in enumerate(tools))
    return Reply(text, "scripted-2026", usage or Usage(100, 50), finish, calls)


@dataclass
class ScriptedTransport:
    """Answers in order, or by what is asked; keeps the requests."""

    script: Sequence[Reply | Failure] | Callable[[Request], Reply | Failure]
    requests: list[Request] = field(default_factory=list)

    def complete(self, request: Request, deadline: Deadline) -> Reply | Failure:
        del deadline
        self.requests.append(request)
        return self.script(request) if callable(self.script) else self.script[len(self.requests) - 1]


@dataclass
class FakePurse:
    """Books exactly what it is told; `tokens` limits reservations and spending together."""

    tokens: int = 10**9
    used: int = 0
    usd: float = 0.0
    reserved: int = 0

    def reserve(self, tokens: int, usd: float) -> bool:
        del usd
        if self.used + self.reserved + tokens > self.tokens:
            return False
        self.reserved += tokens
        return True

    def settle(self, reserved: tuple[int, float], spent: tuple[int, float]) -> None:
        self.reserved -= reserved[0]
        self.used += spent[0]
        self.usd += spent[1]


@dataclass
class FakeServices:
    """Passes every kernel unless `verdict` says otherwise."""

    verdict: Callable[[Kernel, Gate], Outcome] = lambda _kernel, depth: Timed(depth)
    judged: list[tuple[Kernel, Gate]] = field(default_factory=list)
    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def judge(self, kernel: Kernel, depth: Gate) -> Outcome:
        self.judged.append((kernel, depth))
        return self.verdict(kernel, depth)

    def trace(self, kernel: Kernel, line: int, thread: tuple[int, int, int], block: tuple[int, int, int]) -> str:
        return f"traced {kernel.format.name} {line} {thread} {block}"

    def search_archive(self, words: str) -> Sequence[str]:
        return [f"found {words}"]

    def event(self, kind: str, data: dict[str, object]) -> None:
        self.events.append((kind, data))


@dataclass
class Desk:
    """Everything a proposal touches, to be looked at afterwards."""

    transport: Transport | None
    purse: FakePurse = field(default_factory=FakePurse)
    services: FakeServices = field(default_factory=FakeServices)
    calls: list[Call] = field(default_factory=list)

    def asker(self, models: Sequence[Model] = (MODEL,), recording: Recording | None = None, **more: Any) -> Asker:
        return Asker(
            3, models, self.transport, self.purse, self.calls.append, Deadline(60), recording=recording, **more
        )

    def access(self, settings: Settings | None = None, **more: Any) -> Access:
        recording = more.pop("recording", None)
        models = more.pop("models", (MODEL,))
        return Access(3, self.asker(models, recording), self.services, settings or Settings(), **more)

    def context(self, settings: Settings | None = None, *, tried: Sequence[str] = (), **more: Any) -> Context:
        return replace(context(nm24_task(), tried=tried), llm=self.access(settings, **more))


def desk(*script: Reply | Failure) -> Desk:
    """Surroundings with answers in order."""
    return Desk(ScriptedTransport(script))


def sent(desk: Desk) -> list[Request]:
    """What was asked."""
    assert isinstance(desk.transport, ScriptedTransport)
    return desk.transport.requests
