"""The `evo` command: quick help, every command explained."""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from evo.cli.boundary import Command
from evo.cli.group import COMMANDS, cli
from evo.provenance import version

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


def test_the_version_needs_no_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: pytest.fail(f"{name} was asked for"))
    result = CliRunner().invoke(cli, ["--version"])
    assert (result.exit_code, result.output) == (0, f"evo, version {version()}\n")


def test_help_is_quick() -> None:
    """0.04 s of CPU on an idle machine, where the interpreter with click takes 0.03 s: less than 0.3 s by far.

    Measured against the interpreter on the same machine, which may be slow or shared.
    """

    def cpu_seconds(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    interpreter = min(cpu_seconds("-c", "import click") for _ in range(3))
    assert min(cpu_seconds("-m", "evo", "--help") for _ in range(3)) < 3 * interpreter


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output
    module, attribute = COMMANDS[name][0].split(":")
    command = getattr(importlib.import_module(module), attribute)
    for one in command.commands.values() if isinstance(command, click.Group) else [command]:
        assert isinstance(one, Command), f"{name} does not end errors in one line"
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


def test_python_m_evo_run_is_evo_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evo.run", "missing.toml"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert done.stderr.startswith("evo: missing.toml: no such file")
    assert "Traceback" not in done.stderr
