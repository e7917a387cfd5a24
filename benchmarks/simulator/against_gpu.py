"""The modelled clock against a real card: the same kernels, built once, modelled here and measured there.

    python benchmarks/simulator/against_gpu.py build jobs.pickle [--variants 40]   # any machine
    python benchmarks/simulator/against_gpu.py measure jobs.pickle measured.json   # a machine with the card
    python benchmarks/simulator/against_gpu.py compare jobs.pickle measured.json   # any machine

`measure` needs cuda-bindings and a driver, neither NVRTC nor PyCUDA. Every kernel is first checked against
float64 with the criterion of the project; a wrong one is reported and not timed. Times are kernel-only and
cold: one CUDA graph of launches over rotating operand sets that total five times L2, median of 15 replays.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fitness.correctness import check
from fitness.devices.cuda.tensormap import encode
from fitness.devices.device import BufferRef, Compiled, Program, ResolvedLaunch, ResolvedTensorMap
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
REPLAYS = 15


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


def _call(result: tuple[Any, ...]) -> Any:
    """Value of a driver call, or RuntimeError with its error code."""
    if int(result[0]) != 0:
        raise RuntimeError(f"CUDA driver: {result[0]!r}")
    return result[1] if len(result) == 2 else result[1:]


class Card:
    """The first CUDA device through the driver API; buffers, modules, graphs."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.cu = driver
        _call(driver.cuInit(0))
        self.device = _call(driver.cuDeviceGet(0))
        self.context = _call(driver.cuDevicePrimaryCtxRetain(self.device))
        _call(driver.cuCtxSetCurrent(self.context))
        self.stream = _call(driver.cuStreamCreate(1))
        self.name = _call(driver.cuDeviceGetName(64, self.device)).split(b"\0")[0].decode()

    def upload(self, array: np.ndarray[Any, Any]) -> int:
        """Copy a host array to fresh device memory."""
        pointer = _call(self.cu.cuMemAlloc(max(16, array.nbytes)))
        if array.nbytes:
            host = np.ascontiguousarray(array)
            _call(self.cu.cuMemcpyHtoD(pointer, host.ctypes.data, host.nbytes))
        return int(pointer)

    def poison(self, pointer: int, size: int) -> None:
        """Fill with 0xFF: NaN in every floating type."""
        _call(self.cu.cuMemsetD8(pointer, 0xFF, size))

    def download(self, pointer: int, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Copy device memory to a new host array."""
        host = np.empty_like(like)
        _call(self.cu.cuMemcpyDtoH(host.ctypes.data, pointer, host.nbytes))
        return host

    def free(self, pointers: Sequence[int]) -> None:
        """Release device memory."""
        for pointer in pointers:
            _call(self.cu.cuMemFree(pointer))


class Loaded:
    """A program on the card with one or several sets of buffers."""

    def __init__(self, card: Card, program: Program, case: Case, sets: int) -> None:
        self.card, self.program, self.case = card, program, case
        self.module = _call(card.cu.cuModuleLoadData(program.compiled.cubin))
        self.functions = {
            n: _call(card.cu.cuModuleGetFunction(self.module, n.encode())) for n in program.compiled.entries
        }
        for launch in program.launches:
            if launch.shared > 48 * 1024:
                attribute = card.cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                _call(card.cu.cuFuncSetAttribute(self.functions[launch.entry], attribute, launch.shared))
        self.sets = [self._buffers() for _ in range(sets)]

    def _buffers(self) -> dict[str, int]:
        inputs = self.case.inputs
        buffers = {name: self.card.upload(array) for name, array in {**inputs.buffers, **inputs.outputs}.items()}
        for space in self.program.workspaces:
            buffers[space.name] = self.card.upload(np.zeros(space.bytes, np.uint8))
            if space.init == "poison":
                self.card.poison(buffers[space.name], space.bytes)
        for name, array in inputs.outputs.items():
            self.card.poison(buffers[name], array.nbytes)
        return buffers

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every buffer by name."""
        inputs = self.case.inputs
        arrays = {**inputs.buffers, **inputs.outputs}
        return {**{n: a.nbytes for n, a in arrays.items()}, **{w.name: w.bytes for w in self.program.workspaces}}

    def enqueue(self, buffers: Mapping[str, int]) -> None:
        """All memsets and launches of the program, on the card's stream."""
        for space in self.program.workspaces:
            if space.init == "zero":
                _call(self.card.cu.cuMemsetD8Async(buffers[space.name], 0, space.bytes, self.card.stream))
        for launch in self.program.launches:
            for name in launch.memset:
                _call(self.card.cu.cuMemsetD8Async(buffers[name], 0, self.sizes()[name], self.card.stream))
            self._launch(launch, buffers)

    def _launch(self, launch: ResolvedLaunch, buffers: Mapping[str, int]) -> None:
        parameters = self.program.compiled.entries[launch.entry].parameters
        values = [
            encode(a, buffers[a.buffer])
            if isinstance(a, ResolvedTensorMap)
            else np.array([buffers[a.name] if isinstance(a, BufferRef) else a.value], _NUMPY[p.type])
            for a, p in zip(launch.arguments, parameters, strict=True)
        ]
        pointers = np.array([v.ctypes.data for v in values], np.uint64)
        cu, config = self.card.cu, self.card.cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes, config.hStream = launch.shared, self.card.stream
        if launch.cluster != (1, 1, 1):
            cluster = cu.CUlaunchAttribute()
            cluster.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            sizes = cu.CUlaunchAttributeValue()
            sizes.clusterDim.x, sizes.clusterDim.y, sizes.clusterDim.z = launch.cluster
            cluster.value = sizes
            config.attrs, config.numAttrs = [cluster], 1
        _call(cu.cuLaunchKernelEx(config, self.functions[launch.entry], pointers.ctypes.data, 0))

    def graph_us(self) -> list[float]:
        """Microseconds per run of the program in a graph over all buffer sets, one figure a replay."""
        cu, stream = self.card.cu, self.card.stream
        _call(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        for buffers in self.sets:
            self.enqueue(buffers)
        graph = _call(cu.cuStreamEndCapture(stream))
        executable = _call(cu.cuGraphInstantiate(graph, 0))
        begin, end = (_call(cu.cuEventCreate(0)) for _ in range(2))
        times = []
        for _ in range(REPLAYS + 3):
            _call(cu.cuEventRecord(begin, stream))
            _call(cu.cuGraphLaunch(executable, stream))
            _call(cu.cuEventRecord(end, stream))
            _call(cu.cuEventSynchronize(end))
            times.append(1e3 * _call(cu.cuEventElapsedTime(begin, end)) / len(self.sets))
        _call(cu.cuGraphExecDestroy(executable))
        return times[3:]

    def close(self) -> None:
        """Give everything back."""
        for buffers in self.sets:
            self.card.free(list(buffers.values()))
        _call(self.card.cu.cuModuleUnload(self.module))


_NUMPY = {"u64": np.uint64, "b64": np.uint64, "s64": np.int64, "u32": np.uint32, "b32": np.uint32, "s32": np.int32,
          "f32": np.float32, "u16": np.uint16, "b16": np.uint16, "s16": np.int16, "f64": np.float64}  # fmt: skip


def measure(jobs_file: Path, out: Path) -> None:
    """Check and time every job at the two shapes."""
    task, gpu, card = Task.from_spec(TASK), load("H200"), Card()
    rows: list[dict[str, Any]] = []
    for job in pickle.loads(jobs_file.read_bytes()):
        for shape in task.shapes:
            case = make_case(task, shape, job.kernel.format, seed=0, data="normal", gpu=gpu)
            program = build_program(job.kernel, job.compiled, case, gpu)
            row = {"seed": job.label, "params": dict(job.kernel.params), "shape": dict(shape)}
            if isinstance(program, LaunchProblem):
                row["problem"] = program.finding.message
            else:
                row |= _measure(card, program, case, gpu.l2_bytes)
            rows.append(row)
            print(
                row["seed"], shape["N"], row.get("median_us"), row.get("problem", ""), row.get("margin", ""), flush=True
            )
        out.write_text(
            json.dumps(
                {"card": card.name, "host": platform.release(), "date": datetime.now(UTC).isoformat(), "rows": rows},
                indent=1,
            )
        )


def _measure(card: Card, program: Program, case: Case, l2_bytes: int) -> dict[str, Any]:
    single = Loaded(card, program, case, 1)
    size = sum(single.sizes().values())
    single.enqueue(single.sets[0])
    _call(card.cu.cuStreamSynchronize(card.stream))
    y = card.download(single.sets[0]["Y"], case.inputs.outputs["Y"])
    single.close()
    wrong = check(case, {"Y": y}, {"Y": np.ones(y.shape, bool)}, sampled=False)
    if wrong is not None:
        return {"problem": f"wrong: {wrong.pattern}", "margin": wrong.margin}
    loaded = Loaded(card, program, case, max(8, -(-5 * l2_bytes // size)))
    times = loaded.graph_us()
    loaded.close()
    return {"median_us": statistics.median(times), "samples_us": [round(t, 3) for t in times]}


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
