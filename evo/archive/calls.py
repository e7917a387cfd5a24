"""Requests to models and tool calls of a run: rows of `llm_calls`, in the order in which they were made."""

from __future__ import annotations

from collections.abc import Iterable

from evo.archive import connection
from evo.archive.store import Archive
from mutations.llm.recording import Call

_COLUMNS = "n, purpose, model, returned_model, request, reply, tokens_in, tokens_out, usd, seconds, status"


def add_calls(archive: Archive, run_id: str, calls: Iterable[Call]) -> None:
    """Archive calls, in one transaction. They hold no key: a `Request` has none.

    Raises:
        ArchiveError: the file cannot be written.
    """
    rows = [{"run_id": run_id, **vars(call)} for call in calls]
    with connection.guarded(archive.path), connection.transaction(archive.database):
        archive.database.table("llm_calls").insert_all(rows)


def calls_of(archive: Archive, run_id: str) -> list[Call]:
    """Calls of a run; those of one candidate in the order in which they were made.

    Raises:
        ArchiveError: the file cannot be read.
    """
    with connection.guarded(archive.path):
        rows = archive.database.query(f"select {_COLUMNS} from llm_calls where run_id = ? order by id", [run_id])
        return [Call(**row) for row in rows]


def calls_for(archive: Archive, run_id: str, n: int) -> list[Call]:
    """Calls of one candidate, in order, without the rest of the run.

    Raises:
        ArchiveError: the file cannot be read.
    """
    with connection.guarded(archive.path):
        where = "run_id = ? and n = ? order by id"
        return [
            Call(**row)
            for row in archive.database.query(f"select {_COLUMNS} from llm_calls where {where}", [run_id, n])
        ]
