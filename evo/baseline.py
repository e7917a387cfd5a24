"""What every speedup of a run is counted against: timed once, archived with all that was timed for it."""

from __future__ import annotations

from collections.abc import Sequence

from evo.archive import facts
from evo.errors import BaselineError
from evo.evaluator import VendorTimes
from evo.observer import Stage
from evo.seeding import Seed, why_not
from evo.session import Session
from fitness.baselines import BaselineTimes, fastest
from fitness.outcome import Gate, Timed, Timing

BASELINE_N = -1
"""Number under which the baseline goes through the pool; it is no candidate."""


def time_baseline(session: Session, kernel: Seed) -> None:
    """Give a session its baseline: as archived, else a card's vendor routines, else `kernel`, judged as the seeds are.

    Raises:
        BaselineError: what is to be the baseline gives no times here.
    """
    known = next(facts.baselines(session.archive, session.run_id), None)
    if known is None:
        vendors = _vendor_times(session)
        known = _chosen(session, vendors) or (kernel.name, _judged(session, kernel).timings)
        others = {entry.name: entry.timings for entry in vendors if entry.timings and entry.name != known[0]}
        session.archive.add_baseline(session.run_id, *known, others)
    session.baseline = known
    session.tally.baseline = known[1]


def intended(session: Session, kernel: Seed) -> str:
    """What is going to be the baseline, as told before anything is timed."""
    asked = session.task.baseline_routine
    if not isinstance(session.pool, VendorTimes) or not (asked or session.task.baseline == "auto"):
        return kernel.name
    return asked or f"the fastest vendor routine of each shape, or {kernel.name} where none computes this"


def _vendor_times(session: Session) -> tuple[BaselineTimes, ...]:
    """Every vendor routine, told; none on the modelled clock, or where a kernel is named as the baseline."""
    asked = session.task.baseline == "auto" or session.task.baseline_routine
    if not isinstance(session.pool, VendorTimes) or not asked:
        return ()
    session.stage(Stage.BASELINE, 1)
    times = session.pool.baselines(session.task)
    for entry in times:
        session.event("vendor", {"message": f"{entry.name}: {entry.told}"})
    session.step()
    return times


def _chosen(session: Session, vendors: Sequence[BaselineTimes]) -> tuple[str, tuple[Timing, ...]] | None:
    """The routine the task names, or the fastest at each shape; None without any."""
    name = session.task.baseline_routine
    if not name or not vendors:
        return fastest(vendors)
    (own,) = (entry for entry in vendors if entry.name == name)
    if not own.timings:
        raise BaselineError(f"baseline {name} gives no times here: {own.why_not}", 'write baseline = "auto"')
    return name, own.timings


def _judged(session: Session, kernel: Seed) -> Timed:
    session.stage(Stage.BASELINE, 1)
    name, run_id = f"baseline {kernel.kernel.id}", session.run_id
    found = session.shared.verdict(name, run_id=run_id, full=True, incumbent_us=None)
    if found is None:
        jobs = [(BASELINE_N, kernel.kernel)]
        ((_, outcome),) = session.pool.judge(session.task, jobs, Gate.TIMING, None, full=True)
        session.shared.judged(name, outcome, full=True, run_id=run_id, what="baseline")
    else:
        outcome = found.outcome
    if not isinstance(outcome, Timed):
        raise BaselineError(
            f"baseline {kernel.name} is not usable here: {why_not(outcome)}", "name another kernel in task.baseline"
        )
    session.step()
    return outcome
