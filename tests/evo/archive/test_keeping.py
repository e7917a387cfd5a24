from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from evo.archive import Archive, Refused, keeping
from evo.errors import ArchiveError
from evo.llm.costs import costs_of
from mutations.operator import Candidate, Plan
from tests.evo import archives


@pytest.fixture
def path(tmp_path: Path) -> Path:
    archives.make(tmp_path / "a.db")
    return tmp_path / "a.db"


def tamper(path: Path, sql: str) -> list[str]:
    raw = sqlite3.connect(path)
    raw.execute(sql)
    raw.commit()
    raw.close()
    with Archive.open(path, readonly=True) as archive:
        return list(keeping.check(archive))


def test_info_counts(path: Path) -> None:
    with Archive.open(path, readonly=True) as archive:
        found = keeping.info(archive)
    assert found.rows["candidates"] == 6
    assert found.rows["sources"] == 2
    (run,) = found.runs
    assert (run.candidates, run.valid, run.confirmed) == (6, 4, 1)
    assert run.speedup == pytest.approx(2 * 2**0.5)
    assert found.size_bytes >= path.stat().st_size


def test_a_sound_archive_has_no_problem(path: Path) -> None:
    assert tamper(path, "select 1") == []


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("update sources set text = text || ' '", "is not the key of its text"),
        ("update kernels set params = '{\"BM\":64,\"BN\":8}' where params like '%32%'", "key of its source and params"),
        ("delete from candidates where n = 3", "outcomes: run nm24-"),
        ("update parents set parent_n = 77 where n = 5", "has no candidate 77"),
        ("update runs set machine = '{'", "machine is not JSON"),
        ("update candidates set kernel_id = 'x' where n = 5", "refers to nothing"),
        ("update kernels set params = '{'", "params is not JSON"),
        ("update outcomes set findings = '[7]' where n = 3", "outcomes: row 4: a finding is no object"),
        ("update timings set n = null", "a time of no candidate"),
        ("update runs set gpu = null", "runs: row 1: gpu is missing"),
        ("update runs set started_at = 'soon'", "runs: row 1: started_at is no moment"),
        ("update outcomes set time_us = 'fast' where n = 5", "outcomes: row 5: time_us is text"),
        ("update sources set text = x'00ff'", "sources: row 1: text is blob"),
        ("update parents set parent_n = 5 where n = 2", "2 comes before its parent 5"),
        ("update kernels set params = '[1]'", "params is no object"),
    ],
)
def test_what_was_changed_by_hand_is_found(path: Path, sql: str, words: str) -> None:
    problems = tamper(path, sql)
    assert problems
    assert any(words in problem for problem in problems), problems


def test_vacuum_gives_back_what_nothing_needs(path: Path) -> None:
    with Archive.open(path) as archive:
        run = archive.runs()[0].id
        big = archives.kernel("x" * 40_000)
        archive.add_entries(run, [Candidate(Plan(6, 3, 0, "tune", (5,)), big, "big")])
        archive.database.execute("delete from candidates where n = 6")
        before, after = keeping.vacuum(archive)
        assert after < before
        assert archive.check() == []
        assert len(archive.entries(run)) == 6
        assert archive.find("mma")


def test_promote_takes_verified_runs_only(path: Path, tmp_path: Path) -> None:
    library = tmp_path / "library.db"
    with Archive.open(path) as archive:
        run = archive.runs()[0]
        with pytest.raises(ArchiveError, match="no confirmed candidate"):
            keeping.promote(archive, [archives.fill(archive, "other", confirmed=False).id], library)
        assert not library.exists()
        assert keeping.promote(archive, [run.id], library).added == (run.id,)
        assert keeping.promote(archive, [run.id], library).same == (run.id,)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("library")] == ["library.db"]
    with Archive.open(library, readonly=True) as archive:
        assert [one.id for one in archive.runs()] == [run.id]
        assert archive.database.execute("pragma journal_mode").fetchone()[0] == "delete"
        assert list(keeping.check(archive)) == []


def test_a_library_is_as_small_as_its_content_whatever_is_promoted(path: Path, tmp_path: Path) -> None:
    """A first run is put in so that nothing is to be had; after a small one it is made small."""
    library = tmp_path / "library.db"
    with Archive.open(path) as archive:
        runs = [archive.runs()[0].id, *(archives.fill(archive, f"run{number}").id for number in range(5))]
        for run in runs:
            keeping.promote(archive, [run], library)
            before = library.stat().st_size
            with Archive.open(library) as promoted:
                after = keeping.vacuum(promoted)[1]
                assert promoted.find("mma")
            assert before <= 1.05 * after


@pytest.mark.parametrize("view", ["best_per_task", "lineage_edges", "failures_by_stage", "cost_per_improvement"])
def test_the_views_say_what_they_should(path: Path, view: str) -> None:
    with Archive.open(path, readonly=True) as archive:
        rows = list(archive.database.query(f"select * from {view}"))
    if view == "best_per_task":
        (row,) = rows
        assert (row["n"], row["op"], row["speedup_low"]) == (5, "spmm", 2.83)
        assert row["speedup"] == pytest.approx(2 * 2**0.5)
    elif view == "lineage_edges":
        assert {(row["parent_n"], row["child_n"]) for row in rows} == {(1, 2), (0, 3), (1, 3), (0, 4), (2, 5)}
        assert rows[0]["gain"] == pytest.approx(2**0.5)
    elif view == "failures_by_stage":
        assert [(row["stage"], row["finding"], row["candidates"]) for row in rows] == [("COMPILE", "unknown_api", 1)]
    else:
        improvements = {row["operator"]: (row["candidates"], row["improvements"]) for row in rows}
        assert improvements == {"seed": (2, 1), "splice": (1, 0), "tune": (3, 2)}


def test_cost_per_improvement_counts_as_the_reports_do(path: Path) -> None:
    keys = ("operator", "model", "candidates", "improvements", "tokens_in", "usd", "usd_per_improvement")
    with Archive.open(path) as archive:
        run = archive.runs()[0].id
        children = (
            Candidate(Plan(6, 3, 0, "llm_edit", (5,)), archives.kernel("k6"), "why", "one"),
            Candidate(Plan(7, 3, 0, "llm_edit", (5,)), archives.kernel("k7"), "why", "two"),
            Candidate(Plan(8, 3, 0, "llm_edit", (5,)), archives.kernel("k8"), "why", "two"),
            Refused(Plan(9, 3, 0, "llm_edit", (5,)), "one: no kernel in the answer"),
        )
        archive.add_entries(run, children)
        archive.add_outcome(run, 6, archives.timed("e", 4.0, 4.0))
        archive.add_outcome(run, 7, archives.timed("f", 2.0, 2.0), 3)  # somebody else's verdict is no improvement
        archive.add_outcome(run, 8, archives.timed("g", 2.0, 2.0))
        call = {"run_id": run, "model": "one", "returned_model": "m", "tokens_in": 10, "tokens_out": 1, "usd": 0.5}
        archive.database.table("llm_calls").insert_all(
            [
                call | {"n": 6, "returned_model": None, "tokens_in": 0, "tokens_out": 0, "usd": None},  # no answer
                call | {"n": 6},
                call | {"n": 6, "purpose": "tool:compile", "usd": None},
                call | {"n": 7, "model": "two"},
                call | {"n": 8, "model": "two", "usd": None},  # a price nobody knows
                call | {"n": 9},
                call | {"n": None, "model": "plan"},
            ]
        )
        rows = [tuple(row[key] for key in keys) for row in archive.database.query("select * from cost_per_improvement")]
        costs = costs_of(archive, run)
    assert set(rows) == {
        ("seed", None, 2, 1, 0, 0.0, 0.0),
        ("tune", None, 3, 2, 0, 0.0, 0.0),
        ("splice", None, 1, 0, 0, 0.0, None),
        ("llm_edit", "one", 2, 1, 20, 1.0, 1.0),
        ("llm_edit", "two", 2, 1, 20, None, None),
        ("planner", "plan", 0, 0, 10, 0.5, None),
    }
    assert costs is not None
    assert sum(row[4] for row in rows) == costs.total.spent.tokens_in


def test_the_metadata_of_datasette_fits_the_tables(path: Path) -> None:
    metadata = json.loads(keeping.DATASETTE.read_text(encoding="utf-8"))["databases"]["archive"]
    with Archive.open(path, readonly=True) as archive:
        database = archive.database
        names = {*database.table_names(), *database.view_names()}
        assert set(metadata["tables"]) <= names
        for name, table in metadata["tables"].items():
            columns = {row["name"] for row in database.query(f"pragma table_info({name})")}
            named = {*table.get("units", {}), *table.get("facets", [])}
            named |= {table[key] for key in ("sort", "sort_desc", "label_column") if key in table}
            assert named <= columns, name
            assert table.get("fts_table", name) in names
        run = archive.runs()[0].id
        found = list(database.query(metadata["queries"]["search"]["sql"], {"words": "unknown OR mma"}))
        assert [row["n"] for row in found] == [1, 2, 3, 5]
        steps = list(database.query(metadata["queries"]["path_to_seed"]["sql"], {"run_id": run, "n": "5"}))
        assert [row["n"] for row in steps] == [1, 2, 5]
