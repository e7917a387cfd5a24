"""Verdicts that experiments of one `evo run` share: code that is equal on an equal task is judged once.

What a verdict depends on is its scope: task, device, card, limits. Within it, a verdict belongs to compiled code. The
baseline, named by its kernel, is shared likewise. Confirmations are not: each is meant to be made anew. A command that
goes on after a break takes the verdicts from the archive, which says of each run which ones came before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from evo.archive import Archive, facts
from evo.errors import EvoError
from evo.evaluator import DeviceSpec
from evo.experiment import Experiment
from evo.merit import geometric_mean
from evo.resuming import TOGETHER
from evo.seeding import baseline_kernel
from fitness import gpu as gpus
from fitness.evaluate import HOPELESS
from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome, Timed, TimedOut

SHARED: Final = "shared"
"""Kind of the event that says from which run a verdict was taken."""

_OF_THE_MACHINE: Final = ("engine_defect", "out_of_memory")
"""Kinds of findings that say something of the moment as well: another run may fare better."""


@dataclass(frozen=True)
class Found:
    """A verdict of another run. `where`: that candidate, "nm24-7f3a/42", or "nm24-7f3a/baseline"."""

    outcome: Outcome
    where: str


class Scope:
    """The verdicts known for one task on one device, under the same limits."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}
        self._verdicts: dict[str, tuple[Outcome, bool, str, str]] = {}

    def prepared(self, kernel: Kernel, code_key: str) -> None:
        """Note what a kernel compiles to."""
        self._keys[kernel.id] = code_key

    def code_key(self, kernel: Kernel) -> str | None:
        """What it compiles to, if a run has compiled it."""
        return self._keys.get(kernel.id)

    def judged(self, name: str, outcome: Outcome, *, full: bool, run_id: str, what: str) -> None:
        """Note a verdict under a code key, the id of a kernel that did not compile, or a name of the caller's.

        Args:
            name: the key, id or name.
            outcome: its verdict, as an evaluation gave it.
            full: the small runs were the whole lists.
            run_id: the run that had it judged.
            what: which of its candidates that was, or "baseline".
        """
        screened = isinstance(outcome, Timed) and outcome.stage < Gate.TIMING
        passing = isinstance(outcome, TimedOut) or any(f.kind in _OF_THE_MACHINE for f in outcome.findings)
        if not screened and not passing and name not in self._verdicts:
            self._verdicts[name] = (outcome, full, run_id, what)

    def verdict(self, name: str, *, run_id: str, full: bool, incumbent_us: float | None) -> Found | None:
        """What another run than `run_id` found, if judging again would find the same; the arguments are those of it."""
        outcome, was_full, source, what = self._verdicts.get(name, (None, False, "", ""))
        if outcome is None or source == run_id or (full and not was_full):
            return None
        if isinstance(outcome, Timed) and incumbent_us is not None:
            mean_us = geometric_mean(timing.time_us for timing in outcome.timings)
            if mean_us > HOPELESS * incumbent_us:
                return None  # the timing screen would have stopped it
        return Found(outcome, f"{source}/{what}")


class Shared:
    """The scopes of one command.

    Args:
        names: of its experiments, in order.

    Attributes:
        names: the same.
        runs: ids of the command's runs so far.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.runs: list[str] = []
        self._scopes: dict[tuple[str, ...], Scope] = {}

    def scope(self, experiment: Experiment, device: DeviceSpec) -> Scope:
        """The scope of an experiment on a device."""
        return self._scope(experiment, device.kind, gpus.load(device.gpu).name)

    def _scope(self, experiment: Experiment, device: str, card: str) -> Scope:
        key = (experiment.checked_task.fingerprint, device, card, experiment.limits.model_dump_json())
        return self._scopes.setdefault(key, Scope())

    def begin(self, archive: Archive, run_id: str) -> None:
        """A new run of the command: what it takes from the ones before it can be told again."""
        if len(self.names) > 1:
            archive.add_event(run_id, TOGETHER, {"names": self.names, "before": self.runs})
        self.runs.append(run_id)

    def go_on(self, archive: Archive, run_id: str) -> list[str]:
        """An archived run of the command goes on: know again what it and those before it found.

        Returns:
            Ids of runs before it whose verdicts this archive does not tell: what they share is judged anew.
        """
        lost = self.recall_before(archive, run_id)
        if len(self.names) > 1:
            self.recall(archive, run_id)
        return lost

    def recall_before(self, archive: Archive, run_id: str) -> list[str]:
        """Know again what the runs before an archived one found; see `go_on`."""
        events = archive.events(run_id, TOGETHER)
        before: list[str] = events[0].data["before"] if events else []
        return [each for each in before if each not in self.runs and not self.recall(archive, each)]

    def recall(self, archive: Archive, run_id: str) -> bool:
        """Know again what an archived run found; False where the archive lacks it or this evo cannot read it."""
        record = archive.run(run_id)
        if record is None:
            return False
        try:
            experiment = Experiment.from_dict(record.experiment, where=f"experiment of run {run_id}")
            baseline = baseline_kernel(experiment.checked_task)
        except EvoError:
            return False
        scope = self._scope(experiment, record.device, record.gpu)
        self.runs.append(run_id)
        foreign = {event.data["n"] for event in archive.events(run_id, SHARED)}
        for judged in archive.judged(run_id):
            plan, kernel, outcome = judged.candidate.plan, judged.candidate.kernel, judged.outcome
            if outcome.code_key is not None:
                scope.prepared(kernel, outcome.code_key)
            if judged.reused_from is None and plan.n not in foreign:
                name, full = outcome.code_key or kernel.id, plan.generation == 0
                scope.judged(name, outcome, full=full, run_id=run_id, what=str(plan.n))
        for name, timings in facts.baselines(archive, run_id):
            if name == baseline.name:
                found = Timed(Gate.TIMING, timings=timings)
                scope.judged(f"baseline {baseline.kernel.id}", found, full=True, run_id=run_id, what="baseline")
        return True
