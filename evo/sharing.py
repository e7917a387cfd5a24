"""Verdicts that experiments of one `evo run` share: code that is equal on an equal task is judged once.

What a verdict depends on is its scope: task, device, card, limits. Within it, a verdict belongs to compiled code. The
baseline, named by its kernel, is shared likewise. Confirmations are not: each is meant to be made anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from evo.evaluator import DeviceSpec
from evo.experiment import Experiment
from evo.merit import geometric_mean
from fitness.evaluate import HOPELESS
from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome, Timed, TimedOut

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
    """The scopes of one command."""

    def __init__(self) -> None:
        self._scopes: dict[tuple[str, ...], Scope] = {}

    def scope(self, experiment: Experiment, device: DeviceSpec) -> Scope:
        """The scope of an experiment on a device."""
        key = (
            experiment.checked_task.fingerprint,
            device.kind,
            device.gpu,
            experiment.limits.model_dump_json(),
        )
        return self._scopes.setdefault(key, Scope())
