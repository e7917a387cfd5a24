"""The modelled clock against a real card: the same kernels, built once, modelled here and measured there.

    python benchmarks/simulator/against_gpu.py build jobs.pickle [--variants 40]   # any machine
    python benchmarks/simulator/against_gpu.py measure jobs.pickle measured.json   # a machine with the card
    python benchmarks/simulator/against_gpu.py compare jobs.pickle measured.json   # any machine

`measure` needs PyCUDA and a card. Every kernel is first checked against float64 with the criterion of the project;
a wrong one is reported and not timed. Times are those of the timing screen (docs/gpu.md): cold, in graphs over
rotating operand sets. The rows in data/ are older: median of 15 replays of such graphs, without the flush between.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fitness.correctness import check
from fitness.devices.cuda.cuda import Cuda
from fitness.devices.device import Checks, Compiled, Program, Timeable
from fitness.gpu import load
from fitness.inputs import Case, make_case
from fitness.kernel import Kernel, load_kernel
from fitness.outcome import Gate, Timed
from fitness.program import LaunchProblem, build_program
from fitness.task import Task

TASK = {
    "op": "spmm",
    "pattern": {"kind": "nm", "n": 2, "m": 4},
    "dtype": "float16",
    "shapes": [{"M": 4096, "K": 4096, "N": 16}, {"M": 4096, "K": 4096, "N": 256}],
}


@dataclass(frozen=True)
class Job:
    """One kernel at one setting of its params, compiled."""

    label: str
    kernel: Kernel
    compiled: Compiled


def build(out: Path, variants: int, patterns: Sequence[str], changes: tuple[int, int], rng_seed: int) -> None:
    """Compile seeds at their defaults and at random feasible settings."""
    from fitness.compile import CompileError, compile_source
    from seeds import seed_paths

    task, gpu, rng = Task.from_spec(TASK), load("H200"), np.random.default_rng(rng_seed)
    jobs: list[Job] = []
    for path in (path for pattern in patterns for path in seed_paths(pattern)):
        seed = load_kernel(path)
        for kernel in (seed, *_variants(seed, variants, changes, rng)):
            compiled = compile_source(kernel.source, defines=kernel.defines, flags=kernel.header.options, arch=gpu.arch)
            if isinstance(compiled, CompileError):
                continue
            case = make_case(task, task.shapes[0], kernel.format, seed=0, data="normal", gpu=gpu)
            if not isinstance(build_program(kernel, compiled, case, gpu), LaunchProblem):
                jobs.append(Job(path.stem, kernel, compiled))
    out.write_bytes(pickle.dumps(jobs))
    print(f"{len(jobs)} kernels in {out}")


def _variants(seed: Kernel, count: int, changes: tuple[int, int], rng: np.random.Generator) -> list[Kernel]:
    """Random feasible settings, `changes` (fewest, most) params away from the defaults."""
    found: dict[str, Kernel] = {}
    names = list(seed.header.params)
    for _ in range(400 * count):
        if len(found) >= count or not names:
            break
        params = dict(seed.params)
        moved = min(len(names), int(rng.integers(changes[0], changes[1] + 1)))
        for name in rng.choice(names, size=moved, replace=False):
            params[str(name)] = int(rng.choice(seed.header.params[str(name)].values))
        if seed.feasible(params) and params != dict(seed.params):
            child = seed.with_params(params)
            found[child.id] = child
    return list(found.values())


# -- on the card ------------------------------------------------------------------------------------------------------


def measure(jobs_file: Path, out: Path) -> None:
    """Check and time every job at the two shapes."""
    task, gpu, card = Task.from_spec(TASK), load("H200"), Cuda(load("H200"))
    rows: list[dict[str, Any]] = []
    for job in pickle.loads(jobs_file.read_bytes()):
        for shape in task.shapes:
            case = make_case(task, shape, job.kernel.format, seed=0, data="normal", gpu=gpu)
            program = build_program(job.kernel, job.compiled, case, gpu)
            row = {"seed": job.label, "params": dict(job.kernel.params), "shape": dict(shape)}
            if isinstance(program, LaunchProblem):
                row["problem"] = program.finding.message
            else:
                row |= _measure(card, program, case)
            rows.append(row)
            print(
                row["seed"], shape["N"], row.get("median_us"), row.get("problem", ""), row.get("margin", ""), flush=True
            )
        out.write_text(
            json.dumps(
                {
                    "card": card.card.name,
                    "host": platform.release(),
                    "date": datetime.now(UTC).isoformat(),
                    "rows": rows,
                },
                indent=1,
            )
        )


def _measure(card: Cuda, program: Program, case: Case) -> dict[str, Any]:
    execution = card.run(program, case.inputs, Checks())
    if execution.ended != "finished" or execution.findings:
        return {"problem": execution.findings[0].message if execution.findings else execution.ended}
    wrong = check(case, execution.outputs, execution.written, sampled=False)
    if wrong is not None:
        return {"problem": f"wrong: {wrong.pattern}", "margin": wrong.margin}
    reference_us = 2 * case.task.floor_us(case.shape, card.gpu)
    (measured,) = card.time([Timeable(program, case.inputs, reference_us=reference_us)], screen=True)
    return {"median_us": measured.time_us, "samples_us": [round(t, 3) for t in measured.samples_us]}


def compare(jobs_file: Path, measured: Path, processes: int) -> None:
    """Modelled beside measured times, rank correlation and log ratio."""
    from scipy.stats import spearmanr

    rows = json.loads(measured.read_text())["rows"]
    times = {_key(r["seed"], r["params"], r["shape"]): r["median_us"] for r in rows if "median_us" in r}
    jobs: list[Job] = pickle.loads(jobs_file.read_bytes())
    pairs: list[tuple[str, int, float, float]] = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for job, modelled in zip(jobs, pool.imap(_modelled, [job.kernel for job in jobs]), strict=True):
            for shape, time_us in modelled:
                real = times.get(_key(job.label, job.kernel.params, shape))
                if real is not None:
                    pairs.append((job.label, shape["N"], time_us, real))
    for label, n, time_us, real in pairs:
        print(f"{label:26s} N={n:4d} modelled {time_us:9.2f} us  measured {real:9.2f} us  ratio {time_us / real:5.2f}")
    for label, n in sorted({(label, n) for label, n, _, _ in pairs}):
        part = [(m, r) for name, size, m, r in pairs if (name, size) == (label, n)]
        ratio = np.log([m / r for m, r in part])
        rank = spearmanr([m for m, _ in part], [r for _, r in part]).statistic
        print(
            f"{label} N={n}: {len(part)} kernels, Spearman {rank:.3f}, "
            f"log ratio {ratio.mean():+.2f} +- {ratio.std():.2f}"
        )


def _modelled(kernel: Kernel) -> list[tuple[Mapping[str, int], float]]:
    """Shape and modelled microseconds of one kernel at both shapes; empty where it fails."""
    from fitness.devices.simulator.simulator import Simulator
    from fitness.evaluate import judge

    outcome = judge(kernel, Task.from_spec(TASK), Simulator(load("H200")), depth=Gate.TIMING_SCREEN)
    return [(t.shape, t.time_us) for t in outcome.timings] if isinstance(outcome, Timed) else []


def _key(label: str, params: Mapping[str, int], shape: Mapping[str, int]) -> str:
    return json.dumps([label, dict(sorted(params.items())), dict(sorted(shape.items()))])


def main() -> None:
    """Parse the command line and run one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    builder = steps.add_parser("build", help="compile the kernels")
    builder.add_argument("jobs", type=Path)
    builder.add_argument("--variants", type=int, default=12, help="random settings per seed")
    builder.add_argument("--seeds", nargs="+", default=["spmm/nm24_*", "gemm/dense_*"], help="seed kernels")
    builder.add_argument("--changes", type=int, nargs=2, default=(1, 4), help="fewest and most params changed")
    builder.add_argument("--rng-seed", type=int, default=7)
    measurer = steps.add_parser("measure", help="check and time them on the card")
    comparer = steps.add_parser("compare", help="model them and compare")
    comparer.add_argument("--processes", type=int, default=2)
    for step in (measurer, comparer):
        step.add_argument("jobs", type=Path)
        step.add_argument("measured", type=Path)
    options = parser.parse_args()
    if options.step == "build":
        build(options.jobs, options.variants, options.seeds, tuple(options.changes), options.rng_seed)
    elif options.step == "measure":
        measure(options.jobs, options.measured)
    else:
        compare(options.jobs, options.measured, options.processes)


if __name__ == "__main__":
    main()
