"""How many candidates a run has, counted in one way for every command, report and plot."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from evo.archive import connection
from evo.archive.facts import guarded
from evo.archive.store import Archive


@dataclass(frozen=True)
class Counts:
    """Candidates of a run.

    Attributes:
        candidates: plans, whatever came of them; refused: those that no kernel came of.
        judged: with a verdict, their own or a duplicate's; valid: those of them that passed every gate and have a time.
        duplicates: judged ones that have the compiled code of an earlier one, and so its verdict, good or bad.
        distinct: valid ones that are no duplicates.
    """

    candidates: int = 0
    refused: int = 0
    judged: int = 0
    valid: int = 0
    duplicates: int = 0
    distinct: int = 0

    @property
    def valid_text(self) -> str:
        """How many are valid, and how many of them distinct where not all are: "135 valid, 132 of them distinct"."""
        return f"{self.valid:,} valid" + (f", {self.distinct:,} of them distinct" if self.distinct < self.valid else "")


def counts(archive: Archive, run_id: str) -> Counts:
    """Those of one run.

    Raises:
        ArchiveError: the archive cannot be read.
    """
    return dict(counts_of(archive, [run_id])).get(run_id, Counts())


@guarded
def counts_of(archive: Archive, run_ids: Collection[str]) -> Iterator[tuple[str, Counts]]:
    """(run, its counts) of those of these runs that have candidates."""
    sql = (
        "select count(*), count(*) - count(c.kernel_id), count(o.kind), count(o.fitness_us), count(o.reused_from),"
        " count(iif(o.reused_from is null, o.fitness_us, null))"
        " from candidates c left join outcomes o on o.run_id = c.run_id and o.n = c.n where c.run_id = ?"
    )
    for run_id in run_ids:
        for row in connection.rows(archive.database, sql, [run_id]):
            if row[0]:
                yield run_id, Counts(*row)
