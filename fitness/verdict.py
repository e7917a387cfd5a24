"""From what a device reports to what the archive stores: pure functions of the evaluation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final

from fitness.devices.device import Execution, Program
from fitness.inputs import Case
from fitness.kernel import Kernel
from fitness.outcome import (
    Crashed,
    Finding,
    Gate,
    LaunchFailed,
    Outcome,
    Resources,
    SanitizerFinding,
    TimedOut,
    Unsupported,
    WrongValues,
)
from fitness.task import Task
from fitness.triage import SUGGESTIONS

#: Part of every code key: raise it whenever the same code could get another verdict.
PROTOCOL: Final = "2"


def code_key(kernel: Kernel, task: Task, programs: Sequence[Program]) -> str:
    """sha256 over all that decides a verdict: equal keys on one device mean equal outcomes.

    Args:
        kernel: the candidate; of it only format, alignment and `atomics` count, its text does not.
        task: what it computes.
        programs: its launches resolved at each timed shape; at least one.
    """
    compiled = programs[0].compiled
    content = {
        "protocol": PROTOCOL,
        "code": compiled.code_hash,
        "registers": {name: entry.registers for name, entry in sorted(compiled.entries.items())},
        "launches": [[asdict(launch) for launch in program.launches] for program in programs],
        "workspaces": [[asdict(workspace) for workspace in program.workspaces] for program in programs],
        "format": [kernel.format.name, sorted(kernel.format.options.items())],
        "align": kernel.header.align,
        "atomics": kernel.header.atomics,
        "arch": compiled.arch,
        "task": task.fingerprint,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def abnormal(execution: Execution, gate: Gate, shape: Mapping[str, int]) -> Outcome | None:
    """The verdict on a run that did not end well, None for one that did."""
    findings = tuple(replace(finding, gate=gate, shape=dict(shape)) for finding in execution.findings)
    errors = any(finding.severity == "error" for finding in findings)
    if execution.ended == "unsupported":
        return Unsupported(gate, findings)
    if execution.ended == "steps":
        message = f"no end after {execution.steps} warp instructions"
        hint = "look for a loop that does not end or a wait nobody signals"
        return TimedOut(gate, (*findings, Finding(gate, "step_limit", message, None, hint, shape=dict(shape))))
    if execution.ended == "time":
        return TimedOut(gate, findings)
    if execution.ended == "refused":
        return LaunchFailed(gate, findings)
    if execution.ended == "trap":
        trap = () if errors else (Finding(gate, "trap", "the kernel executed a trap", shape=dict(shape)),)
        return Crashed(gate, (*findings, *trap))
    if execution.ended == "fault" or errors:
        return SanitizerFinding(gate, findings)
    return None


def wrong_result(wrong: WrongValues, gate: Gate, case: Case) -> Finding:
    """How a result differs from the reference, for the author of the kernel."""
    message = (
        f"{wrong.wrong} of {wrong.total} elements are wrong, by up to {wrong.margin:.3g}x the tolerance "
        f"({wrong.pattern}; {case.data} data)"
    )
    return Finding(gate, "wrong_result", message, None, wrong.suggestion, shape=dict(case.shape), wrong=wrong)


def without_shape(outcome: Outcome) -> Outcome:
    """The same outcome without what tells at which shape it was found: hidden shapes are shown to no operator."""
    return replace(outcome, findings=tuple(_hidden(finding) for finding in outcome.findings))


def _hidden(finding: Finding) -> Finding:
    if finding.wrong is None:
        return replace(finding, shape=None)
    pattern = finding.wrong.pattern
    general = SUGGESTIONS.get(pattern, "")  # the specific one may name the rows and columns of a tail
    wrong = replace(finding.wrong, first=(0, 0), wrong=0, total=0, suggestion=general)
    message = f"wrong at a hidden shape: {pattern}"
    return replace(finding, shape=None, wrong=wrong, message=message, suggestion=general)


def resources(programs: Sequence[Program], occupancies: Sequence[float]) -> Resources:
    """Maxima over all launches; the least occupancy measured (0 where none was)."""
    used = [(program.compiled.entries[launch.entry], launch) for program in programs for launch in program.launches]
    return Resources(
        registers=max(entry.registers for entry, _ in used),
        shared_bytes=max(entry.shared_bytes + launch.shared for entry, launch in used),
        spill_bytes=max(entry.spill_store_bytes + entry.spill_load_bytes for entry, _ in used),
        occupancy=min(occupancies, default=0.0),
    )


def same_path(program: Program, reduced: Program) -> bool:
    """True if the reduced program launches the same entries on the same grids: only loops got shorter."""
    return [(a.entry, a.grid, a.block) for a in program.launches] == [
        (b.entry, b.grid, b.block) for b in reduced.launches
    ]
