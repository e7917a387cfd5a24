"""Reading a run in part: rows of candidates without their sources, streamed, so that memory stays flat."""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from evo.archive import codec, connection
from evo.archive.store import Archive
from evo.errors import ArchiveError
from fitness.kernel import Kernel, KernelError, parse_kernel
from fitness.outcome import Outcome, Timing

Row = sqlite3.Row
"""A row by names of columns: `row["n"]`. A dictionary for each would cost more than reading it."""

P = ParamSpec("P")
T = TypeVar("T")

_PARENTS = (
    "(select json_group_array(p.parent_n) from (select parent_n from parents q where q.run_id = c.run_id"
    " and q.n = c.n order by q.position) p)"
)
_COLUMNS = (
    "c.run_id, c.n, c.generation, c.island, c.operator, c.inspirations, c.model, c.reason, c.kernel_id,"
    " c.created_at, {} as parents, o.kind, o.stage, o.reused_from, o.time_us, o.fitness_us,"
    " o.registers, o.shared_bytes, o.spill_bytes, o.occupancy, o.compile_s, o.evaluate_s, o.judged_at,"
    " f.verdict, f.speedup as confirmed_speedup, f.low, f.high, f.evidence"
)
_VERDICTS = (
    " left join outcomes o on o.run_id = c.run_id and o.n = c.n"
    " left join confirmations f on f.run_id = c.run_id and f.n = c.n"
)
_CANDIDATES = f"select {_COLUMNS.format(_PARENTS)} from candidates c{_VERDICTS} where c.run_id = :run"
# SQLite takes the deepest of what is open first, so that its queue holds siblings only; "limit -1" and a cross join
# keep it from dropping that order, a + from an index that would read the whole run for each candidate. Children come
# after their parents; in an archive made by hand they need not, and a circle of them would have no end.
WALK = (
    "with recursive roots(n) as ({}), walk(n, depth, last) as (select n, 0, n = (select max(n) from roots) from roots"
    " union all select p.n, walk.depth + 1, not exists (select 1 from parents q where q.parent_run_id = :run"
    " and q.parent_n = walk.n and +q.run_id = :run and q.position = 0 and q.n > p.n) from walk join parents p"
    " on p.parent_run_id = :run and p.parent_n = walk.n and +p.run_id = :run and p.position = 0 and p.n > walk.n"
    " order by 2 desc, 1 limit -1) select {} from walk cross join candidates c on c.run_id = :run and c.n = walk.n"
)
"""A walk down first parents; to be filled in: where it begins, and what is selected."""
ROOTS = (
    "select c.n from candidates c where c.run_id = :run and not exists"
    " (select 1 from parents p where p.run_id = c.run_id and p.n = c.n and p.position = 0)"
)
_LINE = (
    "with recursive line(n) as (select :n union select p.parent_n from line join parents p"
    " on p.run_id = :run and p.n = line.n {}) select n from line order by n"
)


def guarded(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """SQLite errors and damaged rows of a reader as `ArchiveError`."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        archive = args[0]
        assert isinstance(archive, Archive)
        with connection.guarded(archive.path):
            try:
                yield from function(*args, **kwargs)
            except (codec.DamagedRowError, KernelError) as error:
                raise ArchiveError(f"archive {archive.path} has a damaged row ({error})", "restore a copy") from error

    return wrapper


def _rows(archive: Archive, sql: str, values: Mapping[str, object] | Sequence[object] = ()) -> Iterator[Row]:
    """Rows of a query, one at a time."""
    return connection.rows(archive.database, sql, values, named=True)


@guarded
def candidates(archive: Archive, run_id: str, only: Iterable[int] | None = None) -> Iterator[Row]:
    """Candidates and refusals of a run in order of n (or those numbered so), with parents, verdict and means."""
    where, numbers = _among("c.n", only)
    yield from _rows(archive, f"{_CANDIDATES}{where} order by c.n", {"run": run_id} | numbers)


@guarded
def descent(archive: Archive, run_id: str, of: int | None = None) -> Iterator[Row]:
    """Candidates as `candidates` has them, with depth and last, each before those it is the first parent of.

    Their `parents` are null: collecting those takes half of the time.

    Args:
        archive: open.
        run_id: the run.
        of: begin there; None begins with everything that has no parent.
    """
    selected = f"{_COLUMNS.format('null')}, walk.depth, walk.last"
    sql = WALK.format(ROOTS if of is None else "select :of", selected) + _VERDICTS
    yield from _rows(archive, sql, {"run": run_id, "of": of})


def _among(column: str, only: Iterable[int] | None) -> tuple[str, dict[str, str]]:
    """A condition that `column` is one of some numbers, and the values it is bound to; none for None."""
    if only is None:
        return "", {}
    return f" and {column} in (select value from json_each(:only))", {"only": json.dumps(sorted(only))}


@guarded
def parents(archive: Archive, run_id: str, n: int) -> Iterator[int]:
    """Parents of a candidate, in the order the operator had them."""
    sql = "select parent_n from parents where run_id = ? and n = ? order by position"
    yield from (row["parent_n"] for row in _rows(archive, sql, [run_id, n]))


@guarded
def children(archive: Archive, run_id: str, n: int) -> Iterator[int]:
    """Candidates that have n among their parents, in order of n."""
    sql = "select distinct n from parents where parent_run_id = ? and run_id = ? and parent_n = ? order by n"
    yield from (row["n"] for row in _rows(archive, sql, [run_id, run_id, n]))


@guarded
def first_parents(archive: Archive, run_id: str) -> Iterator[tuple[int, int | None]]:
    """(n, first parent or None) of every candidate, in order of n."""
    sql = (
        "select c.n, p.parent_n from candidates c left join parents p on p.run_id = c.run_id and p.n = c.n"
        " and p.position = 0 and p.parent_n < c.n where c.run_id = ? order by c.n"
    )
    yield from ((row["n"], row["parent_n"]) for row in _rows(archive, sql, [run_id]))


@guarded
def line(archive: Archive, run_id: str, n: int, *, all_parents: bool) -> Iterator[int]:
    """A candidate and what it descends from, by first or by all parents, in order of n."""
    sql = _LINE.format("" if all_parents else "and p.position = 0")
    yield from (row["n"] for row in _rows(archive, sql, {"run": run_id, "n": n}))


@guarded
def fastest(archive: Archive, run_id: str, *, confirmed: bool, limit: int) -> Iterator[int]:
    """The fastest valid candidates that own their verdict, or those of them that are confirmed."""
    sql = (
        "select o.n from outcomes o where o.run_id = :run and o.fitness_us is not null and o.reused_from is null"
        + (
            " and o.n in (select n from confirmations where run_id = :run and verdict = 'confirmed')"
            if confirmed
            else ""
        )
        + " order by o.fitness_us, o.n limit :limit"
    )
    yield from (row["n"] for row in _rows(archive, sql, {"run": run_id, "limit": limit}))


@guarded
def _kernel_rows(archive: Archive, kernel_id: str) -> Iterator[Kernel]:
    sql = "select s.text, k.params from kernels k join sources s on s.id = k.source_id where k.id = ?"
    for row in _rows(archive, sql, [kernel_id]):
        yield parse_kernel(row["text"], path=f"kernel {kernel_id[:12]}", params=codec.from_json(row["params"]))


def kernel(archive: Archive, kernel_id: str) -> Kernel:
    """One kernel.

    Raises:
        ArchiveError: it is not there, or no kernel file.
    """
    for found in _kernel_rows(archive, kernel_id):
        return found
    raise ArchiveError(f"archive {archive.path} has no kernel {kernel_id[:12]}", "see evo archive check")


@guarded
def _outcome_rows(archive: Archive, run_id: str, n: int) -> Iterator[Outcome]:
    keys = {"run": run_id, "n": n}
    sql = "select * from timings where run_id = :run and n = :n and subject = 'candidate' order by position"
    timings = [codec.timing_of(dict(row)) for row in _rows(archive, sql, keys)]
    for row in _rows(archive, "select * from outcomes where run_id = :run and n = :n", keys):
        yield codec.outcome_of(dict(row), timings)


def outcome(archive: Archive, run_id: str, n: int) -> Outcome | None:
    """The verdict on one candidate with its times, or None."""
    return next(_outcome_rows(archive, run_id, n), None)


@guarded
def timings(archive: Archive, run_id: str, only: Iterable[int] | None = None) -> Iterator[Row]:
    """Times of a run's valid candidates (or of those numbered so), with their shape, rates and limiter."""
    where, numbers = _among("t.n", only)
    yield from _rows(
        archive,
        "select t.n, t.position, t.shape, t.time_us, t.low_us, t.high_us, t.floor_us, t.tflops, t.gb_per_s, t.limiter"
        " from timings t join outcomes o on o.run_id = t.run_id and o.n = t.n"
        f" where t.run_id = :run and t.subject = 'candidate' and o.fitness_us is not null{where}"
        " order by t.n, t.position",
        {"run": run_id} | numbers,
    )


@guarded
def baselines(archive: Archive, run_id: str) -> Iterator[tuple[str, tuple[Timing, ...]]]:
    """(name, times in the order of the shapes) of every baseline of a run, in the order they were timed."""
    found: dict[str, list[Timing]] = {}
    sql = "select * from timings where run_id = ? and n is null order by rowid"
    for row in _rows(archive, sql, [run_id]):
        found.setdefault(row["subject"], []).append(codec.timing_of(dict(row)))
    yield from ((name, tuple(times)) for name, times in found.items())


@guarded
def seeds(archive: Archive, run_id: str) -> Iterator[Row]:
    """The starting kernels: n, reason, time_us and fitness_us of their verdict."""
    yield from _rows(
        archive,
        "select c.n, c.reason, o.time_us, o.fitness_us from candidates c left join outcomes o on o.run_id = c.run_id"
        " and o.n = c.n where c.run_id = ? and c.generation = 0 and c.operator = 'seed' order by c.n",
        [run_id],
    )


@guarded
def _numbers(archive: Archive, sql: str, run_id: str) -> Iterator[float | None]:
    yield from (row[0] for row in _rows(archive, sql, [run_id]))


def baseline_us(archive: Archive, run_id: str) -> float | None:
    """Geometric mean of the baseline's times, microseconds; None where not yet timed."""
    return next(_numbers(archive, "select baseline_us from runs where id = ?", run_id), None)


def last(archive: Archive, run_id: str) -> int | None:
    """The largest number of a candidate, None without any."""
    found = next(_numbers(archive, "select max(n) from candidates where run_id = ?", run_id), None)
    return None if found is None else int(found)


@guarded
def failures(archive: Archive, run_id: str) -> Iterator[Row]:
    """Where candidates failed: stage, kind, finding, how many, the first of them; the commonest first."""
    yield from _rows(
        archive, "select * from failures_by_stage where run_id = ? order by candidates desc, first_n", [run_id]
    )


@guarded
def findings(
    archive: Archive, run_id: str, only: Iterable[int] | None = None
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """(n, findings as the archive has them) of every candidate that has any (of those numbered so), in order of n."""
    where, numbers = _among("n", only)
    sql = f"select n, findings from outcomes where run_id = :run and findings <> '[]'{where} order by n"
    rows = _rows(archive, sql, {"run": run_id} | numbers)
    yield from ((row["n"], codec.from_json(row["findings"])) for row in rows)


@guarded
def genomes(archive: Archive, run_id: str, only: Iterable[int] | None = None) -> Iterator[Row]:
    """Source and params of every candidate (or of those numbered so): n, source_id, params (JSON), in order of n."""
    where, numbers = _among("c.n", only)
    yield from _rows(
        archive,
        "select c.n, k.source_id, k.params from candidates c join kernels k on k.id = c.kernel_id"
        f" where c.run_id = :run{where} order by c.n",
        {"run": run_id} | numbers,
    )


@guarded
def sources(archive: Archive, source_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(key, text) of these sources, one at a time, in the order asked for."""
    for source_id in source_ids:
        for row in _rows(archive, "select id, text from sources where id = ?", [source_id]):
            yield row["id"], row["text"]


def seconds(archive: Archive, run_id: str) -> tuple[float, float]:
    """Seconds all candidates of a run took to compile, and to check and time."""
    sums = [f"select coalesce(sum({name}), 0.0) from outcomes where run_id = ?" for name in ("compile_s", "evaluate_s")]
    compile_s, evaluate_s = (next(_numbers(archive, sql, run_id), 0.0) or 0.0 for sql in sums)
    return compile_s, evaluate_s


@guarded
def standing(archive: Archive, run_id: str) -> Iterator[Row]:
    """How a run stands, one row that changes with whatever is archived: status, latest generation, numbers of rows."""
    yield from _rows(
        archive,
        "select r.status, r.ended_at, (select max(generation) from candidates where run_id = r.id) as generation,"
        " (select count(*) from candidates where run_id = r.id) as candidates,"
        " (select count(*) from outcomes where run_id = r.id) as judged,"
        " (select count(*) from confirmations where run_id = r.id) as confirmations,"
        " (select count(*) from events where run_id = r.id) as events from runs r where r.id = ?",
        [run_id],
    )
