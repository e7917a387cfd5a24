"""Requests to an OpenAI-compatible endpoint, through the `openai` client. The only module that talks to a network.

Every expected fault of an endpoint is a `Failure`. Retries are ours alone (the client's are off), so that one
deadline holds; the body is read in pieces against that deadline, and each attempt has a thread that is left behind
where it passes, because a read timeout alone never ends a server that drips a byte at a time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from mutations.llm.deadline import Deadline, within
from mutations.llm.messages import Failure, Reply, Request
from mutations.llm.reading import read_models, read_reply

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

_LONGEST_WAIT_S: Final = 30.0
_MOST_BYTES: Final = 8 * 1024 * 1024  # of one answer
_TRANSIENT: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class Transport(Protocol):
    """Carries one request. Safe to call from several threads."""

    def complete(self, request: Request, deadline: Deadline) -> Reply | Failure:
        """The reply, or why there is none; returns before the deadline (a little after it at most)."""


@dataclass(frozen=True)
class Endpoint:
    """Where models are. `base_url` None is the client's own default; the key is never shown or stored."""

    api_key: str
    base_url: str | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url or 'default'})"


class OpenAITransport:
    """One endpoint.

    Args:
        endpoint: address and key.
        concurrency: requests under way at once.
        attempts: how often one request is tried while the endpoint says "later".
        first_wait_s: before the second attempt; doubled for each further one.
    """

    def __init__(self, endpoint: Endpoint, concurrency: int = 16, attempts: int = 5, first_wait_s: float = 0.5) -> None:
        self._endpoint = endpoint
        self._attempts = attempts
        self._first_wait_s = first_wait_s
        self._slots = threading.BoundedSemaphore(concurrency)
        self._lock = threading.Lock()
        self._client: OpenAI | None = None
        self._not_before: dict[str, float] = {}  # model -> moment before which it asked not to be asked again
        self._down: set[str] = set()  # models that gave nothing last time: probed once, not retried
        self._quirks: dict[str, frozenset[str]] = {}  # model -> what it does not accept

    def models(self, timeout_s: float = 10.0) -> tuple[str, ...] | Failure:
        """Names of the models the endpoint serves; empty where it does not say."""
        import openai

        listing = self._connected().models.with_raw_response.list
        try:
            raw = within(Deadline(timeout_s), lambda: listing(timeout=timeout_s))
        except TimeoutError:
            return Failure("unreachable", f"no answer within {timeout_s:g} s")
        except openai.APIStatusError as error:
            if error.status_code in (401, 403):
                return Failure("key_refused", self._said(error))
            return () if error.status_code in (404, 405, 501) else Failure("status", self._said(error))
        except openai.APIConnectionError as error:  # timeouts are of this kind too
            return Failure("unreachable", self._clean(str(error.__cause__ or error)))
        return read_models(raw.content)

    def complete(self, request: Request, deadline: Deadline) -> Reply | Failure:
        """One answer, asked for as often as the endpoint, `attempts` and the deadline allow."""
        failure = Failure("deadline", "the deadline passed before the request could start", 0)
        attempts = 1 if request.model in self._down else self._attempts
        for attempt in range(1, attempts + 1):
            if not self._wait_for_model(request.model, deadline):
                return Failure(failure.kind, failure.message, attempt - 1)
            answer = self._try(request, deadline)
            if isinstance(answer, Reply):
                self._down.discard(request.model)
                return answer
            failure, wait_s = answer
            if wait_s is None or attempt == attempts:
                break
            if failure.kind != "status":  # then only the form was wrong, and is right now
                self._hold(request.model, max(wait_s, min(self._first_wait_s * 2 ** (attempt - 1), _LONGEST_WAIT_S)))
        if failure.kind in ("unreachable", "rate_limited"):
            self._down.add(request.model)
        return Failure(failure.kind, failure.message, attempt)

    # one attempt

    def _try(self, request: Request, deadline: Deadline) -> Reply | tuple[Failure, float | None]:
        """A reply, or a failure and how long to wait before another attempt (None: it would be no use)."""
        import openai

        if not self._slots.acquire(timeout=deadline.left_s):
            return Failure("deadline", "no free slot before the deadline"), None
        try:
            return within(deadline, lambda: self._once(request, deadline))
        except (TimeoutError, openai.APITimeoutError):
            return Failure("deadline", "no answer within the deadline"), None
        except openai.APIConnectionError as error:
            if deadline.passed:
                return Failure("deadline", "no answer within the deadline"), None
            return Failure("unreachable", self._clean(str(error.__cause__ or error))), 0.0
        except openai.APIStatusError as error:
            return self._refused(request, error)
        except openai.OpenAIError as error:
            return Failure("malformed", self._clean(str(error))), None
        finally:
            self._slots.release()

    def _once(self, request: Request, deadline: Deadline) -> Reply | tuple[Failure, float | None]:
        import httpx2

        create = self._connected().chat.completions.with_streaming_response.create
        body = bytearray()
        try:
            with create(**self._arguments(request), timeout=max(deadline.left_s, 0.001)) as response:
                for piece in response.iter_bytes():
                    body += piece
                    if deadline.passed:
                        return Failure("deadline", f"the answer was not complete after {len(body)} bytes"), None
                    if len(body) > _MOST_BYTES:
                        return Failure("malformed", f"the answer is longer than {_MOST_BYTES} bytes"), None
        except httpx2.TimeoutException:
            return Failure("deadline", "no answer within the deadline"), None
        except httpx2.HTTPError as error:  # the connection broke while the body was read
            return Failure("unreachable", self._clean(str(error)) or type(error).__name__), 0.0
        return self._understood(bytes(body), request)

    def _understood(self, body: bytes, request: Request) -> Reply | tuple[Failure, float | None]:
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):
            shown = body[:80].decode("utf-8", "replace")
            return Failure("not_json", self._clean(f"status 200, but the body is not JSON: {shown!r}")), None
        reply = read_reply(data, request)
        return (reply, None) if isinstance(reply, Failure) else reply

    def _arguments(self, request: Request) -> dict[str, Any]:
        quirks = self._quirks.get(request.model, frozenset())
        limit = "max_completion_tokens" if "max_tokens" in quirks else "max_tokens"
        arguments: dict[str, Any] = {"model": request.model, "messages": list(request.messages)}
        arguments[limit] = request.max_tokens
        if request.temperature is not None and "temperature" not in quirks:
            arguments["temperature"] = request.temperature
        if request.tools:
            arguments["tools"] = list(request.tools)
        return arguments

    def _refused(self, request: Request, error: APIStatusError) -> tuple[Failure, float | None]:
        status, said = error.status_code, self._said(error)
        if status in (401, 403):
            return Failure("key_refused", said), None
        if status == 400:
            known = self._quirks.get(request.model, frozenset())
            quirk = next((name for name in ("max_tokens", "temperature") if name in said and name not in known), None)
            if quirk is not None:
                self._quirks[request.model] = known | {quirk}
                return Failure("status", said), 0.0
        if status not in _TRANSIENT:
            return Failure("status", said), None
        return Failure("rate_limited" if status == 429 else "unreachable", said), _retry_after_s(error.response.headers)

    # between attempts

    def _hold(self, model: str, seconds: float) -> None:
        """Nobody asks this model for so long: when it says "later" to one, it means all."""
        with self._lock:
            self._not_before[model] = max(self._not_before.get(model, 0.0), time.monotonic() + seconds)

    def _wait_for_model(self, model: str, deadline: Deadline) -> bool:
        """False if its pause outlasts the deadline."""
        while not deadline.passed:
            with self._lock:
                wait_s = self._not_before.get(model, 0.0) - time.monotonic()
            if wait_s <= 0.0:
                return True
            if not deadline.sleep(wait_s):
                return False
        return False

    # the client

    def _connected(self) -> OpenAI:
        import openai

        with self._lock:
            if self._client is None:
                self._client = openai.OpenAI(
                    api_key=self._endpoint.api_key, base_url=self._endpoint.base_url, max_retries=0
                )
            return self._client

    def _said(self, error: APIStatusError) -> str:
        return self._clean(f"status {error.status_code}: {error.message}")

    def _clean(self, text: str) -> str:
        """One bounded line without the key, which some servers repeat."""
        key = self._endpoint.api_key
        return " ".join((text.replace(key, "[key]") if key else text).split())[:300]


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds the server asks for (RFC 9110, 10.2.3; a date counts from now); 0 where it says nothing usable."""
    import email.utils

    text = headers.get("retry-after", "")
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
