"""Opening an archive, and SQLite's errors in words a person can act on."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from evo.archive.schema import APPLICATION_ID, VERSION, migrations
from evo.errors import ArchiveError
from evo.writing import why

BUSY_S = 30.0
"""How long a writer waits for another run's transaction (they take milliseconds)."""

_PAUSE_S = 0.02

CACHE = "cache_size=-8192"
"""KiB of pages that SQLite keeps: with its own 2 MB a lookup for each of 100,000 candidates reads most pages anew."""

_INDEX_BYTES = 1 << 16
"""Twice what SQLite takes for the index of a log."""

_CAUSES = (
    (
        "file is not a database",
        "is not an SQLite database",
        "choose another file with --archive, or move this one away",
    ),
    ("malformed", "is damaged", "restore a copy, or move it away and start a new one"),
    ("disk is full", "cannot grow: the disk is full", "free some space, then continue with --resume"),
    (
        "disk i/o error",
        "cannot be written (disk error)",
        "check the disk and its free space, then continue with --resume",
    ),
    ("readonly", "cannot be written", "give a writable place with --archive"),
    ("unable to open", "cannot be opened", "check that the folder exists and is writable, or give another --archive"),
    ("locked", "is locked by another program", "close it there, then continue with --resume"),
)


@contextlib.contextmanager
def guarded(path: Path | str) -> Iterator[None]:
    """Turn SQLite and file errors inside the block into `ArchiveError`.

    Raises:
        ArchiveError: one line saying what is wrong with `path` and how to fix it.
    """
    try:
        yield
    except sqlite3.Error as error:
        text = str(error).lower()
        for sign, problem, fix in _CAUSES:
            if sign in text:
                raise ArchiveError(f"archive {path} {problem}", fix) from error
        raise ArchiveError(f"archive {path}: {error}", "move it away and start a new one, or report this") from error
    except OSError as error:
        raise ArchiveError(
            f"archive {path} cannot be used ({why(error)})", "give a writable place with --archive"
        ) from error


def connect(path: Path, *, readonly: bool = False) -> Database:
    """Open an archive file; without `readonly`, make and migrate it as needed.

    Raises:
        ArchiveError: missing (readonly), not SQLite, not an evo archive, newer than this evo, not writable.
    """
    with guarded(path):
        if path.is_dir():
            raise ArchiveError(f"archive {path} is a folder", "give the path of a file with --archive")
        connection = _connect_readonly(path) if readonly else _connect_writable(path)
        with contextlib.ExitStack() as refused:
            refused.callback(connection.close)
            connection.execute(f"PRAGMA {CACHE}")
            database = Database(connection)
            _check_kind(database, path)
            if not readonly:
                _prepare(database)
            elif not database.table_names():
                raise ArchiveError(f"archive {path} is empty", "run an experiment first, or give one with --archive")
            elif _pragma(database, "user_version") < VERSION:
                database = _migrated_copy(connection)
            refused.pop_all()
    return database


def in_memory() -> Database:
    """A fresh archive in memory (tests)."""
    database = Database(memory=True)
    _prepare(database)
    return database


def rows(
    database: Database, sql: str, values: Sequence[object] | Mapping[str, object] = (), *, named: bool = False
) -> Iterator[Any]:
    """Rows of a query, one at a time: tuples, or `sqlite3.Row`s where `named`.

    No cursor for `yield from`: a generator that outlives the archive would close it, which is an error then.
    """
    cursor = database.conn.cursor()
    if named:
        cursor.row_factory = sqlite3.Row
    return itertools.chain(cursor.execute(sql, values))


@contextlib.contextmanager
def transaction(database: Database) -> Iterator[None]:
    """All writes of the block or none. Takes the write lock at once, so it cannot fail halfway as busy."""
    connection = database.conn
    connection.execute("BEGIN IMMEDIATE")
    with connection:  # commits, or rolls back
        yield


@contextlib.contextmanager
def snapshot(database: Database) -> Iterator[None]:
    """All reads of the block see the archive as it is at the first of them, whatever a run writes meanwhile."""
    if database.conn.in_transaction:
        yield
        return
    database.conn.execute("BEGIN")
    try:
        yield
    finally:
        database.conn.rollback()


def _connect_writable(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    for place in (path.parent, path) if path.exists() else (path.parent,):
        if not os.access(place, os.W_OK):  # said now, not after the first evaluations
            what = f"the folder {place.resolve()} is" if place != path else "it is"
            raise ArchiveError(
                f"archive {path} cannot be written: {what} read-only for this user",
                "give a writable place with --archive",
            )
    connection = sqlite3.connect(path.resolve().as_uri(), uri=True, timeout=BUSY_S)  # URIs for `attach` as well
    connection.execute("PRAGMA synchronous=NORMAL")  # WAL: a killed process loses nothing, a power cut the last commits
    return connection


def _connect_readonly(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing, not even beside the file (a shipped archive may lie in a read-only folder)."""
    if not path.exists():
        raise ArchiveError(f"archive {path} does not exist", "run an experiment first, or give one with --archive")
    if _journal(path):
        _roll_back(path)
    return sqlite3.connect(readonly_uri(path), uri=True, timeout=BUSY_S)


def _journal(path: Path) -> bool:
    """True where a file that is not in WAL mode (a library) is being changed, or was when a process was killed."""
    journal = path.with_name(path.name + "-journal")
    return journal.exists() and journal.stat().st_size > 0


def _roll_back(path: Path) -> None:
    """Let SQLite undo what a killed process had begun; a change that is under way is left alone.

    Raises:
        ArchiveError: it cannot be undone here.
    """
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode={'rw' if writable else 'ro'}", uri=True,
                                            timeout=BUSY_S)) as opened:  # fmt: skip
        try:
            opened.execute("select 1 from sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            if writable:
                raise
            raise ArchiveError(
                f"archive {path} was being changed when a process was killed, and is read-only for this user",
                f"copy it and {path.name}-journal to a folder you may write to",
            ) from error


def readonly_uri(path: Path) -> str:
    """The file as SQLite opens it without writing, not even beside it."""
    live = path.with_name(path.name + "-wal").exists()
    immutable = not live and not _journal(path) and (not os.access(path.parent, os.W_OK) or _full(path.parent))
    return f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"


def _full(folder: Path) -> bool:
    """True where there is no space for the index that SQLite makes beside a file in WAL mode, also to read it."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize < _INDEX_BYTES


def version_of(path: Path) -> int:
    """Version of the archive at `path` as it is on disk."""
    with guarded(path), contextlib.closing(_connect_readonly(path)) as connection:
        return _pragma(Database(connection), "user_version")


def _migrated_copy(old: sqlite3.Connection) -> Database:
    """An older archive as this version has it, in a nameless temporary file; the old one stays as it is."""
    copy = sqlite3.connect("")
    old.backup(copy)
    old.close()
    database = Database(copy)
    _prepare(database)
    return database


def _check_kind(database: Database, path: Path) -> None:
    """Refuse a database that is not ours or newer than us.

    Raises:
        ArchiveError: with the fix.
    """
    version = _pragma(database, "user_version")
    tables = set(database.table_names())
    if tables and _pragma(database, "application_id") != APPLICATION_ID:
        raise ArchiveError(
            f"{path} is an SQLite database, but not an archive of evo", "choose another file with --archive"
        )
    if version > VERSION:
        raise ArchiveError(
            f"archive {path} was written by a newer evo (archive version {version}, this evo knows {VERSION})",
            "upgrade evo (pip install -U evo-kernels), or choose another archive",
        )


def _prepare(database: Database) -> None:
    """WAL and pending migrations; two processes may do this at once."""
    if _pragma(database, "user_version") == VERSION:
        return
    _switch_to_wal(database)
    with transaction(database):
        if _pragma(database, "user_version") < VERSION:
            migrations.apply(database)
            database.conn.execute(f"PRAGMA application_id={APPLICATION_ID}")
            database.conn.execute(f"PRAGMA user_version={VERSION}")


def _switch_to_wal(database: Database) -> None:
    """WAL, as soon as no other process has a lock: SQLite waits for all else, but not for this."""
    for attempt in range(round(BUSY_S / _PAUSE_S), -1, -1):
        try:
            database.conn.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or attempt == 0:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _pragma(database: Database, name: str) -> int:
    return int(database.conn.execute(f"PRAGMA {name}").fetchone()[0])
