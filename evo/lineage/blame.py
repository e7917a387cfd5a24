"""Blame: which ancestor introduced each line and each param of a kernel, and what that step gained.

Lines are matched as `diff` does (longest matching blocks, Ratcliff and Obershelp 1988, as in Python's
difflib). A line that came with a crossover is followed into the parent it came from.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from evo.errors import RefError
from evo.lineage.genealogy import Lineage, Node, gain
from fitness.kernel import Kernel


@dataclass(frozen=True)
class BlamedLine:
    """A line of the source: its 1-based number, its text, and the candidate that introduced it."""

    number: int
    text: str
    origin: int


@dataclass(frozen=True)
class Blame:
    """Where a kernel's content comes from.

    Attributes:
        node: the kernel asked about.
        lines: its source, line by line.
        params: name -> (value, candidate that chose it).
        origins: candidate -> node, for every candidate named.
        gains: candidate -> time of its first parent / its time; absent where one of them has none, and for seeds.
    """

    node: Node
    lines: tuple[BlamedLine, ...]
    params: Mapping[str, tuple[int, int]]
    origins: Mapping[int, Node]
    gains: Mapping[int, float]

    def counts(self) -> dict[int, int]:
        """Candidate -> lines it introduced, in order of n."""
        counts: dict[int, int] = {}
        for line in self.lines:
            counts[line.origin] = counts.get(line.origin, 0) + 1
        return dict(sorted(counts.items()))


@dataclass(frozen=True)
class _Origins:
    kernel: Kernel
    lines: list[int]
    params: dict[str, int]


def blame(lineage: Lineage, n: int) -> Blame:
    """Attribute every line and param of candidate n.

    Raises:
        RefError: there is no such candidate, or it was refused and has no kernel.
    """
    end = lineage.node(n)
    if end.kernel is None:
        raise RefError(f"candidate {n} was refused by its operator, it has no kernel", "choose another one")
    nodes = {node.n: node for node in (*lineage.ancestors(n), end)}
    known: dict[int, _Origins] = {}
    for node in nodes.values():  # in order of n: parents before children
        if node.kernel is not None:
            known[node.n] = _origins(node, node.kernel, [known[p] for p in node.plan.parents if p in known])
    found = known[n]
    named = {*found.lines, *found.params.values()}
    gains = {}
    for origin in named:
        parents = nodes[origin].plan.parents
        step = gain(nodes.get(parents[0]), nodes[origin]) if parents else None
        if step is not None:
            gains[origin] = step
    return Blame(
        node=end,
        lines=tuple(
            BlamedLine(number, text, origin)
            for number, (text, origin) in enumerate(zip(end.kernel.source.splitlines(), found.lines, strict=True), 1)
        ),
        params={name: (value, found.params[name]) for name, value in end.kernel.params.items()},
        origins={origin: nodes[origin] for origin in sorted(named)},
        gains=dict(sorted(gains.items())),
    )


def _origins(node: Node, kernel: Kernel, parents: list[_Origins]) -> _Origins:
    """Origins of a kernel's lines and params from those of its parents, the first parent first."""
    lines = kernel.source.splitlines()
    origins: list[int | None] = [None] * len(lines)
    params: dict[str, int] = {}
    for parent in parents:
        _inherit(lines, origins, parent)
        for name, value in kernel.params.items():
            if parent.kernel.params.get(name) == value:
                params.setdefault(name, parent.params[name])
    own = {name: params.get(name, node.n) for name in kernel.params}
    return _Origins(kernel, [node.n if origin is None else origin for origin in origins], own)


def _inherit(lines: list[str], origins: list[int | None], parent: _Origins) -> None:
    """Fill in the origins of the lines that the parent has as well."""
    theirs = parent.kernel.source.splitlines()
    if lines == theirs:
        blocks = [(0, 0, len(lines))]
    else:
        blocks = [tuple(b) for b in difflib.SequenceMatcher(None, theirs, lines, autojunk=False).get_matching_blocks()]  # type: ignore[misc]
    for their_start, start, size in blocks:
        for offset in range(size):
            if origins[start + offset] is None:
                origins[start + offset] = parent.lines[their_start + offset]
