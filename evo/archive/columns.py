"""A run as columns: of every candidate what is asked for and no more, as tuples; a hundred thousand cost little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evo.archive import connection
from evo.archive.facts import ROOTS, WALK, guarded
from evo.archive.store import Archive

_OUTCOME, _PARENT, _BEFORE = "outcome", "parent", "before"
_JOINS = {
    _OUTCOME: " left join outcomes o on o.run_id = c.run_id and o.n = c.n",
    _PARENT: " left join parents p on p.run_id = c.run_id and p.n = c.n and p.position = 0 and p.parent_n < c.n",
    _BEFORE: " left join outcomes a on a.run_id = p.parent_run_id and a.n = p.parent_n",
}
_COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{name: (f"c.{name}", ()) for name in ("n", "generation", "operator", "model", "kernel_id")},
    **{
        name: (f"o.{name}", (_OUTCOME,))
        for name in ("kind", "stage", "reused_from", "time_us", "fitness_us", "registers", "judged_at")
    },
    "judged_s": ("coalesce(o.compile_s, 0.0) + coalesce(o.evaluate_s, 0.0)", (_OUTCOME,)),
    "parent": ("p.parent_n", (_PARENT,)),
    "parent_us": ("a.time_us", (_PARENT, _BEFORE)),
}
"""Name -> what it is in SQL, and the tables that takes. Parents are the first ones, moments ISO 8601."""


@guarded
def steps(archive: Archive, run_id: str, *names: str, judged: bool = False) -> Iterator[tuple[Any, ...]]:
    """Values of `names` for every candidate and refusal of a run, in order of n.

    Args:
        archive: open.
        run_id: the run.
        names: keys of `_COLUMNS`: "n", "generation", "operator", "model", "kernel_id", "kind", "stage", "reused_from",
            "time_us", "fitness_us", "registers", "judged_at", "judged_s", "parent", "parent_us".
        judged: only candidates that have a verdict, in the order in which they got it.
    """
    tables = {table for name in names for table in _COLUMNS[name][1]} | ({_OUTCOME} if judged else set())
    joins = "".join(join for table, join in _JOINS.items() if table in tables)
    order = " and o.judged_at is not null order by o.judged_at, c.n" if judged else " order by c.n"
    sql = f"select {', '.join(_COLUMNS[name][0] for name in names)} from candidates c{joins} where c.run_id = ?{order}"
    yield from connection.rows(archive.database, sql, [run_id])


_SKETCH = "c.n, c.generation, c.island, c.operator, c.model, c.reason, c.kernel_id is null, o.kind, o.stage, o.time_us"
Sketched = tuple[Any, ...]
"""Values of `_SKETCH`: n, generation, island, operator, model, reason, refused (0, 1), kind, stage, time_us."""


@guarded
def sketches(archive: Archive, run_id: str) -> Iterator[tuple[Sketched, tuple[int, ...]]]:
    """(values of `_SKETCH`, parents in the order the operator had them) of every candidate, in order of n."""
    conn = archive.database.conn
    sql = f"select {_SKETCH} from candidates c{_JOINS[_OUTCOME]} where c.run_id = ? order by c.n"
    known = conn.execute("select n, parent_n from parents where run_id = ? order by n, position", [run_id])
    parent = next(known, None)
    for row in conn.execute(sql, [run_id]):
        mine: tuple[int, ...] = ()
        while parent is not None and parent[0] <= row[0]:
            if parent[0] == row[0]:
                mine += (parent[1],)
            parent = next(known, None)
        yield row, mine


@guarded
def outline(archive: Archive, run_id: str, of: int | None = None) -> Iterator[tuple[Sketched, int, bool]]:
    """(values of `_SKETCH`, depth, last of its siblings) in the order of `facts.descent`."""
    sql = WALK.format(ROOTS if of is None else "select :of", f"{_SKETCH}, walk.depth, walk.last") + _JOINS[_OUTCOME]
    for *row, depth, last in archive.database.conn.execute(sql, {"run": run_id, "of": of}):
        yield tuple(row), depth, bool(last)


@guarded
def rates(archive: Archive, run_id: str) -> Iterator[tuple[int, int, float, float]]:
    """(n, position of the shape, FLOP per byte, TFLOP/s) of every time of a run's valid candidates, by n and shape."""
    yield from connection.rows(
        archive.database,
        "select t.n, t.position, t.tflops * 1e3 / t.gb_per_s, t.tflops from timings t"
        " join outcomes o on o.run_id = t.run_id and o.n = t.n where t.run_id = ? and t.subject = 'candidate'"
        " and o.fitness_us is not null order by t.n, t.position",
        [run_id],
    )


@guarded
def pairs(archive: Archive, run_id: str, x: int, y: int) -> Iterator[tuple[int, float, float]]:
    """(n, time at shape `x`, time at shape `y`) of a run's valid candidates, microseconds, in order of n."""
    at = "t.run_id = :run and t.n = o.n and t.subject = 'candidate' and t.position = "
    yield from connection.rows(
        archive.database,
        f"select o.n, (select t.time_us from timings t where {at} :x), (select t.time_us from timings t where {at} :y)"
        " from outcomes o where o.run_id = :run and o.fitness_us is not null order by o.n",
        {"run": run_id, "x": x, "y": y},
    )
