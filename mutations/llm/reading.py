"""The JSON of a chat completion -> `Reply`, whatever the server left out or got wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mutations.llm.messages import Failure, Reply, Request, ToolCall, Usage

_CHARACTERS_PER_TOKEN: Final = 4  # of English and code, on average; only where the reply gives no usage
_MOST_CALLS: Final = 16


def read_reply(data: object, request: Request) -> Reply | Failure:
    """A reply from decoded JSON; `malformed` where it holds no message at all."""
    if not isinstance(data, Mapping):
        return Failure("malformed", f"status 200, but the JSON is {type(data).__name__}, not an object")
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(first, Mapping):
        said = data.get("error")
        return Failure("malformed", f"status 200, but no message{f': {said}' if said else ''}"[:300])
    text = _text(message.get("content"))
    calls = _tool_calls(message.get("tool_calls"))
    return Reply(
        text=text,
        model=_string(data.get("model")) or request.model,
        usage=_usage(data.get("usage"), request, text + "".join(call.arguments for call in calls)),
        finish=_string(first.get("finish_reason")) or "stop",
        tool_calls=calls,
        refused=_string(message.get("refusal")),
    )


def read_models(body: bytes) -> tuple[str, ...]:
    """Names of the models in a listing; empty where it holds none, whatever it is."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ()
    listed = data.get("data") if isinstance(data, Mapping) else None
    names = [_string(one.get("id")) for one in (listed if isinstance(listed, list) else []) if isinstance(one, Mapping)]
    return tuple(name for name in names if name)


def _text(content: object) -> str:
    """Text of a message; some servers send a list of parts."""
    if isinstance(content, list):
        return "".join(_string(part.get("text")) for part in content if isinstance(part, Mapping))
    return _string(content)


def _string(value: object) -> str:
    """Text that SQLite and JSON can hold; lone surrogates are replaced."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else ""


def _tool_calls(value: object) -> tuple[ToolCall, ...]:
    calls = []
    for place, entry in enumerate(value if isinstance(value, list) else []):
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if isinstance(function, Mapping) and _string(function.get("name")):
            name, arguments = _string(function.get("name")), _string(function.get("arguments"))
            calls.append(ToolCall(_string(entry.get("id")) or f"call_{place}", name, arguments))
    return tuple(calls[:_MOST_CALLS])


def _usage(value: object, request: Request, answer: str) -> Usage:
    """As reported; counted by characters where the report is missing or cannot be true.

    More prompt tokens than characters, or more answer tokens than were allowed and than there are characters
    in the answer (hidden reasoning counts up to the limit), is no report.
    """
    characters = len(request.text)
    if isinstance(value, Mapping):
        sent, got = _count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))
        most_got = max(request.max_tokens, len(answer))
        if sent is not None and got is not None and 0 < sent <= 2 * characters and got <= most_got:
            return Usage(sent, got)
    return Usage(characters // _CHARACTERS_PER_TOKEN + 1, len(answer) // _CHARACTERS_PER_TOKEN + 1, estimated=True)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
