"""What a run would start from and cost, before anything is spent: `evo run --dry-run`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from evo import merit
from evo.errors import BaselineError
from evo.evaluator import Evaluator
from evo.experiment import Experiment
from evo.observer import SeedNote
from evo.progress import shape_text, time_text
from evo.seeding import baseline_kernel, refusal, why_not
from evo.starting import first_kernels
from evo.words import counted
from fitness.gpu import Gpu
from fitness.kernel import Kernel
from fitness.outcome import Outcome, Timed, Timing
from mutations.operator import Library

SMALL_HEADROOM = 1.2
"""Below this factor between baseline and floor there is little for a search to find."""


@dataclass(frozen=True)
class SeedVerdict:
    """A starting kernel that was kept, and its verdict."""

    name: str
    outcome: Outcome


@dataclass(frozen=True)
class Forecast:
    """What a dry run found.

    Attributes:
        gpu: the card whose time is modelled; seeds: kept and judged; dropped: not kept, and why.
        baseline: its name; timings: its times, with the floors.
        candidates: the run would judge at most; seconds: it would take at the rate of the seeds, whose lists of
            small runs are longer than those of children.
        refusal: why the run would end with its seeds; None if it would go on.
    """

    gpu: Gpu
    seeds: tuple[SeedVerdict, ...]
    dropped: tuple[SeedNote, ...]
    baseline: str
    timings: tuple[Timing, ...]
    candidates: int
    seconds: float
    refusal: str | None = None

    @property
    def headroom(self) -> float:
        """Baseline / floor, geometric mean over the shapes: no honest kernel gains more."""
        return 1 / merit.floor_fraction(self.timings)


def forecast(
    experiment: Experiment,
    gpu: Gpu,
    pool: Evaluator,
    library: Library | None = None,
    *,
    seedless: bool = False,
    judged: Callable[[int, int], None] = lambda _done, _all: None,
) -> Forecast:
    """Judge the seeds and the baseline, as the run would, and nothing else.

    Args:
        experiment: what would be searched.
        gpu: the card.
        pool: open.
        library: where "archive:similar" in `task.seeds` looks.
        seedless: `seeds = []` is no error, as a model would make the first kernels.
        judged: told how many kernels have their verdict, of how many.

    Raises:
        EvoError: no usable seed, or a baseline that is not valid.
    """
    task = experiment.checked_task
    seeds, notes = first_kernels(experiment, library, gpu.arch, seedless=seedless)
    baseline = baseline_kernel(task)
    kernels: list[tuple[int, Kernel]] = [(n, seed.kernel) for n, seed in enumerate((*seeds, baseline))]
    started = time.monotonic()
    outcomes: dict[int, Outcome] = {}
    judged(0, len(kernels))
    for n, outcome in pool.judge(task, kernels, full=True):
        outcomes[n] = outcome
        judged(len(outcomes), len(kernels))
    seconds_each = (time.monotonic() - started) / len(kernels)
    timed = outcomes[len(seeds)]
    if not isinstance(timed, Timed):
        raise BaselineError(
            f"baseline {baseline.name} is not valid here: {why_not(timed)}", "name another one: task.baseline"
        )
    candidates = planned(experiment, len(seeds))
    seconds = candidates * seconds_each
    if experiment.budget.minutes is not None:
        seconds = min(seconds, 60 * experiment.budget.minutes)
    verdicts = tuple(SeedVerdict(seed.name, outcomes[n]) for n, seed in enumerate(seeds))
    dropped = tuple(note for note in notes if note.dropped is not None)
    refused = refusal([(verdict.name, verdict.outcome) for verdict in verdicts]) if seeds else None
    why = None if refused is None else str(refused)
    return Forecast(gpu, verdicts, dropped, baseline.name, timed.timings, candidates, seconds, why)


def planned(experiment: Experiment, seeds: int) -> int:
    """How many candidates a run would judge at most."""
    candidates = seeds + experiment.search.generations * experiment.search.children
    cap = experiment.budget.evaluations
    return candidates if cap is None else min(candidates, cap)


def forecast_lines(plan: Forecast) -> list[str]:
    """A forecast for a person."""
    clock = plan.timings[0].clock
    where = "simulator of " if clock == "modelled" else ""
    lines = [f"device    {where}{plan.gpu.name} ({plan.gpu.arch}); times are {clock}"]
    lines += [
        f"shape     {shape_text(timing.shape)}: floor {time_text(timing.floor_us)}, "
        f"baseline {time_text(timing.time_us)} ({timing.limiter or 'limiter unknown'})"
        for timing in plan.timings
    ]
    lines += [_seed_line(seed) for seed in plan.seeds]
    lines += [f"dropped   {note.name}: {note.dropped}" for note in plan.dropped]
    lines.append(f"baseline  {plan.baseline}")
    lines.append(f"headroom  {plan.headroom:.2f}x (baseline / floor): no honest kernel gains more")
    if plan.headroom < SMALL_HEADROOM:
        lines.append("warning   the headroom is small: a search can gain little here")
    lines.append(
        f"cost      at most {counted(plan.candidates, 'candidates')}, up to {plan.seconds / 60:.1f} min at the rate of"
        " the seeds; tokens and money only where a model is asked"
    )
    if plan.refusal is not None:
        lines.append(f"refused   {plan.refusal}")
    return lines


def _seed_line(seed: SeedVerdict) -> str:
    outcome = seed.outcome
    if isinstance(outcome, Timed):
        times = ", ".join(time_text(timing.time_us) for timing in outcome.timings)
        return f"seed      {seed.name}: {times}"
    return f"seed      {seed.name}: not valid, {why_not(outcome)}"


def forecast_json(plan: Forecast) -> dict[str, object]:
    """A forecast for a program."""
    return {
        "gpu": plan.gpu.name,
        "shapes": [dict(timing.shape) for timing in plan.timings],
        "floor_us": [timing.floor_us for timing in plan.timings],
        "baseline": plan.baseline,
        "baseline_us": [timing.time_us for timing in plan.timings],
        "clock": plan.timings[0].clock,
        "headroom": plan.headroom,
        "seeds": [
            {
                "name": seed.name,
                "verdict": seed.outcome.kind,
                "time_us": [t.time_us for t in seed.outcome.timings] if isinstance(seed.outcome, Timed) else None,
                "why": [finding.message for finding in seed.outcome.findings],
            }
            for seed in plan.seeds
        ],
        "dropped": [{"name": note.name, "why": note.dropped} for note in plan.dropped],
        "candidates": plan.candidates,
        "minutes": plan.seconds / 60,
        "refusal": plan.refusal,
    }
