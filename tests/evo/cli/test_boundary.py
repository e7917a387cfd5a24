"""Errors of a user end in one line and an exit code."""

from __future__ import annotations

import errno
import importlib

import pytest
from click.testing import CliRunner

from evo.cli import boundary
from evo.cli.boundary import INTERRUPTED, Command, explain
from evo.errors import ArchiveError, ExperimentError, Problem
from evo.pool import PoolError
from fitness.kernel import KernelError

HEAVY = ("numpy", "scipy", "deap", "sqlite_utils", "matplotlib", "pydantic", "rich", "openai", "cuda", "jinja2")


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
        (OSError(errno.ENODEV, "No such device", "/x"), "evo: /x: no such device; the system says so; EVO_TRACEBACK=1"),
        (OSError(errno.EMFILE, "Too many open files"), "evo: too many open files; the system"),
        (OSError("a library\nsays this"), "evo: a library says this; the system"),
        (TimeoutError(), "evo: TimeoutError; the system"),
        (MemoryError(), "evo: out of memory; "),
    ],
)
def test_a_users_error_is_one_line(error: Exception, words: str) -> None:
    result = CliRunner().invoke(failing(error))
    assert result.exit_code == 1
    assert result.output.startswith(words)
    assert len(result.output.splitlines()) == 1


def test_the_traceback_of_a_users_error_is_shown_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(boundary.TRACEBACK, "1")
    result = CliRunner().invoke(failing(PoolError("the disk is full", 'File "worker.py", line 7, in work')))
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith("Traceback")
    assert "in callback" in result.output
    assert 'File "worker.py", line 7, in work' in lines
    assert lines[-1] == "evo: the disk is full"


def test_a_closed_pager_ends_it_quietly() -> None:
    error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert explain(error) is None  # click's own end
    result = CliRunner().invoke(failing(error))
    assert (result.exit_code, result.output) == (1, "")


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
