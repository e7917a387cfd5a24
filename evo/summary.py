"""What a run came to: the final table and its means, from archived facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evo.merit import floor_fraction, ratios, speedup
from evo.observer import Confirmation, GenerationStats, RunSummary, ShapeRow, State, Status
from evo.tally import timings_of
from fitness.outcome import Clock, Timing
from mutations.operator import Judged


def shape_rows(baseline: Sequence[Timing], seed: Sequence[Timing], best: Sequence[Timing]) -> tuple[ShapeRow, ...]:
    """The final table, one row per shape in the task's order.

    Args:
        baseline: its times.
        seed: those of the best starting seed.
        best: those of the answer.
    """
    return tuple(
        ShapeRow(
            shape=timing.shape,
            baseline_us=base.time_us,
            seed_us=start.time_us,
            best_us=timing.time_us,
            speedup=speed,
            gain=gain,
            floor_us=timing.floor_us,
            floor_fraction=timing.floor_us / timing.time_us,
            tflops=timing.tflops,
            gb_per_s=timing.gb_per_s,
            clock=timing.clock,
            limiter=timing.limiter,
        )
        for base, start, timing, speed, gain in zip(
            baseline, seed, best, ratios(baseline, best), ratios(seed, best), strict=True
        )
    )


def summarise(
    *,
    run_id: str,
    name: str,
    status: Status,
    reason: str,
    clock: Clock,
    baseline: tuple[str, tuple[Timing, ...]] | None,
    ranking: Sequence[Judged],
    seed: Judged | None,
    confirmations: Mapping[int, Confirmation],
    state: State,
    generations: tuple[GenerationStats, ...],
) -> RunSummary:
    """Put the summary together.

    `baseline` is (name, times), None when the run ended before them; `ranking` holds the valid candidates
    that were not refuted, fastest first; `seed` is the best starting seed. Once there are `confirmations`,
    only a confirmed candidate is the answer. The other arguments are fields of `RunSummary`.
    """
    sound = [j for j in ranking if (c := confirmations.get(j.candidate.plan.n)) and c.verdict == "confirmed"]
    best = sound[0] if sound else ranking[0] if ranking and not confirmations else None
    timings = timings_of(best) if best is not None else ()
    table = shape_rows(baseline[1], timings_of(seed), timings) if best and seed and baseline else ()
    return RunSummary(
        run_id=run_id,
        name=name,
        status=status,
        reason=reason,
        clock=clock,
        baseline=baseline[0] if baseline else "",
        best=best.candidate if best else None,
        best_timings=timings,
        confirmed=bool(sound),
        confirmations=tuple(confirmations.values()),
        rows=table,
        speedup=speedup(baseline[1], timings) if best and baseline else None,
        gain=speedup(timings_of(seed), timings) if best and seed else None,
        floor_fraction=floor_fraction(timings) if best else None,
        state=state,
        generations=generations,
    )
