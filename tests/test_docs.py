"""The documentation is true: its commands, links, paths and examples are tried."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from evo.cli.experiments import find
from evo.cli.group import COMMANDS, cli
from evo.experiment import Experiment
from fitness import gpu
from fitness.kernel import KernelError, parse_kernel
from fitness.taskspec import KEYS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def marked(name: str) -> str:
    """The command after `<!-- name -->` in the README."""
    block = re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert block is not None, name
    return block[1].strip()


def commands(text: str) -> list[str]:
    """Every `evo ...` line of the shell blocks and every `evo ...` in backquotes, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(evo [^`]+)`", text)
    return [line for line in lines if line.startswith("evo ")]


ALL_COMMANDS = [(page.name, line) for page in PAGES for line in commands(page.read_text(encoding="utf-8"))]


def test_the_first_screen_has_a_picture_and_the_two_commands() -> None:
    first_screen = README.splitlines()[:30]
    assert any(line.startswith("![") and "docs/images/nm24.png" in line for line in first_screen)
    assert marked("run") in "\n".join(first_screen)
    assert marked("tests") in "\n".join(first_screen)


def test_the_main_command_installs_and_runs_what_is_there() -> None:
    venv, activate, install, run = marked("run").split(" && ")
    assert (venv, activate, install) == ("python3 -m venv .venv", ". .venv/bin/activate", "pip install .")
    assert run.startswith("python -m evo.run ")
    path = run.removeprefix("python -m evo.run ")
    assert (ROOT / path).is_file()
    assert Experiment.load(ROOT / path).name == "nm24"


def test_the_test_command_is_what_continuous_integration_runs() -> None:
    assert marked("tests").endswith("pip install '.[dev]' && pytest -n auto")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (pattern,) = re.findall(r're\.search\(r"(.*?)", Path\("README\.md"\)', script)
    block = re.search(pattern, README, re.DOTALL)
    assert block is not None
    assert block[1].strip() == marked("tests")


@pytest.mark.parametrize(("page", "line"), ALL_COMMANDS, ids=str)
def test_commands_are_right(page: str, line: str) -> None:
    del page
    words = shlex.split(line.split("#")[0].split("    ")[0])
    assert words[1] in COMMANDS, line
    command = cli.get_command(click.Context(cli), words[1])
    assert command is not None
    takes_one = isinstance(command, click.Group) or any(isinstance(item, click.Argument) for item in command.params)
    arguments = [word.removesuffix("...") for word in words[2:]] or ["REF"] * takes_one
    command.make_context(words[1], arguments, resilient_parsing=False)


def test_there_are_commands_to_check() -> None:
    assert len(ALL_COMMANDS) > 8


def test_the_readme_lists_every_command_and_no_other_option() -> None:
    rows = re.findall(r"^\| `evo (\w+)[^|]*\|(.*)\|$", README, re.MULTILINE)
    assert [name for name, _ in rows] == list(COMMANDS)
    for name, text in rows:
        output = CliRunner().invoke(cli, [name, "--help"]).output
        for option in re.findall(r"`(--[\w-]+)", text):
            assert option in output, f"evo {name} has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    for path in re.findall(
        r"`((?:evo|mutations|fitness|seeds|tests|docs|experiments)/[\w./]*)`", page.read_text("utf-8")
    ):
        assert (ROOT / path).exists(), path


def test_the_example_of_a_kernel_file_parses() -> None:
    text = (ROOT / "docs" / "kernel-file.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    kernel = parse_kernel(example)
    assert kernel.format.name == "nm24"
    assert dict(kernel.params) == {"TX": 32, "TY": 4}


@pytest.mark.parametrize(("old", "new"), [("require", "requre"), ("TX * TY", "TX * TZ")])
def test_the_errors_shown_are_the_errors_given(old: str, new: str) -> None:
    text = (ROOT / "docs" / "kernel-file.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    with pytest.raises(KernelError) as error:
        parse_kernel(example.replace(old, new), path="mine.cu")
    assert f"    {error.value}\n" in text


def test_the_example_of_an_experiment_loads() -> None:
    text = (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    documented = Experiment.from_dict(tomllib.loads(example))
    shipped = Experiment.load(find("nm24").path)
    assert documented.task == shipped.task, "docs/experiment.md shows another nm24 than the shipped one"


def test_every_documented_key_is_a_key() -> None:
    text = (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    keys = [key for cell in cells for key in re.findall(r"`([\w.]+)`", cell)]
    assert len(keys) > 10
    known = Experiment.load(find("nm24").path).model_dump()
    for key in keys:
        table, _, name = key.partition(".")
        assert table in known, key
        assert not name or name in (KEYS if table == "task" else known[table]), key
    assert {key for key in keys if key.startswith("task.")} == {f"task.{name}" for name in KEYS}


def test_every_card_is_documented() -> None:
    text = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    assert f"Cards described: {', '.join(gpu.known())}." in text


def test_the_changelog_has_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_licence_is_there() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
