"""`Lineage`: the candidates of one run as nodes of a graph, read as they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
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


class Node:
    """One plan of a run and what it came to; a view of its row, read further as it is asked for.

    Attributes:
        n: number of the candidate. run_id: its run. archive: holds it, and stays open.
    """

    __slots__ = ("__dict__", "_baseline_us", "_row", "archive", "n")

    def __init__(self, row: Row, baseline_us: float | None, archive: Archive) -> None:
        self._row = row
        self._baseline_us = baseline_us
        self.archive = archive
        self.n: int = row["n"]

    def __eq__(self, other: object) -> bool:
        """The same candidate in the same state, of whatever copy of the archive."""
        return isinstance(other, Node) and self.plan == other.plan and _told(self) == _told(other)

    def __hash__(self) -> int:
        return hash((self.run_id, self.n))

    def __repr__(self) -> str:
        return f"Node({self.run_id}/{self.n})"

    @property
    def run_id(self) -> str:
        """The run it belongs to."""
        return str(self._row["run_id"])

    @cached_property
    def plan(self) -> Plan:
        """What was planned: generation, island, operator, parents, inspirations."""
        row = self._row
        inspirations = tuple(json.loads(row["inspirations"] or "[]"))
        known: str | None = row["parents"]
        parents = tuple(json.loads(known) if known is not None else facts.parents(self.archive, self.run_id, self.n))
        return Plan(self.n, row["generation"], row["island"], row["operator"], parents, inspirations)

    @property
    def operator(self) -> str:
        """The operator that was to make it (as `plan.operator`, without reading the plan)."""
        return str(self._row["operator"])

    @property
    def kernel_id(self) -> str | None:
        """Key of its kernel; None where the operator refused."""
        found: str | None = self._row["kernel_id"]
        return found

    @property
    def reason(self) -> str:
        """Of the change, or of the refusal."""
        return str(self._row["reason"])

    @property
    def model(self) -> str | None:
        """The language model that wrote it, None for built-in operators."""
        found: str | None = self._row["model"]
        return found

    @property
    def kind(self) -> str | None:
        """Name of the verdict ("Timed", "WrongResult", ...), None where refused or not judged yet."""
        found: str | None = self._row["kind"]
        return found

    @property
    def stage(self) -> Gate | None:
        """The gate it ended at."""
        name = self._row["stage"]
        return Gate[name] if name in Gate.__members__ else None

    @property
    def reused_from(self) -> int | None:
        """Whose verdict it is, where its code was there already."""
        found: int | None = self._row["reused_from"]
        return found

    @property
    def time_us(self) -> float | None:
        """The fitness: geometric mean over the shapes of the upper bounds; None without times."""
        found: float | None = self._row["fitness_us"]
        return found

    @property
    def speedup(self) -> float | None:
        """Against the run's baseline, None without times."""
        time_us = self._row["time_us"]
        return self._baseline_us / time_us if self._baseline_us is not None and time_us is not None else None

    @property
    def confirmation(self) -> Confirmation | None:
        """Verdict of gate 8, None where it was not asked."""
        return _confirmation_of(self._row)

    @property
    def cost_s(self) -> float:
        """Seconds compiling and judging it took."""
        return (self._row["compile_s"] or 0.0) + (self._row["evaluate_s"] or 0.0)

    @property
    def row(self) -> Row:
        """The row itself, with what compiling and judging measured."""
        return self._row

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


def _told(node: Node) -> list[object]:
    """What the row of a node says, less how it was come by."""
    return [node.row[name] for name in node.row.keys() if name not in _OF_THE_WALK]  # noqa: SIM118 - rows are no mapping


_OF_THE_WALK = ("parents", "depth", "last")


@dataclass(frozen=True)
class Step:
    """One step of a path: a candidate, how it differs from the one before, and the gain over it.

    `change` and `gain` (time before / time now) are None for the seed; `gain` also where one of the two has no time.
    """

    node: Node
    change: Difference | None
    gain: float | None = None


@dataclass(frozen=True)
class Place:
    """A candidate where a walk through the tree meets it; `last` of its siblings or not, 0 deep for a root."""

    node: Node
    depth: int
    last: bool


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
        self.baselines = tuple(facts.baselines(archive, record.id))
        self.baseline_us = facts.baseline_us(archive, record.id)

    @property
    def baseline(self) -> tuple[str, tuple[Timing, ...]] | None:
        """(name, times in the order of the shapes) of what speedups are over: the first that was timed."""
        return self.baselines[0] if self.baselines else None

    def nodes(self, only: Iterable[int] | None = None) -> Iterator[Node]:
        """Every candidate and refusal (or those numbered so), in order of n, one at a time."""
        return map(self._node_of, facts.candidates(self.archive, self.run.id, only))

    def node(self, n: int) -> Node:
        """One candidate.

        Raises:
            RefError: the run has no such candidate.
        """
        for row in facts.candidates(self.archive, self.run.id, (n,)):
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
            last = facts.last(self.archive, self.run.id)
            hint = "name another run" if last is None else f"name one by its number: {self.run.id}/{last}"
            raise RefError(self.lack(), hint)
        return best

    def lack(self) -> str:
        """What a run without an answer lacks, in words."""
        valid = next(facts.fastest(self.archive, self.run.id, confirmed=False, limit=1), None)
        return f"run {self.run.id} has no {'valid' if valid is None else 'confirmed'} candidate"

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
        root: list[_Open] = []
        open_: list[_Open] = []
        for place in self.walk(of):
            del open_[place.depth :]
            mine = _Open(place.node)
            (open_[-1].children if open_ else root).append(mine)
            open_.append(mine)
        return _closed(root)

    def walk(self, of: int | None = None) -> Iterator[Place]:
        """The genealogy by first parents as `tree` has it, each candidate before its children, one at a time.

        Args:
            of: show only what leads to this candidate and comes from it; None shows all.

        Raises:
            RefError: there is no candidate `of`.
        """
        line = self.line(of)[:-1] if of is not None else ()
        yield from (Place(node, depth, last=True) for depth, node in enumerate(line))
        for row in facts.descent(self.archive, self.run.id, of):
            yield Place(self._node_of(row), row["depth"] + len(line), bool(row["last"]))

    def _node_of(self, row: Row) -> Node:
        return Node(row, self.baseline_us, self.archive)


@dataclass
class _Open:
    """A branch whose children are still coming."""

    node: Node
    children: list[_Open] = field(default_factory=list)


def _closed(root: Sequence[_Open]) -> tuple[Branch, ...]:
    """The branches, children first, without recursion: a line of descent may be thousands long."""
    order, stack = [], list(root)
    while stack:
        order.append(stack.pop())
        stack.extend(order[-1].children)
    done: dict[int, Branch] = {}
    for one in reversed(order):
        done[one.node.n] = Branch(one.node, tuple(done[child.node.n] for child in one.children))
    return tuple(done[one.node.n] for one in root)


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
