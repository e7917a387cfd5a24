"""Which archive a reading command takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evo.cli import options, plot
from evo.cli.group import cli
from evo.errors import ArchiveError
from tests.evo import archives


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A shipped archive with one run, and an empty folder to be in."""
    path = tmp_path / "package" / "archive.db"
    run = archives.make(path)
    for module in (options, plot):
        monkeypatch.setattr(module, "SHIPPED_ARCHIVES", (tmp_path / "missing.db", path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return run.id


def best_run() -> tuple[str, str]:
    result = CliRunner().invoke(cli, ["lineage", "best", "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["run"], result.stderr


def test_without_a_working_archive_the_shipped_one_is_read_and_named(shipped: str) -> None:
    run, words = best_run()
    assert run == shipped
    assert words == "evo: no runs/archive.db here; reading the archive that comes with evo\n"


def test_the_working_archive_comes_first(shipped: str) -> None:
    own = archives.make(options.WORKING_ARCHIVE)
    assert best_run() == (own.id, "")
    assert own.id != shipped


def test_plots_of_the_shipped_archive_go_to_the_users_folder(shipped: str) -> None:
    result = CliRunner().invoke(cli, ["plot", "--format", "png"])
    assert result.stdout.split()[0] == f"runs/{shipped}/plot.png"


def test_an_empty_archive_is_named_as_such(tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(ArchiveError, match=r"empty\.db is empty; run an experiment first"):
        options.open_for_reading(empty)
    assert empty.read_bytes() == b""
