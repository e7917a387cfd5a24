"""Nsight Compute as feedback: counters of one run, and the limiter sentence they give."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from fitness.devices.cuda.tools import ToolError, run_under
from fitness.devices.device import Inputs, Profile, Program
from fitness.gpu import Gpu

TIME: Final = "gpu__time_duration.sum"
MEMORY: Final = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
L2: Final = "lts__t_sectors.avg.pct_of_peak_sustained_elapsed"
SM: Final = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR: Final = "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"
OCCUPANCY: Final = "sm__warps_active.avg.pct_of_peak_sustained_active"
WAVES: Final = "launch__waves_per_multiprocessor"
SECTORS: Final = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
REQUESTS: Final = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
CONFLICTS: Final = "l1tex__data_bank_conflicts_pipe_lsu.sum"
WAVEFRONTS: Final = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_STALL: Final = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS: Final[Mapping[str, str]] = {
    _STALL.format("long_scoreboard"): "global loads",
    _STALL.format("short_scoreboard"): "shared loads",
    _STALL.format("barrier"): "the barrier",
    _STALL.format("math_pipe_throttle"): "a busy arithmetic pipe",
    _STALL.format("mio_throttle"): "the memory input/output queue",
    _STALL.format("lg_throttle"): "the load/store queue",
    _STALL.format("wait"): "arithmetic results",
    _STALL.format("gmma"): "wgmma results",
}
METRICS: Final = (
    TIME, MEMORY, L2, SM, TENSOR, OCCUPANCY, WAVES, SECTORS, REQUESTS, CONFLICTS, WAVEFRONTS, *STALLS
)  # fmt: skip

_BUSY: Final = 60.0  # percent of peak from which a unit is called the limiter
_SUMS: Final = (TIME, SECTORS, REQUESTS, CONFLICTS, WAVEFRONTS)
_NANOSECONDS: Final = {"nsecond": 1.0, "ns": 1.0, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6}


def profile(program: Program, inputs: Inputs, gpu: Gpu) -> Profile:
    """Counters of one run of all launches; clocks are left alone.

    Raises:
        ToolError: ncu is missing or may not read the counters.
    """
    options = ["--csv", "--clock-control", "none", "--metrics", ",".join(METRICS)]
    text = run_under("ncu", options, program, inputs, gpu)
    counters = combined(parse(text), set(program.compiled.entries))
    if not counters:
        said = next((line for line in text.splitlines() if "==ERROR==" in line), "it gave no counters")
        raise ToolError(f"ncu: {said.removeprefix('==ERROR==').strip()}; profiling may need root or a driver setting")
    return Profile(counters, sentence(counters))


def parse(text: str) -> list[tuple[str, dict[str, float]]]:
    """(kernel, metric -> value) per launch, in order, out of the CSV among ncu's other lines.

    Times are nanoseconds, shares percent. What ncu does not know here ("n/a") is left out.
    """
    rows = [line for line in text.splitlines() if line.startswith('"')]
    launches: dict[str, tuple[str, dict[str, float]]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(rows))):
        name, value = row.get("Metric Name"), (row.get("Metric Value") or "").replace(",", "")
        try:
            number = float(value)
        except ValueError:
            continue
        if name is None:
            continue
        if name == TIME:
            number *= _NANOSECONDS.get(row.get("Metric Unit", ""), 1.0)
        launches.setdefault(row["ID"], (row["Kernel Name"].partition("(")[0], {}))[1][name] = number
    return list(launches.values())


def combined(launches: list[tuple[str, dict[str, float]]], entries: set[str]) -> dict[str, float]:
    """Counters of a program's launches together: sums, and means weighted by time; others' kernels are left out."""
    own = [counters for name, counters in launches if name in entries]
    totals: dict[str, float] = defaultdict(float)
    time = sum(counters.get(TIME, 0.0) for counters in own)
    for counters in own:
        share = counters.get(TIME, 0.0) / time if time else 1.0 / len(own)
        for name, value in counters.items():
            totals[name] += value if name in _SUMS else share * value
    if totals.get(REQUESTS):
        totals["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"] = (
            totals[SECTORS] / totals[REQUESTS]
        )
    return dict(totals)


def sentence(counters: Mapping[str, float]) -> str:
    """Top limiter with its reason, in the words of the simulator's sentences."""
    shares = {"DRAM": counters.get(MEMORY, 0.0), "L2": counters.get(L2, 0.0),
              "tensor-core": counters.get(TENSOR, 0.0), "SM": counters.get(SM, 0.0)}  # fmt: skip
    top = max(shares, key=lambda name: shares[name])
    said = ", ".join(f"{name} {share:.0f} %" for name, share in sorted(shares.items(), key=lambda item: -item[1])[1:])
    parts = []
    if shares[top] >= _BUSY:
        parts.append(f"limited by {top}: {shares[top]:.0f} % of its peak ({said})")
    else:
        parts.append(f"limited by latency: no unit above {shares[top]:.0f} % of its peak ({top}; {said})")
        stalls = {what: counters[name] for name, what in STALLS.items() if name in counters}
        if stalls:
            worst = max(stalls, key=lambda what: stalls[what])
            parts.append(f"warps wait most for {worst}")
        if OCCUPANCY in counters:
            parts.append(f"{counters[OCCUPANCY]:.0f} % of the warps are resident")
        if 0.0 < counters.get(WAVES, 1.0) < 1.0:
            parts.append(f"the grid fills {100 * counters[WAVES]:.0f} % of a wave")
    if counters.get(REQUESTS) and counters[SECTORS] / counters[REQUESTS] > 20:
        parts.append(f"{counters[SECTORS] / counters[REQUESTS]:.0f} sectors per load request")
    if counters.get(WAVEFRONTS) and counters.get(CONFLICTS, 0.0) > 0.15 * counters[WAVEFRONTS]:
        parts.append(f"{100 * counters[CONFLICTS] / counters[WAVEFRONTS]:.0f} % of shared wavefronts are conflicts")
    return "; ".join(parts)
