"""The tables of a report: plain text in rows, for HTML and whoever else wants them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evo import merit
from evo.archive import Archive, RunRecord, facts
from evo.lineage import Lineage, Node, Share, Step
from evo.observer import Confirmation
from evo.progress import shape_text, time_text, usd_text
from fitness.outcome import Timing


@dataclass(frozen=True)
class Column:
    """Head of a column; numbers stand to the right."""

    text: str
    number: bool = False


@dataclass(frozen=True)
class Table:
    """A caption, heads and rows of text."""

    caption: str
    header: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


def columns(*names: str) -> tuple[Column, ...]:
    """Heads; a name that begins with "#" is a column of numbers."""
    return tuple(Column(name.removeprefix("#"), name.startswith("#")) for name in names)


def shape_table(
    clock: str,
    baselines: Sequence[tuple[str, tuple[Timing, ...]]],
    seed: Sequence[Timing],
    best: Sequence[Timing],
) -> Table:
    """Times and speedups per shape with their intervals; a row per shape and baseline, then the means."""
    rows: list[tuple[str, ...]] = []
    for name, baseline in baselines:
        seeds: Iterable[Timing | None] = seed or [None] * len(best)
        for base, start, own in zip(baseline, seeds, best, strict=True):
            rows.append((shape_text(own.shape), name, *_shape_cells(base, start, own)))
        if len(best) > 1:
            means = merit.speedup(baseline, best), merit.floor_fraction(best)
            gain = f"{merit.speedup(seed, best):.2f}×" if seed else ""
            rows.append(
                ("geometric mean", name, "", "", f"{means[0]:.2f}×", "", gain, f"{100 * means[1]:.0f} %", "", "", "")
            )
    header = columns(
        "shape", "baseline", "#baseline time", "#best time", "#speedup", "#interval", "#gain over best seed",
        "#of floor", "#TFLOP/s", "#GB/s", "limiter",
    )  # fmt: skip
    return Table(f"Shape by shape, {clock} times", header, tuple(rows))


def _shape_cells(base: Timing, start: Timing | None, own: Timing) -> tuple[str, ...]:
    low, high = base.low_us / own.high_us, base.high_us / own.low_us
    interval = f"{low:.2f} to {high:.2f}" if low < high else "none"
    return (
        _time(base),
        _time(own),
        f"{base.time_us / own.time_us:.2f}×",
        interval,
        f"{start.time_us / own.time_us:.2f}×" if start is not None else "",
        f"{100 * own.floor_us / own.time_us:.0f} %",
        f"{own.tflops:.1f}",
        f"{own.gb_per_s:,.0f}",
        own.limiter,
    )


def _time(timing: Timing) -> str:
    """With its bounds where they differ from it."""
    text = time_text(timing.time_us)
    exact = timing.low_us == timing.time_us == timing.high_us
    return text if exact else f"{text} ({time_text(timing.low_us)} to {time_text(timing.high_us)})"


def path_table(path: Sequence[Step]) -> Table:
    """The line from the seed to the answer."""
    rows = tuple(
        (
            f"#{step.node.n}",
            str(step.node.plan.generation),
            step.node.plan.operator + (f" ({step.node.model})" if step.node.model else ""),
            step.node.reason,
            _change(step),
            time_text(step.node.time_us) if step.node.time_us is not None else "",
            f"{step.gain:.3f}×" if step.gain is not None else "",
        )
        for step in path
    )
    header = columns("#n", "#generation", "operator", "reason", "change", "#time", "#gain")
    return Table("From the seed on, along first parents", header, rows)


def _change(step: Step) -> str:
    if step.change is None:
        return ""
    parts = [f"{name} {old} → {new}" for name, (old, new) in step.change.params.items()]
    if step.change.source:
        parts.append(f"+{step.change.added} −{step.change.removed} lines")
    return ", ".join(parts)


def candidate_table(nodes: Iterable[Node]) -> Table:
    """Every candidate shown, in order of n."""
    rows = tuple(
        (
            f"#{node.n}",
            str(node.plan.generation),
            node.plan.operator,
            " ".join(f"#{parent}" for parent in node.plan.parents),
            verdict_of(node),
            time_text(node.time_us) if node.time_us is not None else "",
            f"{node.speedup:.3f}" if node.speedup is not None else "",
            node.reason,
        )
        for node in nodes
    )
    header = columns("n", "generation", "operator", "parents", "verdict", "time", "speedup", "reason")
    return Table("Candidates; time is the geometric mean over the shapes", header, rows)


def verdict_of(node: Node) -> str:
    """What became of a candidate in a word or two."""
    if node.confirmation is not None:
        return node.confirmation.verdict
    if node.refused:
        return "refused"
    if node.kind is None:
        return "not judged"
    if node.reused_from is not None:
        return "duplicate"
    return "valid" if node.time_us is not None else node.kind


_COUNTED = ("planned", "refused", "valid", "duplicates", "distinct", "faster", "bests")
"""Of a `Share`."""


def share_table(shares: Sequence[Share], by: str, clock: str) -> Table:
    """What operators or models contributed and cost."""
    rows = tuple(
        (
            share.name,
            *(f"{getattr(share, name):,}" for name in _COUNTED),
            f"{share.median_gain:.3f}×" if share.median_gain is not None else "",
            f"{share.judged_s:,.1f}",
            f"{share.tokens:,}",
            usd_text(share.usd),
            f"{share.judged_s / share.bests:,.1f}" if share.bests else "",
        )
        for share in shares
    )
    header = columns(
        by, "#candidates", "#refused", "#valid", "#duplicates", "#distinct", "#faster than parent", "#new bests",
        "#median gain", "#seconds", "#tokens", "#USD", "#seconds per new best",
    )  # fmt: skip
    return Table(f"By {by}; gain is the first parent's {clock} time over the child's", header, rows)


def cost_table(run: RunRecord, shares: Sequence[Share], compile_s: float, evaluate_s: float) -> Table:
    """What the run cost in all."""
    dollars = [share.usd for share in shares]
    rows = [
        ("wall clock, from start to end", duration(run)),
        ("compiling, all workers together", f"{compile_s:,.1f} s"),
        ("checking and timing, all workers together", f"{evaluate_s:,.1f} s"),
        ("tokens of models", f"{sum(share.tokens for share in shares):,}"),
        ("dollars for models", usd_text(None if None in dollars else sum(usd for usd in dollars if usd is not None))),
    ]
    return Table("In all", columns("what", "#spent"), tuple(rows))


def duration(run: RunRecord) -> str:
    """From start to end in minutes; said where it has not ended."""
    if run.ended_at is None:
        return "not ended"
    start, end = (datetime.datetime.fromisoformat(at) for at in (run.started_at, run.ended_at))
    return f"{(end - start).total_seconds() / 60:.1f} min"


def failure_table(archive: Archive, run_id: str) -> Table:
    """Where candidates failed and an example of each."""
    lineage = Lineage(archive, run_id)
    rows = []
    for row in facts.failures(archive, run_id):
        outcome = lineage.node(row["first_n"]).outcome
        first = outcome.findings[0] if outcome is not None and outcome.findings else None
        example = (first.message + (f" {first.suggestion}" if first.suggestion else "")) if first is not None else ""
        stage = row["stage"].lower().replace("_", " ")
        rows.append((f"{row['candidates']:,}", stage, row["kind"], row["finding"] or "", f"#{row['first_n']}", example))
    header = columns("#candidates", "gate", "verdict", "finding", "#first", "its message")
    return Table("Candidates without a time, by gate and finding", header, tuple(rows))


def environment_table(run: RunRecord, baseline: str) -> Table:
    """Where the numbers come from."""
    facts_: Mapping[str, object] = {
        "evo": run.version + (f", commit {run.commit_id}" if run.commit_id else ""),
        "device": f"{run.device} of {run.gpu} ({run.arch})" if run.device == "simulator" else f"{run.gpu} ({run.arch})",
        "clock": run.clock,
        "baseline": baseline,
        "random seed": run.rng_seed,
        "started": run.started_at,
        "ended": run.ended_at or "not yet",
        **{f"machine: {name}": value for name, value in run.machine.items()},
    }
    rows = tuple((name, str(value)) for name, value in facts_.items())
    return Table("Environment", columns("what", "value"), rows)


def confirmed_text(confirmation: Confirmation | None) -> str:
    """A verdict of gate 8 in words."""
    if confirmation is None:
        return "not confirmed"
    if confirmation.speedup is None or confirmation.low is None or confirmation.high is None:
        return confirmation.verdict
    interval = f" ({confirmation.low:.2f} to {confirmation.high:.2f})" if confirmation.low != confirmation.high else ""
    return f"{confirmation.verdict} at {confirmation.speedup:.2f}×{interval}"
