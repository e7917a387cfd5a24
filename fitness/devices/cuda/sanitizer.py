"""compute-sanitizer's findings on one run of a program, parsed into ours (Compute Sanitizer manual, all four tools)."""

from __future__ import annotations

import re
from typing import Final

from fitness.devices.cuda.tools import ToolError, run_under
from fitness.devices.device import Inputs, Program
from fitness.gpu import Gpu
from fitness.outcome import Finding, Gate

TOOLS: Final = ("memcheck", "racecheck", "initcheck", "synccheck")

_ADVISORY: Final = ("racecheck", "initcheck", "synccheck")
"""Tools that do not know all of TMA and mbarriers: their findings on such kernels are warnings."""

_LINE: Final = re.compile(r"candidate\.cu:(\d+)")
_KINDS: Final = (
    (re.compile(r"Invalid __(?:global|shared|local)__ (?:read|write|atomic)"), "out_of_bounds"),
    (re.compile(r"[Mm]isaligned"), "misaligned"),
    (re.compile(r"[Rr]ace reported|hazard"), "race"),
    (re.compile(r"Uninitialized"), "uninitialised"),
    (re.compile(r"Barrier error|[Dd]ivergent thread"), "barrier_divergence"),
)
_NOISE: Final = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY")


def sanitize(
    program: Program, inputs: Inputs, gpu: Gpu, tools: tuple[str, ...] = TOOLS, *, gate: Gate = Gate.CONFIRMATION
) -> tuple[Finding, ...]:
    """Run a program under each tool.

    Raises:
        ToolError: compute-sanitizer is missing or does not work here.
    """
    advisory = "mbarrier" in program.compiled.ptx or "cp.async.bulk" in program.compiled.ptx
    found: list[Finding] = []
    for tool in tools:
        # padding: allocations else lie side by side, and a read past one is a read of the next
        padding = ["--padding", "512"] if tool == "memcheck" else []
        text = run_under("compute-sanitizer", ["--tool", tool, "--print-limit", "10", *padding], program, inputs, gpu)
        if "SUMMARY" not in text:  # every tool ends with one, clean or not
            said = text.strip().splitlines()[-1] if text.strip() else "no output"
            raise ToolError(f"compute-sanitizer --tool {tool} did not work: {said[:200]}")
        warning = advisory and tool in _ADVISORY
        found.extend(parse(text, tool, gate, advisory=warning))
    return tuple(found)


def parse(text: str, tool: str, gate: Gate, *, advisory: bool = False) -> tuple[Finding, ...]:
    """Findings in the output of one tool, each kind and line once.

    Args:
        text: what the tool printed ("========= ..." lines).
        tool: its name.
        gate: of the findings.
        advisory: they are warnings.
    """
    found: dict[tuple[str, int | None], Finding] = {}
    for block in _blocks(text):
        head = block[0]
        kind = next((name for pattern, name in _KINDS if any(pattern.search(line) for line in block[:2])), None)
        if kind is None:
            continue
        match = next((hit for line in block if (hit := _LINE.search(line))), None)
        line = int(match.group(1)) if match else None
        details = "; ".join(part.strip() for part in block[1:4] if part.strip())
        message = f"{tool}: {head}" + (f" ({details})" if details else "")
        severity = "warning" if advisory else "error"
        found.setdefault((kind, line), Finding(gate, kind, message[:400], line, severity=severity))  # type: ignore[arg-type]
    return tuple(found.values())


def _blocks(text: str) -> list[list[str]]:
    """Reports: a line that begins right behind the bar, and the indented lines after it."""
    blocks: list[list[str]] = []
    for raw in text.splitlines():
        if not raw.startswith("========="):
            continue
        line = raw.removeprefix("=========").removeprefix(" ")
        if not line.strip() or any(word in line for word in _NOISE):
            continue
        if line.startswith(" ") and blocks:
            blocks[-1].append(line)
        else:
            blocks.append([line.strip()])
    return blocks
