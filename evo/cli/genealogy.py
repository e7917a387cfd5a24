"""What `evo lineage` prints: path, tree, blame, statistics and differences as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import click

from evo.archive import Archive
from evo.cli.options import named
from evo.lineage import Blame, Difference, Lineage, Node, Share, Step
from evo.lineage.graphs import node_json, step_json
from evo.lineage.sketches import Sketch, sketch_of
from evo.llm.costs import cost_of, cost_text
from evo.progress import shape_text, time_text, usd_text
from evo.report.history import title_of
from evo.words import plain

_INDENT = " " * 6
_DEEPEST = 24
"""Steps of descent the tree is indented by at most."""


@dataclass(frozen=True)
class Story:
    """A candidate, the run it belongs to, and its path from the seed."""

    lineage: Lineage
    path: tuple[Step, ...]

    @property
    def end(self) -> Node:
        """The candidate asked for."""
        return self.path[-1].node

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers along the path."""
        return tuple(step.node.n for step in self.path)


def node_named(archive: Archive, ref: str) -> tuple[Lineage, Node]:
    """The candidate a REF names; the best where it names a run.

    Raises:
        RefError: it names nothing, or a run without a valid candidate.
    """
    found = named(archive, ref)
    lineage = Lineage(archive, found.run)
    return lineage, lineage.answer() if found.n is None else lineage.node(found.n)


def read(archive: Archive, ref: str) -> Story:
    """Find a REF and read its story; a REF of a run means its best.

    Raises:
        RefError: it names nothing, or a run without a valid candidate.
    """
    lineage, node = node_named(archive, ref)
    return Story(lineage, lineage.path(node.n))


def as_text(story: Story, *, with_diff: bool) -> list[str]:
    """The path for a person, a paragraph per step. Colours are dropped by click where they are not wanted."""
    run = story.lineage.run
    lines = [plain(f"{run.id}/{story.end.n}: {title_of(run)}; times are {run.clock}")]
    if story.lineage.baseline is not None:
        name, timings = story.lineage.baseline
        shapes = ", ".join(shape_text(timing.shape) for timing in timings)
        times = ", ".join(time_text(timing.time_us) for timing in timings)
        lines += [f"shapes    {shapes}", plain(f"baseline  {name}: {times}")]
    for step in story.path:
        lines += ["", *_step_lines(step, with_diff)]
    return lines


def as_json(story: Story) -> dict[str, object]:
    """The path for a program. Times in microseconds, in the order of `shapes`."""
    run, baseline = story.lineage.run, story.lineage.baseline
    return {
        "run": run.id,
        "candidate": story.end.n,
        "clock": run.clock,
        "gpu": run.gpu,
        "shapes": [dict(timing.shape) for timing in baseline[1]] if baseline else [],
        "baseline": {"name": baseline[0], "time_us": [t.time_us for t in baseline[1]]} if baseline else None,
        "path": [step_json(step) for step in story.path],
        "ancestors": [node.n for node in story.lineage.ancestors(story.end.n)],
    }


def tree_lines(nodes: Iterable[Sketch], best: int | None) -> Iterator[str]:
    """The tree, a line per candidate; the answer is marked, what is very deep is indented no further."""
    indents = [""]  # of each depth down to where we are
    for node in nodes:
        del indents[node.depth + 1 :]
        indent = indents[node.depth]
        indents.append(indent + ("   " if node.last else "|  "))
        if node.depth > _DEEPEST:
            indent = f"{indent[: 3 * _DEEPEST]}({node.depth}) "
        mark = "  <- the answer" if node.n == best else ""
        line = f"{indent}{'`-' if node.last else '|-'} #{node.n} {node.operator} {node.verdict}  {node.reason}"
        yield plain(line[:160] + mark)


def node_lines(run_id: str, nodes: Iterable[Sketch]) -> Iterator[str]:
    """JSON of a run's nodes, a line each: {"run": ..., "nodes": [...]}."""
    yield f'{{"run": {json.dumps(run_id)}, "nodes": ['
    before = ""
    for node in nodes:
        yield f"{before}  {json.dumps(node_json(node))}"
        before = ","
    yield "]}"


def blame_lines(found: Blame) -> Iterator[str]:
    """Who introduced each line, after a summary with what each step gained."""
    counts = found.counts()
    yield plain(f"{found.node.run_id}/{found.node.n}: {verdict(found.node)}")
    for origin, node in found.origins.items():
        gained = f"{found.gains[origin]:.3f}x" if origin in found.gains else "seed" if not node.plan.parents else "?"
        params = ", ".join(f"{name} = {value}" for name, (value, by) in found.params.items() if by == origin)
        yield plain(
            f"#{origin:<5} {node.plan.operator:<12} {gained:>8}  {counts.get(origin, 0):>4} lines"
            + (f"; {params}" if params else "")
            + f"  {node.reason}"
        )
    yield ""
    for line in found.lines:
        yield plain(f"#{line.origin:<5} {line.number:>4}  {line.text}")


def blame_json(found: Blame) -> dict[str, object]:
    """Blame for a program."""
    return {
        "run": found.node.run_id,
        "candidate": found.node.n,
        "origins": [
            node_json(sketch_of(node)) | {"gain": found.gains.get(n), "lines": found.counts().get(n, 0)}
            for n, node in found.origins.items()
        ],
        "params": {name: {"value": value, "origin": origin} for name, (value, origin) in found.params.items()},
        "lines": [{"number": line.number, "origin": line.origin, "text": line.text} for line in found.lines],
    }


def share_lines(shares: Sequence[Share], by: str) -> Iterator[str]:
    """The table of `evo lineage --stats`."""
    yield (
        f"{by:<16}{'planned':>8}{'refused':>8}{'valid':>7}{'dupl.':>7}{'distinct':>10}{'faster':>8}{'bests':>7}"
        f"{'median':>9}{'best':>8}{'judged s':>10}{'tokens':>9}{'USD':>9}"
    )
    for share in shares:
        yield plain(
            f"{share.name:<16}{share.planned:>8}{share.refused:>8}{share.valid:>7}{share.duplicates:>7}"
            f"{share.distinct:>10}{share.faster:>8}{share.bests:>7}{_factor(share.median_gain):>9}{_factor(share.best_gain):>8}{share.judged_s:>10.1f}"
            f"{share.tokens:>9}{usd_text(share.usd):>9}"
        )


def diff_lines(old: Node, new: Node, change: Difference) -> Iterator[str]:
    """How two candidates differ."""
    yield plain(f"{old.run_id}/{old.n} {verdict(old)}")
    yield plain(f"{new.run_id}/{new.n} {verdict(new)}")
    yield from _change_lines(change, with_diff=True)


def diff_json(old: Node, new: Node, change: Difference) -> dict[str, object]:
    """A difference for a program."""
    return {
        "old": node_json(sketch_of(old)) | {"run": old.run_id},
        "new": node_json(sketch_of(new)) | {"run": new.run_id},
        "changed": {name: list(values) for name, values in change.params.items()},
        "added": change.added,
        "removed": change.removed,
        "diff": change.source,
    }


def verdict(node: Node) -> str:
    """Times and speedup, or how it failed."""
    if node.time_us is not None:
        return time_text(node.time_us) + (f"; {node.speedup:.2f}x baseline" if node.speedup is not None else "")
    if node.kind is None:
        return "refused" if node.refused else "not judged"
    first = node.outcome.findings[0].message if node.outcome and node.outcome.findings else ""
    gate = f" at gate {node.stage.name.lower()}" if node.stage is not None else ""
    return node.kind + gate + (f": {first}" if first else "")


def _step_lines(step: Step, with_diff: bool) -> list[str]:
    node = step.node
    origin = " and ".join(f"#{parent}" for parent in node.plan.parents)
    head = f"#{node.n}".ljust(6) + f"{node.plan.operator}, generation {node.plan.generation}"
    head += f", of {origin}" if origin else ""
    if node.model:
        head += f", by {node.model} ({cost_text(cost_of(node.archive, node.run_id, node.n))})"
    times = ", ".join(time_text(timing.time_us) for timing in node.timings)
    if times:
        times += f"; {node.speedup:.2f}x baseline" if node.speedup is not None else ""
        times += f", {step.gain:.3f}x the step before" if step.gain is not None else ""
    lines = [click.style(plain(f"{head}: {times or verdict(node)}"), bold=True), plain(f"{_INDENT}{node.reason}")]
    if node.confirmation is not None:
        lines.append(plain(f"{_INDENT}{node.confirmation.verdict}") + _confirmed_speedup(node))
    if step.change is not None:
        lines += _change_lines(step.change, with_diff)
    return lines


def _confirmed_speedup(node: Node) -> str:
    confirmation = node.confirmation
    if confirmation is None or confirmation.speedup is None:
        return ""
    return f" at {confirmation.speedup:.2f}x baseline"


def _change_lines(change: Difference, with_diff: bool) -> list[str]:
    if change.empty:
        return [f"{_INDENT}the same kernel"]
    lines = [plain(f"{_INDENT}{name}: {_value(old)} -> {_value(new)}") for name, (old, new) in change.params.items()]
    if change.source:
        lines.append(f"{_INDENT}source: {change.added} lines added, {change.removed} removed")
    if change.source and with_diff:
        lines += [_INDENT + _coloured(plain(line)) for line in change.source.splitlines()]
    return lines


def _value(value: int | None) -> str:
    return "none" if value is None else str(value)


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def _coloured(line: str) -> str:
    """A line of a diff: green where added, red where removed, cyan for its place."""
    for sign, colour in (("+", "green"), ("-", "red"), ("@", "cyan")):
        if line.startswith(sign):
            return click.style(line, fg=colour)
    return line
