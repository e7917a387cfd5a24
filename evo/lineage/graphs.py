"""A genealogy as a graph for other programs: Graphviz DOT, Mermaid, JSON.

Texts of candidates are quoted in each, so that a reason can hold any character.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from evo.lineage.genealogy import Lineage, Node, Step


def as_dot(nodes: Iterable[Node], path: Iterable[int] = ()) -> Iterator[str]:
    """Lines of a Graphviz digraph; edges from parents, dashed but for the first; the numbers in `path` drawn thick.

    Nodes come in order of n, so that parents come before their children.
    """
    thick, there = set(path), set[int]()
    yield from ("digraph lineage {", "  rankdir=TB;", '  node [shape=box, fontname="Helvetica", fontsize=10];')
    for node in nodes:
        there.add(node.n)
        label = json.dumps(f"#{node.n} {node.operator}\n{short_verdict(node)}", ensure_ascii=False)
        tooltip = json.dumps(node.reason, ensure_ascii=False)
        yield f"  n{node.n} [label={label}, tooltip={tooltip}, penwidth={2 if node.n in thick else 1}];"
        for position, parent in enumerate(node.plan.parents):
            if parent in there:
                width = 2 if position == 0 and node.n in thick else 1
                style = "solid" if position == 0 else "dashed"  # the first gives the body, the others a part of it
                yield f"  n{parent} -> n{node.n} [penwidth={width}, style={style}];"
    yield "}"


def as_mermaid(nodes: Iterable[Node], path: Iterable[int] = ()) -> Iterator[str]:
    """Lines of a Mermaid flowchart, as Markdown viewers draw it; the numbers in `path` drawn thick.

    Nodes come in order of n, so that parents come before their children.
    """
    thick, there = set(path), set[int]()
    yield "flowchart TD"
    for node in nodes:
        there.add(node.n)
        yield f'  n{node.n}["{_mermaid(f"#{node.n} {node.operator}")}<br>{_mermaid(short_verdict(node))}"]'
        for position, parent in enumerate(node.plan.parents):
            if parent in there:
                yield f"  n{parent} {'-->' if position == 0 else '-.->'} n{node.n}"
    if thick:
        yield "  classDef path stroke-width:3px"
        yield f"  class {','.join(f'n{n}' for n in sorted(thick))} path"


def graph_json(lineage: Lineage, nodes: Iterable[Node]) -> dict[str, object]:
    """Nodes and edges as plain data. Times in microseconds."""
    chosen = _ordered(nodes)
    return {
        "run": lineage.run.id,
        "clock": lineage.run.clock,
        "nodes": [node_json(node) for node in chosen],
        "edges": [
            {"parent": parent, "child": node.n, "position": position} for parent, node, position in _edges(chosen)
        ],
    }


def node_json(node: Node) -> dict[str, object]:
    """One candidate without its source."""
    return {
        "n": node.n,
        "generation": node.plan.generation,
        "island": node.plan.island,
        "operator": node.plan.operator,
        "parents": list(node.plan.parents),
        "reason": node.reason,
        "model": node.model,
        "verdict": node.kind,
        "speedup": node.speedup,
        "confirmed": node.confirmation.verdict if node.confirmation else None,
    }


def step_json(step: Step) -> dict[str, object]:
    """One step of a path: the candidate, its times per shape (microseconds), params, and what changed."""
    node, change = step.node, step.change
    return node_json(node) | {
        "time_us": [timing.time_us for timing in node.timings],
        "gain": step.gain,
        "params": dict(node.kernel.params) if node.kernel else None,
        "changed": {name: list(values) for name, values in change.params.items()} if change else {},
        "diff": change.source if change else "",
    }


def short_verdict(node: Node) -> str:
    """Speedup, or in a word or two how it ended."""
    speedup, kind, stage = node.speedup, node.kind, node.stage
    if speedup is not None:
        return f"{speedup:.2f}x"
    if kind is None:
        return "refused" if node.refused else "not judged"
    return f"{kind} at gate {stage.name.lower()}" if stage is not None else kind


def _ordered(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.n)


def _edges(nodes: Sequence[Node]) -> list[tuple[int, Node, int]]:
    """(parent, child, position) where both are among the nodes."""
    there = {node.n for node in nodes}
    return [
        (parent, node, position)
        for node in nodes
        for position, parent in enumerate(node.plan.parents)
        if parent in there
    ]


def _mermaid(text: str) -> str:
    """Text as Mermaid's entity codes where it could end a label or begin markup."""
    return "".join(sign if sign.isalnum() or sign in " .,:-+_" else f"#{ord(sign)};" for sign in text)
