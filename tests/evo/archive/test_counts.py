"""Counts of candidates: the same wherever they are shown."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterable

import pytest

from evo import watching
from evo.archive import Archive, facts, keeping
from evo.archive.counts import Counts, counts
from evo.budget import Budget
from evo.experiment import BudgetSection
from evo.lineage import all_shares
from evo.plots import as_csv
from evo.report import series
from evo.report.markdown import report
from evo.report.page import page
from evo.tally import Tally
from fitness.outcome import CompileFailed, Gate
from mutations.operator import Candidate, Plan
from tests.evo import archives
from tests.evo.report.test_folder import summary_of

COUNTS = Counts(candidates=10, refused=1, judged=8, valid=5, duplicates=2, distinct=4)


@pytest.fixture
def archive() -> Iterable[Archive]:
    """Beside the usual six: a duplicate of a valid one, a duplicate of a failed one, a failure, one that waits."""
    with Archive.memory() as archive:
        run = archives.fill(archive)
        again = [
            (archives.timed("b", 16.0, 16.0), 1), (CompileFailed(Gate.COMPILE), 3), (CompileFailed(Gate.COMPILE), None)
        ]  # fmt: skip
        for n, (outcome, reused_from) in enumerate(again, 6):
            child = archives.kernel(f"again {n}")
            archive.add_entries(run.id, [Candidate(Plan(n, 3, 0, "tune", (1,)), child, "again")])
            archive.add_outcome(run.id, n, outcome, reused_from)
        archive.add_entries(run.id, [Candidate(Plan(9, 3, 0, "tune", (1,)), archives.kernel("late"), "waits")])
        archives.fill(archive, "other")
        yield archive


def shown_by_a_plot(archive: Archive, kind: str) -> dict[str, int]:
    """Sums over the generations."""
    run = archive.runs("nm24")[0]
    lines = csv.DictReader(io.StringIO(as_csv(series.KINDS[kind].make(archive, [run]).table())))
    rows = [row for row in lines if row.get("kind", "generation") == "generation"]
    number = re.compile(r"[0-9]+")
    return {name: sum(int(row[name]) for row in rows if number.fullmatch(row[name])) for name in rows[0]}


def test_every_view_counts_alike(archive: Archive) -> None:
    run = archive.runs("nm24")[0]
    assert counts(archive, run.id) == COUNTS
    for shares in all_shares(archive, run.id):
        told = {name: sum(getattr(share, name) for share in shares) for name in ("refused", "valid", "duplicates")}
        assert told == {"refused": 1, "valid": 5, "duplicates": 2}
        assert [sum(getattr(share, name) for share in shares) for name in ("planned", "distinct")] == [10, 4]
    line = next(line for line in keeping.info(archive).runs if line.id == run.id)
    assert (line.candidates, line.valid, line.distinct) == (10, 5, 4)
    assert watching.lines(archive, run.id)[1] == "candidates 10, judged 8, valid 5, duplicates 2, refused 1"
    text = report(archive, run, summary_of(run.id), [])
    assert "8 judged, 5 valid, 4 of them distinct, 2 duplicates by compiled code, 1 plan refused" in text
    assert "5 valid, 4 of them distinct" in page(archive, run)
    assert sum(row["candidates"] for row in facts.failures(archive, run.id)) == COUNTS.judged - COUNTS.valid
    validity = shown_by_a_plot(archive, "validity")
    assert (validity["valid (distinct)"], validity["valid (duplicate)"], validity["failed: compile"]) == (4, 1, 3)
    speedup = shown_by_a_plot(archive, "speedup")
    assert (speedup["judged"], speedup["valid"]) == (8, 5)


def test_a_run_counts_while_it_goes_as_its_archive_does(archive: Archive) -> None:
    run = archive.runs("nm24")[0]
    tally = Tally(3, Budget(BudgetSection(), lambda: 0.0))
    for judged in archive.judged(run.id):
        tally.judged(judged, replayed=False)
    state = tally.state()
    assert (state.judged, state.valid, state.duplicates) == (COUNTS.judged, COUNTS.valid, COUNTS.duplicates)


def test_an_empty_run(archive: Archive) -> None:
    assert counts(archive, archives.empty(archive, "empty").id) == counts(archive, "nobody") == Counts()
    assert dataclasses.replace(COUNTS, distinct=5).valid_text == "5 valid"
