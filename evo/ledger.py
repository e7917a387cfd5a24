"""What an operator may ask of the engine: the `Ledger`, `Library` and `Recorder` of `mutations.operator`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from evo.archive import Archive, RunRecord
from evo.merit import fitness_us
from evo.observer import Observer
from evo.similarity import SAME_TYPES, distance
from fitness.task import Task, TaskError
from mutations.operator import Candidate, Judged


class RunLedger:
    """Kernels that are part of the run, by id, with the first candidate of each, and the times they took."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._first: dict[str, int] = {}
        self._pending: dict[int, Candidate] = {}
        self._timed: dict[int, Judged] = {}
        for candidate in candidates:
            self.add(candidate)

    def add(self, candidate: Candidate) -> None:
        """Note a candidate; the first of a kernel stays."""
        self._first.setdefault(candidate.kernel.id, candidate.plan.n)
        self._pending[candidate.plan.n] = candidate

    def tried(self, kernel_id: str) -> bool:
        """True if this exact kernel (source + params) is already part of the run."""
        return kernel_id in self._first

    def judged(self, judged: Judged) -> None:
        """Note the verdict on a candidate; verdicts may come in any order."""
        n = judged.candidate.plan.n
        self._pending.pop(n, None)
        if fitness_us(judged.outcome) is not None:
            self._timed[n] = judged

    def pending(self) -> Sequence[Candidate]:
        """Candidates without a verdict yet, in order of n."""
        return tuple(self._pending[n] for n in sorted(self._pending))

    def timed(self) -> Sequence[Judged]:
        """Candidates that were right and timed at every shape, in order of n."""
        return tuple(self._timed[n] for n in sorted(self._timed))

    def first(self, kernel_id: str) -> int | None:
        """The first candidate of this kernel, or None."""
        return self._first.get(kernel_id)


class ArchiveLibrary:
    """Confirmed kernels of similar tasks, from other runs of the archive.

    Args:
        archive: open.
        run_id: of the run that asks, whose own kernels are no experience.
        arch: the architecture it runs on ("sm_90a"): kernels of others are farther away.
    """

    def __init__(self, archive: Archive, run_id: str | None, arch: str) -> None:
        self._archive = archive
        self._run_id = run_id
        self._arch = arch

    def similar(self, task: Task, limit: int) -> Sequence[Judged]:
        """Confirmed kernels that can serve `task` as seeds: its op, types and layouts; the nearest tasks first."""
        near = [found for found in self._nearest(task) if found[0] < SAME_TYPES]
        return tuple(one for _, one in self._kernels(near, limit))

    def ranked(self, task: Task, limit: int) -> list[tuple[str, Judged]]:
        """Confirmed kernels to learn from, with their runs: of its op, whatever the types; the nearest tasks first."""
        return self._kernels(self._nearest(task), limit)

    def _nearest(self, task: Task) -> list[tuple[float, RunRecord, int]]:
        """(distance, run, n) of every confirmed kernel of the op in other runs; ties in the archive's order."""
        known: dict[str, float] = {}
        ranked = []
        for run, n in self._archive.confirmed():
            if run.id == self._run_id:
                continue
            if run.id not in known:
                other = _task_of(run.experiment)
                known[run.id] = math.inf if other is None else distance(task, self._arch, other, run.arch)
            if known[run.id] < math.inf:
                ranked.append((known[run.id], run, n))
        ranked.sort(key=lambda item: item[0])  # stable: the archive's order within
        return ranked

    def _kernels(self, ranked: Sequence[tuple[float, RunRecord, int]], limit: int) -> list[tuple[str, Judged]]:
        found: dict[str, tuple[str, Judged]] = {}
        for _, run, n in ranked:
            if len(found) >= limit:
                break
            for judged in self._archive.judged(run.id):
                if judged.candidate.plan.n == n:
                    found.setdefault(judged.candidate.kernel.id, (run.id, judged))
        return list(found.values())


class RunRecorder:
    """Events of operators into the archive and to the observer."""

    def __init__(self, archive: Archive, run_id: str, observer: Observer) -> None:
        self._archive = archive
        self._run_id = run_id
        self._observer = observer

    def event(self, kind: str, data: dict[str, object]) -> None:
        """Record one event of this run."""
        self._archive.add_event(self._run_id, kind, data)
        self._observer.on_event(kind, data)


def _task_of(experiment: Mapping[str, object]) -> Task | None:
    """The task of an archived experiment; None where this version does not know it."""
    table = experiment.get("task")
    try:
        return Task.from_spec(table) if isinstance(table, Mapping) else None
    except TaskError:
        return None
