"""What `evo run` does with its experiments: check all, run one after the other, tell what came of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console

from evo import dryrun, resuming
from evo.archive import Archive, RunRecord
from evo.budget import KINDS
from evo.cli.boundary import INTERRUPTED, PAUSED
from evo.cli.experiments import find
from evo.cli.results import next_commands, print_overview, result_json
from evo.errors import EvoError, ResumeError
from evo.experiment import BudgetSection, Experiment
from evo.gpu_pool import GpuPool
from evo.ledger import ArchiveLibrary
from evo.llm.connect import Connection, connect, hint
from evo.llm.costs import costs_json, costs_line, costs_of
from evo.loop import run_experiment
from evo.observer import Observer, RunSummary, Silent
from evo.pool import CandidateLimits, DeviceSpec, Pool
from evo.progress import LiveProgress, PlainProgress, results_table
from evo.propose import load_operators
from evo.replaying import first_difference
from evo.report.folder import write_run_folder
from evo.sharing import Shared
from fitness import gpu as gpus
from fitness.devices import resolve
from fitness.devices.cuda.available import cards, missing


@dataclass(frozen=True)
class Options:
    """The options of `evo run`, as its help describes them; `resume` and `replay` may be references to a run."""

    settings: tuple[str, ...] = ()
    no_llm: bool = False
    resume: bool | str = False
    dry_run: bool = False
    archive: Path | None = None
    workers: int | None = None
    as_json: bool = False
    quiet: bool = False
    model: str | None = None
    notes: tuple[str, ...] = ()
    replay: str | None = None


@dataclass(frozen=True)
class Job:
    """One checked experiment, how the user named it and those of the same command, and where its results go."""

    given: str
    experiment: Experiment
    archive: Path
    together: tuple[str, ...] = ()


def run_all(names: Sequence[str], options: Options) -> int:
    """Run the named experiments in order. Returns the exit code.

    Raises:
        EvoError: anything the user can put right.
    """
    console = Console(stderr=options.as_json, highlight=False)
    jobs = [load(name, options, console) for name in _each_once(names, console)]  # all, before the first one runs
    if len(jobs) > 1:
        jobs = [replace(job, together=tuple(each.given for each in jobs)) for job in jobs]
    else:
        options = _with_runs(options, jobs[0])
    results, code = (_forecasts if options.dry_run else _runs)(jobs, options, console)
    if options.as_json:
        click.echo(json.dumps(results[0] if len(jobs) == 1 else results, indent=2))
    return code


def _with_runs(options: Options, job: Job) -> Options:
    """The options with the ids of the runs that --resume and --replay name.

    Raises:
        EvoError: there is no such run, it is of another experiment, or cannot go on.
    """
    if not isinstance(options.resume, str) and options.replay is None:
        return options
    with Archive.open(job.archive, readonly=True) as archive:
        if isinstance(options.resume, str):
            return replace(options, resume=resuming.unfinished(archive, options.resume, job.experiment).id)
        return replace(options, replay=resuming.named(archive, options.replay or "", job.experiment).id)


def _forecasts(jobs: Sequence[Job], options: Options, console: Console) -> tuple[list[dict[str, object]], int]:
    """What the experiments would do: for a program, and the exit code."""
    plans = [_forecast(job, options, console) for job in jobs]
    return [dryrun.forecast_json(plan) for plan in plans], max(1 if plan.refusal else 0 for plan in plans)


def _runs(jobs: Sequence[Job], options: Options, console: Console) -> tuple[list[dict[str, object]], int]:
    """Run the experiments: results for a program, and the exit code."""
    results: list[dict[str, object]] = []
    code = 0
    shared = Shared([job.experiment.name for job in jobs])
    course = _course(jobs, options, shared, console)
    by_itself = len(jobs) == 1 or course[0].resume is True
    pool = None if by_itself else course[0].job.experiment.budget
    for place, step in enumerate(course):
        job = step.job if pool is None else _with_budget(step.job, _portion(pool, len(course) - place))
        summary, result = _run(job, options, console, shared, step.resume)
        results.append(result)
        code = max(code, _exit_code(summary))
        if summary.status in ("interrupted", "paused"):
            break
        if pool is not None:
            pool = _rest(pool, job.experiment.budget, summary)
            if pool is None and step is not course[-1]:
                console.print("the shared budget is used up; the other experiments are not run", markup=False)
                break
    if len(results) > 1:
        print_overview(results, console)
    return results, code


class _Step(NamedTuple):
    """An experiment that is to run. `resume`: its latest unfinished run goes on, or the run of that id."""

    job: Job
    resume: bool | str


def _course(jobs: Sequence[Job], options: Options, shared: Shared, console: Console) -> list[_Step]:
    """The experiments in order; where a command of several was broken off, from the run on that was under way.

    Raises:
        ResumeError: all of its runs are finished.
    """
    if not options.resume or len(jobs) == 1:
        return [_Step(job, options.resume) for job in jobs]
    with ExitStack() as stack:
        archives = [stack.enter_context(_reading(job.archive)) for job in jobs]
        place = resuming.place(archives, shared.names)
        if place is None:  # never run together: each goes on by itself
            return [_Step(job, True) for job in jobs]
        if place.run.status == "finished" and place.index == len(jobs) - 1:
            raise ResumeError(f"all runs of that command are finished (latest: {place.run.id})", "leave out --resume")
        for archive, run_id in zip(archives, place.before, strict=False):
            shared.recall(archive, run_id)
            console.print(f"{run_id} has ended; it is left as it is", markup=False, soft_wrap=True)
        job = jobs[place.index]
        if place.index:
            first = archives[0].run(place.before[0])
            job = _with_budget(job, _pool_of(place.run, first, jobs[0].experiment.budget, len(jobs), place.index))
    return [_Step(job, place.run.id), *(_Step(later, False) for later in jobs[place.index + 1 :])]


def _reading(path: Path) -> Archive:
    return Archive.open(path, readonly=True) if path.exists() else Archive.memory()


def _portion(pool: BudgetSection, runs: int) -> BudgetSection:
    """What the next of so many runs may spend: an equal part of the time, so that it comes to each, of the rest all."""
    return pool.model_copy(update=_of_minutes(pool.minutes, 1 / runs))


def _of_minutes(minutes: float | None, factor: float) -> dict[str, float | None]:
    return {"minutes": None if minutes is None else round(minutes * factor, 4)}  # what was stored is found again


def _rest(pool: BudgetSection, given: BudgetSection, summary: RunSummary) -> BudgetSection | None:
    """What is left for the other runs after one; None when one of its kinds is used up."""
    left: dict[str, float | int] = {}
    for line in summary.state.budget:
        if line.left is None:
            continue
        amount = getattr(pool, line.kind) - getattr(given, line.kind) + line.left
        if amount <= 0:
            return None
        left[line.kind] = int(amount) if line.kind in ("evaluations", "tokens") else amount
    return BudgetSection.model_validate(left)


def _pool_of(run: RunRecord, first: RunRecord | None, total: BudgetSection, runs: int, place: int) -> BudgetSection:
    """What was left of a command's budget when a run of it began, and what the total has been raised by since.

    Args:
        run: that run.
        first: that of the command; None where it is lost.
        total: the budget of the command now.
        runs: how many the command has.
        place: which of them it is, from 0.
    """
    own = BudgetSection.model_validate(run.experiment["budget"])
    own = own.model_copy(update=_of_minutes(own.minutes, runs - place))
    if first is None:
        return own
    old = BudgetSection.model_validate(first.experiment["budget"])
    old = old.model_copy(update=_of_minutes(old.minutes, runs))
    pool = {}
    for kind in KINDS:
        left, before, now = (getattr(section, kind) for section in (own, old, total))
        pool[kind] = now if None in (left, before, now) else left + round(now - before, 3)
    return BudgetSection.model_validate(pool)


def _each_once(names: Sequence[str], console: Console) -> list[str]:
    """The names without those of an experiment that is named before."""
    kept: dict[Path, str] = {}
    for name in names:
        path = find(name).path.resolve()
        if path in kept:
            line = f"{name} is the same experiment as {kept[path]}; it is run once"
            console.print(line, markup=False, soft_wrap=True)
        kept.setdefault(path, name)
    return list(kept.values())


def load(name: str, options: Options, console: Console) -> Job:
    """Find and check one experiment, with the options applied.

    Raises:
        EvoError: it cannot be found or used, or asks for a device this version does not have.
    """
    found = find(name)
    if found.shipped:
        console.print(f"{name} is not here; using the experiment that comes with evo", markup=False)
    experiment = Experiment.load(found.path, options.settings)
    kind, why = resolve(experiment.device.kind, gpus.load(experiment.device.gpu))
    if kind == "cuda" and (problem := missing()):
        raise EvoError(f'{found.path}: device.kind = "cuda": {problem}', "evo doctor says what this machine can do")
    if kind != "cuda" and (routine := experiment.checked_task.baseline_routine):
        raise EvoError(f'{found.path}: task.baseline: only a card can time "{routine}"', 'write baseline = "auto"')
    if experiment.device.kind == "auto":
        console.print(f"device.kind = auto: {kind} ({why})", markup=False, soft_wrap=True)
    device = experiment.device.model_copy(update={"kind": kind})
    experiment = experiment.model_copy(
        update={"device": device, "operators": _operators(experiment, options, found.path)}
    )
    load_operators(list(experiment.weights))  # one that cannot be imported is refused now, by --dry-run too
    return Job(name, experiment, options.archive or Path(experiment.archive.path))


def _operators(experiment: Experiment, options: Options, path: Path) -> dict[str, float]:
    """The experiment's operators; without those of a model under --no-llm."""
    if not options.no_llm:
        return experiment.operators
    kept = {name: weight for name, weight in experiment.operators.items() if not name.startswith("llm_")}
    if not any(weight > 0 for weight in kept.values()):
        raise EvoError(f"{path}: operators: --no-llm leaves none", "give tune or splice a weight")
    return kept


def _with_budget(job: Job, budget: BudgetSection) -> Job:
    return replace(job, experiment=job.experiment.model_copy(update={"budget": budget}))


@contextmanager
def _pool(job: Job, options: Options) -> Iterator[Pool | GpuPool]:
    """Open workers for one experiment."""
    asked, device = job.experiment.limits, job.experiment.device
    limits = CandidateLimits(compile_s=asked.compile_s, steps=asked.steps, run_s=asked.run_s)
    workers = options.workers or len(os.sched_getaffinity(0))
    if device.kind == "cuda":
        indices = [card.index for card in cards()]
        with GpuPool(device.gpu, indices, workers, limits, compiler=device.compiler) as on_cards:
            yield on_cards
    else:
        with Pool(DeviceSpec(device.kind, device.gpu, compiler=device.compiler), workers, limits) as pool:
            yield pool


def _forecast(job: Job, options: Options, console: Console) -> dryrun.Forecast:
    held = Archive.open(job.archive, readonly=True) if job.archive.exists() else nullcontext()
    with _pool(job, options) as pool, held as archive:
        gpu = gpus.load(job.experiment.device.gpu)
        library = None if archive is None else ArchiveLibrary(archive, None, gpu.arch)
        seedless = not job.experiment.checked_task.seeds and _connection(job, options) is not None
        with console.status("") as status:  # nothing where the output is no terminal

            def judged(done: int, of: int) -> None:
                status.update(f"{job.experiment.name}: {done} of {of} kernels judged")

            plan = dryrun.forecast(job.experiment, gpu, pool, library, seedless=seedless, judged=judged)
    if not options.as_json:
        if job.together:
            console.print(f"experiment {job.experiment.name}", markup=False)
        for line in dryrun.forecast_lines(plan):
            console.print(line, markup=False, soft_wrap=True)
    return plan


def _connection(job: Job, options: Options) -> Connection | None:
    """The models that may be asked, if any."""
    asked = not options.no_llm and options.replay is None
    return connect(job.experiment, os.environ, options.model) if asked else None


def _run(
    job: Job, options: Options, console: Console, shared: Shared, resume: bool | str
) -> tuple[RunSummary, dict[str, object]]:
    watcher = _observer(options, console, job.experiment)
    connection = _connection(job, options)
    with Archive.open(job.archive) as archive:
        with _pool(job, options) as pool, closing(watcher) if isinstance(watcher, LiveProgress) else nullcontext():
            summary = run_experiment(
                job.experiment,
                archive,
                pool=pool,
                observer=watcher,
                resume=resume,
                replay=options.replay,
                connection=connection,
                notes=options.notes,
                shared=shared,
            )
        folder, files = write_run_folder(archive, summary)
        costs = costs_of(archive, summary.run_id)
        apart = first_difference(archive, options.replay, summary.run_id) if options.replay else None
    if summary.rows:
        console.print(results_table(summary.rows, summary))
    elif not summary.best:
        console.print("no valid candidate; the report says what went wrong", markup=False)
    console.print(f"files     {folder}: {', '.join(file.name for file in files)}", markup=False, soft_wrap=True)
    if costs is not None:
        console.print(costs_line(costs), markup=False, soft_wrap=True)
    if options.replay:
        if apart is not None and summary.status == "finished":
            raise EvoError(f"the replay of {options.replay} is not the same: {apart}", "report this")
        console.print(f"replay    of {options.replay}: the same, candidate by candidate", markup=False)
    for line in next_commands(job, options, summary):
        console.print(line, markup=False, soft_wrap=True)
    return summary, result_json(summary, job.archive, folder) | costs_json(costs)


def _observer(options: Options, console: Console, experiment: Experiment) -> Observer:
    if options.quiet:
        return Silent()
    return (LiveProgress if console.is_terminal else PlainProgress)(console, hint(experiment))


def _exit_code(summary: RunSummary) -> int:
    if summary.status == "interrupted":
        return INTERRUPTED
    if summary.status == "paused":
        return PAUSED
    return 0 if summary.best is not None and summary.status != "failed" else 1
