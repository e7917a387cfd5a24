"""Kernels that a person adds to a run: queued in the archive, taken in at the next generation."""

from __future__ import annotations

from evo.archive import Archive, Event, Refused
from evo.errors import EvoError
from evo.search import INJECTED
from evo.session import Session
from fitness.kernel import Kernel, parse_kernel
from fitness.task import Task
from mutations.operator import Candidate, Plan

EVENT = "inject"


def queue(archive: Archive, run_id: str, task: Task, kernel: Kernel, name: str, why: str) -> None:
    """Queue a kernel for a run, which may be under way in another process.

    Raises:
        EvoError: the task cannot use it.
    """
    errors = [finding for finding in task.domain_violations(kernel) if finding.severity == "error"]
    if errors:
        raise EvoError(f"{name} does not serve the task of {run_id}: {errors[0].message}", errors[0].suggestion)
    data = {"name": name, "source": kernel.source, "params": dict(kernel.params), "why": why}
    archive.add_event(run_id, EVENT, data)


class Injections:
    """What is due in each generation of a run.

    Args:
        session: the run.
        replay_of: the run that is replayed; then its injections are taken, in its generations.
    """

    def __init__(self, session: Session, replay_of: str | None = None) -> None:
        self._session = session
        self._replayed: list[Candidate] | None = None
        if replay_of is not None:
            entries = session.archive.entries(replay_of)
            self._replayed = [e for e in entries if not isinstance(e, Refused) and e.plan.operator == INJECTED]

    def due(self, generation: int) -> int:
        """How many kernels join this generation: as many as an earlier session took, else all that wait."""
        if generation == 0:
            return 0
        if self._replayed is not None:
            return sum(entry.plan.generation == generation for entry in self._replayed)
        plans = [plan for plan in self._session.archived_plans() if plan.generation == generation]
        if plans:
            return sum(plan.operator == INJECTED for plan in plans)
        return max(0, len(self._events()) - self._taken())

    def make(self, plan: Plan) -> Candidate:
        """The candidate of an injected plan."""
        if self._replayed is not None:
            old = next(entry for entry in self._replayed if entry.plan.n == plan.n)
            return Candidate(plan, old.kernel, old.reason)
        data = self._events()[self._taken()].data
        kernel = parse_kernel(data["source"], path=data["name"], params=data["params"])
        return Candidate(plan, kernel, f"a person added {data['name']}" + (f": {data['why']}" if data["why"] else ""))

    def _events(self) -> list[Event]:
        return self._session.archive.events(self._session.run_id, EVENT)

    def _taken(self) -> int:
        return sum(entry.plan.operator == INJECTED for entry in self._session.entries.values())
