"""The nouns of a conversation with a model: request, reply, failure. Plain values that survive JSON exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Message = Mapping[str, Any]
"""One chat message as the OpenAI chat completions API takes it."""

FailureKind = Literal[
    "unreachable", "rate_limited", "deadline", "status", "not_json", "malformed", "no_budget", "key_refused"
]


@dataclass(frozen=True)
class ToolCall:
    """A function the model wants called; `arguments` is the JSON text it wrote, unchecked."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Usage:
    """Tokens of one request. `estimated`: the reply gave none (or nonsense), so they were counted by characters."""

    tokens_in: int
    tokens_out: int
    estimated: bool = False

    @property
    def total(self) -> int:
        """Both together."""
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True)
class Request:
    """What is asked. The same request has the same `text`, which recordings are compared by.

    Attributes:
        model: name the endpoint knows.
        messages: the whole conversation.
        max_tokens: longest answer.
        tools: function definitions the model may call.
        temperature: None leaves it to the endpoint.
    """

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    tools: tuple[Mapping[str, Any], ...] = ()
    temperature: float | None = None

    @property
    def text(self) -> str:
        """Canonical JSON. Holds no key and no address."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @property
    def most_tokens(self) -> int:
        """Upper estimate of what it may cost: a token holds at least two characters of code, the answer is full."""
        return len(self.text) // 2 + self.max_tokens


@dataclass(frozen=True)
class Reply:
    """What came back. `finish` is the API's finish_reason; `refused` the API's refusal text; `model` as returned."""

    text: str
    model: str
    usage: Usage
    finish: str = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    refused: str = ""

    def to_json(self) -> str:
        """For the archive."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> Reply:
        """The inverse of `to_json`."""
        data = json.loads(text)
        calls = tuple(ToolCall(**call) for call in data.pop("tool_calls"))
        return Reply(**(data | {"usage": Usage(**data["usage"]), "tool_calls": calls}))


@dataclass(frozen=True)
class Failure:
    """No answer, and why: an outcome, no exception. `attempts`: how often the endpoint was asked."""

    kind: FailureKind
    message: str
    attempts: int = 1

    def to_json(self) -> str:
        """For the archive."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)


def system(text: str) -> Message:
    """A message that sets the rules."""
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    """A message of ours."""
    return {"role": "user", "content": text}


def assistant(reply: Reply) -> Message:
    """The model's own turn, for the next request of the conversation."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.tool_calls
        ]
    return message


def tool_result(call: ToolCall, text: str) -> Message:
    """What a tool answered."""
    return {"role": "tool", "tool_call_id": call.id, "content": text}
