"""`evo doctor`: everything looked at, and a command for all that is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pytest_httpserver import HTTPServer

from evo import doctor
from evo.cli.group import cli
from evo.doctor import Check, examine
from fitness.compiler import cache
from fitness.devices.cuda.available import CardInfo
from tests.mutations.llm.server import ScriptedModel

NAMES = {"python", "nvrtc", "pycuda", "card", "torch", "cusparselt", "ray", "nvcc", "ncu", "compute-sanitizer", "model"}


def test_everything_is_looked_at_and_every_lack_has_a_fix() -> None:
    checks = examine()
    assert {check.name for check in checks} >= NAMES
    assert all(check.fix for check in checks if check.state != "ok")
    assert all("(optional)" in check.said and not check.needed for check in checks if check.state == "absent")
    assert {check.name for check in checks if check.needed and check.state == "ok"} == {
        "python",
        "nvrtc",
        "compile cache",
    }


def test_the_compile_cache_says_how_large_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path))
    cache.store(cache.key("a"), ())
    check = doctor._cache()
    assert check.state == "ok"
    assert f"{tmp_path}: 1 entries, 0.0 MiB of at most 2048" in check.said
    (tmp_path / "file").touch()
    monkeypatch.setenv("EVO_CACHE", str(tmp_path / "file"))
    assert doctor._cache().state == "broken"
    assert "EVO_CACHE" in doctor._cache().fix


def test_a_card_without_a_sheet_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing", lambda: "")
    found = (CardInfo(0, "NVIDIA H200", (9, 0), 141 << 30), CardInfo(1, "NVIDIA T4", (7, 5), 1))
    monkeypatch.setattr(doctor, "cards", lambda: found)
    cards = [check for check in doctor._gpu() if check.name == "card"]
    assert [card.state for card in cards] == ["ok", "absent"]
    assert "141 GiB" in cards[0].said
    assert "fitness/gpus" in cards[1].fix


def test_an_endpoint_is_asked_only_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert doctor._endpoint(ask=False).state == "ok"
    assert "2 models: a, b" in doctor._endpoint(ask=True, models=lambda: ["b", "a"]).said
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    refused = doctor._endpoint(ask=True)
    assert (refused.state, refused.fix) == ("broken", "check the key and OPENAI_BASE_URL")


def test_a_server_of_ones_own_needs_no_key(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ScriptedModel(httpserver, [], models=("mine",))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", str(server.endpoint.base_url))
    assert doctor._endpoint(ask=True) == Check("model", "ok", "answers; 1 model: mine")


def test_a_broken_tool_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_tool", lambda name: "/bin/false")  # noqa: ARG005
    assert doctor._tool("ncu", "--version").state == "broken"
    monkeypatch.setattr(doctor, "find_tool", lambda name: "/bin/echo")  # noqa: ARG005
    assert doctor._tool("ncu", "1.2") == Check("ncu", "ok", "/bin/echo (1.2)")


def test_what_evo_runs_without_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_tool", lambda name: None)  # noqa: ARG005
    monkeypatch.setattr(doctor, "missing", lambda: "pycuda is not installed; pip install it")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # noqa: ARG005
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    result = CliRunner().invoke(cli, ["doctor"])
    assert result.exit_code == 0
    assert "missing" not in result.output
    assert "-        torch              not installed (optional): PyTorch, for vendor baselines\n" in result.output
    assert "-        card               none that can be used (optional): pycuda is not installed\n" in result.output
    assert result.output.count("(optional)") == 9


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(cli, ["doctor", "--json"])
    assert result.exit_code == 0
    assert {check["name"] for check in json.loads(result.output)} >= NAMES
    bad = [Check("nvrtc", "broken", "gone", "pip install it", needed=True)]
    monkeypatch.setattr(doctor, "examine", lambda llm: bad)  # noqa: ARG005
    result = CliRunner().invoke(cli, ["doctor"])
    assert result.exit_code == 1
    assert "-> pip install it" in result.output
