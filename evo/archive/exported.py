"""Runs as lines for other programs, streamed. SQLite makes them: Python takes three times as long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic_core import to_json

from evo.archive import codec, connection
from evo.archive.store import Archive

_SOME = 500


@dataclass(frozen=True)
class Table:
    """What an export has of a table.

    Attributes:
        columns: name -> SQL.
        source: from where, in which order.
        integers, reals, jsons: names of the columns that hold such; texts are in the others. JSON is valid and on one
            line, whatever is in the archive (`json` refuses the rest).
    """

    columns: dict[str, str]
    source: str
    integers: frozenset[str]
    reals: frozenset[str]
    jsons: frozenset[str]


_ASKED = "+r.id in (select value from json_each(?))"
"""One of the runs asked for; the + keeps SQLite from sorting all rows by run once more."""


def _table(source: str, *, of: str = "", **columns: str) -> Table:
    """Columns as "kind", or "kind SQL" where it is not the name after `of`; kinds are text, integer, real, json."""
    kinds, sql = {}, {}
    for name, told in columns.items():
        kinds[name], _, written = told.partition(" ")
        sql[name] = written or f"{of}{name}"
    named = {kind: frozenset(name for name in kinds if kinds[name] == kind) for kind in ("integer", "real", "json")}
    return Table(sql, source, named["integer"], named["real"], named["json"])


EXPORTED = {
    "runs": _table(
        f"from runs r where {_ASKED} order by r.rowid", of="r.",
        id="text", name="text", experiment="json", rng_seed="integer", device="text", gpu="text", arch="text",
        clock="text", version="text", commit_id="text", machine="json", status="text", started_at="text",
        ended_at="text", baseline_us="real",
    ),
    "candidates": _table(
        "from runs r cross join candidates c on c.run_id = r.id left join kernels k on k.id = c.kernel_id"
        " left join outcomes o on o.run_id = c.run_id and o.n = c.n"
        " left join confirmations f on f.run_id = c.run_id and f.n = c.n "
        f"where {_ASKED} order by r.rowid, c.n",
        of="o.",
        run_id="text c.run_id", n="integer c.n", generation="integer c.generation", island="integer c.island",
        operator="text c.operator", model="text c.model", reason="text c.reason", created_at="text c.created_at",
        parents="json (select json_group_array(p.parent_n) from (select parent_n from parents q"
        " where q.run_id = c.run_id and q.n = c.n order by q.position) p)",
        kernel_id="text c.kernel_id", source_id="text k.source_id", params="json k.params", format="text k.format",
        kind="text", stage="text", code_key="text", reused_from="integer", clock="text",
        time_us="real", fitness_us="real", speedup="real r.baseline_us / o.time_us",
        registers="integer", shared_bytes="integer", spill_bytes="integer", occupancy="real",
        compile_s="real", evaluate_s="real", findings="json", confirmation="text f.verdict",
        confirmed_speedup="real f.speedup", confirmed_low="real f.low", confirmed_high="real f.high",
    ),
    "timings": _table(
        f"from runs r cross join timings t on t.run_id = r.id where {_ASKED} order by r.rowid, t.n, t.rowid",
        of="t.",
        run_id="text", n="integer", subject="text", position="integer", shape="json", stage="text", clock="text",
        cold="integer", process="text", time_us="real", low_us="real", high_us="real", floor_us="real", tflops="real",
        gb_per_s="real", limiter="text", samples_us="json",
    ),
    "events": _table(
        f"from runs r cross join events e on e.run_id = r.id where {_ASKED} order by r.rowid, e.rowid", of="e.",
        run_id="text", at="text", kind="text", data="json",
    ),
}  # fmt: skip
"""Tables of an export: candidates come with their params, parents and verdict; times of baselines have no n."""


def lines_of(archive: Archive, table: str, run_ids: list[str], kind: str) -> Iterator[list[str]]:
    """Rows of one of `EXPORTED` as lines, some hundred at a time: first the columns that are no reals, then those.

    SQLite writes a row but for its reals, which it would give fifteen digits; those are written a column at a time, so
    that they read the same. Texts where numbers should be become numbers, what is not finite null (empty in CSV).

    Args:
        archive: open.
        table: which.
        run_ids: of the runs.
        kind: "jsonl", JSON objects; or "csv", after a line of names, with JSON as text.

    Raises:
        ArchiveError: the archive cannot be read, or has something else where JSON should be.
    """
    what = EXPORTED[table]
    reals = [name for name in what.columns if name in what.reals]
    others = [name for name in what.columns if name not in what.reals]
    if kind == "csv":
        yield [",".join(others + reals) + "\n"]
        row, line = _csv_row(what, others), "%s" + ",%s" * len(reals) + "\n"
    else:
        row = ", ".join(f"'{name}', {_sql(what, name)}" for name in others)
        row, line = f"json_object({row})", "%s" + "".join(f',"{name}":%s' for name in reals) + "}\n"
    sql = f"select {', '.join([row, *(_sql(what, name) for name in reals)])} {what.source}"
    with connection.guarded(archive.path):
        rows = archive.database.conn.execute(sql, _bound(run_ids))
        while some := rows.fetchmany(_SOME):
            texts, *numbers = zip(*some, strict=True)
            begun = [text[:-1] for text in texts] if kind == "jsonl" else texts  # the brace comes after the reals
            yield list(map(line.__mod__, zip(begun, *(_written(column, kind) for column in numbers), strict=True)))


def _sql(table: Table, name: str) -> str:
    sql = table.columns[name]
    if name in table.jsons:
        return f"json({sql})"
    if name in table.integers:
        return f"{sql} + 0 * {sql}"  # null where it is not finite
    return f"{sql} + 0" if name in table.reals else sql


def _csv_row(table: Table, names: list[str]) -> str:
    """Texts are quoted, numbers are not."""
    marks = ",".join("%s" if name in table.integers else '"%w"' for name in names)
    values = ", ".join(f"ifnull({_sql(table, name)}, '')" for name in names)
    return f"printf('{marks}', {values})"


def _written(numbers: tuple[float | None, ...], kind: str) -> list[str]:
    """Numbers as they read the same, an eighth of the time `repr` takes."""
    text = to_json(numbers, inf_nan_mode="null")[1:-1].decode()
    return (text if kind == "jsonl" else text.replace("null", "")).split(",")


def _bound(run_ids: list[str]) -> list[str]:
    """One value for the runs, however many there are."""
    return [codec.to_json(run_ids)]


def sources_of(archive: Archive, run_ids: list[str]) -> Iterator[tuple[str, str]]:
    """(key, text) of every source of these runs, once each, streamed.

    Raises:
        ArchiveError: the archive cannot be read.
    """
    with connection.guarded(archive.path):
        yield from connection.rows(
            archive.database,
            "select id, text from sources where id in (select k.source_id from kernels k join candidates c"
            " on c.kernel_id = k.id where c.run_id in (select value from json_each(?)))",
            _bound(run_ids),
        )
