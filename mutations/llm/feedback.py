"""A verdict -> what to tell the model about it: which repair applies."""

from __future__ import annotations

from typing import Final, Literal

from fitness.outcome import (
    CompileFailed,
    Crashed,
    Gate,
    LaunchFailed,
    Outcome,
    Rejected,
    SanitizerFinding,
    Timed,
    TimedOut,
    Unsupported,
    WrongResult,
)

RepairKind = Literal[
    "compile", "unknown_api", "rejected", "launch", "wrong_result", "sanitizer", "timeout", "unsupported", "slow"
]
"""What a kernel suffers from; each has a prompt of its own, `templates/repair_<kind>.j2`."""

_BY_OUTCOME: Final[dict[type[Outcome], RepairKind]] = {
    Rejected: "rejected",
    LaunchFailed: "launch",
    WrongResult: "wrong_result",
    SanitizerFinding: "sanitizer",
    Crashed: "sanitizer",
    TimedOut: "timeout",
    Unsupported: "unsupported",
}


def repair_kind(outcome: Outcome) -> RepairKind | None:
    """The repair a verdict asks for; None for a kernel that passed every gate and has its times."""
    if isinstance(outcome, CompileFailed):
        unknown = any(finding.kind == "unknown_api" for finding in outcome.findings if finding.severity == "error")
        return "unknown_api" if unknown else "compile"
    if isinstance(outcome, Timed):
        return "slow" if outcome.stage is Gate.TIMING_SCREEN and hopeless(outcome) else None
    return _BY_OUTCOME[type(outcome)]


def hopeless(outcome: Outcome) -> bool:
    """True for a kernel that was given up because it is so much slower than the best."""
    return any(finding.kind == "hopeless" for finding in outcome.findings)
