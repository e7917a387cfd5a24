"""Merging archives: nothing is lost, nothing is there twice, however often."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest

from evo.archive import Archive, columns, copying
from evo.archive.copying import run_tables
from evo.archive.merging import Merged, merge, merge_file
from evo.errors import ArchiveError
from mutations.operator import Candidate, Plan
from tests.evo import archives
from tests.evo.archive.test_migrations import V1


def content(path: Path) -> dict[str, list[tuple[str, ...]]]:
    """Every row of every table with a run, without serial numbers."""
    with Archive.open(path, readonly=True) as archive:
        tables = {}
        for table in (*run_tables(archive.database), "runs", "kernels", "sources"):
            rows = archive.database.query(f"select * from {table}")
            tables[table] = sorted(tuple(str(value) for value in row.values()) for row in rows)
    return tables


def merged_all(target: Path, *sources: Path) -> None:
    with Archive.open(target) as archive:
        for source in sources:
            merge(archive, source)


def test_two_machines_in_any_order_and_again(tmp_path: Path) -> None:
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    ids = {archives.make(one).id, archives.make(two, "other").id}
    merged_all(tmp_path / "ab.db", one, two)
    merged_all(tmp_path / "ba.db", two, one, two, one)
    assert content(tmp_path / "ab.db") == content(tmp_path / "ba.db")
    with Archive.open(tmp_path / "ab.db") as archive:
        assert {run.id for run in archive.runs()} == ids
        assert archive.check() == []
        assert len(archive.find("mma")) == 2 * 4


def test_nothing_is_lost(tmp_path: Path) -> None:
    archives.make(tmp_path / "one.db")
    merged_all(tmp_path / "all.db", tmp_path / "one.db")
    assert content(tmp_path / "all.db") == content(tmp_path / "one.db")


def test_into_no_archive_the_first_one_is_copied(tmp_path: Path) -> None:
    one, two, fresh = tmp_path / "one.db", tmp_path / "two.db", tmp_path / "deep" / "fresh.db"
    run, other = archives.make(one), archives.make(two, "other")
    assert merge_file(fresh, one) == Merged(added=(run.id,), candidates=6)
    assert content(fresh) == content(one)
    assert all(file.name.startswith("fresh.db") for file in fresh.parent.iterdir())
    assert sqlite3.connect(fresh).execute("pragma journal_mode").fetchone()[0] == "wal"
    assert merge_file(fresh, one) == Merged(same=(run.id,))
    assert merge_file(fresh, two) == Merged(added=(other.id,), candidates=6)
    with Archive.open(fresh) as archive:
        assert archive.check() == []
        assert len(archive.find("mma")) == 2 * 4


def test_tables_that_somebody_else_made_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    run = archives.make(path)
    raw = sqlite3.connect(path)
    raw.execute("create trigger harm after insert on runs begin delete from candidates; end")
    raw.commit()
    raw.close()
    assert merge_file(tmp_path / "fresh.db", path) == Merged(added=(run.id,), candidates=6)
    with Archive.open(tmp_path / "fresh.db") as archive:
        assert archive.database.triggers_dict.keys().isdisjoint({"harm"})
        archives.fill(archive, "next")
        assert len(archive.entries(run.id)) == 6


def test_an_archive_that_comes_to_be_meanwhile_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, fresh = tmp_path / "one.db", tmp_path / "fresh.db"
    run = archives.make(one)
    link = Path.hardlink_to

    def late(self: Path, target: Path) -> None:
        archives.make(fresh, "other")
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", late)
    assert merge_file(fresh, one).added == (run.id,)
    with Archive.open(fresh, readonly=True) as archive:
        assert sorted(found.name for found in archive.runs()) == ["nm24", "other"]


def test_a_run_that_went_on_is_extended(tmp_path: Path) -> None:
    path, later = tmp_path / "a.db", tmp_path / "later.db"
    run = archives.make(path)
    merged_all(later, path)
    with Archive.open(later) as archive:
        archive.add_entries(run.id, [Candidate(Plan(6, 3, 0, "tune", (5,)), archives.kernel("new"), "more")])
        archive.add_outcome(run.id, 6, archives.timed("f", 7.0, 7.0))
        archive.set_status(run.id, "stopped")
    with Archive.open(path) as archive:
        merged = merge(archive, later)
        assert (merged.added, merged.extended, merged.same, merged.candidates) == ((), (run.id,), (), 1)
        assert merge(archive, later).same == (run.id,)
        found = archive.run(run.id)
        assert found is not None
        assert found.status == "stopped"
    before = content(later)
    with Archive.open(later) as archive:  # the shorter copy takes nothing back
        assert merge(archive, path).same == (run.id,)
    assert content(later) == before


def test_copies_that_went_different_ways_are_both_kept(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    run = archives.make(path)
    merged_all(other, path)
    for place, about in ((path, "mine"), (other, "theirs")):
        with Archive.open(place) as archive:
            archive.add_entries(run.id, [Candidate(Plan(6, 3, 0, "tune", (5,)), archives.kernel(about), about)])
    with Archive.open(path) as archive:
        merged = merge(archive, other)
        (new,) = merged.renamed.values()
        assert merged.added == (new,)
        assert [entry.plan.n for entry in archive.entries(new)] == [0, 1, 2, 3, 4, 5, 6]
        assert archive.entries(new)[-1] != archive.entries(run.id)[-1]
        assert merge(archive, other).added == ()  # and not once more
        assert archive.check() == []


def test_another_run_of_the_same_id(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    run, theirs = archives.make(path), archives.make(other)
    raw = sqlite3.connect(other)
    for table in ("candidates", "parents", "outcomes", "timings", "confirmations", "events"):
        raw.execute(f"update {table} set run_id = ?", [run.id])
    raw.execute("update parents set parent_run_id = ?", [run.id])
    raw.execute("update runs set id = ?", [run.id])
    raw.commit()
    raw.close()
    with Archive.open(path) as archive:
        merged = merge(archive, other)
        assert set(merged.renamed) == {run.id}
        new = merged.renamed[run.id]
        assert [entry.plan.parents for entry in archive.entries(new)] == [
            entry.plan.parents for entry in archive.entries(run.id)
        ]
        assert archive.outcomes(new) == archive.outcomes(run.id)
        assert archive.check() == []
        assert {archive.run(new).started_at, archive.run(run.id).started_at} == {run.started_at, theirs.started_at}  # type: ignore[union-attr]


def test_an_older_archive_is_migrated_on_the_way(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    old.write_bytes(gzip.decompress(V1.read_bytes()))
    before = old.read_bytes()
    with Archive.open(tmp_path / "new.db") as archive:
        assert merge(archive, old).candidates == 6
    assert old.read_bytes() == before


def test_model_calls_are_not_doubled(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    run = archives.make(path)
    with Archive.open(path) as archive:
        archive.database.table("llm_calls").insert({"run_id": run.id, "n": 5, "model": "m", "usd": 0.5})
        archive.add_event(run.id, "note", {})
    merged_all(tmp_path / "b.db", path, path)
    rows = content(tmp_path / "b.db")
    assert len(rows["llm_calls"]) == len(rows["events"]) == 1


def test_not_with_itself_nor_with_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    archives.make(path)
    (tmp_path / "text").write_text("not a database, " * 99)
    with Archive.open(path) as archive:
        with pytest.raises(ArchiveError, match="into itself"):
            merge(archive, path)
        with pytest.raises(ArchiveError, match="not an SQLite"):
            merge(archive, tmp_path / "text")
        with pytest.raises(ArchiveError, match="does not exist"):
            merge(archive, tmp_path / "none")


def test_every_table_belongs_to_runs_or_is_shared() -> None:
    """A migration that adds another kind of table must teach the merge about it."""
    with Archive.memory() as archive:
        names = set(archive.database.table_names()) - {"_sqlite_migrations"}
        own = {name for name in names if "_fts" not in name}
        assert own == {*run_tables(archive.database), "runs", "kernels", "sources"}


def schema(archive: Archive) -> list[tuple[str, ...]]:
    return sorted(archive.database.execute("select type, name, tbl_name, coalesce(sql, '') from sqlite_master"))


def assert_full_text_fits(archive: Archive) -> None:
    for table in ("candidates_fts", "sources_fts"):
        archive.database.execute(f"insert into {table} ({table}, rank) values ('integrity-check', 1)")


@pytest.mark.parametrize("here", [0, 1, 3])
def test_indexes_are_as_they_were_whether_more_comes_than_there_is_or_not(tmp_path: Path, here: int) -> None:
    """Where more comes they are made anew."""
    with Archive.open(tmp_path / "two.db") as archive:
        theirs = [archives.fill(archive, f"their{number}").id for number in range(2)]
    with Archive.open(tmp_path / "here.db") as archive:
        ours = [archives.fill(archive, f"our{number}").id for number in range(here)]
        before = schema(archive)
        assert merge(archive, tmp_path / "two.db").added == tuple(theirs)
        assert schema(archive) == before
        assert_full_text_fits(archive)
        assert archive.check() == []
        assert len(archive.find("mma", 99)) == 4 * (here + 2)
        assert {run for run, _, _ in archive.find("nothing left")} == {*ours, *theirs}
        assert merge(archive, tmp_path / "two.db").same == tuple(theirs)
        assert_full_text_fits(archive)


def test_a_merge_that_is_broken_off_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        archives.make(tmp_path / f"{name}.db")
    before = content(tmp_path / "one.db")

    def broken(*_: object, **__: object) -> None:
        raise OSError("broken off")

    with Archive.open(tmp_path / "one.db") as archive:
        archive.database.execute("delete from candidates where n > 0")  # so that more comes
        archive.database.execute("delete from parents")
        tables = schema(archive)
        before = content(tmp_path / "one.db")
        monkeypatch.setattr(copying, "_copy_table", broken)
        with pytest.raises(ArchiveError, match="broken off"):
            merge(archive, tmp_path / "two.db")
        monkeypatch.undo()
        assert schema(archive) == tables
        assert content(tmp_path / "one.db") == before
        assert_full_text_fits(archive)
        assert len(merge(archive, tmp_path / "two.db").added) == 1
        assert_full_text_fits(archive)


def test_two_runs_that_go_on_from_the_copy_here_stay_two(tmp_path: Path) -> None:
    """Each agrees with the copy; put into it together they would be one run that never was."""
    start, one, two, both = (tmp_path / f"{name}.db" for name in ("start", "one", "two", "both"))
    run = archives.make(start)
    for place, about in ((one, "mine"), (two, "theirs")):
        merged_all(place, start)
        with Archive.open(place) as archive:
            archive.add_entries(run.id, [Candidate(Plan(6, 3, 0, "tune", (5,)), archives.kernel(about), about)])
    merged_all(both, one, two)
    with Archive.open(start) as archive:
        merged = merge(archive, both)
        assert (len(merged.added), merged.extended) == (1, (run.id,))
        assert {archive.entries(found.id)[-1].reason for found in archive.runs()} == {"mine", "theirs"}  # type: ignore[union-attr]
        assert merge(archive, both) == Merged(same=merged.extended + merged.added)


def test_readers_and_writers_that_have_it_open_go_on(tmp_path: Path) -> None:
    """Indexes are made anew below them."""
    path = tmp_path / "here.db"
    archives.make(path)
    with Archive.open(tmp_path / "two.db") as archive:
        theirs = [archives.fill(archive, f"their{number}").id for number in range(2)]
    with Archive.open(path, readonly=True) as reader, Archive.open(path) as writer, Archive.open(path) as archive:
        (run,) = reader.runs()
        rows = columns.steps(reader, run.id, "n")
        assert next(rows) == (0,)
        assert merge(archive, tmp_path / "two.db").added == tuple(theirs)
        assert [n for (n,) in rows] == [1, 2, 3, 4, 5]
        assert len(reader.find("mma", 99)) == 4 * 3
        writer.add_entries(run.id, [Candidate(Plan(6, 3, 0, "tune", (5,)), archives.kernel("new"), "meanwhile")])
        assert len(reader.find("meanwhile")) == 1
        assert writer.check() == []
        assert_full_text_fits(writer)
