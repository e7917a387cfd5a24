"""`Archive`: every run, kernel, verdict, time and event, in one SQLite file.

Several processes may write the same archive at once (WAL, short transactions); each run has its own id.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from sqlite_utils import Database

from evo import merit
from evo.archive import codec, connection
from evo.archive.records import Entry, Event, Refused, RunRecord
from evo.archive.schema import LATEST_FIRST
from evo.errors import ArchiveError
from evo.observer import Confirmation, Status
from fitness.kernel import Kernel, KernelError, parse_kernel
from fitness.outcome import Gate, Outcome, Timed, Timing
from mutations.operator import Candidate, Judged, Plan

_ENTRIES = (
    "select c.*, s.text as source, k.params from candidates c"
    " left join kernels k on k.id = c.kernel_id left join sources s on s.id = k.source_id"
)
_MATCHES = (
    "select run_id, n, reason, min(place) as place, rank from ("
    " select c.run_id, c.n, c.reason, 0 as place, f.rank from candidates c join candidates_fts f"
    " on f.rowid = c.rowid where candidates_fts match ?1"
    " union all select c.run_id, c.n, c.reason, 1, g.rank from sources_fts g join sources s"
    " on s.rowid = g.rowid join kernels k on k.source_id = s.id join candidates c on c.kernel_id = k.id"
    " where sources_fts match ?1) group by run_id, n"
)
"""Candidates that match a full-text query, once each."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RUN_COLUMNS = [field.name for field in dataclasses.fields(RunRecord)]

P = ParamSpec("P")
R = TypeVar("R")


def _guarded(method: Callable[P, R]) -> Callable[P, R]:
    """SQLite errors of a method as `ArchiveError`."""

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        archive = cast("Archive", args[0])
        with connection.guarded(archive.path):
            try:
                return method(*args, **kwargs)
            except codec.DamagedRowError as error:
                raise ArchiveError(f"archive {archive.path} has a damaged row ({error})", "restore a copy") from error

    return wrapper


def now() -> str:
    """This moment, ISO 8601 UTC with microseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


class Archive:
    """An open archive. Use as a context manager, or call `close`.

    Every method raises `ArchiveError` where the file cannot be read or written.
    """

    def __init__(self, database: Database, path: Path | str) -> None:
        self._db = database
        self.path = path

    @classmethod
    def open(cls, path: Path | str, *, readonly: bool = False) -> Archive:
        """Open the archive at `path`; made (with its folder) where missing, unless `readonly`.

        Raises:
            ArchiveError: not SQLite, not an archive, newer than this evo, not writable, missing (readonly).
        """
        return cls(connection.connect(Path(path), readonly=readonly), path)

    @classmethod
    def memory(cls) -> Archive:
        """A fresh archive in memory (tests, trials)."""
        return cls(connection.in_memory(), ":memory:")

    @property
    def database(self) -> Database:
        """The open database, for the modules of this package (all SQL is theirs)."""
        return self._db

    def close(self) -> None:
        """Close the file; further calls fail."""
        self._db.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # runs

    @_guarded
    def add_run(self, run: RunRecord) -> RunRecord:
        """Archive a new run under a fresh id "<name>-<4+ hex digits>"; `run.id` is ignored.

        Returns:
            The record with its id.
        """
        row = {**vars(run), "experiment": codec.to_json(run.experiment), "machine": codec.to_json(run.machine)}
        for digits in (4, 4, 4, 4, 8, 16):
            row["id"] = f"{run.name}-{secrets.token_hex(digits // 2)}"
            with connection.transaction(self._db):
                if not self._rows("select 1 from runs where id = ?", row["id"]):
                    self._db.table("runs").insert(row)
                    return _run_of(row)
        raise ArchiveError(f"archive {self.path} has no free id for a run named {run.name}", "rename the experiment")

    @_guarded
    def set_status(self, run_id: str, status: Status) -> None:
        """Record how a run stands; every status but "running" also sets `ended_at`."""
        ended = None if status == "running" else now()
        with connection.transaction(self._db):
            self._db.execute("update runs set status = ?, ended_at = ? where id = ?", [status, ended, run_id])

    @_guarded
    def set_experiment(self, run_id: str, experiment: Mapping[str, Any]) -> None:
        """Replace a run's experiment (a resume may raise its budgets)."""
        with connection.transaction(self._db):
            text = codec.to_json(experiment)
            self._db.execute("update runs set experiment = ? where id = ?", [text, run_id])

    @_guarded
    def run(self, run_id: str) -> RunRecord | None:
        """The run of that id, or None."""
        rows = self._rows("select * from runs where id = ?", run_id)
        return _run_of(rows[0]) if rows else None

    @_guarded
    def runs(self, name: str | None = None) -> list[RunRecord]:
        """All runs, or those of one name, the latest first."""
        where, values = ("where name = ?", (name,)) if name is not None else ("", ())
        return [_run_of(row) for row in self._rows(f"select * from runs r {where} order by {LATEST_FIRST}", *values)]

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads of the block see the archive as it is at the first of them, whatever a run writes meanwhile."""
        with connection.guarded(self.path), connection.snapshot(self._db):
            yield

    # writing a run

    @_guarded
    def add_entries(self, run_id: str, entries: Sequence[Entry]) -> None:
        """Archive candidates and refusals with their kernels and parents, in one transaction."""
        kernels = {entry.kernel.id: _kernel_row(entry.kernel) for entry in entries if isinstance(entry, Candidate)}
        with connection.transaction(self._db):
            self._db.table("sources").insert_all(_source_rows(entries), ignore=True)
            self._db.table("kernels").insert_all(kernels.values(), ignore=True)
            self._db.table("candidates").insert_all(_entry_row(run_id, entry) for entry in entries)
            self._db.table("parents").insert_all(row for entry in entries for row in _parent_rows(run_id, entry.plan))

    @_guarded
    def add_outcome(self, run_id: str, n: int, outcome: Outcome, reused_from: int | None = None) -> None:
        """Archive the verdict on candidate n with its times, in one transaction."""
        keys = {"run_id": run_id, "n": n}
        row = keys | {"reused_from": reused_from, "judged_at": now()} | codec.outcome_row(outcome)
        row |= {"fitness_us": merit.fitness_us(outcome), "time_us": merit.time_us(outcome)}
        timings = outcome.timings if isinstance(outcome, Timed) else ()
        with connection.transaction(self._db):
            self._db.table("outcomes").insert(row)
            self._add_timings(run_id, n, "candidate", timings, outcome.stage)

    @_guarded
    def add_baseline(
        self, run_id: str, name: str, timings: Sequence[Timing], others: Mapping[str, Sequence[Timing]] | None = None
    ) -> None:
        """Archive the times of the run's baseline (rows of `timings` whose n is null), and of others timed with it."""
        with connection.transaction(self._db):
            self._add_timings(run_id, None, name, timings, Gate.TIMING)
            for other, its in (others or {}).items():
                self._add_timings(run_id, None, other, its, Gate.TIMING)
            mean_us = merit.geometric_mean(timing.time_us for timing in timings) if timings else None
            self._db.execute("update runs set baseline_us = ? where id = ?", [mean_us, run_id])

    @_guarded
    def add_confirmation(self, run_id: str, confirmation: Confirmation, timings: Sequence[Timing] = ()) -> None:
        """Archive a verdict of gate 8 and the times taken for it."""
        row = {**vars(confirmation), "run_id": run_id, "evidence": codec.to_json(confirmation.evidence)}
        with connection.transaction(self._db):
            self._db.table("confirmations").insert(row, column_order=["run_id", "n"])
            self._add_timings(run_id, confirmation.n, "confirmation", timings, Gate.CONFIRMATION)

    @_guarded
    def add_event(self, run_id: str, kind: str, data: Mapping[str, object]) -> None:
        """Archive one event."""
        with connection.transaction(self._db):
            self._db.table("events").insert({"run_id": run_id, "at": now(), "kind": kind, "data": codec.to_json(data)})

    # reading a run

    @_guarded
    def entries(self, run_id: str) -> list[Entry]:
        """Every candidate and refusal of a run, in order of n."""
        parents: dict[int, list[int]] = {}
        for row in self._rows("select n, parent_n from parents where run_id = ? order by n, position", run_id):
            parents.setdefault(row["n"], []).append(row["parent_n"])
        rows = self._rows(f"{_ENTRIES} where c.run_id = ? order by c.n", run_id)
        return [self._entry_of(row, tuple(parents.get(row["n"], ()))) for row in rows]

    @_guarded
    def outcomes(self, run_id: str) -> dict[int, tuple[Outcome, int | None]]:
        """Verdicts of a run: n -> (outcome, reused_from), in order of n."""
        timings: dict[int, list[Timing]] = {}
        for row in self._rows(
            "select * from timings where run_id = ? and subject = 'candidate' order by n, position", run_id
        ):
            timings.setdefault(row["n"], []).append(codec.timing_of(row))
        rows = self._rows("select * from outcomes where run_id = ? order by n", run_id)
        return {row["n"]: (codec.outcome_of(row, timings.get(row["n"], ())), row["reused_from"]) for row in rows}

    def judged(self, run_id: str) -> list[Judged]:
        """Every candidate that has a verdict, in order of n."""
        outcomes = self.outcomes(run_id)
        return [
            Judged(entry, *outcomes[entry.plan.n])
            for entry in self.entries(run_id)
            if isinstance(entry, Candidate) and entry.plan.n in outcomes
        ]

    @_guarded
    def confirmations(self, run_id: str) -> dict[int, Confirmation]:
        """Verdicts of gate 8: n -> confirmation, in the order they were made."""
        columns = "n, verdict, speedup, low, high, evidence"
        rows = self._rows(f"select {columns} from confirmations where run_id = ? order by rowid", run_id)
        return {row["n"]: Confirmation(**(row | {"evidence": json.loads(row["evidence"])})) for row in rows}

    @_guarded
    def confirmation_timings(self, run_id: str, n: int) -> tuple[Timing, ...]:
        """Times taken while candidate n was confirmed, in the order of the shapes."""
        rows = self._rows(
            "select * from timings where run_id = ? and n = ? and subject = 'confirmation' order by position", run_id, n
        )
        return tuple(codec.timing_of(row) for row in rows)

    @_guarded
    def events(self, run_id: str, kind: str | None = None) -> list[Event]:
        """Events of a run in order, or those of one kind."""
        rows = self._rows("select at, kind, data from events where run_id = ? order by rowid", run_id)
        return [
            Event(row["at"], row["kind"], json.loads(row["data"]))
            for row in rows
            if kind is None or row["kind"] == kind
        ]

    @_guarded
    def last_activity(self, run_id: str) -> dict[str, list[str]]:
        """Moments a run is known to have been alive: "sessions" (starts), "alive" (candidates, verdicts, events)."""
        sessions = self._rows("select at from events where run_id = ? and kind = 'session' order by at", run_id)
        alive = self._rows(
            "select created_at as at from candidates where run_id = :run union select judged_at from outcomes"
            " where run_id = :run union select at from events where run_id = :run order by 1",
            run=run_id,
        )
        return {"sessions": [row["at"] for row in sessions], "alive": [row["at"] for row in alive]}

    # across runs

    @_guarded
    def find(self, words: str, limit: int = 20) -> list[tuple[str, int, str]]:
        """Candidates whose reason or kernel source has all `words`: (run_id, n, reason).

        Matches of the reason come first, then those of the source; the best match first in both.
        """
        if not words.strip():
            return []
        rows = self._rows(f"{_MATCHES} order by place, rank, run_id, n limit ?2", _phrase(words), limit)
        return [(row["run_id"], row["n"], row["reason"]) for row in rows]

    @_guarded
    def count_found(self, words: str) -> int:
        """How many candidates `find` finds without a limit."""
        return int(self._rows(f"select count(*) as found from ({_MATCHES})", _phrase(words))[0]["found"])

    @_guarded
    def confirmed(self) -> list[tuple[RunRecord, int]]:
        """(run, n) of every confirmed candidate of the archive, the latest run first, then the fastest."""
        rows = self._rows(
            "select c.run_id, c.n from confirmations c join runs r on r.id = c.run_id"
            f" where c.verdict = 'confirmed' order by {LATEST_FIRST}, c.speedup desc, c.n"
        )
        runs = {run_id: self.run(run_id) for run_id in {row["run_id"] for row in rows}}
        return [(run, row["n"]) for row in rows if (run := runs[row["run_id"]]) is not None]

    @_guarded
    def check(self) -> list[str]:
        """Problems SQLite finds in the file (integrity, dangling references); empty when it is sound."""
        problems = [row["integrity_check"] for row in self._rows("pragma integrity_check")]
        dangling = [
            f"{row['table']}: row {row['rowid']} refers to nothing" for row in self._rows("pragma foreign_key_check")
        ]
        return [problem for problem in problems if problem != "ok"] + dangling

    # helpers

    def _rows(self, sql: str, *values: object, **named: object) -> list[dict[str, Any]]:
        return list(self._db.query(sql, named or list(values)))

    def _add_timings(self, run_id: str, n: int | None, subject: str, timings: Sequence[Timing], stage: Gate) -> None:
        process = "fresh" if stage is Gate.CONFIRMATION else "worker"
        self._db.table("timings").insert_all(
            {
                "run_id": run_id,
                "n": n,
                "subject": subject,
                "position": position,
                "stage": stage.name,
                "process": process,
            }
            | codec.timing_row(timing)
            for position, timing in enumerate(timings)
        )

    def _entry_of(self, row: Mapping[str, Any], parents: tuple[int, ...]) -> Entry:
        plan = Plan(
            row["n"], row["generation"], row["island"], row["operator"], parents, tuple(json.loads(row["inspirations"]))
        )
        if row["kernel_id"] is None:
            return Refused(plan, row["reason"])
        params = json.loads(row["params"] or "{}")
        try:
            kernel = parse_kernel(row["source"], path=f"kernel {row['kernel_id'][:12]}", params=params)
        except KernelError as error:
            raise codec.DamagedRowError(f"kernel {row['kernel_id'][:12]}: {error}") from error
        return Candidate(plan, kernel, row["reason"], row["model"])


def _phrase(words: str) -> str:
    """A full-text query for all words, whatever signs they have."""
    return " ".join('"' + word.replace('"', '""') + '"' for word in words.split())


def _run_of(row: Mapping[str, Any]) -> RunRecord:
    if not _ID.fullmatch(str(row["id"])):  # it names a folder; the archive may be somebody else's
        raise codec.DamagedRowError(f"{row['id']!r} is no id of a run")
    return RunRecord(
        **{name: row[name] for name in _RUN_COLUMNS}
        | {"experiment": json.loads(row["experiment"]), "machine": json.loads(row["machine"] or "{}")}
    )


def source_id(text: str) -> str:
    """Key of a source text: the hex SHA-256 of its UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def _source_rows(entries: Iterable[Entry]) -> Iterable[dict[str, str]]:
    texts = {entry.kernel.source for entry in entries if isinstance(entry, Candidate)}
    return ({"id": source_id(text), "text": text} for text in sorted(texts))


def _kernel_row(kernel: Kernel) -> dict[str, Any]:
    return {
        "id": kernel.id,
        "source_id": source_id(kernel.source),
        "params": codec.to_json(dict(sorted(kernel.params.items()))),
        "format": kernel.format.name,
    }


def _entry_row(run_id: str, entry: Entry) -> dict[str, Any]:
    plan = entry.plan
    return {
        "run_id": run_id,
        "n": plan.n,
        "kernel_id": None if isinstance(entry, Refused) else entry.kernel.id,
        "generation": plan.generation,
        "island": plan.island,
        "operator": plan.operator,
        "inspirations": codec.to_json(list(plan.inspirations)),
        "model": None if isinstance(entry, Refused) else entry.model,
        "reason": entry.why if isinstance(entry, Refused) else entry.reason,
        "created_at": now(),
    }


def _parent_rows(run_id: str, plan: Plan) -> Iterable[dict[str, Any]]:
    for position, parent in enumerate(plan.parents):
        yield {
            "run_id": run_id,
            "n": plan.n,
            "position": position,
            "parent_run_id": run_id,
            "parent_n": parent,
            "role": "parent",
        }
