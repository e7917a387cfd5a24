"""Genealogy: where a kernel came from and what became of it. Reads through the archive only.

    found = resolve(archive, "best")
    lineage = Lineage(archive, found.run)
    for step in lineage.path(found.n): ...      # from the seed to it, with what changed at each step

A candidate's *line* follows its first parent; `ancestors` follows all of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from evo.archive import Archive, Refused, RunRecord
from evo.errors import RefError
from evo.merit import IncomparableError, fitness_us, speedup
from evo.observer import Confirmation
from fitness.kernel import Kernel
from fitness.outcome import Outcome, Timed, Timing
from mutations.operator import Plan


@dataclass(frozen=True)
class Node:
    """One plan of a run and what it came to.

    Attributes:
        run_id, plan: which one; its number is `n`.
        kernel: None where the operator refused; reason: of the change, or of the refusal.
        model: the language model that wrote it, None for built-in operators.
        outcome: the verdict, None where refused or not judged yet; reused_from: whose verdict it is.
        time_us: geometric mean over the shapes, None without times.
        speedup: against the run's baseline, None without times.
        confirmation: verdict of gate 8, None where it was not asked.
    """

    run_id: str
    plan: Plan
    kernel: Kernel | None
    reason: str
    model: str | None
    outcome: Outcome | None
    reused_from: int | None
    time_us: float | None
    speedup: float | None
    confirmation: Confirmation | None

    @property
    def n(self) -> int:
        """Number of the candidate."""
        return self.plan.n

    @property
    def timings(self) -> tuple[Timing, ...]:
        """Times per shape; empty without."""
        return self.outcome.timings if isinstance(self.outcome, Timed) else ()


@dataclass(frozen=True)
class Difference:
    """What differs between two kernels.

    Attributes:
        params: name -> (old, new), None where a kernel lacks the param.
        source: unified diff of the source text, empty where only params changed.
        added, removed: lines of source.
    """

    params: Mapping[str, tuple[int | None, int | None]]
    source: str
    added: int
    removed: int

    @property
    def empty(self) -> bool:
        """True for the same kernel."""
        return not self.params and not self.source


@dataclass(frozen=True)
class Step:
    """One step of a path: a candidate, and how it differs from the one before (None for the seed)."""

    node: Node
    change: Difference | None


@dataclass(frozen=True)
class Branch:
    """A candidate with those whose first parent it is, in order of n."""

    node: Node
    children: tuple[Branch, ...] = field(default=())


@dataclass(frozen=True)
class Found:
    """What a REF names: a run, and a candidate of it (None where the REF names the run as a whole)."""

    run: RunRecord
    n: int | None


def resolve(archive: Archive, ref: str) -> Found:
    """Find what a REF names.

    Args:
        archive: where to look.
        ref: `best` (of the latest run), `42` (of the latest run), `nm24-7f3a/42`, `nm24-7f3a/best`,
            `nm24-7f3a` (a run), or `nm24` (the latest run of that name).

    Raises:
        RefError: nothing of that name; the message lists what there is.
    """
    runs = archive.runs()
    if not runs:
        raise RefError(f"archive {archive.path} holds no run", "run an experiment first")
    run_part, slash, candidate = ref.rpartition("/")
    if not slash:
        run_part, candidate = ("", ref) if ref == "best" or ref.isdecimal() else (ref, "")
    run = _run_named(runs, run_part) if run_part or slash else runs[0]
    if not candidate:
        return Found(run, None)
    return Found(run, _candidate_named(archive, run, candidate))


def difference(old: Kernel, new: Kernel) -> Difference:
    """How `new` differs from `old`."""
    names = [*old.params, *(name for name in new.params if name not in old.params)]
    params = {
        name: (old.params.get(name), new.params.get(name))
        for name in names
        if old.params.get(name) != new.params.get(name)
    }
    lines = list(
        difflib.unified_diff(old.source.splitlines(), new.source.splitlines(), "parent", "child", lineterm="", n=2)
    )
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return Difference(params, "\n".join(lines), added, removed)


class Lineage:
    """The genealogy of one run, read once from the archive.

    Args:
        archive: open.
        run: the run, or its id.

    Raises:
        RefError: no such run.
    """

    def __init__(self, archive: Archive, run: RunRecord | str) -> None:
        record = archive.run(run) if isinstance(run, str) else run
        if record is None:
            raise RefError(f"no run {run} in {archive.path}", "name one that is there")
        self.run = record
        self.baseline = archive.baseline(record.id)
        outcomes = archive.outcomes(record.id)
        confirmations = archive.confirmations(record.id)
        self._nodes: dict[int, Node] = {}
        for entry in archive.entries(record.id):
            refused = isinstance(entry, Refused)
            n = entry.plan.n
            outcome, reused_from = outcomes.get(n, (None, None))
            self._nodes[n] = Node(
                run_id=record.id,
                plan=entry.plan,
                kernel=None if isinstance(entry, Refused) else entry.kernel,
                reason=entry.why if isinstance(entry, Refused) else entry.reason,
                model=None if isinstance(entry, Refused) else entry.model,
                outcome=None if refused else outcome,
                reused_from=reused_from,
                time_us=fitness_us(outcome) if outcome is not None else None,
                speedup=self._speedup(outcome),
                confirmation=confirmations.get(n),
            )

    def nodes(self) -> tuple[Node, ...]:
        """Every candidate and refusal, in order of n."""
        return tuple(self._nodes.values())

    def node(self, n: int) -> Node:
        """One candidate.

        Raises:
            RefError: the run has no such candidate.
        """
        if n not in self._nodes:
            there = f"0 to {max(self._nodes)}" if self._nodes else "none yet"
            raise RefError(f"run {self.run.id} has no candidate {n}", f"its candidates: {there}")
        return self._nodes[n]

    def best(self) -> Node | None:
        """The answer: the fastest confirmed candidate; while nothing is confirmed, the fastest valid one."""
        own = [node for node in self._nodes.values() if node.reused_from is None]
        asked = [node for node in own if node.confirmation is not None]
        sound = [node for node in asked if node.confirmation and node.confirmation.verdict == "confirmed"]
        timed = [(node.time_us, node.n) for node in (sound if asked else own) if node.time_us is not None]
        return self._nodes[min(timed)[1]] if timed else None

    def parents(self, n: int) -> tuple[Node, ...]:
        """Parents of a candidate, in the order the operator had them; none for a seed."""
        return tuple(self.node(parent) for parent in self.node(n).plan.parents)

    def children(self, n: int) -> tuple[Node, ...]:
        """Every candidate that has n among its parents, in order of n."""
        self.node(n)
        return tuple(node for node in self._nodes.values() if n in node.plan.parents)

    def ancestors(self, n: int) -> tuple[Node, ...]:
        """Every candidate n descends from, by any parent, in order of n."""
        seen: set[int] = set()
        open_ = list(self.node(n).plan.parents)
        while open_:
            parent = open_.pop()
            if parent not in seen:
                seen.add(parent)
                open_.extend(self.node(parent).plan.parents)
        return tuple(self._nodes[parent] for parent in sorted(seen))

    def line(self, n: int) -> tuple[Node, ...]:
        """From the seed to n along first parents."""
        nodes = [self.node(n)]
        while nodes[-1].plan.parents:
            nodes.append(self.node(nodes[-1].plan.parents[0]))
        return tuple(reversed(nodes))

    def path(self, n: int) -> tuple[Step, ...]:
        """The line from the seed to n, each step with what changed in it."""
        steps: list[Step] = []
        for node in self.line(n):
            before = steps[-1].node.kernel if steps else None
            change = difference(before, node.kernel) if before is not None and node.kernel is not None else None
            steps.append(Step(node, change))
        return tuple(steps)

    def diff(self, old: int, new: int) -> Difference:
        """How candidate `new` differs from candidate `old`.

        Raises:
            RefError: one of them does not exist, or was refused and has no kernel.
        """
        kernels = []
        for n in (old, new):
            kernel = self.node(n).kernel
            if kernel is None:
                raise RefError(f"candidate {n} was refused by its operator, it has no kernel", "choose another one")
            kernels.append(kernel)
        return difference(*kernels)

    def tree(self, of: int | None = None) -> tuple[Branch, ...]:
        """The genealogy by first parents, one branch per seed.

        Args:
            of: show only what leads to this candidate and comes from it; None shows all.
        """
        first: dict[int | None, list[int]] = {}
        for node in self._nodes.values():
            first.setdefault(node.plan.parents[0] if node.plan.parents else None, []).append(node.n)
        keep = set(self._nodes) if of is None else {node.n for node in self.line(of)} | self._descendants(of, first)
        branches: dict[int, Branch] = {}
        for n in sorted(keep, reverse=True):  # children have larger numbers than their parents
            inner = (branches[child] for child in first.get(n, ()) if child in keep)
            branches[n] = Branch(self._nodes[n], tuple(inner))
        return tuple(branches[n] for n in first.get(None, ()) if n in keep)

    def _descendants(self, n: int, first: Mapping[int | None, list[int]]) -> set[int]:
        found: set[int] = set()
        open_ = [n]
        while open_:
            children = first.get(open_.pop(), [])
            found.update(children)
            open_.extend(children)
        return found

    def _speedup(self, outcome: Outcome | None) -> float | None:
        if self.baseline is None or not isinstance(outcome, Timed) or not outcome.timings:
            return None
        try:
            return speedup(self.baseline[1], outcome.timings)
        except IncomparableError:
            return None


def _run_named(runs: list[RunRecord], name: str) -> RunRecord:
    """The run of that id, else the latest of that name, else the only one whose id begins so."""
    for matches in (
        [run for run in runs if run.id == name],
        [run for run in runs if run.name == name],
        [run for run in runs if run.id.startswith(name) and name],
    ):
        if matches:
            return matches[0]
    ids = [run.id for run in runs]
    names = list(dict.fromkeys([*ids, *(run.name for run in runs)]))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"runs: {', '.join(ids[:5])}{', ...' if len(ids) > 5 else ''}"
    raise RefError(f'no run "{name}" in the archive', hint)


def _candidate_named(archive: Archive, run: RunRecord, candidate: str) -> int:
    lineage = Lineage(archive, run)
    if candidate == "best":
        best = lineage.best()
        if best is None:
            raise RefError(f"run {run.id} has no valid candidate", "its report.md says what failed")
        return best.n
    if not re.fullmatch(r"[0-9]{1,9}", candidate):
        raise RefError(f'"{candidate}" is no candidate', "write best, or a number such as 42")
    return lineage.node(int(candidate)).n
