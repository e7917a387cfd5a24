"""A scripted OpenAI-compatible server: real HTTP, every fault an endpoint can have.

    model = ScriptedModel(httpserver, [reply("..."), status(429, retry_after=0), drip(), dropped()])
    model.endpoint                  # for the real client
    model.requests                  # what it was sent, decoded

Answers are given in the order of arrival; a callable answers by what was asked (any order of arrival).
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from mutations.llm.transport import Endpoint

KEY = "sk-test-0123456789"

Answer = Callable[[Request], Response]
Script = Sequence[Answer] | Callable[[dict[str, Any]], Answer]


def usage(tokens_in: int = 100, tokens_out: int = 50) -> dict[str, int]:
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def completion(text: str | None, **changes: Any) -> dict[str, Any]:
    """The JSON of a chat completion; `changes` replace its parts (`message` is merged)."""
    message = {"role": "assistant", "content": text} | changes.pop("message", {})
    finish = changes.pop("finish", "stop")
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted-2026",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage(),
    }
    return body | changes


def reply(text: str | None, **changes: Any) -> Answer:
    """A good answer."""
    return raw(json.dumps(completion(text, **changes)))


def calls(*named: tuple[str, dict[str, Any] | str]) -> Answer:
    """An answer that calls tools: (name, arguments)."""
    entries = [
        {"id": f"call_{i}", "type": "function",
         "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)}}
        for i, (name, args) in enumerate(named)
    ]  # fmt: skip
    return reply(None, finish="tool_calls", message={"tool_calls": entries})


def raw(body: str, code: int = 200, content_type: str = "application/json", **headers: str) -> Answer:
    """Any body."""
    return lambda _request: Response(body, code, {"Content-Type": content_type} | headers)


def status(code: int, message: str = "no", retry_after: float | str | None = None) -> Answer:
    """An error as the API words it."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return raw(json.dumps({"error": {"message": message, "type": "error"}}), code, **headers)


def slow(answer: Answer, seconds: float) -> Answer:
    """An answer after some time."""

    def late(request: Request) -> Response:
        time.sleep(seconds)
        return answer(request)

    return late


def drip(seconds: float = 30.0) -> Answer:
    """A byte at a time, never complete: no read timeout ends it."""

    def body() -> Iterator[bytes]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            yield b" "
            time.sleep(0.02)

    return lambda _request: Response(body(), 200, {"Content-Type": "application/json"}, direct_passthrough=True)


def drip_headers(seconds: float = 30.0) -> Answer:
    """Headers a byte at a time, for so long: the answer does not even begin."""

    def answer(request: Request) -> Response:
        connection: socket.socket = request.environ["werkzeug.socket"]
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        end = time.monotonic() + seconds
        with contextlib.suppress(OSError):
            while time.monotonic() < end:
                connection.sendall(b"x")
                time.sleep(0.02)
            connection.shutdown(socket.SHUT_RDWR)
        return Response("")

    return answer


def dropped(after: bytes = b"") -> Answer:
    """The connection is closed: before the answer, or in the middle of it."""

    def answer(request: Request) -> Response:
        connection: socket.socket = request.environ["werkzeug.socket"]
        if after:
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n" + after
            )
        connection.shutdown(socket.SHUT_RDWR)
        return Response("")

    return answer


@dataclass
class ScriptedModel:
    """Installs a script on a server. `requests` in order of arrival; `most_at_once`: requests under way together."""

    server: HTTPServer
    script: Script
    models: tuple[str, ...] = ("scripted",)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self.server.expect_request("/v1/chat/completions", method="POST").respond_with_handler(self._answer)
        listing = {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]}
        self.server.expect_request("/v1/models").respond_with_json(listing)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(KEY, self.server.url_for("/v1"))

    def _answer(self, request: Request) -> Response:
        with self._lock:
            self._open += 1
            self.most_at_once = max(self.most_at_once, self._open)
            place = len(self.requests)
            asked = json.loads(request.data)
            self.requests.append(asked)
            self.headers.append(dict(request.headers))
        try:
            answer = self.script(asked) if callable(self.script) else self._scripted(place)
            return answer(request)
        finally:
            with self._lock:
                self._open -= 1

    def _scripted(self, place: int) -> Answer:
        assert not callable(self.script)
        return self.script[place] if place < len(self.script) else status(500, f"the script has no answer {place}")
