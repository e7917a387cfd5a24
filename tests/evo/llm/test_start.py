"""Starting from nothing, crossing formats, learning from earlier runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from evo.archive import Archive, Refused
from evo.archive.calls import calls_of
from evo.errors import SeedError
from evo.replaying import first_difference
from fitness.outcome import Timed
from tests.evo import fakes
from tests.evo.llm import world
from tests.evo.llm.world import Server, good, run
from tests.mutations.llm.server import Answer, completion, raw

MINIMAL = fakes.source("slow")


def from_nothing(asked: dict[str, Any], _again: int, _n: int) -> Answer:
    """A minimal kernel where there is none yet, optimised ones afterwards."""
    if "There is no kernel for this task yet" not in asked["messages"][-1]["content"]:
        return good(asked)
    return raw(json.dumps(completion(f"REASON: the simplest that is right\n```cuda\n{MINIMAL}```")))


def test_from_an_empty_start_the_first_is_minimal_and_later_ones_are_better(httpserver: HTTPServer) -> None:
    server = Server(httpserver, from_nothing)
    what = world.experiment(task__seeds=[], search__generations=3)
    with Archive.memory() as archive:
        summary = run(archive, what, server.connection(what))
        judged = archive.judged(summary.run_id)
        first = judged[0]
        assert first.candidate.plan.operator == "llm_translate"
        assert first.candidate.plan.parents == ()
        assert first.candidate.kernel.source.strip() == MINIMAL.strip()
        assert isinstance(first.outcome, Timed)
        assert summary.best is not None
        assert summary.best.plan.generation > 0
        assert summary.gain is not None
        assert summary.gain > 1.5
        assert "minimal correct one" in server.model.requests[0]["messages"][1]["content"]
        httpserver.stop()
        again = run(archive, what, None, replay=summary.run_id)
        assert first_difference(archive, summary.run_id, again.run_id) is None


def test_an_empty_start_is_resumed(httpserver: HTTPServer) -> None:
    server = Server(httpserver, from_nothing)
    what = world.experiment(task__seeds=[], search__generations=1)
    more = world.experiment(task__seeds=[], search__generations=2)
    with Archive.memory() as archive:
        first = run(archive, what, server.connection(what))
        resumed = run(archive, more, server.connection(more), resume=True)
        assert resumed.run_id == first.run_id
        assert resumed.status == "finished"


def test_an_empty_start_whose_model_makes_nothing_ends_clearly(httpserver: HTTPServer) -> None:
    server = Server(httpserver, lambda _asked, _again, _n: raw(json.dumps(completion("no idea"))))
    what = world.experiment(task__seeds=[])
    with Archive.memory() as archive:
        summary = run(archive, what, server.connection(what))
    assert summary.best is None
    assert summary.reason == "no valid candidate to breed from"


def test_an_empty_start_needs_a_model() -> None:
    with Archive.memory() as archive, pytest.raises(SeedError, match="the list is empty"):
        run(archive, world.experiment(task__seeds=[]), None)


def test_a_scripted_run_crosses_formats(httpserver: HTTPServer) -> None:
    def densely(_asked: dict[str, Any], _again: int, _n: int) -> Answer:
        source = fakes.source("dense", "dense").replace(
            "SAME = {", f"TILE = {{ values = [{len(source_texts)}], default = {len(source_texts)} }}\nSAME = {{"
        )
        source_texts.append(source)
        return raw(json.dumps(completion(f"REASON: read W densely, without metadata\n```cuda\n{source}```")))

    source_texts: list[str] = []
    server = Server(httpserver, densely)
    what = world.experiment(operators={"llm_translate": 1, "llm_rewrite": 1, "tune": 1})
    with Archive.memory() as archive:
        summary = run(archive, what, server.connection(what))
        entries = {e.plan.n: e for e in archive.entries(summary.run_id) if not isinstance(e, Refused)}
        crossed = [
            entry for entry in entries.values()
            if entry.plan.parents and entry.kernel.format.name != entries[entry.plan.parents[0]].kernel.format.name
        ]  # fmt: skip
    assert crossed
    assert {entry.kernel.format.name for entry in crossed} == {"dense"}
    translations = [
        r["messages"][1]["content"]
        for r in server.model.requests
        if "written for another format" in r["messages"][1]["content"]
    ]
    assert translations
    assert all("use format " in text for text in translations)


def test_prompts_draw_on_verified_kernels_of_similar_tasks(httpserver: HTTPServer) -> None:
    server = Server(httpserver)
    earlier = world.experiment(operators={"tune": 1}, task__shapes=[{"M": 256, "K": 128, "N": 16}])
    what = world.experiment(llm__experience=2, search__generations=1)
    with Archive.memory() as archive:
        run(archive, earlier, None)
        first = run(archive, what, server.connection(what))
        assert server.model.requests
        prompts = [request["messages"][1]["content"] for request in server.model.requests]
        assert all("verified for a similar task in an earlier run" in text for text in prompts)
        run(archive, earlier, None)  # the archive grows: the recorded prompts stay
        again = run(archive, what, None, replay=first.run_id)
        assert first_difference(archive, first.run_id, again.run_id) is None
        assert calls_of(archive, again.run_id)
