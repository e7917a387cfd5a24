"""Requests to models and tool calls of a run: rows of `llm_calls`, in the order in which they were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Spending:
    """What some calls came to: answers, requests without one, tokens; dollars, None where a price is not known."""

    answers: int = 0
    failures: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0

    @property
    def tokens(self) -> int:
        """Both directions."""
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Spending) -> Spending:
        """Both together; dollars are unknown where one's are."""
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Spending(self.answers + other.answers, self.failures + other.failures,
                        self.tokens_in + other.tokens_in, self.tokens_out + other.tokens_out, usd)  # fmt: skip


def spendings(archive: Archive, run_id: str, n: int | None = None) -> Iterator[tuple[int | None, str, Spending]]:
    """(candidate, model, what it spent) of a run, or of one candidate, in order of n; what tools did costs nothing.

    The only place where tokens and dollars are summed from the archive. Requests and replies are not read.

    Raises:
        ArchiveError: the file cannot be read.
    """
    sql = (
        "select n, model, count(returned_model) as answers, sum(returned_model is null) as failures,"
        " coalesce(sum(tokens_in), 0) as tokens_in, coalesce(sum(tokens_out), 0) as tokens_out,"
        " coalesce(sum(usd), 0.0) as usd, sum(returned_model is not null and usd is null) as unpriced"
        " from llm_calls where run_id = :run and coalesce(purpose, '') not like 'tool:%'"
        f"{'' if n is None else ' and n = :n'} group by n, model order by n, model"
    )
    with connection.guarded(archive.path):
        for row in archive.database.query(sql, {"run": run_id, "n": n}):
            usd = None if row["unpriced"] else row["usd"]
            spent = Spending(row["answers"], row["failures"], row["tokens_in"], row["tokens_out"], usd)
            yield row["n"], row["model"] or "", spent
