"""A genealogy as a graph for other programs: Graphviz DOT, Mermaid, JSON.

Texts of candidates are quoted in each, so that a reason can hold any character.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from evo.lineage.genealogy import Lineage, Node, Step


def as_dot(nodes: Iterable[Node], path: Iterable[int] = ()) -> str:
    """A Graphviz digraph; edges from parents, dashed but for the first; the numbers in `path` drawn thick."""
    chosen, thick = _ordered(nodes), set(path)
    lines = ["digraph lineage {", "  rankdir=TB;", '  node [shape=box, fontname="Helvetica", fontsize=10];']
    for node in chosen:
        label = json.dumps(f"#{node.n} {node.plan.operator}\n{short_verdict(node)}", ensure_ascii=False)
        tooltip = json.dumps(node.reason, ensure_ascii=False)
        lines.append(f"  n{node.n} [label={label}, tooltip={tooltip}, penwidth={2 if node.n in thick else 1}];")
    for parent, node, position in _edges(chosen):
        width = 2 if position == 0 and node.n in thick else 1
        style = "solid" if position == 0 else "dashed"  # the first parent gives the body, the others a part of it
        lines.append(f"  n{parent} -> n{node.n} [penwidth={width}, style={style}];")
    return "\n".join([*lines, "}"])


def as_mermaid(nodes: Iterable[Node], path: Iterable[int] = ()) -> str:
    """A Mermaid flowchart, as Markdown viewers draw it; the numbers in `path` drawn thick."""
    chosen, thick = _ordered(nodes), set(path)
    lines = ["flowchart TD"]
    lines += [
        f'  n{node.n}["{_mermaid(f"#{node.n} {node.plan.operator}")}<br>{_mermaid(short_verdict(node))}"]'
        for node in chosen
    ]
    lines += [
        f"  n{parent} {'-->' if position == 0 else '-.->'} n{node.n}" for parent, node, position in _edges(chosen)
    ]
    if thick:
        lines.append("  classDef path stroke-width:3px")
        lines.append(f"  class {','.join(f'n{n}' for n in sorted(thick))} path")
    return "\n".join(lines)


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
    if node.speedup is not None:
        return f"{node.speedup:.2f}x"
    if node.kind is None:
        return "refused" if node.refused else "not judged"
    return f"{node.kind} at gate {node.stage.name.lower()}" if node.stage is not None else node.kind


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
