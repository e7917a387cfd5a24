"""`evo run` with a model behind OPENAI_BASE_URL: real HTTP, an evaluator that answers at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pytest_httpserver import HTTPServer

from evo.archive import Archive, Refused
from evo.cli import jobs
from evo.cli.group import cli
from evo.report.folder import run_folder
from tests.evo.cli.test_run import InstantPool
from tests.mutations.llm.server import KEY, Answer, ScriptedModel, completion, raw


@pytest.fixture(autouse=True)
def _no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        jobs, "write_run_folder", lambda archive, summary: (run_folder(archive.path, summary.run_id), [])
    )


@pytest.fixture
def httpserver() -> Iterator[HTTPServer]:
    with HTTPServer(threaded=True) as server:
        yield server


def comment(asked: dict[str, object]) -> Answer:
    """A comment before the first `extern` of kernel A."""
    text = json.dumps(asked["messages"])
    tag = f"{abs(hash(text)) % 10**8}"
    edit = f"<<<<<<< SEARCH\n---*/\n=======\n---*/\n// idea {tag}\n>>>>>>> REPLACE"
    return raw(json.dumps(completion(f"REASON: a remark that explains the idea\n{edit}")))


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_a_model_is_named_asked_replayed_and_shown(
    httpserver: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModel(httpserver, comment)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "Pool", InstantPool)
    monkeypatch.setenv("OPENAI_BASE_URL", str(model.endpoint.base_url))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    changes = ["--set", "operators.llm_edit=20", "--set", "llm.repairs=0"]
    code, out = invoke("run", "smoke", *changes)
    assert code == 0, out
    assert "model     scripted" in out
    assert "answers, " in out
    assert KEY not in out
    (run,) = [line.split()[1] for line in out.splitlines() if line.startswith("run ")]
    asked = len(model.requests)
    assert asked > 0

    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY")
    httpserver.stop()
    code, out = invoke("run", "smoke", *changes, "--replay", run)
    assert code == 0, out
    assert f"replay    of {run}: the same, candidate by candidate" in out
    assert len(model.requests) == asked

    with Archive.open("runs/archive.db", readonly=True) as archive:
        entries = archive.entries(run)
    made = next(entry.plan.n for entry in entries if not isinstance(entry, Refused) and entry.model is not None)
    code, out = invoke("lineage", f"{run}/{made}")
    assert code == 0, out
    assert "by scripted (150 tokens, $ unknown)" in out
    assert "a remark that explains the idea" in out


def test_without_an_endpoint_the_run_says_how_to_add_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "Pool", InstantPool)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    code, out = invoke("run", "smoke", "--set", "operators.llm_edit=20")
    assert code == 0, out
    assert "model     none; set OPENAI_API_KEY or OPENAI_BASE_URL" in out
    assert "operators dispatch 1, rewrite 1, splice 1, surrogate 1, tune 1" in out


def test_down_at_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "Pool", InstantPool)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    code, out = invoke("run", "smoke", "--set", "operators.llm_edit=20")
    assert code == 1
    assert "start it, correct OPENAI_BASE_URL, or run with --no-llm" in out
