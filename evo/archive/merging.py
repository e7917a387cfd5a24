"""Several archives into one: without loss, without duplicates, as often as one likes.

A run is the same run in two archives if its name, random seed and start (to the microsecond) are. Then the
rows one of them lacks are added. Where the two disagree on a candidate (a run that two machines resumed
differently) neither is lost: the one that comes second is kept as a run of its own, under a fresh id. A run whose
id is taken by another run gets a fresh id as well.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from evo.archive import connection
from evo.archive.copying import copy, run_tables
from evo.archive.schema import VERSION
from evo.archive.store import Archive
from evo.errors import ArchiveError

_SAME = {
    "candidates": ("kernel_id", "operator", "generation", "island"),
    "outcomes": ("kind", "stage", "code_key"),
    "confirmations": ("verdict",),
}
"""Columns in which two copies of one run must agree."""


_SCHEMA = "select type, name, tbl_name, sql from sqlite_master order by type, name"


@dataclass(frozen=True)
class Merged:
    """What a merge did.

    Attributes:
        added: runs that were not there; extended: runs that got rows they lacked; same: runs that lacked nothing.
        renamed: id in the source -> fresh id, for runs whose id was taken or that disagree with the copy here.
        candidates: candidates added.
    """

    added: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)
    candidates: int = 0


def merge(target: Archive, source: Path, only: Collection[str] | None = None) -> Merged:
    """Add the runs of the archive at `source` to `target`, in one transaction.

    Args:
        target: opened for writing.
        source: another archive; it is only read. An older version is migrated in a temporary copy.
        only: ids of the runs to take; None takes all.

    Raises:
        ArchiveError: one of them cannot be read or written, or they are the same file.
    """
    if Path(target.path).exists() and source.exists() and Path(target.path).samefile(source):
        raise ArchiveError(f"archive {source} cannot be merged into itself", "name another one")
    with connection.guarded(target.path), _attached(target.database, source):
        database = target.database
        runs = [row for row in database.query("select * from src.runs") if only is None or row["id"] in only]
        with connection.transaction(database):
            ids: dict[str, str] = {}
            for run in runs:
                ids[run["id"]] = _target_id(database, run, ids.values())
            before = _counts(database, ids.values())
            fresh = {old for old, new in ids.items() if not before[new]["runs"]}
            copy(database, ids, fresh)
            after = _counts(database, ids.values())
    changed = {new for new in ids.values() if before[new] != after[new]}
    return Merged(
        added=tuple(new for new in ids.values() if not before[new]["runs"]),
        extended=tuple(new for new in ids.values() if before[new]["runs"] and new in changed),
        same=tuple(new for new in ids.values() if new not in changed),
        renamed={old: new for old, new in ids.items() if old != new},
        candidates=sum(after[new]["candidates"] - before[new]["candidates"] for new in ids.values()),
    )


def merge_file(target: Path, source: Path) -> Merged:
    """Add the runs of the archive at `source` to the one at `target`, which is made where it is missing.

    Into no archive the first one is copied page by page, which takes a fifteenth of the time its rows take.

    Raises:
        ArchiveError: one of them cannot be read or written, or they are the same file.
    """
    if not target.exists() and (copied := _copied(target, source)) is not None:
        return copied
    with Archive.open(target) as archive:
        return merge(archive, source)


def _copied(target: Path, source: Path) -> Merged | None:
    """`target` made as a copy of `source`; None where it cannot be: other tables or triggers, or a target by now."""
    Archive.open(source, readonly=True).close()
    with connection.guarded(target), contextlib.ExitStack() as stack:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=target.parent, prefix=".merge-"))) / "copy.db"
        with contextlib.closing(sqlite3.connect(connection.readonly_uri(source), uri=True)) as old:
            if list(old.execute(_SCHEMA)) != list(connection.in_memory().conn.execute(_SCHEMA)):
                return None  # an older version; or what somebody made, whose triggers are not to run here
            with contextlib.closing(sqlite3.connect(draft)) as new:
                old.backup(new)
                new.execute("pragma journal_mode=wal").fetchone()
        with contextlib.suppress(FileExistsError):
            target.hardlink_to(draft)  # all of it, and only where there is still none
            with Archive.open(target, readonly=True) as archive:
                rows = archive.database.execute("select id, (select count(*) from candidates where run_id = r.id)"
                                                " from runs r order by rowid").fetchall()  # fmt: skip
            return Merged(added=tuple(run for run, _ in rows), candidates=sum(count for _, count in rows))
    return None


@contextlib.contextmanager
def _attached(database: Database, source: Path) -> Iterator[None]:
    """The archive at `source` as schema `src`, in this version."""
    with contextlib.ExitStack() as stack:
        with Archive.open(source, readonly=True):  # refuses what is no archive, or a newer one
            pass
        uri = connection.readonly_uri(source)
        if connection.version_of(source) < VERSION:
            copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evo-merge-"))) / "copy.db"
            with (
                contextlib.closing(sqlite3.connect(uri, uri=True)) as old,
                contextlib.closing(sqlite3.connect(copy)) as new,
            ):
                old.backup(new)
            Archive.open(copy).close()
            uri = connection.readonly_uri(copy)
        database.execute("attach database ? as src", [uri])
        try:
            database.execute(f"pragma src.{connection.CACHE}")
            yield
        finally:
            database.execute("detach database src")


def _target_id(database: Database, run: dict[str, Any], taken: Collection[str]) -> str:
    """Under which id a run of the source lives in the target: an agreeing copy's, its own, or a fresh one.

    No id of `taken`: what another run of the source has become, although both may go on from the copy here.
    """
    copies = database.query(
        "select id from main.runs where name = ? and started_at = ? and rng_seed is ? order by id = ? desc, id",
        [run["name"], run["started_at"], run["rng_seed"], run["id"]],
    )
    for one in list(copies):
        if one["id"] not in taken and not _disagree(database, run["id"], one["id"]):
            return str(one["id"])
    known = "select 1 from main.runs where id = :id union select 1 from src.runs where id = :id and id <> :old"
    new = run["id"]
    while database.execute(known, {"id": new, "old": run["id"]}).fetchone():
        new = f"{run['name']}-{secrets.token_hex(4)}"
    return str(new)


def _disagree(database: Database, theirs: str, ours: str) -> bool:
    """True if the two copies of a run differ in a candidate or verdict that both have."""
    for table, columns in _SAME.items():
        differs = " or ".join(f"a.{column} is not b.{column}" for column in columns)
        sql = (
            f"select 1 from src.{table} a join main.{table} b on b.run_id = ? and b.n = a.n"
            f" where a.run_id = ? and ({differs}) limit 1"
        )
        if database.execute(sql, [ours, theirs]).fetchone():
            return True
    return False


def _counts(database: Database, run_ids: Collection[str]) -> dict[str, dict[str, int]]:
    """Run -> table -> rows of it."""
    tables = run_tables(database)
    counts = {}
    for run_id in run_ids:
        counts[run_id] = {
            table: int(database.execute(f"select count(*) from main.{table} where run_id = ?", [run_id]).fetchone()[0])
            for table in tables
        }
        counts[run_id]["runs"] = database.execute("select count(*) from main.runs where id = ?", [run_id]).fetchone()[0]
    return counts
