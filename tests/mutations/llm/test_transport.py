"""The transport against real HTTP: every fault of an endpoint is an outcome, within the deadline."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from pytest_httpserver import HTTPServer

from mutations.llm.deadline import Deadline
from mutations.llm.messages import Failure, Reply, Request, system, user
from mutations.llm.transport import Endpoint, OpenAITransport, _retry_after_s
from tests.mutations.llm.server import (
    KEY,
    Answer,
    ScriptedModel,
    calls,
    completion,
    drip,
    drip_headers,
    dropped,
    raw,
    reply,
    slow,
    status,
)

REQUEST = Request("scripted", (system("rules"), user("a question " * 20)), 1000)


def ask(
    httpserver: HTTPServer, *script: Answer, seconds: float = 10.0, request: Request = REQUEST
) -> tuple[Reply | Failure, ScriptedModel, float]:
    model = ScriptedModel(httpserver, script)
    started = time.monotonic()
    answer = OpenAITransport(model.endpoint, first_wait_s=0.05).complete(request, Deadline(seconds))
    return answer, model, time.monotonic() - started


def test_a_good_answer(httpserver: HTTPServer) -> None:
    answer, model, _ = ask(httpserver, reply("hello"))
    assert isinstance(answer, Reply)
    assert (answer.text, answer.model, answer.finish) == ("hello", "scripted-2026", "stop")
    assert (answer.usage.tokens_in, answer.usage.tokens_out, answer.usage.estimated) == (100, 50, False)
    (sent,) = model.requests
    assert sent == {"model": "scripted", "messages": list(REQUEST.messages), "max_tokens": 1000}
    assert model.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_tool_calls_are_read(httpserver: HTTPServer) -> None:
    answer, _, _ = ask(httpserver, calls(("compile", {"source": "x"}), ("lookup", "not json")))
    assert isinstance(answer, Reply)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("compile", '{"source": "x"}'),
        ("lookup", "not json"),
    ]
    assert answer.text == ""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<html>welcome</html>", "not_json"),
        ("", "not_json"),
        (json.dumps(completion("cut"))[:60], "not_json"),
        ("[]", "malformed"),
        ("{}", "malformed"),
        ('{"a":' * 100_000, "not_json"),
        ('{"choices": []}', "malformed"),
        ('{"choices": [{"message": null}]}', "malformed"),
        ('{"choices": "no", "error": {"message": "overloaded"}}', "malformed"),
    ],
    ids=["html", "empty", "truncated", "list", "object", "too deep", "no choice", "no message", "error"],
)
def test_a_200_that_holds_no_answer_is_a_failure(httpserver: HTTPServer, body: str, kind: str) -> None:
    answer, model, _ = ask(httpserver, raw(body, content_type="text/html"))
    assert isinstance(answer, Failure)
    assert answer.kind == kind
    assert len(model.requests) == 1  # asking again would cost again


@pytest.mark.parametrize(
    "wrong",
    [None, {}, {"prompt_tokens": -1, "completion_tokens": 3}, {"prompt_tokens": "9", "completion_tokens": 1},
     {"prompt_tokens": 10**9, "completion_tokens": 1}, {"prompt_tokens": 5, "completion_tokens": 10**6},
     {"prompt_tokens": True, "completion_tokens": True}, [1, 2]],
    ids=str,
)  # fmt: skip
def test_wrong_usage_is_counted_by_us_and_says_so(httpserver: HTTPServer, wrong: object) -> None:
    answer, _, _ = ask(httpserver, reply("12345678", usage=wrong))
    assert isinstance(answer, Reply)
    assert answer.usage.estimated
    assert answer.usage.tokens_in == len(REQUEST.text) // 4 + 1
    assert answer.usage.tokens_out == 3


def test_odd_shapes_of_a_message_are_read(httpserver: HTTPServer) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}, "junk"]
    answer, _, _ = ask(httpserver, reply(None, message={"content": parts}, model=None))
    assert isinstance(answer, Reply)
    assert answer.text == "one two"
    assert answer.model == "scripted"


def test_a_lone_surrogate_is_no_trap(httpserver: HTTPServer) -> None:
    body = json.dumps(completion("x")).replace('"x"', '"a \\ud800 b"')
    answer, _, _ = ask(httpserver, raw(body))
    assert isinstance(answer, Reply)
    assert answer.text == "a ? b"
    assert Reply.from_json(answer.to_json()) == answer


def test_a_storm_of_429_ends_well(httpserver: HTTPServer) -> None:
    storm = [status(429, "slow down", retry_after=0.05)] * 3
    answer, model, seconds = ask(httpserver, *storm, reply("at last"))
    assert isinstance(answer, Reply)
    assert len(model.requests) == 4
    assert seconds < 8


def test_retry_after_is_honoured(httpserver: HTTPServer) -> None:
    answer, _, seconds = ask(httpserver, status(429, retry_after=0.6), reply("now"))
    assert isinstance(answer, Reply)
    assert 0.6 <= seconds < 3


def test_a_pause_longer_than_the_deadline_is_not_waited_for(httpserver: HTTPServer) -> None:
    answer, model, seconds = ask(httpserver, status(429, "later", retry_after=3600), seconds=5.0)
    assert isinstance(answer, Failure)
    assert answer.kind == "rate_limited"
    assert "later" in answer.message
    assert len(model.requests) == 1
    assert seconds < 1


def test_a_pause_asked_of_one_request_holds_all(httpserver: HTTPServer) -> None:
    model = ScriptedModel(httpserver, [status(429, retry_after=1.0), reply("a"), reply("b")])
    transport = OpenAITransport(model.endpoint)
    answers: list[Reply | Failure] = []
    started = time.monotonic()
    first = threading.Thread(target=lambda: answers.append(transport.complete(REQUEST, Deadline(10))))
    first.start()
    while not model.requests:
        time.sleep(0.01)
    time.sleep(0.2)
    answers.append(transport.complete(REQUEST, Deadline(10)))
    first.join()
    assert time.monotonic() - started >= 1.0
    assert len(model.requests) == 3
    assert all(isinstance(answer, Reply) for answer in answers)


def test_a_server_that_fails_and_recovers(httpserver: HTTPServer) -> None:
    answer, model, _ = ask(httpserver, status(500), dropped(), status(503), reply("up"))
    assert isinstance(answer, Reply)
    assert len(model.requests) == 4


def test_a_connection_dropped_in_the_middle_is_tried_again(httpserver: HTTPServer) -> None:
    answer, model, _ = ask(httpserver, dropped(b'{"choices": [{"mess'), reply("whole"))
    assert isinstance(answer, Reply)
    assert answer.text == "whole"
    assert len(model.requests) == 2


def test_slow_drips_end_at_the_deadline(httpserver: HTTPServer) -> None:
    answer, _, seconds = ask(httpserver, drip(), seconds=0.5)
    assert isinstance(answer, Failure)
    assert answer.kind == "deadline"
    assert 0.5 <= seconds < 1.5


def test_headers_that_drip_end_at_the_deadline(httpserver: HTTPServer) -> None:
    answer, _, seconds = ask(httpserver, drip_headers(3.0), seconds=0.5)
    assert isinstance(answer, Failure)
    assert answer.kind == "deadline"
    assert 0.5 <= seconds < 1.5


def test_stopping_ends_a_request_under_way(httpserver: HTTPServer) -> None:
    model = ScriptedModel(httpserver, [slow(reply("too late"), 3.0)])
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    started = time.monotonic()
    answer = OpenAITransport(model.endpoint).complete(REQUEST, Deadline(60, stop))
    assert isinstance(answer, Failure)
    assert time.monotonic() - started < 2


def test_silence_ends_at_the_deadline_without_another_attempt(httpserver: HTTPServer) -> None:
    answer, model, seconds = ask(httpserver, slow(reply("too late"), 1.5), seconds=0.5)
    assert isinstance(answer, Failure)
    assert answer.kind == "deadline"
    assert seconds < 1.4
    assert len(model.requests) == 1


def test_stopping_ends_every_wait(httpserver: HTTPServer) -> None:
    model = ScriptedModel(httpserver, [status(429, retry_after=8)])
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    started = time.monotonic()
    answer = OpenAITransport(model.endpoint).complete(REQUEST, Deadline(60, stop))
    assert isinstance(answer, Failure)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("code", [401, 403])
def test_a_refused_key_is_said_without_the_key(httpserver: HTTPServer, code: int) -> None:
    answer, model, _ = ask(httpserver, status(code, f"Incorrect API key provided: {KEY}"))
    assert isinstance(answer, Failure)
    assert answer.kind == "key_refused"
    assert KEY not in answer.to_json()
    assert "[key]" in answer.message
    assert len(model.requests) == 1


@pytest.mark.parametrize("code", [400, 404, 422])
def test_a_request_the_server_will_never_take_is_not_repeated(httpserver: HTTPServer, code: int) -> None:
    answer, model, _ = ask(httpserver, status(code, "unknown model"))
    assert isinstance(answer, Failure)
    assert (answer.kind, answer.attempts) == ("status", 1)
    assert "unknown model" in answer.message
    assert len(model.requests) == 1


def test_what_a_model_does_not_accept_is_left_out_from_then_on(httpserver: HTTPServer) -> None:
    script = [
        status(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        status(400, "'temperature' does not support 0.5"),
        reply("fine"),
        reply("again"),
    ]
    model = ScriptedModel(httpserver, script)
    transport = OpenAITransport(model.endpoint)
    request = Request("scripted", (user("x"),), 77, temperature=0.5)
    assert isinstance(transport.complete(request, Deadline(10)), Reply)
    assert isinstance(transport.complete(request, Deadline(10)), Reply)
    assert model.requests[-1] == {"model": "scripted", "messages": [user("x")], "max_completion_tokens": 77}
    assert len(model.requests) == 4


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_that_is_down_is_found_out_once_then_probed() -> None:
    transport = OpenAITransport(Endpoint(KEY, f"http://127.0.0.1:{unused_port()}/v1"), attempts=2, first_wait_s=0.05)
    first = transport.complete(REQUEST, Deadline(10))
    started = time.monotonic()
    second = transport.complete(REQUEST, Deadline(10))
    assert isinstance(first, Failure)
    assert isinstance(second, Failure)
    assert (first.kind, first.attempts, second.kind, second.attempts) == ("unreachable", 2, "unreachable", 1)
    assert time.monotonic() - started < 1


def test_models_are_listed_or_the_reason_is(httpserver: HTTPServer) -> None:
    model = ScriptedModel(httpserver, [], models=("one", "two"))
    assert OpenAITransport(model.endpoint).models() == ("one", "two")
    down = OpenAITransport(Endpoint(KEY, f"http://127.0.0.1:{unused_port()}/v1")).models()
    assert isinstance(down, Failure)
    assert down.kind == "unreachable"
    httpserver.clear()
    httpserver.expect_request("/v1/models").respond_with_data("gone", 404)
    assert OpenAITransport(model.endpoint).models() == ()
    httpserver.clear()
    httpserver.expect_request("/v1/models").respond_with_data(f"no: {KEY}", 401)
    refused = OpenAITransport(model.endpoint).models()
    assert isinstance(refused, Failure)
    assert refused.kind == "key_refused"
    assert KEY not in refused.message


@pytest.mark.parametrize(
    "body", ["<html>", "[]", '{"data": [7, {"id": 7}]}', '{"a":' * 100_000], ids=["html", "list", "no", "deep"]
)
def test_a_listing_that_makes_no_sense_is_no_trap(httpserver: HTTPServer, body: str) -> None:
    httpserver.expect_request("/v1/models").respond_with_data(body, content_type="application/json")
    found = OpenAITransport(Endpoint(KEY, httpserver.url_for("/v1"))).models()
    assert found == ()


def test_a_listing_that_drips_is_not_waited_for(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/v1/models").respond_with_handler(drip_headers(3.0))
    started = time.monotonic()
    found = OpenAITransport(Endpoint(KEY, httpserver.url_for("/v1"))).models(timeout_s=0.5)
    assert isinstance(found, Failure)
    assert found.kind == "unreachable"
    assert time.monotonic() - started < 1.5


def test_no_more_than_so_many_requests_at_once(httpserver: HTTPServer) -> None:
    model = ScriptedModel(httpserver, lambda _: slow(reply("x"), 0.1))
    transport = OpenAITransport(model.endpoint, concurrency=3)
    threads = [threading.Thread(target=transport.complete, args=(REQUEST, Deadline(20))) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(model.requests) == 9
    assert model.most_at_once == 3


def test_retry_after_as_seconds_and_as_a_date() -> None:
    assert _retry_after_s({"retry-after": "2.5"}) == 2.5
    assert _retry_after_s({"retry-after": "-3"}) == 0.0
    assert _retry_after_s({}) == 0.0
    assert _retry_after_s({"retry-after": "soon"}) == 0.0
    assert _retry_after_s({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert _retry_after_s({"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}) > 1e6
    assert _retry_after_s({"retry-after": "Sat, 01 Jan 0001 00:00:00 -0000"}) == 0.0


def test_an_endpoint_does_not_show_its_key() -> None:
    assert KEY not in repr(Endpoint(KEY, "http://x"))
