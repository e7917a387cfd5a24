"""`evo new`."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from evo.cli.group import cli
from evo.experiment import Experiment


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def new(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["new", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize(("name", "file"), [("mine", "mine.toml"), ("mine.toml", "mine.toml"), ("a/b", "a/b.toml")])
def test_writes_an_experiment_that_loads(name: str, file: str) -> None:
    code, output = new(name)
    assert code == 0, output
    assert Experiment.load(file).name == Path(file).stem
    assert f"evo run {file} --dry-run" in output


def test_explains_every_table() -> None:
    new("mine")
    text = Path("mine.toml").read_text(encoding="utf-8")
    for table in ("[task]", "[device]", "[search]", "[operators]", "[budget]"):
        assert table in text
    assert text.count("#") > 8


def test_never_overwrites_unasked() -> None:
    Path("mine.toml").write_text("precious", encoding="utf-8")
    code, output = new("mine")
    assert code == 1
    assert output.startswith("evo: mine.toml is already there")
    assert Path("mine.toml").read_text(encoding="utf-8") == "precious"
    assert new("mine", "--force")[0] == 0
    assert Experiment.load("mine.toml").name == "mine"


@pytest.mark.parametrize("name", ['quo"te', "42", "best", "sp ace", "-x"])
def test_refuses_a_name_that_could_not_be_run(name: str) -> None:
    code, output = new("--", name)
    assert code == 1
    assert "name" in output
    assert list(Path().iterdir()) == []


def test_a_folder_that_cannot_be_written() -> None:
    Path("file").write_text("", encoding="utf-8")
    code, output = new("file/mine")
    assert code == 1
    assert len(output.splitlines()) == 1
    assert output.startswith("evo: file")


def test_a_refused_name_is_shown_as_written(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["new", str(tmp_path / "ünï")])
    assert result.exit_code == 1
    assert '"ünï" is no name' in result.output


def test_a_full_disk_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half a file, which the next try would refuse, nor the loss of the one to be overwritten."""
    Path("old.toml").write_text("precious", encoding="utf-8")

    def write_text(path: Path, text: str, **_options: object) -> int:
        path.write_bytes(text[:100].encode())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", write_text)
        for arguments in (["mine"], ["old", "--force"]):
            code, output = new(*arguments)
            assert code == 1
            assert "disk is full" in output
    assert [path.name for path in Path().iterdir()] == ["old.toml"]
    assert Path("old.toml").read_text(encoding="utf-8") == "precious"
