"""An archive that somebody made by hand to do harm: whatever it holds, readers end, and write where told."""

from __future__ import annotations

import json
import sqlite3
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

from evo.archive import Archive, keeping
from evo.cli.group import cli
from evo.errors import ArchiveError
from evo.lineage import Lineage
from tests.evo import archives


def changed(path: Path, *statements: str) -> Path:
    archives.make(path)
    raw = sqlite3.connect(path)
    for statement in statements:
        raw.execute(statement)
    raw.commit()
    raw.close()
    return path


@pytest.mark.parametrize("name", ["../elsewhere", "/tmp/elsewhere", "..", "a b", "", "a\n"])
def test_a_run_that_names_another_folder_is_no_run(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    path = changed(Path("a.db"), "pragma foreign_keys = off", f"update runs set id = '{name}'")
    with Archive.open(path, readonly=True) as archive, pytest.raises(ArchiveError, match="is no id of a run"):
        archive.runs()
    result = CliRunner().invoke(cli, ["plot", "best", "--archive", "a.db"])
    assert result.exit_code == 1
    assert "damaged row" in result.output
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in"]


def test_a_circle_of_parents_ends(tmp_path: Path) -> None:
    path = changed(
        tmp_path / "a.db",
        "update parents set parent_n = 5 where n = 2",
        "insert into parents select id, 0, 0, id, 0, 'parent' from runs",
    )
    with Archive.open(path, readonly=True) as archive:
        (run,) = archive.runs()
        lineage = Lineage(archive, run)
        for n in (None, 0, 2, 5):
            assert len(list(lineage.walk(n))) <= 10
        assert [node.n for node in lineage.line(5)] == [2, 5]
        assert any("before its parent" in problem for problem in keeping.check(archive))
    for command in (
        ["lineage"], ["lineage", "--blame"], ["lineage", "--tree"], ["lineage", "--dot"], ["lineage", "--stats"],
        ["plot", "--kind", "phylogeny", "--format", "png", "--out", str(tmp_path)],
        ["report", "--out", str(tmp_path / "r.html")],
    ):  # fmt: skip
        result = CliRunner().invoke(cli, [*command, "--archive", str(path)])
        assert result.exit_code == 0, (command, result.output)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("update runs set experiment = '[1]'", "runs: row 1: experiment is no object"),
        ("update runs set experiment = '{'", "runs: row 1: experiment is not JSON"),
        ('update runs set experiment = \'{"task": {"op": "spmm", "dtype": "float16", "shapes": []}}\'', "no task"),
        ("update outcomes set findings = '{}' where n = 3", "outcomes: row 4: findings is no array"),
        ("update outcomes set time_us = 'fast' where n = 5", "outcomes: row 5: time_us is text"),
        ("update timings set shape = '7' where n = 5", "shape is no object"),
        ("update timings set low_us = 99 where n = 5", "a time outside its bounds"),
        ("update timings set time_us = -1, low_us = -1, high_us = -1", "a time outside its bounds"),
        ("update timings set time_us = 0, low_us = 0, high_us = 0, tflops = 0, gb_per_s = 0", "a time outside its"),
        ("update outcomes set time_us = 0, fitness_us = 0 where n = 5", "outcomes: row 5: a time that is none"),
        ("update outcomes set time_us = 9e999, fitness_us = 9e999", "outcomes: row 1: a time that is none"),
        ("update runs set baseline_us = 0", "runs: row 1: a time that is none"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["lineage", "best"],
        ["report", "--out", "r.html"],
        ["plot", "--out", "."],
        ["plot", "--kind", "all", "--format", "svg", "--out", "."],
    ],
)
def test_what_no_run_can_have_written_is_the_archives_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, says: str, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    changed(Path("a.db"), statement)
    with Archive.open("a.db", readonly=True) as archive:
        problems = list(keeping.check(archive))
    assert any(says in problem for problem in problems), problems
    result = CliRunner().invoke(cli, [*command, "--archive", "a.db"])
    assert isinstance(result.exception, SystemExit | None), result.exception
    if result.exit_code and "all" not in command:
        assert len(result.output.splitlines()) == 1
        assert "a.db" in result.output


def test_a_bug_is_not_blamed_on_a_sound_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archives.make(tmp_path / "a.db")
    monkeypatch.setattr("evo.lineage.statistics._count", None)
    result = CliRunner().invoke(cli, ["lineage", "nm24", "--stats", "--archive", str(tmp_path / "a.db")])
    assert isinstance(result.exception, TypeError)


EVIL = 'a"<script>\x1b[2J\x07\x9b31m\u202e$\\frac{$\\N'
"""Ends quotes, is markup, moves a terminal's cursor, turns text round, is no formula."""


def test_texts_of_a_stranger_are_shown_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal obeys them, no plot takes them for a formula, no error carries them."""
    monkeypatch.chdir(tmp_path)
    archives.make(Path("a.db"))
    raw = sqlite3.connect("a.db")
    raw.execute("update candidates set reason = ?1, operator = ?1, model = ?1", [EVIL])
    raw.execute("update candidates set reason = ? where generation = 0", [f"seed spmm/{EVIL}: {EVIL}"])
    raw.execute("update candidates set operator = 'seed' where generation = 0")
    raw.execute("update timings set limiter = ?1, subject = iif(n is null, ?1, subject)", [EVIL])
    shapes = [{f"N{EVIL}": 16 * n, "M": 64, "K": 64} for n in (1, 2)]
    raw.execute("update runs set experiment = json_set(experiment, '$.task.op', ?1, '$.task.pattern.kind', ?1,"
                " '$.task.shapes', json(?2)), name = ?1, version = ?1, machine = json_object(?1, ?1)",
                [EVIL, json.dumps(shapes)])  # fmt: skip
    raw.execute("update outcomes set findings = json_array(json_object('gate', 'COMPILE', 'kind', ?1, 'message', ?1))"
                " where n = 3", [EVIL])  # fmt: skip
    raw.execute("insert into events select id, started_at, 'end', json_object('status', ?1, 'reason', ?1) from runs",
                [EVIL])  # fmt: skip
    raw.commit()
    run = raw.execute("select id from runs").fetchone()[0]
    raw.close()
    plot = ["--format", "svg", "--out", "plots"]
    for command in (
        ["lineage", run], *(["lineage", run, f"--{view}"] for view in ("tree", "stats", "blame", "dot", "mermaid")),
        ["lineage", run, "--tree", "--dot"], ["lineage", run, "--against", "3"], ["lineage", f"{run}/3"],
        ["watch", run, "--once"], ["archive", "info"], ["archive", "check"], ["archive", "find", "script"],
        ["plot", run, "--kind", "all", *plot], ["plot", run, "--kind", "dollars", *plot],
        ["report", run, "--out", "r.html"], ["run", "smoke", "--resume", run],
    ):  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of matplotlib: it tells signs it cannot draw by drawing them
            result = CliRunner().invoke(cli, [*command, "--archive", "a.db"])
        assert isinstance(result.exception, SystemExit | None), (command, result.exception)
        assert not set(result.output) & {"\x1b", "\x07", "\x9b", "\u202e"}, command
        assert result.exit_code == (command[0] == "run" or "dollars" in command), (command, result.output)
    pictures = {path.stem for path in Path("plots").glob("*.svg")}
    assert pictures >= {"speedup", "shapes", "credit", "phylogeny", "validity"}
    assert "<script>\x1b" not in Path("r.html").read_text(encoding="utf-8")
