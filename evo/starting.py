"""Where a run begins: anew, where an earlier session stopped, or as a replay of another run."""

from __future__ import annotations

from dataclasses import dataclass

from evo import provenance, resuming
from evo.archive import Archive, RunRecord, now
from evo.errors import ResumeError, SeedError
from evo.evaluator import DeviceSpec
from evo.experiment import Experiment
from evo.ledger import ArchiveLibrary
from evo.observer import SeedNote
from evo.seeding import Seed, starting_seeds
from fitness import gpu as gpus
from fitness.outcome import Clock
from mutations.operator import Library


@dataclass(frozen=True)
class Start:
    """Where a run begins.

    Attributes:
        record: of the run; seeds: starting kernels, none where a model makes the first.
        notes: on every seed considered.
        replay_of: id of the run whose answers are given back, or None.
    """

    record: RunRecord
    seeds: tuple[Seed, ...]
    notes: tuple[SeedNote, ...]
    replay_of: str | None = None


def new(experiment: Experiment, archive: Archive, device: DeviceSpec, *, seedless: bool) -> Start:
    """A new run, archived. `seedless`: `seeds = []` is no error, a model makes the first kernels.

    Raises:
        SeedError: no start is possible.
    """
    seeds, notes = _fresh_seeds(experiment, archive, device, seedless)
    return Start(archive.add_run(_record(experiment, device)), seeds, notes)


def begun(experiment: Experiment, archive: Archive, device: DeviceSpec, resume: bool | str, *, seedless: bool) -> Start:
    """A new run, or with `resume` the latest unfinished one, or the one of that id.

    Raises:
        ResumeError, SeedError: as `resumed` and `new`.
    """
    if not resume:
        return new(experiment, archive, device, seedless=seedless)
    return resumed(experiment, archive, device, resume if isinstance(resume, str) else None, seedless=seedless)


def resumed(
    experiment: Experiment, archive: Archive, device: DeviceSpec, run_id: str | None = None, *, seedless: bool
) -> Start:
    """The latest unfinished run of the experiment's name, or the run of an id.

    Raises:
        ResumeError: there is none that can go on.
        SeedError: it ended before its first candidates, and no start is possible.
    """
    card = gpus.load(device.gpu).name
    if run_id is None:
        record = resuming.find(archive, experiment, device.kind, card)
    else:
        record = known(archive, run_id)
        resuming.check_same(record, experiment, device.kind, card)
    seeds, notes = resuming.archived_seeds(archive, record.id)
    if not seeds:  # it ended before its first candidates
        seeds, notes = _fresh_seeds(experiment, archive, device, seedless or bool(archive.entries(record.id)))
    return Start(record, seeds, notes)


def replayed(experiment: Experiment, archive: Archive, device: DeviceSpec, run_id: str) -> Start:
    """A new run that makes the same decisions as an archived one, with its answers.

    Raises:
        ResumeError: no such run, or of another experiment or card.
    """
    old = known(archive, run_id)
    resuming.check_same(old, experiment, device.kind, gpus.load(device.gpu).name)
    seeds, notes = resuming.archived_seeds(archive, run_id)
    record = archive.add_run(_record(experiment, device))
    archive.add_event(record.id, "replay", {"of": run_id})
    return Start(record, seeds, notes, run_id)


def known(archive: Archive, run_id: str) -> RunRecord:
    """The run of an id.

    Raises:
        ResumeError: the archive has none such.
    """
    record = archive.run(run_id)
    if record is None:
        raise ResumeError(f"no run {run_id} in {archive.path}", "name a run by its id, as nm24-7f3a")
    return record


def clock_of(device: DeviceSpec) -> Clock:
    """Which clock a device times with."""
    return "modelled" if device.kind == "simulator" else "measured"


def _record(experiment: Experiment, device: DeviceSpec) -> RunRecord:
    card = gpus.load(device.gpu)
    return RunRecord(
        id="",
        name=experiment.name,
        experiment=experiment.model_dump(mode="json"),
        rng_seed=experiment.rng_seed,
        device=device.kind,
        gpu=card.name,
        arch=card.arch,
        clock=clock_of(device),
        version=provenance.version(),
        commit_id=provenance.commit(),
        machine=provenance.machine(),
        status="running",
        started_at=now(),
    )


def _fresh_seeds(
    experiment: Experiment, archive: Archive, device: DeviceSpec, seedless: bool
) -> tuple[tuple[Seed, ...], tuple[SeedNote, ...]]:
    arch = gpus.load(device.gpu).arch
    return first_kernels(experiment, ArchiveLibrary(archive, None, arch), arch, seedless=seedless)


def first_kernels(
    experiment: Experiment, library: Library | None, arch: str, *, seedless: bool
) -> tuple[tuple[Seed, ...], tuple[SeedNote, ...]]:
    """What a new run begins with: its seeds, and a note on every one considered.

    Args:
        experiment: the run's.
        library: where "archive:similar" looks; None: nowhere.
        arch: of the card.
        seedless: `seeds = []` is no error, a model makes the first kernels.

    Raises:
        SeedError: no start is possible, or the budget does not even cover the seeds.
    """
    if seedless and not experiment.checked_task.seeds:
        return (), ()
    seeds, notes = starting_seeds(experiment.checked_task, library, arch=arch)
    limit = experiment.budget.evaluations
    if limit is not None and limit < len(seeds):
        raise SeedError(
            f"budget.evaluations = {limit} does not even cover the {len(seeds)} seeds", "raise it or name fewer seeds"
        )
    return seeds, notes
