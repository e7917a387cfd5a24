"""Gate 8 for the best: only a confirmed candidate is an answer.

The full lists of gates 4 and 5 run once more in a fresh process with fresh seeds. On the simulator times stay
modelled; on a card the same bits are asked for, NVIDIA's sanitizer looks, and times are taken beside the fastest
vendor routine and the best starting kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from evo.evaluator import Compares
from evo.merit import geometric_mean, speedup
from evo.observer import Confirmation, Stage
from evo.session import Session
from fitness.outcome import Gate, Outcome, Timed
from mutations.operator import Judged

ROUNDS = 4
"""Rounds of `search.confirm` candidates before a run ends without a confirmed one."""


def confirm_best(session: Session) -> bool:
    """Confirm the best of the whole history, and the next ones while all of them are refuted.

    Returns:
        True when at least one candidate is confirmed.
    """
    count = session.experiment.search.confirm
    for _ in range(ROUNDS):
        open_ = [judged for judged in session.ranking() if judged.candidate.plan.n not in session.confirmations]
        confirm(session, open_[:count])
        if any(confirmation.verdict == "confirmed" for confirmation in session.confirmations.values()):
            return True
        if not open_:
            return False
    return False


def confirm(session: Session, judged: Sequence[Judged]) -> None:
    """Take verdicts of gate 8 on these candidates into the session; archived ones are not made again."""
    open_ = []
    for entry in judged:
        known = session.archived_confirmation(entry.candidate.plan.n)
        if known is not None:
            session.confirm(known)
        else:
            open_.append(entry)
    if not open_:
        return
    seed = session.best_seed()
    if seed is not None and isinstance(session.pool, Compares):
        session.pool.compare_with(session.task, seed.candidate.kernel)
    session.stage(Stage.CONFIRM, len(open_))
    kernels = [(entry.candidate.plan.n, entry.candidate.kernel) for entry in open_]
    waiting, outcomes = [n for n, _ in kernels], {}
    for n, outcome in session.pool.judge(session.task, kernels, Gate.CONFIRMATION, None, full=True):
        outcomes[n] = outcome
        session.step()
        while waiting and waiting[0] in outcomes:  # in order of merit, whichever was ready first, and kept at once
            first = waiting.pop(0)
            found = outcomes[first]
            session.confirm(_verdict(session, first, found), found.timings if isinstance(found, Timed) else ())


def _verdict(session: Session, n: int, outcome: Outcome) -> Confirmation:
    evidence: dict[str, object] = {
        "outcome": outcome.kind,
        "stage": outcome.stage.name,
        "code_key": outcome.code_key,
        "findings": [
            {"kind": f.kind, "gate": f.gate.name, "message": f.message, "line": f.line} for f in outcome.findings
        ],
    }
    if not isinstance(outcome, Timed) or session.baseline is None:
        return Confirmation(n, "refuted", None, None, None, evidence)
    baseline = session.baseline[1]
    mean = speedup(baseline, outcome.timings)
    low = geometric_mean(b.time_us / t.high_us for b, t in zip(baseline, outcome.timings, strict=True))
    high = geometric_mean(b.time_us / t.low_us for b, t in zip(baseline, outcome.timings, strict=True))
    return Confirmation(n, "confirmed", mean, low, high, evidence)
