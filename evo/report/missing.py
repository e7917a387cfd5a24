"""What a run lacks that a plot needs, what there is instead, and what to do about it."""

from __future__ import annotations

from evo.archive import Archive, RunRecord
from evo.archive.counts import counts
from evo.errors import EvoError
from evo.lineage import Lineage


def untimed(run: RunRecord) -> EvoError:
    """For a run without the times of its baseline, and so without speedups."""
    if run.status == "running":
        return EvoError(f"run {run.id} has not timed its baseline yet", _more(run))
    return EvoError(f"run {run.id} ended before its baseline was timed", _more(run))


def without_numbers(archive: Archive, run: RunRecord) -> EvoError:
    """For a run that has no numbers of the kind asked for, most often since nothing is valid."""
    lineage, found = Lineage(archive, run), counts(archive, run.id)
    if lineage.best() is not None:
        return EvoError(f"run {run.id} has nothing of this kind to plot", "--kind all draws what there is")
    if not found.judged + found.refused:
        return EvoError(f"run {run.id} has no candidate with a verdict", _more(run))
    there = f"{found.judged} judged, {found.valid} valid, {found.refused} refused"
    return EvoError(f"{lineage.lack()} ({there})", f"evo plot {run.id} --kind validity shows what became of them")


def _more(run: RunRecord) -> str:
    if run.status == "running":
        return "let it run on; evo watch shows how it stands"
    return f"resume it: evo run {run.name} --resume {run.id}"
