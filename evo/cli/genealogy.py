"""What `evo lineage` prints: the path of a kernel as text or JSON, its ancestors as a Graphviz graph."""

from __future__ import annotations

import json
from dataclasses import dataclass

import click

from evo.archive import Archive
from evo.errors import RefError
from evo.lineage import Difference, Lineage, Node, Step, resolve
from evo.progress import shape_text, time_text
from evo.report.history import title_of

_INDENT = " " * 6


@dataclass(frozen=True)
class Story:
    """A kernel's path and ancestors, read from the archive."""

    lineage: Lineage
    path: tuple[Step, ...]
    ancestors: tuple[Node, ...]

    @property
    def end(self) -> Node:
        """The kernel asked for."""
        return self.path[-1].node


def read(archive: Archive, ref: str) -> Story:
    """Find a REF and read its story; a REF of a run means its best.

    Raises:
        RefError: it names nothing, or a run without a valid candidate.
    """
    found = resolve(archive, ref)
    lineage = Lineage(archive, found.run)
    n = found.n
    if n is None:
        best = lineage.best()
        if best is None:
            raise RefError(f"run {found.run.id} has no valid candidate", f"name one by its number: {found.run.id}/0")
        n = best.n
    return Story(lineage, lineage.path(n), lineage.ancestors(n))


def as_text(story: Story, *, with_diff: bool) -> list[str]:
    """The path for a person, a paragraph per step. Colours are dropped by click where they are not wanted."""
    run = story.lineage.run
    lines = [f"{run.id}/{story.end.n}: {title_of(run)}; times are {run.clock}"]
    if story.lineage.baseline is not None:
        name, timings = story.lineage.baseline
        shapes = ", ".join(shape_text(timing.shape) for timing in timings)
        times = ", ".join(time_text(timing.time_us) for timing in timings)
        lines += [f"shapes    {shapes}", f"baseline  {name}: {times}"]
    for step in story.path:
        lines += ["", *_step_lines(step, with_diff)]
    return lines


def _step_lines(step: Step, with_diff: bool) -> list[str]:
    node = step.node
    origin = " and ".join(f"#{parent}" for parent in node.plan.parents)
    head = f"#{node.n}".ljust(6) + f"{node.plan.operator}, generation {node.plan.generation}"
    head += f", of {origin}" if origin else ""
    head += f", by {node.model}" if node.model else ""
    lines = [click.style(f"{head}: {_verdict(node)}", bold=True), f"{_INDENT}{node.reason}"]
    if node.confirmation is not None:
        lines.append(f"{_INDENT}{node.confirmation.verdict}" + _confirmed_speedup(node))
    if step.change is not None:
        lines += _change_lines(step.change, with_diff)
    return lines


def _verdict(node: Node) -> str:
    """Times and speedup, or how it failed."""
    if node.timings:
        times = ", ".join(time_text(timing.time_us) for timing in node.timings)
        return times + (f"; {node.speedup:.2f}x baseline" if node.speedup is not None else "")
    if node.outcome is None:
        return "refused" if node.kernel is None else "not judged"
    first = node.outcome.findings[0].message if node.outcome.findings else ""
    return f"{node.outcome.kind} at gate {node.outcome.stage.name.lower()}" + (f": {first}" if first else "")


def _confirmed_speedup(node: Node) -> str:
    confirmation = node.confirmation
    if confirmation is None or confirmation.speedup is None:
        return ""
    return f" at {confirmation.speedup:.2f}x baseline"


def _change_lines(change: Difference, with_diff: bool) -> list[str]:
    if change.empty:
        return [f"{_INDENT}the same kernel"]
    lines = [f"{_INDENT}{name}: {_value(old)} -> {_value(new)}" for name, (old, new) in change.params.items()]
    if change.source:
        lines.append(f"{_INDENT}source: {change.added} lines added, {change.removed} removed")
    if change.source and with_diff:
        lines += [_INDENT + _coloured(line) for line in change.source.splitlines()]
    return lines


def _value(value: int | None) -> str:
    return "none" if value is None else str(value)


def _coloured(line: str) -> str:
    """A line of a diff: green where added, red where removed, cyan for its place."""
    for sign, colour in (("+", "green"), ("-", "red"), ("@", "cyan")):
        if line.startswith(sign):
            return click.style(line, fg=colour)
    return line


def as_json(story: Story) -> str:
    """The path for a program. Times in microseconds, in the order of `shapes`."""
    run, baseline = story.lineage.run, story.lineage.baseline
    return json.dumps(
        {
            "run": run.id,
            "candidate": story.end.n,
            "clock": run.clock,
            "gpu": run.gpu,
            "shapes": [dict(timing.shape) for timing in baseline[1]] if baseline else [],
            "baseline": {"name": baseline[0], "time_us": [t.time_us for t in baseline[1]]} if baseline else None,
            "path": [_step_json(step) for step in story.path],
            "ancestors": [node.n for node in story.ancestors],
        },
        indent=2,
    )


def _step_json(step: Step) -> dict[str, object]:
    node, change = step.node, step.change
    return {
        "n": node.n,
        "generation": node.plan.generation,
        "island": node.plan.island,
        "operator": node.plan.operator,
        "parents": list(node.plan.parents),
        "reason": node.reason,
        "model": node.model,
        "verdict": node.outcome.kind if node.outcome else None,
        "time_us": [timing.time_us for timing in node.timings],
        "speedup": node.speedup,
        "confirmed": node.confirmation.verdict if node.confirmation else None,
        "params": dict(node.kernel.params) if node.kernel else None,
        "changed": {name: list(values) for name, values in change.params.items()} if change else {},
        "diff": change.source if change else "",
    }


def as_dot(story: Story) -> str:
    """All ancestors by all parents; the path of first parents is drawn thick."""
    on_path = {step.node.n for step in story.path}
    nodes = sorted((*story.ancestors, story.end), key=lambda node: node.n)
    lines = ["digraph lineage {", "  rankdir=TB;", '  node [shape=box, fontname="Helvetica", fontsize=10];']
    for node in nodes:
        speedup = f"{node.speedup:.2f}x" if node.speedup is not None else _verdict(node)
        label = json.dumps(f"#{node.n} {node.plan.operator}\n{speedup}", ensure_ascii=False)
        tooltip = json.dumps(node.reason, ensure_ascii=False)
        lines.append(f"  n{node.n} [label={label}, tooltip={tooltip}, penwidth={2 if node.n in on_path else 1}];")
    for node in nodes:
        for position, parent in enumerate(node.plan.parents):
            thick = position == 0 and node.n in on_path
            lines.append(f"  n{parent} -> n{node.n} [penwidth={2 if thick else 1}, style={_style(position)}];")
    return "\n".join([*lines, "}"])


def _style(position: int) -> str:
    """The first parent gives the body, the others a part of it."""
    return "solid" if position == 0 else "dashed"
