"""Runs as rows and lines for other programs, streamed. SQLite makes the JSON: Python takes three times as long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evo.archive import connection
from evo.archive.store import Archive

EXPORTED = {
    "runs": "select id, name, json(experiment) as experiment, rng_seed, device, gpu, arch, clock, version, commit_id,"
    " json(machine) as machine, status, started_at, ended_at, baseline_us from runs where id in ({}) order by rowid",
    "candidates": "select c.run_id, c.n, c.generation, c.island, c.operator, c.model, c.reason, c.created_at,"
    " (select json_group_array(p.parent_n) from (select parent_n from parents q where q.run_id = c.run_id"
    " and q.n = c.n order by q.position) p) as parents, c.kernel_id, k.source_id, json(k.params) as params, k.format,"
    " o.kind, o.stage, o.code_key, o.reused_from, o.clock, o.time_us, o.fitness_us, r.baseline_us / o.time_us"
    " as speedup, o.registers, o.shared_bytes, o.spill_bytes, o.occupancy, o.compile_s, o.evaluate_s,"
    " json(o.findings) as findings, f.verdict as confirmation, f.speedup as confirmed_speedup, f.low as confirmed_low,"
    " f.high as confirmed_high from candidates c join runs r on r.id = c.run_id"
    " left join kernels k on k.id = c.kernel_id left join outcomes o on o.run_id = c.run_id and o.n = c.n"
    " left join confirmations f on f.run_id = c.run_id and f.n = c.n where c.run_id in ({}) order by r.rowid, c.n",
    "timings": "select run_id, n, subject, position, json(shape) as shape, stage, clock, cold, process, time_us,"
    " low_us, high_us, floor_us, tflops, gb_per_s, limiter, json(samples_us) as samples_us from timings"
    " where run_id in ({}) order by rowid",
    "events": "select run_id, at, kind, json(data) as data from events where run_id in ({}) order by rowid",
}
"""Tables of an export: candidates come with their params, parents and verdict."""
_JSON = frozenset({"experiment", "machine", "parents", "params", "findings", "shape", "samples_us", "data"})
"""Columns that hold JSON: valid and on one line, whatever is in the archive (`json` refuses the rest)."""
_NUMBERS = frozenset(
    {
        "rng_seed", "baseline_us", "n", "generation", "island", "reused_from", "time_us", "fitness_us", "speedup",
        "registers", "shared_bytes", "spill_bytes", "occupancy", "compile_s", "evaluate_s", "confirmed_speedup",
        "confirmed_low", "confirmed_high", "position", "cold", "low_us", "high_us", "floor_us", "tflops", "gb_per_s",
    }
)  # fmt: skip


def columns_of(archive: Archive, table: str) -> tuple[str, ...]:
    """Names of the columns of one of `EXPORTED`."""
    found = archive.database.conn.execute(f"{EXPORTED[table].format('null')} limit 0")
    return tuple(column[0] for column in found.description)


def rows_of(archive: Archive, table: str, run_ids: list[str]) -> Iterator[tuple[Any, ...]]:
    """Rows of one of `EXPORTED`; JSON as text.

    Raises:
        ArchiveError: the archive cannot be read, or has something else where JSON should be.
    """
    with connection.guarded(archive.path):
        yield from connection.rows(archive.database, EXPORTED[table].format(_marks(run_ids)), run_ids)


def json_lines(archive: Archive, table: str, run_ids: list[str]) -> Iterator[str]:
    """Rows of one of `EXPORTED` as JSON objects, a line each. Floats are written so that they read the same.

    Raises:
        ArchiveError: as `rows_of`.
    """
    with connection.guarded(archive.path):
        names = columns_of(archive, table)
        line = "{" + ", ".join(f'"{name}": %s' for name in names) + "}\n"
        values = ", ".join(map(_as_json, names))
        sql = f"select {values} from ({EXPORTED[table].format(_marks(run_ids))})"
        yield from map(line.__mod__, archive.database.conn.execute(sql, run_ids))


def _as_json(name: str) -> str:
    """A column in SQL such that `%s` of its values is JSON. Texts where numbers should be become numbers."""
    if name in _JSON:
        return f"ifnull({name}, 'null')"
    return f"ifnull({name} + 0, 'null')" if name in _NUMBERS else f"json_quote({name})"


def _marks(run_ids: list[str]) -> str:
    return ", ".join("?" * len(run_ids))


def sources_of(archive: Archive, run_ids: list[str]) -> Iterator[tuple[str, str]]:
    """(key, text) of every source of these runs, once each, streamed.

    Raises:
        ArchiveError: the archive cannot be read.
    """
    with connection.guarded(archive.path):
        for row in archive.database.query(
            "select id, text from sources where id in (select k.source_id from kernels k join candidates c"
            f" on c.kernel_id = k.id where c.run_id in ({_marks(run_ids)}))",
            run_ids,
        ):
            yield row["id"], row["text"]
