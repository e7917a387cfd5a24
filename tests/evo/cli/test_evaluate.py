"""`evo evaluate` on the simulator: verdict, profile, sanitizer; flags and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import seeds
from evo.cli.group import cli

SHAPE = "task.shapes=[{M=64,K=64,N=16}]"
SCALAR = str(next(iter(seeds.seed_paths("spmm/nm24_scalar"))))
REDTEAM = Path(__file__).parents[2] / "redteam"


def evaluate(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["evaluate", *arguments, "--set", SHAPE, "--set", "device.kind=simulator"])
    return result.exit_code, result.output


def test_a_valid_kernel_has_times_profile_and_clean_sanitizers() -> None:
    code, said = evaluate(SCALAR, "--profile", "--sanitize")
    assert code == 0, said
    assert "verdict   valid, gate timing" in said
    assert "us modelled" in said
    assert "profile   M=64 K=64 N=16: " in said
    assert "smsp__inst_executed.sum" in said
    assert "sanitizer nothing found" in said


def test_a_wrong_kernel_fails_with_a_reason() -> None:
    code, said = evaluate(str(REDTEAM / "skips_last_k_tile.cu"), "--json", "--sanitize")
    assert code == 1
    verdict = json.loads(said)
    assert (verdict["valid"], verdict["verdict"], verdict["gate"]) == (False, "WrongResult", "small_run")
    assert verdict["findings"][0]["wrong"]["pattern"]
    assert verdict["sanitized"] is not None
    assert verdict["profiles"] is None


def test_json_of_a_valid_kernel() -> None:
    code, said = evaluate(SCALAR, "--json")
    assert code == 0, said
    verdict = json.loads(said)
    assert verdict["device"] == "simulator"
    assert verdict["timings"][0]["clock"] == "modelled"
    assert verdict["code_key"]


def test_compiling_alone_is_a_depth() -> None:
    code, said = evaluate(SCALAR, "--depth", "compile")
    assert code == 0, said
    assert "gate compile" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.cu"], "nothing.cu: no such file"),
        ([SCALAR, "--param", "NOPE=3"], "--param NOPE=3: the kernel has"),
        ([SCALAR, "--task", "nowhere"], "no such file"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str) -> None:
    code, said = evaluate(*arguments)
    assert code == 1
    assert words in said
    assert "Traceback" not in said
