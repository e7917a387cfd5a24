"""Looking after an archive file: what is in it, whether it is sound, making it small, handing it on."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo.archive import connection
from evo.archive.copying import run_tables
from evo.archive.counts import Counts, counts_of
from evo.archive.merging import Merged, merge
from evo.archive.schema import LATEST_FIRST, VERSION
from evo.archive.store import Archive, source_id
from evo.errors import ArchiveError

DATASETTE = Path(__file__).with_name("datasette.json")
"""Metadata for `datasette`: titles, units, descriptions and canned queries."""

_COUNTED = ("runs", "candidates", "outcomes", "timings", "confirmations", "kernels", "sources", "llm_calls", "events")
_JSON = {
    ("runs", "experiment"): "object", ("runs", "machine"): "object", ("kernels", "params"): "object",
    ("candidates", "inspirations"): "array", ("outcomes", "findings"): "array", ("timings", "shape"): "object",
    ("timings", "samples_us"): "array", ("confirmations", "evidence"): "object", ("events", "data"): "object",
}  # fmt: skip
_TASK = {"op": "text", "dtype": "text", "shapes": "array"}
"""What readers look for in the task of an experiment."""
_OF_EVERY_RUN = ("id", "rng_seed", "device", "gpu", "arch", "clock", "version", "machine")
"""Columns of `runs` that may be null by their definition, not by our way of writing."""
_WORKING_PATH = "runs/archive.db"


@dataclass(frozen=True)
class RunLine:
    """One run in a few numbers (as `counts.Counts`); `speedup` of its fastest valid candidate, None without one."""

    id: str
    status: str
    started_at: str
    gpu: str
    clock: str
    candidates: int
    valid: int
    distinct: int
    confirmed: int
    speedup: float | None


@dataclass(frozen=True)
class Info:
    """What an archive holds: its version, bytes on disk, rows per table, and its runs, the latest first."""

    version: int
    size_bytes: int
    rows: dict[str, int]
    runs: tuple[RunLine, ...]


def info(archive: Archive, latest: int | None = None) -> Info:
    """Count what is there.

    Args:
        archive: open.
        latest: list only so many runs; None lists all.

    Raises:
        ArchiveError: it cannot be read.
    """
    with connection.guarded(archive.path):
        database = archive.database
        rows = {name: int(database.execute(f"select count(*) from {name}").fetchone()[0]) for name in _COUNTED}
        runs = list(
            database.query(
                "select id, status, started_at, gpu, clock,"
                " (select count(*) from confirmations f where f.run_id = r.id and verdict = 'confirmed') as confirmed,"
                " baseline_us / (select min(time_us) from outcomes o where o.run_id = r.id and o.fitness_us ="
                " (select min(fitness_us) from outcomes p where p.run_id = r.id)) as speedup"
                f" from runs r order by {LATEST_FIRST} limit ?",
                [-1 if latest is None else latest],
            )
        )
    found = dict(counts_of(archive, [run["id"] for run in runs]))
    path = Path(archive.path)
    size = sum(file.stat().st_size for file in (path, path.with_name(path.name + "-wal")) if file.exists())
    return Info(VERSION, size, rows, tuple(_run_line(run, found.get(run["id"], Counts())) for run in runs))


def _run_line(run: dict[str, Any], found: Counts) -> RunLine:
    return RunLine(**run, candidates=found.candidates, valid=found.valid, distinct=found.distinct)


def check(archive: Archive) -> Iterator[str]:
    """Problems of an archive, one line each; none when it is sound.

    Looks at SQLite's structures, references, types and JSON columns; recomputes the key of every source and kernel,
    so that a row changed by hand is found.

    Raises:
        ArchiveError: it cannot be read at all.
    """
    with connection.guarded(archive.path):
        yield from archive.check()
        wrong = [*_wrong_types(archive), *_bad_json(archive)]
        yield from wrong
        if wrong:  # what comes now takes them for what they should be
            return
        yield from _incomplete_runs(archive)
        yield from _dangling(archive)
        yield from _out_of_order(archive)
        yield from _odd_content(archive)
        yield from _wrong_keys(archive)


def _wrong_types(archive: Archive) -> Iterator[str]:
    """Texts and blobs where numbers should be, blobs where texts should be: SQLite lets a column hold anything.

    Told by its order of types: null, numbers, texts, blobs; to ask for `typeof` takes three times as long.
    """
    for table in (*run_tables(archive.database), "runs", "kernels", "sources"):
        columns = [(row["name"], row["type"]) for row in archive.database.query(f"pragma table_info({table})")]
        wrong = {name: f"{name} >= " + ("x''" if kind == "TEXT" else "''") for name, kind in columns}
        named = ", ".join(f"iif({test}, '{name} is ' || typeof({name}), null)" for name, test in wrong.items())
        sql = f"select rowid, coalesce({named}) as problem from {table} where {' or '.join(wrong.values())} limit 20"
        yield from (f"{table}: row {row['rowid']}: {row['problem']}" for row in archive.database.query(sql))


def _incomplete_runs(archive: Archive) -> Iterator[str]:
    """Runs that lack what every run is archived with."""
    for column in _OF_EVERY_RUN:
        for row in archive.database.query(f"select rowid from runs where {column} is null limit 20"):
            yield f"runs: row {row['rowid']}: {column} is missing"
    for column in ("started_at", "ended_at"):
        sql = f"select rowid from runs where {column} is not null and julianday({column}) is null limit 20"
        yield from (f"runs: row {row['rowid']}: {column} is no moment" for row in archive.database.query(sql))


def _out_of_order(archive: Archive) -> Iterator[str]:
    """Children that come before a parent: such a genealogy may have no end."""
    sql = "select run_id, n, parent_n from parents where parent_run_id = run_id and parent_n >= n limit 20"
    for row in archive.database.query(sql):
        yield f"parents: run {row['run_id']}: {row['n']} comes before its parent {row['parent_n']}"


def _dangling(archive: Archive) -> Iterator[str]:
    """Rows that speak of a candidate that is not there."""
    for table, n in (
        ("outcomes", "n"),
        ("parents", "n"),
        ("parents", "parent_n"),
        ("confirmations", "n"),
        ("timings", "n"),
    ):
        run = "parent_run_id" if n == "parent_n" else "run_id"
        rows = archive.database.query(
            f"select distinct t.{run} as run, t.{n} as n from {table} t where t.{n} is not null and not exists"
            f" (select 1 from candidates c where c.run_id = t.{run} and c.n = t.{n}) limit 20"
        )
        yield from (f"{table}: run {row['run']} has no candidate {row['n']}" for row in rows)


def _bad_json(archive: Archive) -> Iterator[str]:
    """JSON columns that hold something else, or JSON of another kind than readers expect."""
    for (table, column), kind in _JSON.items():
        wrong = f"iif(json_valid({column}), json_type({column}) is not '{kind}', 1)"
        sql = (
            f"select rowid, json_valid({column}) as valid from {table} where {column} is not null and {wrong} limit 20"
        )
        for row in archive.database.query(sql):
            yield f"{table}: row {row['rowid']}: {column} is {f'no {kind}' if row['valid'] else 'not JSON'}"


def _odd_content(archive: Archive) -> Iterator[str]:
    """JSON that lacks what readers look for in it, and times of nobody. All of it is JSON."""
    findings = "exists (select 1 from json_each(findings) where type <> 'object')"
    task = " or ".join(f"json_type(experiment, '$.task.{name}') is not '{kind}'" for name, kind in _TASK.items())
    for table, wrong, problem in (
        ("outcomes", f"findings <> '[]' and {findings}", "a finding is no object"),
        ("runs", f"{task} or json_array_length(experiment, '$.task.shapes') = 0", "its experiment has no task"),
        ("timings", "n is null and subject in ('candidate', 'confirmation')", "a time of no candidate"),
        ("timings", "time_us <= 0 or low_us > time_us or high_us < time_us", "a time outside its bounds"),
        ("outcomes", "time_us <= 0 or fitness_us <= 0 or time_us = 9e999 or fitness_us = 9e999", "a time that is none"),
        ("runs", "baseline_us <= 0", "a time that is none"),
    ):
        for row in archive.database.query(f"select rowid from {table} where {wrong} limit 20"):
            yield f"{table}: row {row['rowid']}: {problem}"


def _wrong_keys(archive: Archive) -> Iterator[str]:
    """Sources and kernels whose key is not that of their content."""
    conn = archive.database.conn
    kernels = conn.execute("select source_id, id, params from kernels order by source_id")
    waiting = next(kernels, None)
    for key, text in conn.execute("select id, text from sources order by id"):
        if source_id(text) != key:
            yield f"sources: {key[:12]} is not the key of its text"
        state = hashlib.sha256(f"[{json.dumps(text)}, ".encode())  # see fitness.kernel.Kernel.id
        while waiting is not None and waiting[0] < key:  # of no source: `check` says so
            waiting = next(kernels, None)
        while waiting is not None and waiting[0] == key:
            own = state.copy()
            own.update(_params_key(waiting[2]))
            if own.hexdigest() != waiting[1]:
                yield f"kernels: {waiting[1][:12]} is not the key of its source and params"
            waiting = next(kernels, None)


@functools.lru_cache(1024)
def _params_key(params: str) -> bytes:
    """Params as the key of a kernel has them, empty where they are none; many kernels share theirs."""
    try:
        return f"{json.dumps(sorted(json.loads(params).items()))}]".encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return b""


def vacuum(archive: Archive) -> tuple[int, int]:
    """Drop kernels no candidate has, merge the full-text index, give free pages back.

    Returns:
        Bytes before and after.

    Raises:
        ArchiveError: another process works on it, or the disk is full.
    """
    path = Path(archive.path)
    with connection.guarded(archive.path):
        conn = archive.database.conn
        conn.execute("pragma wal_checkpoint(truncate)").fetchall()
        before = path.stat().st_size
        with connection.transaction(archive.database):
            conn.execute(
                "delete from kernels where id not in (select kernel_id from candidates where kernel_id not null)"
            )
            conn.execute("delete from sources where id not in (select source_id from kernels)")
            for name in ("candidates_fts", "sources_fts"):
                conn.execute(f"insert into {name} ({name}) values ('optimize')")
        conn.execute("vacuum")
        conn.execute("pragma optimize").fetchall()
        conn.execute("pragma wal_checkpoint(truncate)").fetchall()
    return before, path.stat().st_size


def promote(source: Archive, run_ids: list[str], target: Path) -> Merged:
    """Add verified runs to a library of experience: one small file that can lie in a read-only folder.

    Where the run was archived (`[archive] path`) is not copied, nor are errors that ended one of its sessions: their
    tracebacks name places of that machine.

    Raises:
        ArchiveError: a run has no confirmed candidate, or a file cannot be read or written.
    """
    for run_id in run_ids:
        if not any(one.verdict == "confirmed" for one in source.confirmations(run_id).values()):
            raise ArchiveError(f"run {run_id} has no confirmed candidate", "only verified runs are promoted; resume it")
    with Archive.open(target) as library:
        before = int(library.database.execute("select count(*) from candidates").fetchone()[0])
        merged = merge(library, Path(source.path), run_ids)
        with connection.guarded(target), connection.transaction(library.database):
            library.database.execute(
                "update runs set experiment = json_set(experiment, '$.archive.path', ?)"
                " where json_extract(experiment, '$.archive.path') is not null",
                [_WORKING_PATH],
            )
            library.database.execute("delete from events where kind = 'error'")
        if merged.candidates <= before:  # otherwise its indexes are new, and nothing is to be had
            vacuum(library)
        with connection.guarded(target):
            mode = library.database.execute("pragma journal_mode=delete").fetchone()[0]
    if mode != "delete":
        raise ArchiveError(f"archive {target} is in use by another process", "close it there and promote again")
    return merged
