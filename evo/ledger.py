"""What an operator may ask of the engine: the `Ledger`, `Library` and `Recorder` of `mutations.operator`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from evo.archive import Archive, RunRecord
from evo.observer import Observer
from fitness.task import Task, TaskError
from mutations.operator import Candidate, Judged


class RunLedger:
    """Kernels that are part of the run, by id, with the first candidate of each."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._first: dict[str, int] = {}
        for candidate in candidates:
            self.add(candidate)

    def add(self, candidate: Candidate) -> None:
        """Note a candidate; the first of a kernel stays."""
        self._first.setdefault(candidate.kernel.id, candidate.plan.n)

    def tried(self, kernel_id: str) -> bool:
        """True if this exact kernel (source + params) is already part of the run."""
        return kernel_id in self._first

    def first(self, kernel_id: str) -> int | None:
        """The first candidate of this kernel, or None."""
        return self._first.get(kernel_id)


class ArchiveLibrary:
    """Confirmed kernels of similar tasks, from other runs of the archive."""

    def __init__(self, archive: Archive, run_id: str | None = None) -> None:
        self._archive = archive
        self._run_id = run_id

    def similar(self, task: Task, limit: int) -> Sequence[Judged]:
        """Confirmed kernels of the same op, pattern and dtypes: same shapes first, then latest runs first."""
        ranked: list[tuple[bool, RunRecord, int]] = []
        for run, n in self._archive.confirmed():
            other = _task_of(run.experiment)
            if run.id != self._run_id and other is not None and _kind(other) == _kind(task):
                ranked.append((other.fingerprint != task.fingerprint, run, n))
        ranked.sort(key=lambda item: item[0])  # stable: the archive's order within
        found: dict[str, Judged] = {}
        for _, run, n in ranked:
            if len(found) >= limit:
                break
            for judged in self._archive.judged(run.id):
                if judged.candidate.plan.n == n:
                    found.setdefault(judged.candidate.kernel.id, judged)
        return tuple(found.values())


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


def _kind(task: Task) -> tuple[object, ...]:
    pattern = dict(task.pattern) if task.pattern is not None else None
    return task.op, pattern, task.dtype, task.out_dtype, task.x_layout, task.y_layout
