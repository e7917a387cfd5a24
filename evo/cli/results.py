"""What `evo run` says at the end: results for a program, a line for each experiment, what to try next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from evo.observer import RunSummary

if TYPE_CHECKING:
    from evo.cli.jobs import Job, Options


def next_commands(job: Job, options: Options, summary: RunSummary) -> list[str]:
    """What to try next, ready to paste."""
    where = "" if job.archive == Path("runs/archive.db") else f" --archive {job.archive}"
    lines = []
    if summary.status != "finished":
        raised = _raised(summary)
        names = " ".join(job.together) if job.together and not raised else job.given
        lines.append(f"evo run {names} --resume{_same(options, raised)}{where}")
    if summary.best is not None:
        lines.append(f"evo lineage {summary.run_id}/{summary.best.plan.n}{where}")
        lines.append(f"evo plot {summary.run_id}{where}")
    if summary.status == "finished":
        more = {"search.generations": f"{2 * job.experiment.search.generations}"}
        another = {"rng_seed": f"{job.experiment.rng_seed + 1}"}
        lines.append(f"evo run {job.given} --resume {summary.run_id}{_same(options, more)}{where}")
        lines.append(f"evo run {job.given}{_same(options, another)}{where}")
    return [f"{'next' if index == 0 else '':<10}{line}" for index, line in enumerate(lines)]


def _same(options: Options, changed: Mapping[str, str]) -> str:
    """Options that make the same experiment again, but for some keys."""
    kept = {**dict(setting.partition("=")[::2] for setting in options.settings), **changed}
    words = ["--no-llm"] if options.no_llm else []
    words += [f"--set {shlex.quote(f'{key}={value}')}" for key, value in kept.items()]
    return "".join(f" {word}" for word in words)


def _raised(summary: RunSummary) -> dict[str, str]:
    """Keys that raise the budgets a run has used up, so that resuming it has an effect."""
    spent = [line for line in summary.state.budget if line.limit is not None and line.used >= line.limit]
    return {f"budget.{line.kind}": f"{2 * line.limit:g}" for line in spent if line.limit is not None}


def result_json(summary: RunSummary, archive: Path, folder: Path) -> dict[str, object]:
    """A run's summary for a program. Times in microseconds."""
    return {
        "run": summary.run_id,
        "status": summary.status,
        "reason": summary.reason,
        "clock": summary.clock,
        "baseline": summary.baseline,
        "best": summary.best.plan.n if summary.best else None,
        "confirmed": summary.confirmed,
        "speedup": summary.speedup,
        "gain": summary.gain,
        "floor_fraction": summary.floor_fraction,
        "shapes": [
            {
                "shape": dict(row.shape),
                "baseline_us": row.baseline_us,
                "best_us": row.best_us,
                "floor_us": row.floor_us,
                "speedup": row.speedup,
                "gain": row.gain,
            }
            for row in summary.rows
        ],
        "judged": summary.state.judged,
        "valid": summary.state.valid,
        "duplicates": summary.state.duplicates,
        "shared": summary.state.shared,
        "failed": {gate.name.lower(): count for gate, count in sorted(summary.state.failed.items()) if count},
        "archive": str(archive),
        "folder": str(folder),
    }


def print_overview(results: Sequence[dict[str, object]], console: Console) -> None:
    """One line per experiment of a joint run."""
    for result in results:
        speedup = result["speedup"]
        text = f"{speedup:.2f}x baseline ({result['clock']})" if isinstance(speedup, float) else "no valid candidate"
        shared = f"; {result['shared']} verdicts shared with the experiments before it" if result["shared"] else ""
        console.print(f"{result['run']}: {result['status']}, {text}{shared}", markup=False, soft_wrap=True)
