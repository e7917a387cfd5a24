from __future__ import annotations

import pytest
from click.testing import CliRunner
from pytest_httpserver import HTTPServer

from evo.archive import Archive
from evo.archive.calls import calls_of
from evo.cli.group import cli
from evo.ledger import ArchiveLibrary
from evo.llm.costs import cost_of, cost_text, costs_json, costs_line, costs_of, costs_table
from evo.llm.planning import statistics_text
from evo.llm.searching import archive_texts
from tests.evo import fakes
from tests.evo.llm import world
from tests.evo.llm.test_faults import FAULTS
from tests.evo.llm.test_replay import EVERYTHING
from tests.evo.llm.world import Server, run, spent


def test_costs_by_model_and_operator_add_up(httpserver: HTTPServer, tmp_path: object) -> None:
    server = Server(httpserver, FAULTS["some bad edits"])
    what = world.experiment(**EVERYTHING)
    path = f"{tmp_path}/a.db"
    with Archive.open(path) as archive:
        summary = run(archive, what, server.connection(what))
        costs = costs_of(archive, summary.run_id)
        calls = calls_of(archive, summary.run_id)
        judged = {one.candidate.plan.n: one for one in archive.judged(summary.run_id)}
        child = next(one for one in judged.values() if one.candidate.model is not None)
        own = cost_of(archive, summary.run_id, child.candidate.plan.n)
    assert costs is not None
    for lines in (costs.models, costs.operators):
        assert sum(line.spent.tokens for line in lines) == costs.total.spent.tokens == spent(summary)
        assert sum(line.improvements for line in lines) == costs.total.improvements
    assert costs.total.spent.usd is None  # the price of one of the two models is not known
    assert {line.name for line in costs.models} == {"one", "two"}
    assert "planner" in {line.name for line in costs.operators}
    asked = [call for call in calls if not call.purpose.startswith("tool:")]
    mine = [call for call in asked if call.n == child.candidate.plan.n]
    assert own.tokens == sum(call.tokens_in + call.tokens_out for call in mine)
    assert costs.total.spent.answers + costs.total.spent.failures == len(asked)
    assert costs_line(costs).startswith(f"models    {costs.total.spent.answers} answers")
    assert "$ unknown" in costs_line(costs)
    header, rows = costs_table(costs)
    assert all(len(row) == len(header) for row in rows)
    assert costs_json(costs)
    assert costs_json(None) == {}

    shown = CliRunner().invoke(cli, ["lineage", f"{summary.run_id}/{child.candidate.plan.n}", "--archive", path])
    assert shown.exit_code == 0, shown.output
    assert f"by {child.candidate.model} ({cost_text(own)})" in shown.output
    assert child.candidate.reason in shown.output


def test_a_run_without_models_has_no_costs() -> None:
    with Archive.memory() as archive:
        summary = run(archive, world.experiment(operators={"tune": 1}), None)
        assert costs_of(archive, summary.run_id) is None


def test_what_the_planner_and_the_archive_search_are_told(httpserver: HTTPServer) -> None:
    server = Server(httpserver)
    what = world.experiment()
    with Archive.memory() as archive:
        summary = run(archive, what, server.connection(what))
        judged = {one.candidate.plan.n: one for one in archive.judged(summary.run_id)}
        text = statistics_text(summary.generations, judged)
        assert text == statistics_text(summary.generations, judged)
        assert "- 2: " in text
        assert "llm_edit" in text
        library = ArchiveLibrary(archive, summary.run_id, "sm_90a")
        found = archive_texts(archive, library, what.checked_task, "middle")
        assert found
        assert all(entry.startswith(f"{summary.run_id}/") for entry in found)
        assert archive_texts(archive, library, what.checked_task, "no-such-word-anywhere") == []
        similar = archive_texts(
            archive, ArchiveLibrary(archive, None, "sm_90a"), what.checked_task, "no-such-word-anywhere"
        )
        assert "(a similar task)" in similar[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["smoke", "--note", "x"], "--note goes with --resume"),
        (["smoke", "--replay", "r", "--resume"], "--replay repeats one experiment"),
        (["smoke", "nm24", "--replay", "r"], "--replay repeats one experiment"),
        (["smoke", "--replay", "r", "--dry-run"], "--replay repeats one experiment"),
        (["smoke", "--resume", "--dry-run"], "--dry-run plans a new run"),
        (["smoke", "nm24", "--resume", "r"], "--resume RUN goes with the one experiment"),
        (["--resume"], "Missing argument"),
        ([], "Missing argument"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(cli, ["run", *arguments])
    assert result.exit_code == 2
    assert says in result.output


def test_inject_from_the_command_line(tmp_path: object) -> None:
    path, kernel = f"{tmp_path}/a.db", f"{tmp_path}/mine.cu"
    with open(kernel, "w", encoding="utf-8") as file:
        file.write(fakes.source("fast"))
    with Archive.open(path) as archive:
        summary = run(archive, world.experiment(operators={"tune": 1}), None)
    invoke = CliRunner().invoke
    done = invoke(cli, ["inject", summary.run_id, kernel, "--why", "mine", "--archive", path])
    assert done.exit_code == 0, done.output
    assert f"--resume {summary.run_id} --set search.generations=N --archive {path}" in done.output
    with Archive.open(path, readonly=True) as archive:
        (event,) = archive.events(summary.run_id, "inject")
    assert event.data["why"] == "mine"
    missing = invoke(cli, ["inject", summary.run_id, f"{tmp_path}/none.cu", "--archive", path])
    assert missing.exit_code == 1
    assert "is no file" in missing.output
