"""`evo archive ...` on archives with one run, and which archive a reader takes."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evo.archive import Archive
from evo.cli import exporting, options
from evo.cli.group import cli
from mutations.operator import Candidate, Plan
from tests.evo import archives


@pytest.fixture
def run_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return archives.make(Path("runs/archive.db")).id


def evo(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_info(run_id: str) -> None:
    code, out, _ = evo("archive", "info")
    assert code == 0
    assert run_id in out
    assert "6 candidates, 4 valid, 1 confirmed; best 2.83x modelled" in out
    data = json.loads(evo("archive", "info", "--json")[1])
    assert data["rows"]["candidates"] == 6
    assert Path(data["datasette"]).is_file()


def test_check_says_what_is_wrong(run_id: str) -> None:
    assert evo("archive", "check") == (0, "runs/archive.db is sound\n", "")
    with Archive.open("runs/archive.db") as archive:
        archive.database.execute("delete from candidates where n = 5")
    code, out, _ = evo("archive", "check")
    assert code == 1
    assert f"outcomes: run {run_id} has no candidate 5" in out
    assert json.loads(evo("archive", "check", "--json")[1])["problems"]


def test_merge(run_id: str) -> None:
    other = archives.make(Path("other.db"), "other").id
    code, out, _ = evo("archive", "merge", "other.db")
    assert code == 0
    assert out == "other.db: 1 run added, 0 extended, 0 there already; 6 candidates added\n"
    (again,) = json.loads(evo("archive", "merge", "other.db", "--json")[1])
    assert again["same"] == [other]
    assert evo("lineage", run_id)[0] == evo("lineage", other)[0] == 0
    code, _, err = evo("archive", "merge", "runs/archive.db")
    assert code == 1
    assert "into itself" in err
    code, _, err = evo("archive", "merge", "other.db", "missing.db", "--archive", "fresh.db")
    assert (code, "missing.db does not exist" in err) == (1, True)
    assert not Path("fresh.db").exists()


def test_promote_into_the_library_that_readers_fall_back_on(run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "SHIPPED_ARCHIVES", (Path("none.db"), Path("library.db")))
    code, out, _ = evo("archive", "promote", "nm24")
    assert code == 0
    assert out.startswith("library.db: 1 run added")
    Path("runs/archive.db").unlink()
    code, out, err = evo("lineage", "best", "--json")
    assert code == 0
    assert json.loads(out)["run"] == run_id
    assert "reading the archive that comes with evo" in err


def test_an_installed_evo_keeps_its_files(run_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(options, "_PACKAGE", tmp_path / "site-packages" / "evo")
    code, _, err = evo("archive", "promote", run_id)
    assert code == 1
    assert "--to" in err


def test_vacuum(run_id: str) -> None:
    code, out, _ = evo("archive", "vacuum")
    assert code == 0
    assert out.startswith("runs/archive.db: ")
    assert evo("lineage", run_id)[0] == 0
    assert evo("archive", "vacuum", "--archive", "none.db")[0] == 1
    assert not Path("none.db").exists()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_export(run_id: str, kind: str) -> None:
    code, _, _ = evo("archive", "export", run_id, "--format", kind, "--out", "files")
    assert code == 0
    lines = Path(f"files/candidates.{kind}").read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = list(csv.DictReader(lines)) if kind == "csv" else [json.loads(line) for line in lines]
    assert [int(row["n"]) for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [float(row["speedup"]) for row in rows if row["speedup"]] == pytest.approx([0.25, 2**0.5, 2.0, 2 * 2**0.5])
    if kind == "jsonl":
        assert rows[3]["parents"] == [0, 1]
        assert rows[3]["findings"][0]["kind"] == "unknown_api"
    assert {path.stem for path in Path("files/sources").iterdir()} == {r["source_id"] for r in rows if r["source_id"]}
    assert all((Path("files") / f"{name}.{kind}").is_file() for name in ("runs", "timings", "events"))


def test_export_into_a_folder_with_files_is_refused_unless_forced(run_id: str) -> None:
    folder = Path("files")
    folder.mkdir()
    assert evo("archive", "export", "--out", "files")[0] == 0  # an empty one is as good as none
    (folder / "runs.jsonl").write_text("mine", encoding="utf-8")
    code, _, err = evo("archive", "export", "--out", "files", "--format", "csv")
    assert (code, err) == (
        1, "evo: files is not empty; name another folder with --out, or write into it with --force\n",
    )  # fmt: skip
    assert not (folder / "runs.csv").exists()
    assert (folder / "runs.jsonl").read_text(encoding="utf-8") == "mine"
    assert evo("archive", "export", "--out", "files", "--force")[0] == 0
    assert json.loads((folder / "runs.jsonl").read_text(encoding="utf-8"))["id"] == run_id
    first, second = sorted((folder / "sources").iterdir())
    text = first.read_bytes()
    first.write_bytes(text[:-9])  # as a disk that was full leaves it
    os.utime(second, (1, 1))
    assert evo("archive", "export", "--out", "files", "--force")[0] == 0
    assert first.read_bytes() == text
    assert second.stat().st_mtime == 1  # there already: left alone
    Path("text").write_text("a file", encoding="utf-8")
    assert evo("archive", "export", "--out", "text")[0] == 1


def test_an_export_of_a_live_run_is_of_one_moment(run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = exporting._write

    def meanwhile(archive: Archive, table: str, run_ids: list[str], path: Path, kind: str) -> int:
        count = write(archive, table, run_ids, path, kind)
        if table == "candidates":  # before its times are read
            with Archive.open("runs/archive.db") as live:
                child = Candidate(Plan(6, 3, 0, "tune", (5,)), archives.kernel("late"), "late")
                live.add_entries(run_id, [child])
                live.add_outcome(run_id, 6, archives.timed("late", 7.0, 7.0))
        return count

    monkeypatch.setattr(exporting, "_write", meanwhile)
    assert json.loads(evo("archive", "export", "--out", "files", "--json")[1])["rows"] == {
        "runs": 1, "candidates": 6, "timings": 10, "events": 0, "sources": 2
    }  # fmt: skip
    assert evo("lineage", f"{run_id}/6")[0] == 0


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_an_export_says_what_the_archive_says(run_id: str, kind: str) -> None:
    """To the last bit of a number, whatever signs a text has; what no JSON can hold is null."""
    reason = 'a "quote", a comma,\nlines; {"n": 1}} 100% ÄØ \u2028 %s'
    with Archive.open("runs/archive.db") as archive:
        archive.database.execute("update candidates set reason = ? where n = 2", [reason])
        archive.database.execute("update outcomes set time_us = 0.1 + 0.2, compile_s = 1e-300 where n = 2")
        archive.database.execute("update outcomes set time_us = 9e999, registers = 'many' where n = 5")
        archive.database.execute("update timings set low_us = ?, limiter = null", [2 / 3])
    assert evo("archive", "export", "--format", kind, "--out", "files")[0] == 0
    rows = {}
    for table in ("runs", "candidates", "timings", "events"):
        with Path(f"files/{table}.{kind}").open(encoding="utf-8", newline="") as file:
            rows[table] = list(csv.DictReader(file) if kind == "csv" else map(json.loads, file))
    two, best = rows["candidates"][2], rows["candidates"][5]
    assert (two["reason"], float(two["time_us"]), float(two["compile_s"])) == (reason, 0.1 + 0.2, 1e-300)
    assert best["time_us"] == ("" if kind == "csv" else None)
    assert float(best["registers"]) == 0  # a text where a number should be
    assert {float(row["low_us"]) for row in rows["timings"]} == {2 / 3}
    assert {row["limiter"] for row in rows["timings"]} == {"" if kind == "csv" else None}
    assert [row["id"] for row in rows["runs"]] == [run_id]
    assert [row["run_id"] for row in rows["candidates"]] == [run_id] * 6
    assert [row["subject"] for row in rows["timings"]] == ["gemm/dense_mma_pipelined"] * 2 + ["candidate"] * 8
    shapes = [row["shape"] if kind == "jsonl" else json.loads(row["shape"]) for row in rows["timings"]]
    assert shapes[:2] == [dict(shape) for shape in archives.SHAPES]


def test_find(run_id: str) -> None:
    code, out, _ = evo("archive", "find", "BN", "of")
    assert (code, out) == (0, f"{run_id}/3  BN of #1\n")
    assert evo("archive", "find", "nowhere")[1] == "nothing found\n"
    assert len(json.loads(evo("archive", "find", "mma", "--json")[1])) == 4
    assert evo("archive", "find", "mma", "--limit", "4")[2] == ""
    for as_json in ((), ("--json",)):
        code, out, err = evo("archive", "find", "mma", "--limit", "3", *as_json)
        assert (code, err) == (0, "evo: 3 of 4; --limit shows more\n")
        assert out.count(run_id) == 3


def test_terminal_codes_of_a_stranger_are_shown_not_obeyed(run_id: str) -> None:
    with Archive.open("runs/archive.db") as archive:
        evil = Candidate(Plan(6, 3, 0, "tune\x1b[2J", (5,)), archives.kernel("x"), "evil \x1b]0;title\x07 reason\u202e")
        archive.add_entries(run_id, [evil])
    for command in (("archive", "find", "evil"), ("lineage", "6")):
        _, out, _ = evo(*command)
        assert "evil" in out
        assert not set(out) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize("ref", ["mine.toml", "mine", "{run}/5", "{run}"])
def test_readers_take_the_archive_of_the_experiment(run_id: str, ref: str) -> None:
    theirs = archives.make(Path("elsewhere.db"), "mine").id
    Path("mine.toml").write_text('name = "mine"\n[archive]\npath = "elsewhere.db"\n', encoding="utf-8")
    code, out, err = evo("lineage", ref.format(run=theirs), "--json")
    assert code == 0
    assert json.loads(out)["run"] == theirs != run_id
    assert err == "evo: reading elsewhere.db, the archive of that experiment\n"
    code, _, err = evo("lineage", "mine", "--archive", "runs/archive.db")
    assert (code, err) == (1, f'evo: no run "mine" in the archive; runs: {run_id}\n')
