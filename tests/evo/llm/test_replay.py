"""Recorded runs come back bit for bit, resumed ones go on exactly, without asking twice."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from evo.archive import Archive
from evo.archive.calls import calls_of
from evo.errors import EvoError, ResumeError
from evo.llm.proposer import Proposer
from evo.replaying import first_difference
from mutations.llm.recording import Call
from tests.evo import fakes
from tests.evo.llm import world
from tests.evo.llm.test_faults import FAULTS
from tests.evo.llm.world import Server, archived_tokens, good, run, spent

EVERYTHING: dict[str, Any] = {
    "operators": {"llm_edit": 3, "llm_rewrite": 2, "llm_crossover": 2, "llm_repair": 2, "llm_translate": 1, "tune": 1},
    "search__generations": 4,
    "llm__repairs": 1,
    "llm__tools": ["compile", "archive_search"],
    "llm__reviewer": True,
    "llm__planner_every": 2,
    "llm__models": [{"name": "one", "usd_per_million": [1, 4]}, {"name": "two", "weight": 2.0}],
}


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_more: object) -> None:
        raise AssertionError("a replay opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def calls_content(archive: Archive, run_id: str) -> list[tuple[object, ...]]:
    """Calls but for the seconds, in an order that does not depend on who was quicker."""
    kept: dict[int, list[Call]] = {}
    for call in calls_of(archive, run_id):
        kept.setdefault(-1 if call.n is None else call.n, []).append(call)
    return [
        (c.n, c.purpose, c.model, c.returned_model, c.request, c.reply, c.tokens_in, c.tokens_out, c.usd, c.status)
        for _, calls in sorted(kept.items())
        for c in calls
    ]


@pytest.mark.parametrize("fault", ["good", "some bad edits", "tool loop", "dropped", "down midway", "429 storm"])
def test_a_replay_is_the_same_without_key_and_network(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    server = Server(httpserver, FAULTS[fault])
    what = world.experiment(**EVERYTHING)
    with Archive.memory() as archive:
        first = run(archive, what, server.connection(what))
        asked = len(server.model.requests)
        assert asked > 5
        httpserver.stop()
        no_network(monkeypatch)
        again = run(archive, what, None, replay=first.run_id, pool=fakes.FakePool(workers=3))
        assert first_difference(archive, first.run_id, again.run_id) is None
        assert calls_content(archive, first.run_id) == calls_content(archive, again.run_id)
        assert len(archive.entries(first.run_id)) == len(archive.entries(again.run_id))
        assert (again.best, again.speedup) == (first.best, first.speedup)
        for kind in ("tokens", "usd", "evaluations"):
            assert spent(again, kind) == pytest.approx(spent(first, kind))
        third = run(archive, what, None, replay=again.run_id)  # a replay can be replayed
        assert first_difference(archive, first.run_id, third.run_id) is None
    assert len(server.model.requests) == asked


def test_a_replay_of_another_experiment_is_refused(httpserver: HTTPServer) -> None:
    server = Server(httpserver)
    what = world.experiment()
    with Archive.memory() as archive:
        first = run(archive, what, server.connection(what))
        with pytest.raises(ResumeError, match="rng_seed: 7 -> 8"):
            run(archive, world.experiment(rng_seed=8), None, replay=first.run_id)
        with pytest.raises(ResumeError, match="no run nothing-0000"):
            run(archive, what, None, replay="nothing-0000")


def test_a_replay_that_comes_apart_says_so(httpserver: HTTPServer) -> None:
    server = Server(httpserver)
    what = world.experiment()
    with Archive.memory() as archive:
        first = run(archive, what, server.connection(what))
        archive.database.execute("update llm_calls set request = replace(request, 'float', 'flaot')")
        with pytest.raises(EvoError, match=r"the replay comes apart: the recording has \w+ of candidate \d+ where"):
            run(archive, what, None, replay=first.run_id)


def test_a_run_that_was_cut_short_is_replayed_as_far_as_it_goes(httpserver: HTTPServer) -> None:
    server = Server(httpserver)
    what = world.experiment(search__generations=3)
    with Archive.memory() as archive:
        first = run(archive, what, server.connection(what))
        last = max(entry.plan.n for entry in archive.entries(first.run_id))
        archive.database.execute("delete from llm_calls where n > ?", [last - 4])
        again = run(archive, what, None, replay=first.run_id)
    assert (again.status, again.reason) == ("stopped", "the recording ends here")


@pytest.mark.parametrize("kill_after", [1, 4, 9, 12])
def test_a_killed_run_goes_on_exactly_and_asks_nothing_twice(
    httpserver: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_after: int
) -> None:
    server = Server(httpserver)
    what = world.experiment(search__generations=3, llm__repairs=0, llm__concurrency=2)
    with Archive.open(tmp_path / "whole.db") as archive:
        whole = run(archive, what, server.connection(what))
        expected = {entry.plan.n: entry for entry in archive.entries(whole.run_id)}
        tokens = archived_tokens(archive, whole.run_id)
        calls = calls_content(archive, whole.run_id)
    once = len(server.model.requests)

    keep = Proposer._keep
    kept = 0

    def killing(self: Proposer, call: Call) -> None:
        nonlocal kept
        keep(self, call)
        kept += 1
        if kept == kill_after:
            raise KeyboardInterrupt

    monkeypatch.setattr(Proposer, "_keep", killing)
    with Archive.open(tmp_path / "cut.db") as archive:
        cut = run(archive, what, server.connection(what))
        assert cut.status == "interrupted"
    monkeypatch.setattr(Proposer, "_keep", keep)
    with Archive.open(tmp_path / "cut.db") as archive:
        resumed = run(archive, what, server.connection(what), resume=True)
        assert resumed.run_id == cut.run_id
        assert {entry.plan.n: entry for entry in archive.entries(resumed.run_id)} == expected
        assert calls_content(archive, resumed.run_id) == calls
        assert archived_tokens(archive, resumed.run_id) == tokens == spent(resumed)
    # What was answered but not archived yet when it was killed (at most one request a thread) is asked again.
    assert len(server.model.requests) - 2 * once <= 2 * what.llm.concurrency


def test_a_run_begun_with_a_model_is_resumed_without_one(httpserver: HTTPServer, tmp_path: Path) -> None:
    server = Server(httpserver)
    what = world.experiment(search__generations=2)
    watcher = fakes.Watcher()
    with Archive.open(tmp_path / "a.db") as archive:
        run(archive, what, server.connection(what))
        more = world.experiment(search__generations=3)
        resumed = run(archive, more, None, resume=True, observer=watcher)
    assert resumed.status == "finished"
    (lost,) = [data for kind, data in watcher.events if kind == "model_unavailable"]
    assert "names no endpoint any more" in str(lost["message"])


def test_a_run_begun_without_a_model_stays_without(httpserver: HTTPServer, tmp_path: Path) -> None:
    server = Server(httpserver)
    what = world.experiment(search__generations=1)
    with Archive.open(tmp_path / "a.db") as archive:
        first = run(archive, what, None)
        more = world.experiment(search__generations=2)
        run(archive, more, server.connection(more), resume=True)
        operators = {entry.plan.operator for entry in archive.entries(first.run_id)}
    assert operators == {"seed", "tune"}
    assert server.model.requests == []


def test_with_nothing_but_model_operators_and_no_model_the_run_says_so() -> None:
    what = world.experiment(operators={"llm_edit": 1})
    with Archive.memory() as archive, pytest.raises(EvoError, match=r"asks a model, and none is in use; set OPENAI"):
        run(archive, what, None)


def test_good_answers_are_deterministic() -> None:
    asked = {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "edits of kernel A"}]}
    assert callable(good(asked))
    assert world.child_text(asked) == world.child_text(asked)
