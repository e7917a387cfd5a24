"""How fast the simulator is: small checked runs, costing from sampled blocks, lane-instructions a second.

    python -m benchmarks.simulator.speed [--part checks --part costing --part throughput] [--seeds "spmm/nm24_*"]

All seconds are CPU seconds of this one process (other work on the machine does not count), NVRTC and the making of
operands left out. Three parts, each with what is asked of it:

checks      Every seed's six small runs (gate 4), all checks on, compared with the reference: the first, which also
            translates the PTX; the mean and the dearest of the others. Asked: < 0.3 s each.
costing     Modelled time of 4096x4096 by 4096x128 from sampled blocks, at the two reduced K and extrapolated, for a
            program never costed before and once more; the same at the full K, and how far the two times are apart.
            Asked: < 0.5 s, within 3 %. Seeds that do not reduce have one time only.
throughput  Lane-instructions a second of two kernels at several numbers of lanes, bounds checked only, and with all
            checks; the mix of instructions is counted and printed. Asked at 4096 lanes: 300 M on integers and shared
            memory, 150 M on FMA-heavy code.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Iterator
from fnmatch import fnmatch

# As in a worker process; must be set before NumPy is imported, hence the imports below.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

from benchmarks.simulator.rank import subject  # noqa: E402
from fitness.compile import CompileError, compile_source  # noqa: E402
from fitness.correctness import check  # noqa: E402
from fitness.devices.device import (  # noqa: E402
    BufferRef,
    Checks,
    Compiled,
    Execution,
    Inputs,
    Program,
    ResolvedLaunch,
    Timeable,
)
from fitness.devices.simulator.simulator import Simulator  # noqa: E402
from fitness.devices.simulator.timing import program_time  # noqa: E402
from fitness.gpu import Gpu, load  # noqa: E402
from fitness.inputs import make_case, small_runs  # noqa: E402
from fitness.kernel import Kernel, load_kernel  # noqa: E402
from fitness.program import LaunchProblem, build_program  # noqa: E402
from fitness.task import Task  # noqa: E402
from seeds import seed_paths  # noqa: E402

PARTS = ("checks", "costing", "throughput")
ASKED_CHECK_S, ASKED_COSTING_S, ASKED_APART = 0.3, 0.5, 0.03
SHAPE = {"M": 4096, "K": 4096, "N": 128}
PATTERNS: tuple[tuple[str, dict[str, object], str], ...] = (
    ("spmm", {"kind": "nm", "n": 2, "m": 4}, "float16"),
    ("spmm", {"kind": "random", "density": 0.02}, "float32"),
    ("spmm", {"kind": "block", "shape": [32, 32], "density": 0.2}, "float16"),
    ("spmv", {"kind": "power_law", "density": 0.01}, "float32"),
)
"""As in experiments/; a seed is measured on the first that its domain admits."""
THREADS, LANES, RUNS = 256, (1024, 4096, 16384), 4
INTEGERS = """
extern "C" __global__ void kernel(unsigned* y) {
    __shared__ unsigned cells[8 * 256];
    const unsigned t = threadIdx.x;
    unsigned a = t, b = blockIdx.x;
    for (int j = 0; j < 8; ++j) cells[256 * j + t] = a + j;
    #pragma unroll 1
    for (int i = 0; i < 64; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            a = a * 1664525u + b;
            b = (b ^ (a >> 7)) + (a << 3 & 0xff0u);
            cells[256 * j + t] = a ^ b;
            b += cells[(b & 0x700u) + t];
        }
    }
    y[blockIdx.x * 256 + t] = a + b;
}
"""
FMAS = """
extern "C" __global__ void kernel(float* y) {
    float a[8];
    const float x = 0.75f + 0.001f * threadIdx.x, z = 0.5f * blockIdx.x;
    #pragma unroll
    for (int j = 0; j < 8; ++j) a[j] = j;
    #pragma unroll 1
    for (int i = 0; i < 64; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) a[j] = fmaf(a[j], x, z);
        #pragma unroll
        for (int j = 0; j < 8; ++j) a[j] = fmaf(x, z, a[j]);
    }
    float sum = 0;
    #pragma unroll
    for (int j = 0; j < 8; ++j) sum += a[j];
    y[blockIdx.x * 256 + threadIdx.x] = sum;
}
"""


def subjects(pattern: str, *ops: str) -> Iterator[tuple[str, Kernel, Task]]:
    """Seeds of these operations whose "op/name" fits the pattern, each with its task."""
    for path in (path for op in ops for path in seed_paths(f"{op}/*")):
        name, kernel = f"{path.parent.name}/{path.stem}", load_kernel(path)
        if not fnmatch(name, pattern):
            continue
        tasks = [task for task in map(task_of, PATTERNS) if not task.domain_violations(kernel)]
        if tasks:
            yield name, kernel, tasks[0]
        else:
            print(f"{name:28} fits none of the tasks")


def task_of(row: tuple[str, dict[str, object], str]) -> Task:
    """The task of a row of PATTERNS."""
    op, pattern, dtype = row
    shape = {key: size for key, size in SHAPE.items() if key != "N" or op != "spmv"}
    return Task.from_spec({"op": op, "pattern": pattern, "dtype": dtype, "shapes": [shape]})


# ---- small runs with all checks


def small_checks(simulator: Simulator, pattern: str) -> None:
    """A row per seed, and which are above what is asked."""
    print(
        f"{'six small runs, all checks':28}{'first':>8}{'mean':>8}{'dearest':>9}   CPU s; mean, dearest but the first"
    )
    missed = []
    for name, kernel, task in subjects(pattern, "spmm", "gemm", "spmv"):
        seconds = small_seconds(simulator, task, kernel)
        print(f"{name:28}{seconds[0]:8.3f}{np.mean(seconds[1:]):8.3f}{max(seconds[1:]):9.3f}", flush=True)
        if max(seconds) >= ASKED_CHECK_S:
            missed.append(f"{name} {max(seconds):.2f}")
    print(f"at or above {ASKED_CHECK_S} s: {', '.join(missed) or 'none'}\n")


def small_seconds(simulator: Simulator, task: Task, kernel: Kernel) -> list[float]:
    """CPU seconds of each small run with its comparison, in gate 4's order."""
    build = compiled(kernel.source, (*task.defines, *kernel.defines), kernel.header.options, simulator.gpu)
    seconds = []
    for run in small_runs(task):
        case = make_case(task, run.shape, kernel.format, seed=run.seed, data=run.data, gpu=simulator.gpu)
        program = build_program(kernel, build, case, simulator.gpu)
        if isinstance(program, LaunchProblem):
            raise SystemExit(program.finding.message)
        _ = case.reference, case.scale  # made once per case, for all candidates
        begun = time.process_time()
        execution = simulator.run(program, case.inputs, Checks())
        wrong = check(case, execution.outputs, execution.written, sampled=False)
        seconds.append(time.process_time() - begun)
        if execution.ended != "finished" or wrong is not None:
            raise SystemExit(f"{run}: {execution.ended} {execution.findings} {wrong}")
    return seconds


def compiled(source: str, defines: tuple[str, ...], flags: tuple[str, ...], gpu: Gpu) -> Compiled:
    """A build that must succeed."""
    build = compile_source(source, defines=defines, flags=flags, arch=gpu.arch)
    if isinstance(build, CompileError):
        raise SystemExit(build.findings[0].message)
    return build


# ---- costing


def costing(simulator: Simulator, pattern: str) -> None:
    """A row per seed, and which are above what is asked."""
    seconds_of = f"{'first':>8}{'again':>8}{'full K':>8}  CPU s"
    print(f"{'4096x4096 by 4096x128':28}{seconds_of} {'reduced':>12}{'full K':>12}  modelled us")
    missed = []
    for name, kernel, task in subjects(pattern, "spmm", "gemm"):
        reduced = subject(task, kernel, simulator.gpu, task.shapes[0])
        whole = Timeable(reduced.program, reduced.inputs)
        times, seconds = [], []
        for one in (reduced, reduced, whole):
            begun = time.process_time()
            times.append(program_time(simulator, one))
            seconds.append(time.process_time() - begun)
        line = f"{name:28}" + "".join(f"{spent:8.2f}" for spent in seconds)
        line += f"        {times[0].time_us:12.3f}{times[2].time_us:12.3f}"
        if times[0].reduced_steps:
            apart = times[0].time_us / times[2].time_us - 1
            line += f"  {apart:+.2%}"
        else:
            apart, line = 0.0, line + "  costed at the full K"
        print(line, flush=True)
        if seconds[0] >= ASKED_COSTING_S or abs(apart) > ASKED_APART:
            missed.append(f"{name} {seconds[0]:.2f} s {apart:+.1%}")
    print(f"at or above {ASKED_COSTING_S} s, or more than {ASKED_APART:.0%} apart: {', '.join(missed) or 'none'}\n")


# ---- throughput


def throughput(simulator: Simulator) -> None:
    """Two kernels at each number of lanes; the best of some runs, so that what is cached is cached."""
    for name, source, dtype in (("integers and shared memory", INTEGERS, np.uint32), ("FMA-heavy", FMAS, np.float32)):
        build = compiled(source, (), (), simulator.gpu)
        print(name)
        for lanes in LANES:
            launch = ResolvedLaunch("kernel", (lanes // THREADS, 1, 1), (THREADS, 1, 1), 0, (BufferRef("y"),))
            program, inputs = Program(build, (launch,)), Inputs({}, {"y": np.zeros(lanes, dtype)})
            if lanes == LANES[0]:
                print(f"  mix: {mix(simulator.run(program, inputs, Checks(counters=True)))}")
            rates = [
                max(rate(simulator, program, inputs, checks) for _ in range(RUNS)) / 1e6
                for checks in (Checks(races=False, uninitialised=False), Checks())
            ]
            print(f"  {lanes:6} lanes: {rates[0]:6.0f} M lane-instructions/CPU s, all checks {rates[1]:6.0f} M")


def rate(simulator: Simulator, program: Program, inputs: Inputs, checks: Checks) -> float:
    """Lane-instructions per CPU second of one run; every lane of the kernels is active in every instruction."""
    begun = time.process_time()
    execution = simulator.run(program, inputs, checks)
    seconds = time.process_time() - begun
    if execution.ended != "finished" or execution.findings:
        raise SystemExit(f"{execution.ended} {execution.findings}")
    return execution.steps * 32 / seconds


def mix(execution: Execution) -> str:
    """Shares of the kinds of instructions executed."""
    assert execution.counters is not None
    (counters,) = execution.counters
    assert counters.lanes_per_instruction() == 32
    issued = {kind: float(warps.sum()) for kind, warps in counters.by_kind().items()}
    total = sum(issued.values())
    return ", ".join(
        f"{kind} {n / total:.0%}" for kind, n in sorted(issued.items(), key=lambda item: -item[1]) if n > 0.005 * total
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--seeds", default="*", help='pattern of "op/name"')
    parser.add_argument("--gpu", default="H200", help="the card modelled")
    options = parser.parse_args()
    parts = options.part or PARTS
    simulator = Simulator(load(options.gpu))
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}; one thread, CPU seconds")
    if "checks" in parts:
        small_checks(simulator, options.seeds)
    if "costing" in parts:
        costing(simulator, options.seeds)
    if "throughput" in parts:
        throughput(simulator)


if __name__ == "__main__":
    main()
