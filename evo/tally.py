"""Counting a run: from verdicts to the `State` its observers see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from evo.budget import Budget
from evo.merit import fitness_us, floor_fraction, geometric_mean, speedup
from evo.observer import Best, Stage, State
from fitness.outcome import Gate, Timed, Timing
from mutations.operator import Judged


class Tally:
    """Counters of one run. `baseline` is set once its times are known.

    Args:
        generations: planned after the seeds; seeds: number of starting kernels, set when known.
        budget: of the run; replayed verdicts count as evaluations, but not into the rate.
    """

    def __init__(self, generations: int, budget: Budget) -> None:
        self._generations = generations
        self._budget = budget
        self.baseline: tuple[Timing, ...] = ()
        self.seeds = 0
        self.generation = 0
        self._stage, self._done, self._total = Stage.BASELINE, 0, 1
        self.planned = 0
        self.refused = 0
        self._judged = 0
        self._replayed = 0
        self._valid = 0
        self._duplicates = 0
        self._evaluations = 0
        self._shared = 0
        self._failed: Counter[Gate] = Counter()
        self._best: Judged | None = None
        self._best_seed: Judged | None = None

    def stage(self, stage: Stage, total: int, done: int = 0) -> None:
        """Enter a stage of `total` items, or advance in it."""
        self._stage, self._done, self._total = stage, done, total

    def step(self) -> None:
        """One more item of the stage is done."""
        self._done += 1

    def judged(self, judged: Judged, *, replayed: bool, shared: bool = False) -> None:
        """Count a verdict; `replayed` when it comes from the archive, `shared` when from another run."""
        outcome = judged.outcome
        self._judged += 1
        self._replayed += replayed
        if judged.reused_from is not None:
            self._duplicates += 1
        elif shared:
            self._shared += 1
        else:
            self._evaluations += 1
        if not isinstance(outcome, Timed):
            self._failed[outcome.stage] += 1
            return
        self._valid += 1
        if _faster(judged, self._best):
            self._best = judged
        if judged.candidate.plan.n < self.seeds and _faster(judged, self._best_seed):
            self._best_seed = judged

    def refuted(self, remaining: Sequence[Judged]) -> None:
        """Find the best again among the valid candidates that remain after a failed confirmation."""
        self._best = self._best_seed = None
        for judged in remaining:
            if _faster(judged, self._best):
                self._best = judged
            if judged.candidate.plan.n < self.seeds and _faster(judged, self._best_seed):
                self._best_seed = judged

    def state(self) -> State:
        """Where the run stands now."""
        elapsed_s = self._budget.session_s
        fresh = self._judged - self._replayed
        return State(
            generation=self.generation,
            generations=self._generations,
            stage=self._stage,
            stage_done=self._done,
            stage_total=self._total,
            planned=self.planned,
            judged=self._judged,
            valid=self._valid,
            duplicates=self._duplicates,
            refused=self.refused,
            evaluations=self._evaluations,
            failed=dict(sorted(self._failed.items())),
            best=self._best_now(),
            elapsed_s=elapsed_s,
            per_minute=60 * fresh / elapsed_s if elapsed_s > 0 else 0.0,
            budget=self._budget.lines(),
            shared=self._shared,
        )

    def _best_now(self) -> Best | None:
        if self._best is None or not self.baseline:
            return None
        timings = timings_of(self._best)
        plan = self._best.candidate.plan
        return Best(
            n=plan.n,
            time_us=geometric_mean(timing.high_us for timing in timings),
            speedup=speedup(self.baseline, timings),
            gain=speedup(timings_of(self._best_seed), timings) if self._best_seed is not None else None,
            floor_fraction=floor_fraction(timings),
            generation=plan.generation,
            operator=plan.operator,
        )


def timings_of(judged: Judged) -> tuple[Timing, ...]:
    """Times of a valid candidate.

    Raises:
        TypeError: it is not valid.
    """
    if not isinstance(judged.outcome, Timed):
        raise TypeError(f"candidate {judged.candidate.plan.n} is {judged.outcome.kind}, it has no times")
    return judged.outcome.timings


def _faster(judged: Judged, than: Judged | None) -> bool:
    """Strictly faster, or as fast with a smaller n (verdicts arrive in any order)."""
    ours = fitness_us(judged.outcome)
    theirs = fitness_us(than.outcome) if than is not None else None
    if ours is None:
        return False
    if than is None or theirs is None:
        return True
    return (ours, judged.candidate.plan.n) < (theirs, than.candidate.plan.n)
