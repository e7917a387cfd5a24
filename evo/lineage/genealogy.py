"""`Lineage`: the candidates of one run as nodes of a graph, read as they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from evo.archive import Archive, RunRecord, facts
from evo.archive.facts import Row
from evo.errors import RefError
from evo.lineage.difference import Difference, difference
from evo.observer import Confirmation
from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome, Timed, Timing
from mutations.operator import Plan


@dataclass(frozen=True)
class Node:
    """One plan of a run and what it came to.

    Attributes:
        run_id, plan: which one; its number is `n`.
        kernel_id: None where the operator refused; reason: of the change, or of the refusal.
        model: the language model that wrote it, None for built-in operators.
        kind: name of the verdict ("Timed", "WrongResult", ...), None where refused or not judged yet;
            stage: the gate it ended at; reused_from: whose verdict it is.
        time_us: the fitness, geometric mean over the shapes of the upper bounds; None without times.
        speedup: against the run's baseline, None without times.
        confirmation: verdict of gate 8, None where it was not asked.
        cost_s: seconds compiling and judging it took.
    """

    run_id: str
    plan: Plan
    kernel_id: str | None
    reason: str
    model: str | None
    kind: str | None
    stage: Gate | None
    reused_from: int | None
    time_us: float | None
    speedup: float | None
    confirmation: Confirmation | None
    cost_s: float
    archive: Archive = field(repr=False, compare=False)

    @property
    def n(self) -> int:
        """Number of the candidate."""
        return self.plan.n

    @property
    def refused(self) -> bool:
        """True where its operator made no kernel."""
        return self.kernel_id is None

    @cached_property
    def kernel(self) -> Kernel | None:
        """Its kernel, read from the archive; None where the operator refused."""
        return facts.kernel(self.archive, self.kernel_id) if self.kernel_id is not None else None

    @cached_property
    def outcome(self) -> Outcome | None:
        """The whole verdict, read from the archive; None where refused or not judged yet."""
        return facts.outcome(self.archive, self.run_id, self.n) if self.kind is not None else None

    @property
    def timings(self) -> tuple[Timing, ...]:
        """Times per shape; empty without."""
        return self.outcome.timings if isinstance(self.outcome, Timed) else ()


@dataclass(frozen=True)
class Step:
    """One step of a path: a candidate, how it differs from the one before, and the gain over it.

    `change` and `gain` (time before / time now) are None for the seed; `gain` also where one of the two has no time.
    """

    node: Node
    change: Difference | None
    gain: float | None = None


@dataclass(frozen=True)
class Branch:
    """A candidate with those whose first parent it is, in order of n."""

    node: Node
    children: tuple[Branch, ...] = field(default=())


class Lineage:
    """The genealogy of one run.

    Args:
        archive: open, and left open while nodes are used.
        run: the run, or its id.

    Raises:
        RefError: no such run.
    """

    def __init__(self, archive: Archive, run: RunRecord | str) -> None:
        record = archive.run(run) if isinstance(run, str) else run
        if record is None:
            raise RefError(f"no run {run} in {archive.path}", "name one that is there")
        self.archive = archive
        self.run = record
        self.baseline = archive.baseline(record.id)
        self.baseline_us = facts.baseline_us(archive, record.id)

    def nodes(self) -> Iterator[Node]:
        """Every candidate and refusal, in order of n, one at a time."""
        return map(self._node_of, facts.candidates(self.archive, self.run.id))

    def node(self, n: int) -> Node:
        """One candidate.

        Raises:
            RefError: the run has no such candidate.
        """
        for row in facts.candidates(self.archive, self.run.id, n):
            return self._node_of(row)
        last = facts.last(self.archive, self.run.id)
        there = f"0 to {last}" if last is not None else "none yet"
        raise RefError(f"run {self.run.id} has no candidate {n}", f"its candidates: {there}")

    def best(self) -> Node | None:
        """The answer: the fastest confirmed candidate; while nothing is confirmed, the fastest valid one."""
        asked = bool(self.archive.confirmations(self.run.id))
        for n in facts.fastest(self.archive, self.run.id, confirmed=asked, limit=1):
            return self.node(n)
        return None

    def answer(self) -> Node:
        """The best.

        Raises:
            RefError: the run has no valid candidate.
        """
        best = self.best()
        if best is None:
            raise RefError(f"run {self.run.id} has no valid candidate", f"name one by its number: {self.run.id}/0")
        return best

    def parents(self, n: int) -> tuple[Node, ...]:
        """Parents of a candidate, in the order the operator had them; none for a seed."""
        return tuple(self.node(parent) for parent in self.node(n).plan.parents)

    def children(self, n: int) -> tuple[Node, ...]:
        """Every candidate that has n among its parents, in order of n."""
        self.node(n)
        return tuple(self.node(child) for child in facts.children(self.archive, self.run.id, n))

    def ancestors(self, n: int) -> tuple[Node, ...]:
        """Every candidate n descends from, by any parent, in order of n."""
        self.node(n)
        numbers = facts.line(self.archive, self.run.id, n, all_parents=True)
        return tuple(self.node(number) for number in numbers if number != n)

    def line(self, n: int) -> tuple[Node, ...]:
        """From the seed to n along first parents."""
        self.node(n)
        return tuple(self.node(one) for one in facts.line(self.archive, self.run.id, n, all_parents=False))

    def path(self, n: int) -> tuple[Step, ...]:
        """The line from the seed to n, each step with what changed in it and what it gained."""
        steps: list[Step] = []
        for node in self.line(n):
            before = steps[-1].node if steps else None
            change = (
                difference(before.kernel, node.kernel)
                if before is not None and before.kernel is not None and node.kernel is not None
                else None
            )
            steps.append(Step(node, change, gain(before, node)))
        return tuple(steps)

    def diff(self, old: int, new: int) -> Difference:
        """How candidate `new` differs from candidate `old`.

        Raises:
            RefError: one of them does not exist, or was refused and has no kernel.
        """
        return node_difference(self.node(old), self.node(new))

    def tree(self, of: int | None = None) -> tuple[Branch, ...]:
        """The genealogy by first parents, one branch per seed.

        Args:
            of: show only what leads to this candidate and comes from it; None shows all.
        """
        first: dict[int | None, list[int]] = {}
        for n, parent in facts.first_parents(self.archive, self.run.id):
            first.setdefault(parent, []).append(n)
        nodes = {node.n: node for node in self.nodes()} if of is None else self._relatives(of, first)
        branches: dict[int, Branch] = {}
        for n in sorted(nodes, reverse=True):  # children have larger numbers than their parents
            inner = (branches[child] for child in first.get(n, ()) if child in nodes)
            branches[n] = Branch(nodes[n], tuple(inner))
        return tuple(branches[n] for n in first.get(None, ()) if n in nodes)

    def _relatives(self, of: int, first: Mapping[int | None, list[int]]) -> dict[int, Node]:
        """Its line and what descends from it."""
        nodes = {node.n: node for node in self.line(of)}
        open_ = [of]
        while open_:
            children = first.get(open_.pop(), [])
            nodes |= {child: self.node(child) for child in children}
            open_.extend(children)
        return nodes

    def _node_of(self, row: Row) -> Node:
        time_us = row["time_us"]
        comparable = self.baseline_us is not None and time_us is not None
        return Node(
            run_id=row["run_id"],
            plan=Plan(
                row["n"],
                row["generation"],
                row["island"],
                row["operator"],
                tuple(json.loads(row["parents"])),
                tuple(json.loads(row["inspirations"] or "[]")),
            ),
            kernel_id=row["kernel_id"],
            reason=row["reason"],
            model=row["model"],
            kind=row["kind"],
            stage=Gate[row["stage"]] if row["stage"] in Gate.__members__ else None,
            reused_from=row["reused_from"],
            time_us=row["fitness_us"],
            speedup=self.baseline_us / time_us if comparable and self.baseline_us is not None else None,
            confirmation=_confirmation_of(row),
            cost_s=(row["compile_s"] or 0.0) + (row["evaluate_s"] or 0.0),
            archive=self.archive,
        )


def gain(before: Node | None, node: Node) -> float | None:
    """Time before / time now (of the fitness); None where one of them has none."""
    if before is None or before.time_us is None or node.time_us is None:
        return None
    return before.time_us / node.time_us


def node_difference(old: Node, new: Node) -> Difference:
    """How one candidate differs from another, of this run or of any other.

    Raises:
        RefError: one of them was refused and has no kernel.
    """
    for node in (old, new):
        if node.kernel is None:
            raise RefError(f"candidate {node.n} was refused by its operator, it has no kernel", "choose another one")
    assert old.kernel is not None
    assert new.kernel is not None
    return difference(old.kernel, new.kernel)


def _confirmation_of(row: Row) -> Confirmation | None:
    if row["verdict"] is None:
        return None
    evidence = json.loads(row["evidence"] or "{}")
    return Confirmation(row["n"], row["verdict"], row["confirmed_speedup"], row["low"], row["high"], evidence)
