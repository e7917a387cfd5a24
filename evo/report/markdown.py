"""The short report of a run, in Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from evo import ending
from evo.archive import Archive, RunRecord
from evo.archive.counts import counts
from evo.llm.costs import costs_of, costs_table
from evo.merit import fitness_us
from evo.observer import RunSummary
from evo.progress import failures_text, shape_text, time_text
from evo.report.history import pattern_text
from evo.words import counted
from fitness.outcome import Outcome
from mutations.operator import Judged

_FAILURES_SHOWN = 8


def report(archive: Archive, run: RunRecord, summary: RunSummary, files: Sequence[str]) -> str:
    """The whole report.

    Args:
        archive: holds the run.
        run: its record.
        summary: what it came to.
        files: names of the files beside the report.
    """
    judged = archive.judged(run.id)
    parts = [
        _head(run, summary),
        _results(summary),
        _path_section(judged, summary),
        _operators_section(judged),
        _failures_section(archive, judged, summary),
        _costs_section(archive, run),
        _provenance(run, files),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; numbers are formatted by the caller."""
    lines = [_row(header), "|" + "---|" * len(header)]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _head(run: RunRecord, summary: RunSummary) -> str:
    task = run.experiment["task"]
    what = f"{task['op']}, W {pattern_text(task.get('pattern'))}, {task.get('dtype', 'float16')}"
    lines = [
        f"# Run {run.id}",
        f"{what}, on the {run.device} of {run.gpu} ({run.arch}). It {ending.sentence(summary.status, summary.reason)}.",
    ]
    if run.clock == "modelled":
        lines.append("**All times are modelled**: a cost model's word, good for ranking, no claim about a card.")
    return "\n\n".join(lines)


def _results(summary: RunSummary) -> str:
    if summary.best is None or not summary.rows:
        return "## Result\n\nNo valid candidate."
    rows = [
        (
            shape_text(row.shape),
            time_text(row.baseline_us),
            time_text(row.best_us),
            f"{row.speedup:.2f}x",
            f"{row.gain:.2f}x",
            f"{100 * row.floor_fraction:.0f} %",
            f"{row.tflops:.1f}",
            f"{row.gb_per_s:.0f}",
            row.limiter,
        )
        for row in summary.rows
    ]
    header = ("shape", "baseline", "best", "speedup", "gain", "of floor", "TFLOP/s", "GB/s", "limiter")
    confirmed = "confirmed in a fresh process" if summary.confirmed else "not confirmed"
    means = (
        f"Candidate {summary.best.plan.n}, {confirmed}. Geometric means over the shapes: speedup "
        f"{summary.speedup or 0:.2f}x over {summary.baseline}, gain {summary.gain or 0:.2f}x over the best seed, "
        f"{100 * (summary.floor_fraction or 0):.0f} % of the roofline floor. Times are {summary.clock}."
    )
    plot = "![Speedup over generations](plot.png)"
    return f"## Result\n\n{table(header, rows)}\n\n{means}\n\n{plot}"


def _path_section(judged: Sequence[Judged], summary: RunSummary) -> str:
    """From the seed on, along the first parents."""
    if summary.best is None:
        return ""
    by_n = {one.candidate.plan.n: one for one in judged}
    path: list[Judged] = []
    n: int | None = summary.best.plan.n
    while n is not None and n in by_n:
        path.append(by_n[n])
        parents = by_n[n].candidate.plan.parents
        n = parents[0] if parents else None
    rows = [
        (
            one.candidate.plan.n,
            one.candidate.plan.generation,
            one.candidate.plan.operator,
            one.candidate.reason,
            times_text(one.outcome),
        )
        for one in reversed(path)
    ]
    text = table(("n", "generation", "operator", "reason", "times"), rows)
    params = ", ".join(f"{name} = {value}" for name, value in summary.best.kernel.params.items())
    return f"## How it came about\n\n{text}\n\nParams of the best: {params or 'none'}."


def times_text(outcome: Outcome) -> str:
    """Times of a valid candidate, else how it failed."""
    timings = getattr(outcome, "timings", ())
    return ", ".join(time_text(timing.time_us) for timing in timings) or outcome.kind


def _operators_section(judged: Sequence[Judged]) -> str:
    made, valid = Counter[str](), Counter[str]()
    for one in judged:
        made[one.candidate.plan.operator] += 1
        valid[one.candidate.plan.operator] += fitness_us(one.outcome) is not None
    rows = [(name, made[name], valid[name]) for name in sorted(made)]
    return f"## Candidates\n\n{table(('operator', 'judged', 'valid'), rows)}" if rows else ""


def _failures_section(archive: Archive, judged: Sequence[Judged], summary: RunSummary) -> str:
    """The commonest reasons for failing."""
    reasons: Counter[tuple[str, str, str]] = Counter()
    for one in judged:
        errors = [finding for finding in one.outcome.findings if finding.severity == "error"]
        if not one.outcome.valid and errors:
            reasons[(one.outcome.kind, errors[0].kind, errors[0].message)] += 1
    state, found = summary.state, counts(archive, summary.run_id)
    shared = f"{state.shared} taken from another experiment of the same command, " if state.shared else ""
    head = (
        f"{found.judged:,} judged, {found.valid_text}, {counted(found.duplicates, 'duplicates')} by compiled code, "
        f"{shared}{counted(found.refused, 'plans')} refused; failed: {failures_text(state.failed)}."
    )
    rows = [(count, *reason) for reason, count in reasons.most_common(_FAILURES_SHOWN)]
    return f"{head}\n\n{table(('count', 'verdict', 'finding', 'message'), rows)}" if rows else head


def _costs_section(archive: Archive, run: RunRecord) -> str:
    """What models cost; nothing where none was asked."""
    costs = costs_of(archive, run.id)
    return f"## What models cost\n\n{table(*costs_table(costs))}" if costs is not None else ""


def _provenance(run: RunRecord, files: Sequence[str]) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in run.machine.items())
    lines = [
        "## Where it comes from",
        f"evo {run.version}"
        + (f" ({run.commit_id[:12]})" if run.commit_id else "")
        + f"; {machine}; seed {run.rng_seed}.",
        f"Started {run.started_at}. Beside this report: {', '.join(files) or 'nothing'}.",
        "The experiment, with every default:",
        "```json\n" + json.dumps(run.experiment, indent=2) + "\n```",
    ]
    return "\n\n".join(lines)
