"""A genealogy as a graph for other programs: Graphviz DOT, Mermaid, JSON.

Texts of candidates are quoted in each, so that a reason can hold any character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from evo.lineage.genealogy import Lineage, Step
from evo.lineage.sketches import Sketch, sketch_of
from evo.words import plain


def as_dot(nodes: Iterable[Sketch], path: Iterable[int] = (), *, whole: bool = False) -> Iterator[str]:
    """Lines of a Graphviz digraph; edges from parents, dashed but for the first; the numbers in `path` drawn thick.

    Nodes come in order of n, so that parents come before their children. `whole`: they are those of a whole run, and
    which of them have come need not be remembered.
    """
    thick, known = set(path), _Known(whole=whole)
    yield from ("digraph lineage {", "  rankdir=TB;", '  node [shape=box, fontname="Helvetica", fontsize=10];')
    for node in nodes:
        known.add(node.n)
        label = _dot(f"#{node.n} {node.operator}\n{node.verdict}")
        tooltip = _dot(node.reason)
        yield f"  n{node.n} [label={label}, tooltip={tooltip}, penwidth={2 if node.n in thick else 1}];"
        for position, parent in enumerate(node.parents):
            if parent in known:
                width = 2 if position == 0 and node.n in thick else 1
                style = "solid" if position == 0 else "dashed"  # the first gives the body, the others a part of it
                yield f"  n{parent} -> n{node.n} [penwidth={width}, style={style}];"
    yield "}"


def as_mermaid(nodes: Iterable[Sketch], path: Iterable[int] = (), *, whole: bool = False) -> Iterator[str]:
    """Lines of a Mermaid flowchart, as Markdown viewers draw it; the numbers in `path` drawn thick.

    Nodes come as for `as_dot`.
    """
    thick, known = set(path), _Known(whole=whole)
    yield "flowchart TD"
    for node in nodes:
        known.add(node.n)
        yield f'  n{node.n}["{_mermaid(f"#{node.n} {node.operator}")}<br>{_mermaid(node.verdict)}"]'
        for position, parent in enumerate(node.parents):
            if parent in known:
                yield f"  n{parent} {'-->' if position == 0 else '-.->'} n{node.n}"
    if thick:
        yield "  classDef path stroke-width:3px"
        yield f"  class {','.join(f'n{n}' for n in sorted(thick))} path"


class _Known:
    """The numbers that have come; of a whole run all of them have."""

    def __init__(self, *, whole: bool) -> None:
        self._numbers: set[int] | None = None if whole else set()

    def add(self, n: int) -> None:
        if self._numbers is not None:
            self._numbers.add(n)

    def __contains__(self, n: int) -> bool:
        return self._numbers is None or n in self._numbers


def graph_json(lineage: Lineage, nodes: Iterable[Sketch]) -> dict[str, object]:
    """Nodes and edges as plain data. Times in microseconds."""
    chosen = sorted(nodes)
    return {
        "run": lineage.run.id,
        "clock": lineage.run.clock,
        "nodes": [node_json(node) for node in chosen],
        "edges": [
            {"parent": parent, "child": node.n, "position": position} for parent, node, position in _edges(chosen)
        ],
    }


def node_json(node: Sketch) -> dict[str, object]:
    """One candidate without its source."""
    return {
        "n": node.n,
        "generation": node.generation,
        "island": node.island,
        "operator": node.operator,
        "parents": list(node.parents),
        "reason": node.reason,
        "model": node.model,
        "verdict": node.kind,
        "speedup": node.speedup,
        "confirmed": node.confirmed,
    }


def step_json(step: Step) -> dict[str, object]:
    """One step of a path: the candidate, its times per shape (microseconds), params, and what changed."""
    node, change = step.node, step.change
    return node_json(sketch_of(node)) | {
        "time_us": [timing.time_us for timing in node.timings],
        "gain": step.gain,
        "params": dict(node.kernel.params) if node.kernel else None,
        "changed": {name: list(values) for name, values in change.params.items()} if change else {},
        "diff": change.source if change else "",
    }


def _edges(nodes: Sequence[Sketch]) -> list[tuple[int, Sketch, int]]:
    """(parent, child, position) where both are among the nodes."""
    there = {node.n for node in nodes}
    return [
        (parent, node, position) for node in nodes for position, parent in enumerate(node.parents) if parent in there
    ]


def _dot(text: str) -> str:
    """Text as a string of DOT, which is one of JSON, with control characters shown."""
    return json.dumps(plain(text), ensure_ascii=False)


_PLAIN = re.compile(r"[^A-Za-z0-9 .,:\-+_]")


def _mermaid(text: str) -> str:
    """Text as Mermaid's entity codes where it could end a label or begin markup."""
    return _PLAIN.sub(lambda found: f"#{ord(found[0])};", text)
