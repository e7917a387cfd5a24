"""Whole runs against every fault of an endpoint (docs/llm.md has the table): each ends right, and to the token."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from evo.archive import Archive, Refused
from evo.archive.calls import calls_of
from evo.errors import EvoError
from evo.llm.connect import connect
from mutations.llm.recording import TOOL
from tests.evo import fakes
from tests.evo.llm import world
from tests.evo.llm.world import Server, archived_tokens, good, run, spent
from tests.mutations.llm.server import Answer, calls, completion, drip, drip_headers, dropped, raw, reply, slow, status

Behaviour = Callable[[dict[str, Any], int, int], Answer]

BAD_EDIT = "REASON: a wrong place\n<<<<<<< SEARCH\nno such line at all\n=======\nx\n>>>>>>> REPLACE"


def always(answer: Answer) -> Behaviour:
    return lambda _asked, _again, _n: answer


def first(fault: Answer, times: int = 1) -> Behaviour:
    """Every request meets the fault at first."""
    return lambda asked, again, _n: fault if again < times else good(asked)


def every(fault: Answer, which: int) -> Behaviour:
    """One request of so many, always the same ones, however often they are repeated."""
    return lambda asked, _again, _n: fault if world.tokens_for(asked)["prompt_tokens"] % which == 0 else good(asked)


def midway(fault: Answer, after: int = 5) -> Behaviour:
    return lambda asked, _again, n: good(asked) if n < after else fault


def tool_loop(asked: dict[str, Any], _again: int, _n: int) -> Answer:
    """Calls tools for ever, as long as there are any."""
    del asked
    return calls(("archive_search", {"words": "tile"}))


FAULTS: dict[str, Behaviour] = {
    "good": lambda asked, _again, _n: good(asked),
    "bad edits": always(reply(BAD_EDIT)),
    "some bad edits": every(reply(BAD_EDIT), 2),
    "garbage": always(reply("lorem ipsum \x00\x1b dolor")),
    "empty": always(reply("")),
    "refusal": always(reply("I'm sorry, I can't help with that.")),
    "truncated json": always(raw(json.dumps(completion("x" * 500))[:200])),
    "200 that is not json": always(raw("<html>ok</html>", content_type="text/html")),
    "null content": always(reply(None)),
    "no usage": lambda asked, _again, _n: raw(json.dumps(completion(world.child_text(asked), usage=None))),
    "wrong usage": lambda asked, _again, _n: raw(
        json.dumps(completion(world.child_text(asked), usage={"prompt_tokens": -7, "completion_tokens": 10**12}))
    ),
    "tool loop": tool_loop,
    "429 storm": first(status(429, "slow down", 0.01), 2),
    "429 for ever": always(status(429, "slow down", 0.01)),
    "slow drips": every(drip(20.0), 2),
    "slow headers": every(drip_headers(3.0), 2),
    "dropped": first(dropped(b'{"choices": [')),
    "dropped for ever": always(dropped()),
    "500 for ever": always(status(500)),
    "down midway": midway(status(503)),
    "key revoked midway": midway(status(401, "no such key")),
    "model gone midway": midway(status(404, "no such model")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_run_ends_right_whatever_the_endpoint_does(httpserver: HTTPServer, name: str) -> None:
    server = Server(httpserver, FAULTS[name])
    deadline_s = 1.0 if name in ("slow drips", "slow headers") else 5.0
    what = world.experiment(llm__deadline_s=deadline_s, llm__tools=["archive_search"], llm__tool_steps=2)
    watcher = fakes.Watcher()
    started = time.monotonic()
    with Archive.memory() as archive:
        summary = run(archive, what, server.connection(what), observer=watcher)
        entries, kept = archive.entries(summary.run_id), calls_of(archive, summary.run_id)
        tokens = archived_tokens(archive, summary.run_id)
    assert time.monotonic() - started < 4 * deadline_s + 5  # two generations, each with a refill, each one deadline

    assert (summary.status, summary.reason) == ("finished", "all generations done")
    assert summary.best is not None
    assert summary.confirmed

    # To the token: budget, archive and what the endpoint really answered agree.
    asked = [call for call in kept if not call.purpose.startswith(TOOL)]
    assert spent(summary) == tokens == sum(call.tokens_in + call.tokens_out for call in asked if call.charged)
    if name == "good":
        billed = [world.tokens_for(request) for request in server.model.requests]
        assert tokens == sum(one["prompt_tokens"] + one["completion_tokens"] for one in billed)
        assert len(asked) == len(server.model.requests)
    if name in ("bad edits", "garbage", "empty", "refusal", "null content", "tool loop"):
        assert tokens == 150 * len(server.model.requests)
    if "usage" in name:
        assert {call.status for call in asked} == {"estimated"}

    # Every plan became a child or a recorded refusal; what no model answered was made by tune, aloud.
    by_model = [entry for entry in entries if not isinstance(entry, Refused) and entry.model is not None]
    instead = [e for e in entries if not isinstance(e, Refused) and e.reason.startswith("tune instead, ")]
    assert bool(by_model) == (name in GIVE_CHILDREN), name
    lost = [data for kind, data in watcher.events if kind == "model_unavailable"]
    assert bool(instead) == bool(lost) == (name in LOSE_CHILDREN), name
    assert all(entry.reason for entry in entries if not isinstance(entry, Refused))


GIVE_CHILDREN = {
    "good", "some bad edits", "no usage", "wrong usage", "429 storm", "slow drips", "slow headers", "dropped",
    "down midway", "key revoked midway", "model gone midway",
}  # fmt: skip
LOSE_CHILDREN = {
    "truncated json", "200 that is not json", "429 for ever", "slow drips", "slow headers", "dropped for ever",
    "500 for ever", "down midway", "key revoked midway", "model gone midway",
}  # fmt: skip


def test_down_at_start_stops_with_a_hint() -> None:
    what = world.experiment()
    with pytest.raises(EvoError, match=r"cannot be asked .* start it, correct OPENAI_BASE_URL, or run with --no-llm"):
        connect(what, {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})


def test_a_refused_key_at_start_is_said_without_the_key(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/v1/models").respond_with_data("bad key sk-abc", 401)
    with pytest.raises(EvoError, match="refuses the key") as error:
        connect(world.experiment(), {"OPENAI_API_KEY": "sk-abc", "OPENAI_BASE_URL": httpserver.url_for("/v1")})
    assert "sk-abc" not in str(error.value)


def test_a_budget_of_tokens_is_never_exceeded(httpserver: HTTPServer) -> None:
    server = Server(httpserver, lambda asked, _again, _n: slow(good(asked), 0.05))
    what = world.experiment(budget__tokens=20_000, llm__max_tokens=1000, search__children=12)
    watcher = fakes.Watcher()
    with Archive.memory() as archive:
        summary = run(archive, what, server.connection(what), observer=watcher)
        statuses = [call.status for call in calls_of(archive, summary.run_id)]
    assert 0 < spent(summary) <= 20_000
    assert {"ok", "no_budget"} == set(statuses)
    assert summary.status == "finished"
    assert any(kind == "model_unavailable" and "budget" in str(data["message"]) for kind, data in watcher.events)


def test_the_key_is_nowhere_in_the_archive(httpserver: HTTPServer, tmp_path: Any) -> None:
    from tests.mutations.llm.server import KEY

    server = Server(
        httpserver, lambda asked, _again, n: good(asked) if n % 2 else status(401, f"Incorrect API key {KEY}")
    )
    what = world.experiment()
    path = tmp_path / "archive.db"
    with Archive.open(path) as archive:
        run(archive, what, server.connection(what))
    everything = b"".join(file.read_bytes() for file in tmp_path.glob("archive.db*"))
    assert b"[key]" in everything
    assert KEY.encode() not in everything


def test_the_next_model_is_asked_when_one_fails(httpserver: HTTPServer) -> None:
    server = Server(
        httpserver, lambda asked, _again, _n: status(404, "gone") if asked["model"] == "first" else good(asked)
    )
    what = world.experiment(llm__models=[{"name": "first", "weight": 1000.0}, {"name": "second"}])
    with Archive.memory() as archive:
        summary = run(archive, what, server.connection(what))
        kept = calls_of(archive, summary.run_id)
        made = {entry.model for entry in archive.entries(summary.run_id) if not isinstance(entry, Refused)}
    assert made == {None, "second"}
    assert {(call.model, call.status) for call in kept} == {("first", "status"), ("second", "ok")}
    assert {call.returned_model for call in kept if call.charged} == {"scripted-2026"}
