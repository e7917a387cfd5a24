"""Tasks, kernels and programs that several phases measure."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np

from fitness.compile import compile_source
from fitness.devices.device import Compiled, Program
from fitness.gpu import load
from fitness.inputs import Case, make_case
from fitness.kernel import Kernel, load_kernel, parse_kernel
from fitness.outcome import Outcome, Timed
from fitness.program import build_program
from fitness.task import Task
from seeds import seed_paths

GPU = load("H200")
REDTEAM = Path(__file__).parents[2] / "tests" / "redteam"
SPEC: dict[str, Any] = {
    "op": "spmm",
    "pattern": {"kind": "nm", "n": 2, "m": 4},
    "dtype": "float16",
    "shapes": [{"M": 4096, "K": 4096, "N": 16}, {"M": 4096, "K": 4096, "N": 256}],
    "free": ["N"],
}
STEMS = ("nm24_mma_sp", "nm24_mma_sp_fragment", "nm24_wgmma_sp", "nm24_dense_mma")
"""Seeds whose settings are drawn for the throughput run."""
SMALL: dict[str, Any] = {**SPEC, "shapes": [{"M": 128, "K": 512, "N": 160}]}
"""The red team's own task."""


def told(outcome: Outcome) -> dict[str, Any]:
    """An outcome for JSON; times in microseconds."""
    timings = outcome.timings if isinstance(outcome, Timed) else ()
    return {
        "verdict": outcome.kind,
        "gate": outcome.stage.name,
        "us": [round(t.time_us, 3) for t in timings],
        "interval_us": [[round(t.low_us, 3), round(t.high_us, 3)] for t in timings],
        "floor_us": [round(t.floor_us, 3) for t in timings],
        "samples_us": [[round(v, 3) for v in t.samples_us] for t in timings],
        "findings": [f"{f.kind}: {f.message}"[:300] for f in outcome.findings if f.kind != "flag"][:6],
        "seconds": round(outcome.cost.evaluate_s, 3),
        "timing_s": round(outcome.cost.timing_s, 4),
    }


def seed(stem: str) -> Kernel:
    """A starting seed by its path under seeds/, without ".cu"."""
    (path,) = seed_paths(stem)
    return load_kernel(path)


def redteam(name: str) -> Kernel:
    """A kernel of the red team."""
    return load_kernel(REDTEAM / f"{name}.cu")


def case_of(kernel: Kernel, n: int) -> Case:
    """Operands of the main task at N = n."""
    return make_case(
        Task.from_spec(SPEC), {"M": 4096, "K": 4096, "N": n}, kernel.format, seed=0, data="normal", gpu=GPU
    )


def program_of(kernel: Kernel, case: Case) -> Program:
    """The kernel compiled and its launches resolved.

    Raises:
        ValueError: it does not compile or cannot be launched at this shape.
    """
    defines = (*case.task.defines, *kernel.defines)
    compiled = compile_source(kernel.source, defines=defines, flags=kernel.header.options, arch=GPU.arch)
    if not isinstance(compiled, Compiled):
        raise ValueError(f"{kernel.header.about}: {compiled.findings[0].message}")
    program = build_program(kernel, compiled, case, GPU)
    if not isinstance(program, Program):
        raise ValueError(f"{kernel.header.about}: {program.finding.message}")
    return program


_DELAY = "{ long long began = clock64(); while (clock64() - began < DELAY) ; }"


def delayed(kernel: Kernel, clocks: int) -> Kernel:
    """The same kernel whose threads first wait some clocks.

    Raises:
        ValueError: it has no entry that this finds.
    """
    header, mark, body = kernel.source.partition("---*/")
    wait = _DELAY.replace("DELAY", str(clocks))
    body, count = re.subn(r"(extern \"C\"[^{;]*?\)\s*\{)", lambda m: m.group(1) + wait, body)
    if not count:
        raise ValueError(f"{kernel.header.about}: no entry found")
    return parse_kernel(header + mark + body, params=kernel.params)


def distinct(count: int, rng: np.random.Generator) -> list[Kernel]:
    """Settings of the nm24 seeds, all different, from each seed in turn."""
    found: dict[str, Kernel] = {}
    for tried, kernel in enumerate(itertools.cycle([seed(f"spmm/{stem}") for stem in STEMS])):
        params = {name: int(rng.choice(param.values)) for name, param in kernel.header.params.items()}
        if kernel.feasible(params):
            child = kernel.with_params(params)
            found[child.id] = child
        if len(found) >= count or tried > 1000 * count:
            return list(found.values())
    return []
