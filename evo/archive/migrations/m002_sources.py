"""Version 2: every source text once, and the numbers candidates are compared by beside their verdicts.

Children that differ in params alone share their source: in real runs this is nine tenths of the file.
"""

from __future__ import annotations

import hashlib
import math

from sqlite_utils import Database


def m002_sources(db: Database) -> None:
    """Table `sources`; columns `outcomes.time_us`, `outcomes.fitness_us` and `runs.baseline_us`.

    All three are geometric means over the shapes, microseconds: of the times, of their upper bounds (what
    the search minimises) and of the baseline's times. Null where there is none: speedup is
    `baseline_us / time_us`.
    """
    _share_sources(db)
    _add_means(db)


def _share_sources(db: Database) -> None:
    db.table("kernels").disable_fts()
    db.table("sources").create({"id": str, "text": str}, pk="id", not_null={"text"})
    db.conn.create_function("sha256", 1, lambda text: hashlib.sha256(text.encode()).hexdigest(), deterministic=True)
    db.execute("alter table kernels add column source_id text references sources(id)")
    db.execute("update kernels set source_id = sha256(source)")
    db.execute("insert or ignore into sources (id, text) select source_id, source from kernels")
    db.execute("alter table kernels drop column source")
    db.table("kernels").create_index(["source_id"])
    db.table("sources").enable_fts(["text"], create_triggers=True, tokenize="unicode61")
    db.table("sources").populate_fts(["text"])


def _add_means(db: Database) -> None:
    db.conn.create_aggregate("geometric_mean", 1, _GeometricMean)  # type: ignore[arg-type]
    for table, column in (("outcomes", "time_us"), ("outcomes", "fitness_us"), ("runs", "baseline_us")):
        db.execute(f"alter table {table} add column {column} real")
    of = "from timings t where t.run_id = outcomes.run_id and t.n = outcomes.n and t.subject = 'candidate'"
    db.execute(
        f"update outcomes set time_us = (select geometric_mean(t.time_us) {of}),"
        f" fitness_us = (select geometric_mean(t.high_us) {of}) where kind = 'Timed' and stage = 'TIMING'"
    )
    db.execute(
        "update runs set baseline_us ="
        " (select geometric_mean(t.time_us) from timings t where t.run_id = runs.id and t.n is null)"
    )
    db.table("outcomes").create_index(["run_id", "fitness_us"])
    db.table("candidates").create_index(["run_id", "generation"])


class _GeometricMean:
    """SQL aggregate of positive numbers; null without any."""

    def __init__(self) -> None:
        self._logs: list[float] = []

    def step(self, value: float | None) -> None:
        """Take one number."""
        if value is not None and value > 0:
            self._logs.append(math.log(value))

    def finalize(self) -> float | None:
        """The mean."""
        return math.exp(math.fsum(self._logs) / len(self._logs)) if self._logs else None
