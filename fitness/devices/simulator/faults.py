"""What stops or accuses a simulated kernel: exceptions inside the engine that become findings of an `Execution`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from fitness.outcome import Finding, Gate

Ended = Literal["fault", "trap", "steps", "unsupported"]

_SUGGESTIONS = {
    "out_of_bounds": "Guard the access by the true sizes of the operands, tails included.",
    "misaligned": "Make the address a multiple of the access width: leading dimension, tile offset, vector width.",
    "uninitialised": "Initialise the value on every path to its use (accumulators, tails in shared memory); "
    "what an asynchronous copy brings is there only after its wait.",
    "race": "Put a barrier (__syncthreads, or __syncwarp within a warp) between the two accesses.",
    "barrier_divergence": "Let every thread of the block (or every lane of the warp) reach the same barrier.",
    "input_written": "Write to outputs and workspaces only; inputs are read-only.",
    "unsupported_instruction": "Use an instruction the simulator runs, or judge this kernel on a GPU.",
    "step_limit": "Check loop bounds: the kernel executes more warp instructions than its budget.",
    "invalid_metadata": "Load the metadata word of this warp's tile and pass the matching selector.",
    "workspace_not_zero": 'Clear it in the last launch that reads it, or give it init = "zero" (cleared each run).',
    "trap": "The kernel executed trap (or a failed assertion).",
    "mbarrier": "Initialise the mbarrier before its first use, with the number of arrivals of one phase.",
    "wgmma": "Fence before the first wgmma.mma_async, commit its group, and wait for it before its results are used.",
    "tensormap": "Describe the map in the header ([[tensormap]]) and pass it by value.",
    "deadlock": "Check who arrives, how often, how many bytes are announced, and which parity is waited for.",
    "async_copy_overlap": "Wait for the copy (cp.async.wait_group / wait_all) before touching its destination.",
}


class Stop(Exception):  # noqa: N818 - control flow of the engine, not an error of it
    """Ends the simulation of a launch with a finding."""

    def __init__(self, ended: Ended, finding: Finding) -> None:
        super().__init__(finding.message)
        self.ended = ended
        self.finding = finding


def finding(kind: str, message: str, line: int, suggestion: str = "") -> Finding:
    """A finding of the checked run. `line` 0 means unknown."""
    return Finding(Gate.SMALL_RUN, kind, message, line or None, suggestion or _SUGGESTIONS.get(kind, ""))


def unsupported(what: str, line: int) -> Stop:
    """The engine cannot run this; says nothing about the kernel."""
    return Stop("unsupported", finding("unsupported_instruction", f"the simulator does not run {what}", line))


@dataclass
class Findings:
    """Findings that do not stop the run, one of each (kind, line, buffer), bounded."""

    limit: int = 16
    items: list[Finding] = field(default_factory=list)
    seen: set[tuple[str, int, str]] = field(default_factory=set)

    def add(
        self,
        kind: str,
        message: str,
        line: int,
        about: str = "",
        severity: Literal["error", "warning"] = "error",
        suggestion: str = "",
    ) -> None:
        """Keep a finding unless the like is known."""
        key = (kind, line, about)
        if key in self.seen or len(self.items) >= self.limit:
            return
        self.seen.add(key)
        self.items.append(replace(finding(kind, message, line, suggestion), severity=severity))

    def knows(self, kind: str, line: int, about: str = "") -> bool:
        """Whether such a finding is kept already (then details need not be computed)."""
        return (kind, line, about) in self.seen or len(self.items) >= self.limit
