"""What people may do to a run: add kernels, say something, be asked, answer in a folder."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from evo.archive import Archive, Refused
from evo.archive.calls import calls_of
from evo.errors import EvoError
from evo.injecting import queue
from evo.llm.connect import PERSON, connect
from evo.llm.section import PauseSection
from evo.observer import BudgetLine, GenerationStats
from evo.pause import Cause, call_hook, cause
from evo.replaying import first_difference
from evo.search import INJECTED
from fitness.kernel import parse_kernel
from tests.evo import fakes
from tests.evo.llm import world
from tests.evo.llm.world import Server, run


def queued(archive: Archive, run_id: str, **params: int) -> None:
    task = world.experiment().checked_task
    queue(archive, run_id, task, fakes.kernel("fast", **params), "mine.cu", "from a paper")


# added kernels


def test_a_persons_kernel_joins_the_next_generation_and_breeds(tmp_path: Path) -> None:
    what = world.experiment(operators={"tune": 1}, search__generations=1)
    more = world.experiment(operators={"tune": 1}, search__generations=3)
    with Archive.open(tmp_path / "a.db") as archive:
        first = run(archive, what, None)
        queued(archive, first.run_id, A=8, B=8)
        resumed = run(archive, more, None, resume=True)
        entries = [entry for entry in archive.entries(first.run_id) if not isinstance(entry, Refused)]
        (added,) = [entry for entry in entries if entry.plan.operator == INJECTED]
        assert added.plan.generation == 2
        assert added.reason == "a person added mine.cu: from a paper"
        assert dict(added.kernel.params) == {"A": 8, "B": 8, "C": 1, "SAME": 0}
        assert any(added.plan.n in entry.plan.parents for entry in entries)
        assert resumed.best is not None
        assert resumed.best.kernel.header.about == "fast"
        again = run(archive, more, None, replay=first.run_id)
        assert first_difference(archive, first.run_id, again.run_id) is None


def test_a_kernel_added_while_the_run_is_under_way(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    what = world.experiment(operators={"tune": 1}, search__generations=3)

    def add_once(call: str, n: int) -> None:
        if call == "judge" and not done:
            done.append(n)
            with Archive.open(path) as other:
                queued(other, other.runs()[0].id)

    done: list[int] = []
    with Archive.open(path) as archive:
        summary = run(archive, what, None, pool=fakes.FakePool(on_call=add_once))
        added = [entry for entry in archive.entries(summary.run_id) if entry.plan.operator == INJECTED]
    assert [entry.plan.generation for entry in added] == [2]


def test_a_kernel_that_cannot_serve_is_refused_at_once(tmp_path: Path) -> None:
    bad = parse_kernel(fakes.source("fast").replace('"W.values"', '"W.nothing"'))
    with Archive.open(tmp_path / "a.db") as archive:
        what = world.experiment(operators={"tune": 1})
        summary = run(archive, what, None)
        with pytest.raises(EvoError, match=r"mine.cu does not serve the task"):
            queue(archive, summary.run_id, what.checked_task, bad, "mine.cu", "")


# notes


def test_a_note_enters_the_prompts_from_then_on_and_is_replayed(httpserver: HTTPServer, tmp_path: Path) -> None:
    server = Server(httpserver)
    what = world.experiment(search__generations=1)
    more = world.experiment(search__generations=3)
    with Archive.open(tmp_path / "a.db") as archive:
        first = run(archive, what, server.connection(what))
        before = len(server.model.requests)
        run(archive, more, server.connection(more), resume=True, notes=["try split-K"])
        prompts = [request["messages"][1]["content"] for request in server.model.requests]
        assert len(prompts) > before
        assert not any("try split-K" in text for text in prompts[:before])
        assert all("- try split-K" in text for text in prompts[before:])
        httpserver.stop()
        again = run(archive, more, None, replay=first.run_id)
        assert first_difference(archive, first.run_id, again.run_id) is None


# asking a person


def stats(*best: float | None, failed: float = 0.0) -> list[GenerationStats]:
    return [
        GenerationStats(g, 10, round(10 * (1 - failed)), time_us, time_us, time_us, time_us)
        for g, time_us in enumerate(best)
    ]


def line(kind: Any, used: float, limit: float | None) -> BudgetLine:
    return BudgetLine(kind, used, 0.0, limit)


@pytest.mark.parametrize(
    ("section", "history", "budget", "asked", "rule"),
    [
        ({}, stats(5, 5, 5, 5, failed=1.0), [line("evaluations", 9, 10)], {}, None),
        ({"generations": 3}, stats(9, 5, 5, 5), [], {}, None),
        ({"generations": 3}, stats(9, 5, 5, 5, 5), [], {}, "generations"),
        ({"generations": 3}, stats(9, 5, 5, 5, 4), [], {}, None),
        ({"generations": 3}, stats(9, 5, 5, 5, 5, 5), [], {"generations": 4}, None),
        ({"generations": 2}, stats(9, 5, 5, 5, 5, 5, 5), [], {"generations": 3}, "generations"),
        ({"failure_rate": 0.8}, stats(5, 5, 5, failed=0.9), [], {}, "failure_rate"),
        ({"failure_rate": 0.8}, stats(5, 5, 5, failed=0.7), [], {}, None),
        ({"failure_rate": 0.8}, stats(5, 5, failed=0.9), [], {}, None),
        ({"target_share": 0.5}, stats(5), [line("tokens", 60, 100)], {}, "target_share"),
        ({"target_share": 0.5}, stats(5), [line("tokens", 40, 100), line("usd", 9, None)], {}, None),
        ({"target_share": 0.5}, stats(5), [line("minutes", 9, 10)], {}, "target_share"),
        ({"target_share": 0.5, "action": "narrow"}, stats(5), [line("minutes", 9, 10)], {}, None),
        ({"target_share": 0.5}, stats(5), [line("tokens", 60, 100)], {"target_share": 1}, None),
    ],
)
def test_when_a_person_is_asked(
    section: dict[str, Any], history: list[GenerationStats], budget: list[BudgetLine], asked: dict[str, int], rule: Any
) -> None:
    found = cause(PauseSection(**section), history, budget, 2.0, asked)
    assert (found.rule if isinstance(found, Cause) else None) == rule


def test_without_a_target_no_share_counts() -> None:
    assert cause(PauseSection(target_share=0.1), stats(5), [line("tokens", 60, 100)], 0.0, {}) is None


def test_a_run_pauses_calls_the_command_and_goes_on_exactly(tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    script = "import os, sys; open(sys.argv[1], 'a').write(os.environ['EVO_RUN'] + ': ' + os.environ['EVO_REASON'])"
    command = f'{sys.executable} -c "{script}" {said}'
    changes: dict[str, Any] = {"operators": {"tune": 1}, "search__generations": 20, "search__stagnation": 0}
    plain = world.experiment(**changes)
    careful = world.experiment(**changes, pause__generations=3, pause__command=command)
    watcher = fakes.Watcher()
    with Archive.open(tmp_path / "a.db") as archive:
        expected = run(archive, plain, None)
        paused = run(archive, careful, None, observer=watcher)
        assert paused.status == "paused"
        assert paused.reason.startswith("no better best for 3 generations; continue with --resume")
        assert said.read_text() == f"{paused.run_id}: no better best for 3 generations"
        assert any(kind == "paused" for kind, _ in watcher.events)
        resumed = paused
        for _ in range(14):
            if resumed.status != "paused":
                break
            before = len(archive.entries(paused.run_id))
            resumed = run(archive, careful, None, resume=True)
            assert resumed.status == "finished" or len(archive.entries(paused.run_id)) > before
        assert resumed.status == "finished"
        assert first_difference(archive, expected.run_id, paused.run_id) is None


def test_a_run_may_narrow_by_itself_instead(httpserver: HTTPServer, tmp_path: Path) -> None:
    server = Server(httpserver)
    what = world.experiment(
        operators={"llm_edit": 50, "tune": 1}, search__generations=6, search__stagnation=0, search__children=6,
        search__target_speedup=1000.0, budget__evaluations=60, pause__action="narrow", pause__target_share=0.1,
    )  # fmt: skip
    watcher = fakes.Watcher()
    with Archive.open(tmp_path / "a.db") as archive:
        summary = run(archive, what, server.connection(what), observer=watcher)
        used = {g: set[str]() for g in range(7)}
        for entry in archive.entries(summary.run_id):
            used[entry.plan.generation].add(entry.plan.operator)
    assert summary.status == "finished"
    said = [str(data["message"]) for kind, data in watcher.events if kind == "narrowed"]
    assert "of evaluations used without a speedup of 1000: only tune from here on" in said[0]
    assert "llm_edit" in used[1]
    assert used[6] == {"tune"}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("no-such-program-anywhere", "could not be run"),
        ("false", "exit code 1"),
        ("'", "could not be run"),
        ("true", None),
    ],
)
def test_a_command_that_fails_is_a_warning(command: str, says: str | None) -> None:
    problem = call_hook(command, {"EVO_RUN": "x"})
    assert (problem is None) == (says is None)
    assert says is None or says in str(problem)


# answers from a folder


def answer_all(folder: Path, stop: threading.Event) -> None:
    """A person who copies every request somewhere and pastes what comes back."""
    while not stop.wait(0.02):
        for question in folder.glob("*.md"):
            answer = question.with_name(f"{question.stem}.answer.md")
            if question.name.endswith(".answer.md") or answer.exists():
                continue
            text = question.read_text()
            parts = text.split("\n# user\n\n", 1)
            asked = {"messages": [{"content": parts[0]}, {"content": parts[1]}]}
            draft = answer.with_suffix(".part")
            draft.write_text(world.child_text(asked, "a person's idea"))
            draft.rename(answer)


def test_a_person_may_answer_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "questions"
    what = world.experiment(llm__transport="folder", llm__folder=str(folder), llm__deadline_s=20.0)
    connection = connect(what, {})
    assert connection is not None
    assert [model.name for model in connection.models] == [PERSON]
    connection.transport._look_every_s = 0.02  # type: ignore[attr-defined]
    stop = threading.Event()
    thread = threading.Thread(target=answer_all, args=(folder, stop))
    thread.start()
    try:
        with Archive.memory() as archive:
            summary = run(archive, what, connection)
            made = {entry.model for entry in archive.entries(summary.run_id) if not isinstance(entry, Refused)}
            calls = calls_of(archive, summary.run_id)
    finally:
        stop.set()
        thread.join()
    assert made == {None, PERSON}
    assert sum(call.tokens_in + call.tokens_out for call in calls) == 0
    question = next(path for path in folder.glob("*.md") if not path.name.endswith(".answer.md")).read_text()
    assert question.startswith("<!-- Answer in ")
    assert "# system" in question
    assert "## How to answer" in question


def test_an_answer_that_never_comes_ends_at_the_deadline(tmp_path: Path) -> None:
    what = world.experiment(
        llm__transport="folder", llm__folder=str(tmp_path / "q"), llm__deadline_s=0.4, search__generations=1
    )
    started = time.monotonic()
    with Archive.memory() as archive:
        summary = run(archive, what, connect(what, {}))
    assert summary.status == "finished"
    assert time.monotonic() - started < 5


def test_plain_data_of_the_archive_is_json(httpserver: HTTPServer) -> None:
    server = Server(httpserver)
    what = world.experiment(search__generations=1)
    with Archive.memory() as archive:
        summary = run(archive, what, server.connection(what))
        for call in calls_of(archive, summary.run_id):
            assert json.loads(call.request)["model"] == "scripted"
            assert dataclasses.is_dataclass(call.answer)
