"""Nsight Systems on one run of a program: what of the time each kernel had, beside the harness's own measurement."""

from __future__ import annotations

import csv
import io
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fitness.devices.cuda.tools import ToolError, find_tool, run_under
from fitness.devices.device import Inputs, Program
from fitness.gpu import Gpu

_LIMIT_S: Final = 120.0
_NAME, _COUNT, _MEDIAN = "Name", "Instances", "Med (ns)"


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a report: how often it ran, and its median time in microseconds."""

    name: str
    count: int
    median_us: float


def kernel_times(program: Program, inputs: Inputs, gpu: Gpu) -> tuple[KernelTime, ...]:
    """The program's kernels in an nsys report of one run.

    Raises:
        ToolError: nsys is missing, or gives no report here.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "run.nsys-rep"
        said = run_under("nsys", ["profile", "--trace=cuda", "--output", str(report)], program, inputs, gpu)
        if not report.exists():
            lines = said.strip().splitlines() or ["no output"]
            raise ToolError(f"nsys made no report: {lines[-1][:200]}")
        command = [
            find_tool("nsys") or "nsys",
            "stats",
            "--report",
            "cuda_gpu_kern_sum",
            "--format",
            "csv",
            str(report),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ToolError(f"nsys stats took more than {_LIMIT_S:g} s") from None
    found = parse(done.stdout)
    if not found:
        raise ToolError(f"nsys stats told of no kernel: {(done.stderr or done.stdout).strip()[-200:]}")
    return tuple(time for time in found if any(entry in time.name for entry in program.compiled.entries))


def parse(text: str) -> tuple[KernelTime, ...]:
    """Kernels of the CSV that `nsys stats --report cuda_gpu_kern_sum --format csv` prints, in its order."""
    lines = text.splitlines()
    head = next((n for n, line in enumerate(lines) if _NAME in line and _MEDIAN in line), None)
    if head is None:
        return ()
    rows = csv.DictReader(io.StringIO("\n".join(lines[head:])))
    return tuple(
        KernelTime(row[_NAME], int(row[_COUNT]), float(row[_MEDIAN]) / 1e3) for row in rows if row.get(_MEDIAN)
    )
