"""Rows of runs from one archive into another: by one statement a table, however many rows.

A hundred thousand candidates take a second; half of it goes to indexes, which cost twice that when each row is put
into them by itself. Where more comes than there is, they are made anew at the end. All of it is part of the transaction
of the caller: a merge that is broken off leaves the tables and their indexes as they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sqlite_utils import Database

from evo.archive import codec

_SEARCHED = {"candidates": "reason", "sources": "text"}
"""Table -> its column that has a full-text index, which a trigger fills."""


def copy(database: Database, ids: dict[str, str], fresh: set[str]) -> None:
    """Add to `main` every row of runs of the schema `src` that it lacks.

    Args:
        database: inside a transaction.
        ids: of the runs: in `src` -> in `main`.
        fresh: those of `src` that `main` does not have, so that no row of theirs is there.
    """
    database.execute("create temp table id_map (old text primary key, new text not null, fresh integer not null)")
    database.conn.executemany("insert into id_map values (?, ?, ?)", [(old, ids[old], old in fresh) for old in ids])
    asked, new, there, here = _candidates(database)
    with _indexes_anew(database) if new > here else contextlib.nullcontext():
        _copy_kernels(database, everything=asked == there)
        _copy_runs(database)
        for table in run_tables(database):
            _copy_table(database, table, scan=2 * asked > there)
    database.execute("drop table id_map")


def run_tables(database: Database) -> list[str]:
    """Tables whose rows belong to runs: those with a column `run_id`."""
    names = [row["name"] for row in database.query("select name from main.sqlite_master where type = 'table'")]
    return [name for name in names if "run_id" in _columns(database, name)]


def _columns(database: Database, table: str) -> list[str]:
    return [row["name"] for row in database.query(f"pragma main.table_info({table})")]


def _candidates(database: Database) -> tuple[int, ...]:
    """How many candidates there are: of the runs asked for, of those of them that are new, in `src`, in `main`."""
    of = "select count(*) from id_map m cross join src.candidates c on c.run_id = m.old"
    sql = f"select ({of}), ({of} where m.fresh), (select count(*) from src.candidates), count(*) from main.candidates"
    return tuple(database.execute(sql).fetchone())


@contextlib.contextmanager
def _indexes_anew(database: Database) -> Iterator[None]:
    """No indexes in the block but those that keep keys unique; afterwards as they were, with what the block added."""
    triggers = [f"{table}_ai" for table in _SEARCHED]
    parts = database.execute(
        "select type, name, sql from main.sqlite_master where sql is not null and (type = 'trigger' and name in (?, ?)"
        " or type = 'index' and tbl_name in (select value from json_each(?)))",
        [*triggers, codec.to_json([*run_tables(database), "kernels"])],
    ).fetchall()
    before = {table: _last_row(database, table) for table in _SEARCHED}
    for kind, name, _ in parts:
        database.execute(f'drop {kind} main."{name}"')
    yield
    for table, column in _SEARCHED.items():
        database.execute(
            f"insert into main.{table}_fts (rowid, {column}) select rowid, {column} from main.{table} where rowid > ?",
            [before[table]],
        )
    for _, _, sql in parts:
        database.execute(sql)


def _last_row(database: Database, table: str) -> int:
    """The largest rowid; SQLite gives larger ones to rows that come."""
    return int(database.execute(f"select coalesce(max(rowid), 0) from main.{table}").fetchone()[0])


def _copy_kernels(database: Database, *, everything: bool) -> None:
    """Kernels and sources of the runs, or all there are."""
    used = "select c.kernel_id from id_map m cross join src.candidates c on c.run_id = m.old"
    for table, wanted in (("kernels", used), ("sources", f"select source_id from src.kernels where id in ({used})")):
        columns = ", ".join(_columns(database, table))
        where = "" if everything else f" where id in ({wanted})"
        database.execute(f"insert or ignore into main.{table} ({columns}) select {columns} from src.{table}{where}")


def _copy_runs(database: Database) -> None:
    """The runs themselves; of two copies the one with more verdicts says how the run stands."""
    columns = _columns(database, "runs")
    chosen = ", ".join("m.new" if column == "id" else f"r.{column}" for column in columns)
    database.execute(
        f"insert or ignore into main.runs ({', '.join(columns)}) select {chosen} from src.runs r"
        " join id_map m on m.old = r.id order by r.rowid"
    )
    count = "(select count(*) from {}.outcomes o where o.run_id = {})"
    further = f"not m.fresh and {count.format('src', 'm.old')} > {count.format('main', 'm.new')}"
    for column in ("status", "ended_at", "experiment", "baseline_us"):
        database.execute(
            f"update main.runs set {column} = (select r.{column} from src.runs r join id_map m on m.old = r.id"
            f" where m.new = main.runs.id) where id in (select m.new from id_map m where {further})"
        )


def _copy_table(database: Database, table: str, *, scan: bool) -> None:
    """Rows of one table that belong to runs, in the order in which they were written.

    `scan`: the table is read from one end to the other, which is faster than by its index where most of it is wanted.
    """
    info = list(database.query(f"pragma main.table_info({table})"))
    serial = {row["name"] for row in info if row["pk"] == 1 and row["type"] == "INTEGER" and row["name"] == "id"}
    columns = [row["name"] for row in info if row["name"] not in serial]
    keys = [row["name"] for row in info if row["pk"] and row["name"] not in serial]
    mapped = {column: f"a.{column}" for column in columns} | {"run_id": "m.new"}
    if "parent_run_id" in columns:
        mapped["parent_run_id"] = (
            "iif(a.parent_run_id = m.old, m.new,"
            " coalesce((select new from id_map where old = a.parent_run_id), a.parent_run_id))"
        )
    there = " and ".join(f"x.{column} is {mapped[column]}" for column in keys or columns)
    join = f"src.{table} a cross join id_map m" if scan else f"id_map m cross join src.{table} a"
    database.execute(
        f"insert into main.{table} ({', '.join(columns)}) select {', '.join(mapped.values())}"
        f" from {join} on a.run_id = m.old"
        f" where m.fresh or not exists (select 1 from main.{table} x where {there}) order by a.rowid"
    )
