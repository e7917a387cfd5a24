"""Modelled time of every seed at its defaults, what limits it, and how far it is from the roofline floor.

    python benchmarks/simulator/rank.py [--gpu H200] [--seeds "nm24_*"] [--n 16 --n 256] [--m 4096 --k 4096]

One line per seed and N, fastest first: microseconds, fraction of the floor, the terms of the slowest launch
(microseconds if each alone counted), seconds of CPU the costing took; below it the limiter sentence.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

from fitness.compile import CompileError, compile_source
from fitness.devices.device import Inputs, Program, Timeable
from fitness.devices.simulator.limiter import sentence
from fitness.devices.simulator.simulator import Simulator
from fitness.devices.simulator.timing import ProgramTime, program_time
from fitness.gpu import Gpu, load
from fitness.inputs import make_case
from fitness.kernel import Kernel, load_kernel
from fitness.program import LaunchProblem, build_program
from fitness.sampling import smaller_k
from fitness.task import Task
from fitness.verdict import same_path
from seeds import seed_paths

TERMS = 5


@dataclass(frozen=True)
class Row:
    """One seed at one shape."""

    seed: str
    time: ProgramTime
    floor_us: float
    cpu_s: float


def subject(task: Task, kernel: Kernel, gpu: Gpu, shape: Mapping[str, int]) -> Timeable:
    """The kernel at the shape and, where that only shortens its loops, at two smaller K (as in `fitness.evaluate`)."""
    compiled = compile_source(
        kernel.source, defines=(*task.defines, *kernel.defines), flags=kernel.header.options, arch=gpu.arch
    )
    if isinstance(compiled, CompileError):
        raise SystemExit(compiled.findings[0].message)

    def program(at: Mapping[str, int]) -> tuple[Program, Inputs]:
        case = make_case(task, at, kernel.format, seed=0, data="normal", gpu=gpu)
        built = build_program(kernel, compiled, case, gpu)
        if isinstance(built, LaunchProblem):
            raise SystemExit(built.finding.message)
        return built, case.inputs

    whole, inputs = program(shape)
    reduced = [(small["K"] / shape["K"], *program(small)) for small in smaller_k(task, shape)]
    if not all(same_path(whole, small) for _, small, _ in reduced):
        reduced = []
    return Timeable(whole, inputs, tuple(reduced))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--seeds", default="*", help="pattern of file names")
    parser.add_argument("--m", type=int, default=4096)
    parser.add_argument("--k", type=int, default=4096)
    parser.add_argument("--n", type=int, action="append")
    options = parser.parse_args()
    gpu = load(options.gpu)
    shapes = [{"M": options.m, "K": options.k, "N": n} for n in options.n or (16, 256)]
    table = {"op": "spmm", "pattern": {"kind": "nm", "n": 2, "m": 4}, "dtype": "float16", "shapes": shapes}
    task = Task.from_spec(table)
    simulator = Simulator(gpu)
    paths = [path for path in (*seed_paths("spmm/*"), *seed_paths("gemm/*")) if fnmatch(path.stem, options.seeds)]
    for shape in task.shapes:
        rows = []
        for path in paths:
            begun = time.process_time()
            modelled = program_time(simulator, subject(task, load_kernel(path), gpu, shape))
            rows.append(Row(path.stem, modelled, task.floor_us(shape, gpu), time.process_time() - begun))
        print(", ".join(f"{name} = {size}" for name, size in shape.items()), f"floor {rows[0].floor_us:.2f} us")
        for row in sorted(rows, key=lambda row: row.time.time_us):
            show(row, gpu)


def show(row: Row, gpu: Gpu) -> None:
    slowest = max(row.time.launches, key=lambda launch: launch.time_us)
    terms = sorted(slowest.terms.items(), key=lambda item: -item[1])[:TERMS]
    listed = "  ".join(f"{name} {us:.1f}" for name, us in terms)
    fraction = row.floor_us / row.time.time_us
    print(f"  {row.seed:22s} {row.time.time_us:9.2f} us  {fraction:6.1%} of floor  [{row.cpu_s:.1f} s]  {listed}")
    print(f"  {'':22s} {sentence(slowest, gpu.sms)}")


if __name__ == "__main__":
    main()
