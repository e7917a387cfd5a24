"""The `evo` command: quick help, one file per command, errors in one line."""

from __future__ import annotations

import errno
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from evo.cli import boundary
from evo.cli.boundary import INTERRUPTED, Command, explain
from evo.cli.group import COMMANDS, cli
from evo.errors import ArchiveError, ExperimentError, Problem
from fitness.kernel import KernelError

HEAVY = ("numpy", "scipy", "deap", "sqlite_utils", "matplotlib", "pydantic", "rich", "openai", "cuda", "jinja2")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, json\n"
        "from evo.cli.group import cli\n"
        "try:\n    cli(['--help'], prog_name='evo')\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    modules = {name.split(".")[0] for name in json.loads(output.splitlines()[-1])}
    assert modules & set(HEAVY) == set()


def test_help_is_quick() -> None:
    def seconds() -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "evo", "--help"], capture_output=True, check=True)
        return time.perf_counter() - started

    assert min(seconds() for _ in range(3)) < 0.3


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output
    module, attribute = COMMANDS[name][0].split(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, Command), f"{name} does not end errors in one line"
    assert command.help
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


def test_help_lists_every_command() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output
    for name, (_, text) in COMMANDS.items():
        assert f"  {name} " in output
        assert text in output


def test_unknown_command() -> None:
    result = CliRunner().invoke(cli, ["rum"])
    assert result.exit_code == 2
    assert "rum" in result.output


def failing(error: BaseException) -> Command:
    def callback() -> None:
        raise error

    return Command("failing", callback=callback)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ArchiveError("archive x is damaged", "restore a copy"), "evo: archive x is damaged; restore a copy"),
        (OSError(errno.ENOSPC, "No space left on device"), "evo: the disk is full"),
        (OSError(errno.EROFS, "Read-only file system", "runs"), "evo: runs: the folder is read-only"),
        (PermissionError(errno.EACCES, "Permission denied", "best.cu"), "evo: best.cu: permission denied"),
    ],
)
def test_a_users_error_is_one_line(error: Exception, words: str) -> None:
    result = CliRunner().invoke(failing(error))
    assert result.exit_code == 1
    assert result.output.startswith(words)
    assert len(result.output.splitlines()) == 1


def test_errors_written_for_users_exist_under_their_names() -> None:
    for name in boundary._WRITTEN_FOR_USERS:
        module, kind = name.split(":")
        assert issubclass(getattr(importlib.import_module(module), kind), Exception)


def test_a_kernel_error_is_one_line() -> None:
    result = CliRunner().invoke(
        failing(KernelError("x.cu", 4, "launch[0].grid", "unknown name BMX", "did you mean BM?"))
    )
    assert result.exit_code == 1
    assert result.output.startswith("evo: x.cu:4: launch[0].grid: unknown name BMX")


def test_an_experiment_error_is_a_line_per_problem() -> None:
    error = ExperimentError("x.toml", [Problem("task.op", "unknown"), Problem("name", "is required")])
    result = CliRunner().invoke(failing(error))
    assert result.output.splitlines() == ["evo: x.toml: task.op: unknown", "evo: x.toml: name: is required"]


def test_ctrl_c_is_no_error_message_of_python() -> None:
    result = CliRunner().invoke(failing(KeyboardInterrupt()))
    assert result.exit_code == INTERRUPTED
    assert "interrupted" in result.output


def test_a_bug_keeps_its_traceback() -> None:
    result = CliRunner().invoke(failing(ValueError("a bug")))
    assert isinstance(result.exception, ValueError)
    assert explain(ValueError("a bug")) is None


def test_python_m_evo_run_is_evo_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evo.run", "missing.toml"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert done.stderr.startswith("evo: missing.toml: no such file")
    assert "Traceback" not in done.stderr
