"""What a run tells those who watch it: the `Observer` protocol and the frozen facts it hands over.

`loop.py` calls an observer from the main thread, in this order:

    on_start, (on_stage | on_judged | on_event)*, on_generation, ... , on_end

Nothing an observer does changes the run; one that raises ends it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fitness.outcome import Clock, Gate, Timing
from mutations.operator import Candidate, Judged

Status = Literal["running", "finished", "stopped", "paused", "interrupted", "failed"]
"""A run as the archive stores it.

"finished": all generations done or the target reached; "stopped": a budget ended it; "paused": a person is
asked (`[pause]`); "interrupted": Ctrl-C or SIGTERM; "failed": an error ended it; "running": under way, or
killed. All but "finished" can be resumed.
"""


class Stage(enum.Enum):
    """What a run is doing right now."""

    BASELINE = "baseline"
    PROPOSE = "propose"
    PREPARE = "prepare"
    JUDGE = "judge"
    CONFIRM = "confirm"


@dataclass(frozen=True)
class BudgetLine:
    """One budget: `limit` is None where unlimited; `used` includes what earlier sessions of the run used."""

    kind: Literal["evaluations", "minutes", "gpu_minutes", "tokens", "usd"]
    used: float
    reserved: float
    limit: float | None

    @property
    def left(self) -> float | None:
        """What may still be spent, never negative; None where unlimited."""
        return None if self.limit is None else max(0.0, self.limit - self.used - self.reserved)


@dataclass(frozen=True)
class SeedNote:
    """A starting kernel: its name (path or archive reference) and, when it was dropped, why."""

    name: str
    dropped: str | None = None


@dataclass(frozen=True)
class RunInfo:
    """What is known before the first evaluation.

    Attributes:
        run_id: "nm24-7f3a"; name: the experiment's name; rng_seed: of the search.
        archive: path of the archive; device: "simulator" or "cuda"; gpu, arch, clock: what is timed.
        shapes: timed shapes, in the order of all times; floor_us: roofline floor of each.
        operators: name -> weight; model: the language model in use, or None.
        seeds: every seed considered; baseline: name of the baseline kernel.
        generations, children, islands: from the experiment; workers: processes.
        resumed: candidates already archived when this session started (0 for a new run).
        limits: the budgets at start.
    """

    run_id: str
    name: str
    rng_seed: int
    archive: str
    device: str
    gpu: str
    arch: str
    clock: Clock
    shapes: tuple[Mapping[str, int], ...]
    floor_us: tuple[float, ...]
    operators: Mapping[str, float]
    model: str | None
    seeds: tuple[SeedNote, ...]
    baseline: str
    generations: int
    children: int
    islands: int
    workers: int
    resumed: int
    limits: tuple[BudgetLine, ...]


@dataclass(frozen=True)
class Best:
    """The fastest valid candidate so far.

    Attributes:
        n: its number; time_us: geometric mean over the shapes (the fitness).
        speedup: against the baseline; gain: against the best starting seed (None before there is one).
        floor_fraction: geometric mean over the shapes of floor / time (1.0 is the roofline).
        generation, operator: where it came from.
    """

    n: int
    time_us: float
    speedup: float
    gain: float | None
    floor_fraction: float
    generation: int
    operator: str


@dataclass(frozen=True)
class State:
    """Where a run stands.

    Attributes:
        generation: the current one (0 = seeds); generations: how many are planned after the seeds.
        stage: what is being done; stage_done of stage_total items.
        planned: candidates planned so far; judged: with a verdict (reused ones and failures counted).
        valid: judged ones that passed; duplicates: verdicts reused from an equal kernel.
        refused: plans no operator could fulfil; evaluations: verdicts the evaluator was asked for.
        failed: gate -> candidates that ended there invalid.
        best: fastest valid so far.
        elapsed_s: seconds of this session; per_minute: judged candidates of this session per minute.
        budget: every budget, used and left.
        shared: verdicts taken from another run of the same command.
    """

    generation: int
    generations: int
    stage: Stage
    stage_done: int
    stage_total: int
    planned: int
    judged: int
    valid: int
    duplicates: int
    refused: int
    evaluations: int
    failed: Mapping[Gate, int]
    best: Best | None
    elapsed_s: float
    per_minute: float
    budget: tuple[BudgetLine, ...]
    shared: int = 0


@dataclass(frozen=True)
class GenerationStats:
    """Times of one generation's valid candidates, microseconds (None where there are none).

    `best_us` is the best of the whole history up to this generation, `generation_best_us` of this one.
    """

    generation: int
    judged: int
    valid: int
    best_us: float | None
    generation_best_us: float | None
    median_us: float | None
    worst_us: float | None


@dataclass(frozen=True)
class ShapeRow:
    """One row of the final table. Times in microseconds on `clock`.

    `seed_us`: the best starting seed at this shape; `speedup` = baseline_us / best_us; `gain` =
    seed_us / best_us; `floor_fraction` = floor_us / best_us; `limiter` in an engineer's words.
    """

    shape: Mapping[str, int]
    baseline_us: float
    seed_us: float
    best_us: float
    speedup: float
    gain: float
    floor_us: float
    floor_fraction: float
    tflops: float
    gb_per_s: float
    clock: Clock
    limiter: str


@dataclass(frozen=True)
class Confirmation:
    """Verdict of gate 8 on one candidate.

    Attributes:
        n: the candidate; verdict: "confirmed" or "refuted".
        speedup: against the baseline on the confirmation's own times, with its interval low..high
            (equal on the modelled clock); None when refuted.
        evidence: what was run and what was found, JSON-able.
    """

    n: int
    verdict: Literal["confirmed", "refuted"]
    speedup: float | None
    low: float | None
    high: float | None
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSummary:
    """What a run came to.

    Attributes:
        run_id, name, status: see `Status`; reason: why it ended, one phrase.
        baseline: name of the baseline kernel.
        best: the best *confirmed* candidate of the whole history (of all valid ones when the run ended
            before the confirmation; `confirmed` says which), None if nothing was valid.
        best_timings: its times, in the order of the shapes.
        confirmed: True when `best` passed gate 8; confirmations: all of them, best first.
        rows: the final table; speedup, gain, floor_fraction: geometric means over its rows.
        state: final counters; generations: statistics per generation.
    """

    run_id: str
    name: str
    status: Status
    reason: str
    clock: Clock
    baseline: str
    best: Candidate | None
    best_timings: tuple[Timing, ...]
    confirmed: bool
    confirmations: tuple[Confirmation, ...]
    rows: tuple[ShapeRow, ...]
    speedup: float | None
    gain: float | None
    floor_fraction: float | None
    state: State
    generations: tuple[GenerationStats, ...]


class Observer(Protocol):
    """Watches a run. All methods are called from the main thread."""

    def on_start(self, info: RunInfo) -> None:
        """The run is set up; nothing has been judged yet in this session."""

    def on_stage(self, state: State) -> None:
        """A stage began or advanced (`state.stage`, `stage_done` of `stage_total`)."""

    def on_judged(self, judged: Judged, state: State) -> None:
        """One candidate has its verdict (it is archived already)."""

    def on_event(self, kind: str, data: Mapping[str, object]) -> None:
        """Something worth saying aloud: "warning", "seed_failed", "confirmed", "refuted", "migration", ..."""

    def on_generation(self, stats: GenerationStats, state: State) -> None:
        """A generation is complete."""

    def on_end(self, summary: RunSummary) -> None:
        """The run ended or was interrupted; called once. Not called when an error ends it: that is raised."""


class Silent:
    """An observer that watches nothing (tests, library use)."""

    def on_start(self, info: RunInfo) -> None:
        """Ignore."""

    def on_stage(self, state: State) -> None:
        """Ignore."""

    def on_judged(self, judged: Judged, state: State) -> None:
        """Ignore."""

    def on_event(self, kind: str, data: Mapping[str, object]) -> None:
        """Ignore."""

    def on_generation(self, stats: GenerationStats, state: State) -> None:
        """Ignore."""

    def on_end(self, summary: RunSummary) -> None:
        """Ignore."""
