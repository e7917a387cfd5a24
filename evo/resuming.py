"""Finding the run to resume, and what an earlier session left."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from evo.archive import Archive, Refused, RunRecord
from evo.errors import ExperimentError, ResumeError
from evo.experiment import Experiment
from evo.lineage.refs import resolve
from evo.observer import SeedNote
from evo.seed_reasons import seed_name
from evo.seeding import Seed

_MORE = "raise search.generations, or start a new run without --resume"

TOGETHER = "together"
"""Kind of the event that says of a run which experiments its command names, and which of their runs came before it."""


def find(archive: Archive, experiment: Experiment, device: str, gpu: str) -> RunRecord:
    """The latest run of the experiment's name that can go on.

    That is the latest unfinished one; a finished one too if its generations have been raised since.

    Raises:
        ResumeError: there is none, the experiment has changed, or it ran on another device.
    """
    runs = archive.runs(experiment.name)
    if not runs:
        raise ResumeError(f"no run named {experiment.name} in {archive.path}", "start one without --resume")
    record = next((run for run in runs if run.status != "finished"), runs[0])
    if _at_its_end(record, experiment):
        if _experiment_of(record).resume_conflicts(experiment):
            check_same(record, experiment, device, gpu)
        raise ResumeError(f"every run named {experiment.name} is finished (latest: {record.id})", _MORE)
    check_same(record, experiment, device, gpu)
    return record


def named(archive: Archive, ref: str, experiment: Experiment) -> RunRecord:
    """The run of an experiment that a reference names: by its id, by what that begins with, the latest by its name.

    Raises:
        RefError: nothing of that name; the nearest is suggested.
        ResumeError: it names a candidate, or a run of another experiment.
    """
    found = resolve(archive, ref, latest=True)
    if found.n is not None:
        raise ResumeError(f'"{ref}" names a candidate', f"name its run: {found.run.id}")
    if found.run.name != experiment.name:
        raise ResumeError(
            f"run {found.run.id} is of experiment {found.run.name}, not of {experiment.name}",
            f"name one of {experiment.name}, or run {found.run.name}",
        )
    return found.run


def unfinished(archive: Archive, ref: str, experiment: Experiment) -> RunRecord:
    """The run that a reference names, where there is more for it to do.

    Raises:
        RefError, ResumeError: as `named`; or it is finished, and its generations are not raised.
    """
    record = named(archive, ref, experiment)
    if _at_its_end(record, experiment):
        raise ResumeError(f"run {record.id} is finished", _MORE)
    return record


def _at_its_end(record: RunRecord, experiment: Experiment) -> bool:
    return record.status == "finished" and experiment.search.generations <= _experiment_of(record).search.generations


@dataclass(frozen=True)
class Place:
    """Where a command of several experiments goes on.

    Attributes:
        run: of the experiment that is `index`-th among them, counted from 0; the last one begun.
        before: ids of the runs of those before it.
    """

    index: int
    run: RunRecord
    before: tuple[str, ...]


def place(archives: Sequence[Archive], names: Sequence[str]) -> Place | None:
    """Where the latest command that named these experiments, in this order, was broken off.

    Args:
        archives: of each experiment.
        names: of each experiment.

    Returns:
        The last run that command began; None where no archive knows of one.
    """
    found = []
    for index, (archive, name) in enumerate(zip(archives, names, strict=True)):
        for run in archive.runs(name):
            events = archive.events(run.id, TOGETHER)
            if events and events[0].data["names"] == list(names) and len(events[0].data["before"]) == index:
                found.append(Place(index, run, tuple(events[0].data["before"])))
                break
    return max(found, key=lambda each: each.run.started_at, default=None)


def check_same(record: RunRecord, experiment: Experiment, device: str, gpu: str) -> None:
    """An experiment that goes on with, or repeats, an archived run must be the run's own.

    Raises:
        ResumeError: it has changed (raised budgets and generations excepted), or the device is another.
    """
    conflicts = _experiment_of(record).resume_conflicts(experiment)
    if conflicts:
        changes = ", ".join(str(change) for change in conflicts)
        raise ResumeError(
            f"the experiment differs from that of run {record.id}: {changes}",
            "undo the change, or start a new run without --resume (only budgets and generations may be raised)",
        )
    if (record.device, record.gpu) != (device, gpu):
        raise ResumeError(
            f"run {record.id} ran on {record.device} {record.gpu}, not on {device} {gpu}",
            "set device.kind and device.gpu as they were, or start a new run",
        )


def archived_seeds(archive: Archive, run_id: str) -> tuple[tuple[Seed, ...], tuple[SeedNote, ...]]:
    """Starting kernels as the run archived them (files may have changed since); empty if it had none yet."""
    seeds = tuple(
        Seed(seed_name(entry.reason), entry.kernel)
        for entry in archive.entries(run_id)
        if not isinstance(entry, Refused) and entry.plan.operator == "seed"
    )
    return seeds, tuple(SeedNote(seed.name) for seed in seeds)


def earlier_s(archive: Archive, run_id: str) -> float:
    """Seconds the earlier sessions of a run took, each from its start to its last sign of life."""
    activity = archive.last_activity(run_id)
    starts = [_seconds(at) for at in activity["sessions"]]
    alive = [_seconds(at) for at in activity["alive"]]
    total = 0.0
    for start, end in zip(starts, [*starts[1:], float("inf")], strict=False):
        total += max((moment for moment in alive if start <= moment < end), default=start) - start
    return total


def _experiment_of(record: RunRecord) -> Experiment:
    try:
        return Experiment.from_dict(record.experiment, where=f"experiment of run {record.id}")
    except ExperimentError as error:
        raise ResumeError(
            f"this evo does not understand the experiment of run {record.id} ({error.problems[0]})",
            f"use evo {record.version}, or start a new run",
        ) from error


def _seconds(at: str) -> float:
    return datetime.datetime.fromisoformat(at).timestamp()
