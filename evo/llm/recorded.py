"""What earlier sessions, or the run that is replayed, have archived for a run's models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from evo.archive import Archive
from evo.archive.calls import calls_of
from mutations.llm.prices import Model, Price
from mutations.llm.recording import Call, Recording
from mutations.operator import Judged

MODELS_EVENT = "models"
EXPERIENCE_EVENT = "experience"
NOTE_EVENT = "note"


@dataclass(frozen=True)
class Note:
    """A person's note and the first generation whose prompts show it."""

    text: str
    generation: int


class Recorded:
    """Facts about models in the archive.

    Args:
        archive: open.
        run_id: of the run itself (resume), or of the one that is replayed.
        replay: answers must all come from here, and count again.
    """

    def __init__(self, archive: Archive, run_id: str, *, replay: bool) -> None:
        self._archive = archive
        self._run_id = run_id
        self.replay = replay
        self.calls = calls_of(archive, run_id)
        self._by_n: dict[int | None, list[Call]] = defaultdict(list)
        for call in self.calls:
            self._by_n[call.n].append(call)

    def recording(self, n: int | None) -> Recording:
        """The calls of a candidate (None: the planner's), to be given back."""
        return Recording(self._by_n[n], strict=self.replay)

    def models(self) -> tuple[Model, ...] | None:
        """Models the run was begun with (none at all: empty); None where it has not said yet."""
        events = self._archive.events(self._run_id, MODELS_EVENT)
        if not events:
            return None
        return tuple(
            Model(entry["name"], entry["weight"], Price(*entry["price"]) if entry["price"] else None)
            for entry in events[0].data["models"]
        )

    def experience(self) -> list[tuple[str, Judged]] | None:
        """(run, kernel) of similar tasks that it was begun with; None where it has not said yet."""
        events = self._archive.events(self._run_id, EXPERIENCE_EVENT)
        if not events:
            return None
        found = []
        for run_id, n in events[0].data["kernels"]:
            found += [(run_id, one) for one in self._archive.judged(run_id) if one.candidate.plan.n == n]
        return found

    def notes(self) -> tuple[Note, ...]:
        """Notes of people, in order."""
        events = self._archive.events(self._run_id, NOTE_EVENT)
        return tuple(Note(event.data["text"], event.data["generation"]) for event in events)


def models_data(models: Sequence[Model]) -> dict[str, object]:
    """The models of a run, for its event."""
    rows = [
        {
            "name": model.name,
            "weight": model.weight,
            "price": [model.price.usd_in, model.price.usd_out] if model.price is not None else None,
        }
        for model in models
    ]
    return {"models": rows}


def experience_data(kernels: Sequence[tuple[str, Judged]]) -> dict[str, object]:
    """The experience of a run, for its event."""
    return {"kernels": [[run_id, one.candidate.plan.n] for run_id, one in kernels]}
