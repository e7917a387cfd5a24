"""Candidates as drawings and lists of a whole run show them: a hundred thousand of them in a second, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from evo.archive import columns
from evo.lineage.genealogy import Lineage, Node


class Sketch(NamedTuple):
    """One candidate in few words.

    Attributes:
        n, generation, island, operator, model, reason: as planned and made.
        refused: its operator made no kernel.
        kind, stage: its verdict and the gate it ended at; None where it has none.
        speedup: against the baseline; None without times.
        confirmed: verdict of gate 8; None where it was not asked.
        parents: in the order the operator had them; in an outline the first at most.
        depth, last: in an outline, 0 deep for a root, last of its siblings.
    """

    n: int
    generation: int
    island: int
    operator: str
    model: str | None
    reason: str
    refused: bool
    kind: str | None
    stage: str | None
    speedup: float | None
    confirmed: str | None
    parents: tuple[int, ...] = ()
    depth: int = 0
    last: bool = True

    @property
    def verdict(self) -> str:
        """Speedup, or in a word or two how it ended."""
        if self.speedup is not None:
            return f"{self.speedup:.2f}x"
        if self.kind is None:
            return "refused" if self.refused else "not judged"
        return f"{self.kind} at gate {self.stage.lower()}" if self.stage is not None else self.kind


def sketch_of(node: Node, depth: int = 0) -> Sketch:
    """Of one node."""
    plan, confirmation = node.plan, node.confirmation
    return Sketch(
        node.n, plan.generation, plan.island, plan.operator, node.model, node.reason, node.refused, node.kind,
        node.stage.name if node.stage is not None else None, node.speedup,
        confirmation.verdict if confirmation is not None else None, plan.parents, depth,
    )  # fmt: skip


def sketches(lineage: Lineage) -> Iterator[Sketch]:
    """Every candidate and refusal, in order of n, one at a time."""
    make = _Maker(lineage)
    for row, parents in columns.sketches(lineage.archive, lineage.run.id):
        yield make(row, parents)


def outline(lineage: Lineage, of: int | None = None) -> Iterator[Sketch]:
    """The genealogy by first parents as `Lineage.walk` has it, each candidate before its children, one at a time.

    Args:
        lineage: of the run.
        of: only what leads to this candidate and comes from it; None shows all.

    Raises:
        RefError: there is no candidate `of`.
    """
    line = lineage.line(of)[:-1] if of is not None else ()
    yield from (sketch_of(node, depth) for depth, node in enumerate(line))
    make = _Maker(lineage)
    for row, depth, last in columns.outline(lineage.archive, lineage.run.id, of):
        yield make(row, (), depth + len(line), last)


class _Maker:
    """Makes sketches of rows of one run."""

    def __init__(self, lineage: Lineage) -> None:
        self._baseline_us = lineage.baseline_us
        self._confirmed = {n: one.verdict for n, one in lineage.archive.confirmations(lineage.run.id).items()}

    def __call__(self, row: columns.Sketched, parents: tuple[int, ...], depth: int = 0, last: bool = True) -> Sketch:
        n, generation, island, operator, model, reason, refused, kind, stage, time_us = row
        base = self._baseline_us
        speedup = base / time_us if base is not None and time_us is not None else None
        return Sketch(n, generation, island, operator, model, reason, bool(refused), kind, stage, speedup,
                      self._confirmed.get(n), parents, depth, last)  # fmt: skip
