"""Archives of every version that ever landed come up to date without losing anything."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from evo.archive import Archive, connection, facts
from evo.archive.schema import VERSION, migrations
from evo.cli.options import SHIPPED_ARCHIVES
from evo.lineage import Lineage
from tests.evo import archives

V1 = Path(__file__).parent / "data" / "v1.db.gz"
"""The run of tests/evo/archives.py as version 1 of the archive wrote it."""


def archive_of(version: int, path: Path) -> Path:
    """An archive as `version` left it: the oldest one, migrated so far and no further."""
    path.write_bytes(gzip.decompress(V1.read_bytes()))
    database = Database(sqlite3.connect(path))
    names = [migration.name for migration in migrations._migrations]
    if version < VERSION:
        migrations.apply(database, stop_before=names[version])
    else:
        migrations.apply(database)
    database.conn.execute(f"pragma user_version={version}")
    database.conn.commit()
    database.close()
    return path


@pytest.mark.parametrize("version", range(1, VERSION + 1))
@pytest.mark.parametrize("readonly", [True, False])
def test_nothing_is_lost_on_the_way_up(tmp_path: Path, version: int, readonly: bool) -> None:
    path = archive_of(version, tmp_path / "old.db")
    before = path.read_bytes()
    with Archive.open(path, readonly=readonly) as old, Archive.memory() as new:
        expected = archives.fill(new)
        (run,) = old.runs()
        assert (run.name, run.experiment, run.status) == (expected.name, expected.experiment, "finished")
        assert old.entries(run.id) == new.entries(expected.id)
        assert old.outcomes(run.id) == new.outcomes(expected.id)
        assert list(facts.baselines(old, run.id)) == list(facts.baselines(new, expected.id))
        assert old.confirmations(run.id) == new.confirmations(expected.id)
        assert [n for _, n, _ in old.find("mma")] == [n for _, n, _ in new.find("mma")] != []
        for left, right in zip(Lineage(old, run).nodes(), Lineage(new, expected).nodes(), strict=True):
            assert (left.n, left.time_us, left.speedup) == (right.n, right.time_us, right.speedup)
        assert old.check() == []
    if readonly:
        assert path.read_bytes() == before


@pytest.mark.parametrize("version", range(1, VERSION + 1))
@pytest.mark.parametrize("readonly", [True, False])
def test_an_archive_of_today_has_the_tables_of_a_migrated_one(tmp_path: Path, version: int, readonly: bool) -> None:
    path = archive_of(version, tmp_path / "old.db")
    with Archive.open(path, readonly=readonly) as old, Archive.memory() as new:
        tables = [
            {row["name"]: row["sql"] for row in archive.database.query("select name, sql from sqlite_master")}
            for archive in (old, new)
        ]
        views = new.database.view_names()
    assert tables[0].keys() == tables[1].keys()
    assert len(views) == 4
    assert {name: tables[0][name] for name in views} == {name: tables[1][name] for name in views}


def test_sources_are_kept_once(tmp_path: Path) -> None:
    with Archive.open(archive_of(1, tmp_path / "old.db")) as archive:
        counts = [archive.database.table(name).count for name in ("kernels", "sources")]
    assert counts == [5, 2]


def test_the_archive_that_comes_with_evo_is_of_this_version() -> None:
    assert connection.version_of(SHIPPED_ARCHIVES[1]) == VERSION
    with Archive.open(SHIPPED_ARCHIVES[1], readonly=True) as archive:
        assert archive.check() == []
        assert archive.runs("nm24")
