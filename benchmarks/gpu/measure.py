"""What the GPU backend reaches on this machine's card, part by part; figures and raw samples as JSON.

    python benchmarks/gpu/measure.py OUT PART...      parts: vendors seeds tools noise redteam faults throughput

Every file says machine, driver, date and command. Needs a card, PyCUDA, and PyTorch for the vendor routines.
"""

from __future__ import annotations

import itertools
import json
import platform
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from evo.gpu_pool import GpuPool
from evo.pool import CandidateLimits, DeviceSpec, Pool
from fitness.compile import compile_source
from fitness.devices.device import Compiled, Program, Timeable
from fitness.gpu import load
from fitness.inputs import Case, make_case
from fitness.kernel import Kernel, load_kernel, parse_kernel
from fitness.outcome import Gate, Outcome, Timed
from fitness.program import build_program
from fitness.task import Task
from seeds import seed_paths

GPU = load("H200")
SPEC: dict[str, Any] = {
    "op": "spmm",
    "pattern": {"kind": "nm", "n": 2, "m": 4},
    "dtype": "float16",
    "shapes": [{"M": 4096, "K": 4096, "N": 16}, {"M": 4096, "K": 4096, "N": 256}],
    "free": ["N"],
}
REDTEAM = Path(__file__).parents[2] / "tests" / "redteam"
WORKERS = 14


def provenance(command: str) -> dict[str, Any]:
    """Machine, driver, date, command."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm", "--format=csv,noheader"]
    card = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return {"card": card, "host": platform.platform(), "python": platform.python_version(),
            "date": datetime.now(UTC).isoformat(), "command": command}  # fmt: skip


def told(outcome: Outcome) -> dict[str, Any]:
    """An outcome for JSON."""
    timings = outcome.timings if isinstance(outcome, Timed) else ()
    return {
        "verdict": outcome.kind,
        "gate": outcome.stage.name,
        "us": [round(t.time_us, 3) for t in timings],
        "interval_us": [[round(t.low_us, 3), round(t.high_us, 3)] for t in timings],
        "floor_us": [round(t.floor_us, 3) for t in timings],
        "samples_us": [[round(v, 3) for v in t.samples_us] for t in timings],
        "findings": [f"{f.kind}: {f.message}" for f in outcome.findings if f.kind != "flag"][:4],
        "seconds": round(outcome.cost.evaluate_s, 3),
    }


def vendors() -> Any:
    """Vendor routines at the nm24 shapes."""
    from fitness.baselines import VENDORS

    with Pool(DeviceSpec("cuda", "H200"), 1) as pool:
        times = pool.vendor_times(Task.from_spec(SPEC), VENDORS)
    for entry in times:
        print(
            entry.name,
            entry.why_not,
            [(round(t.time_us, 2), round(t.low_us, 2), round(t.high_us, 2)) for t in entry.timings],
        )
    return [{"name": e.name, "why_not": e.why_not, "timings": [asdict(t) for t in e.timings]} for e in times]


def seeds() -> Any:
    """Every nm24 seed and the dense one, by the whole path: simulator, then card."""
    paths = [path for pattern in ("spmm/nm24_*", "gemm/dense_mma*") for path in seed_paths(pattern)]
    kernels = {n: load_kernel(path) for n, path in enumerate(paths)}
    rows = {}
    with GpuPool("H200", [0], WORKERS) as pool:
        for n, outcome in pool.judge(Task.from_spec(SPEC), kernels.items()):
            rows[paths[n].stem] = told(outcome)
            print(
                paths[n].stem,
                outcome.kind,
                outcome.stage.name,
                rows[paths[n].stem]["us"],
                rows[paths[n].stem]["findings"][:1],
            )
    return rows


def _case(kernel: Kernel, n: int) -> Case:
    task = Task.from_spec(SPEC)
    return make_case(task, {"M": 4096, "K": 4096, "N": n}, kernel.format, seed=0, data="normal", gpu=GPU)


def _program(kernel: Kernel, case: Case) -> Program:
    compiled = compile_source(
        kernel.source, defines=(*case.task.defines, *kernel.defines), flags=kernel.header.options, arch=GPU.arch
    )
    assert isinstance(compiled, Compiled), compiled
    program = build_program(kernel, compiled, case, GPU)
    assert isinstance(program, Program), program
    return program


def tools() -> Any:
    """What ncu and compute-sanitizer print, and what becomes of it."""
    from fitness.devices.cuda import nsight, sanitizer
    from fitness.devices.cuda.tools import find_tool, run_under

    kernel = load_kernel(next(iter(seed_paths("spmm/nm24_mma_sp_fragment"))))
    case = _case(kernel, 256)
    program = _program(kernel, case)
    found: dict[str, Any] = {name: find_tool(name) for name in ("ncu", "compute-sanitizer", "nsys", "nvcc")}
    options = ["--csv", "--clock-control", "none", "--metrics", ",".join(nsight.METRICS)]
    found["ncu_text"] = run_under("ncu", options, program, case.inputs, GPU)
    counters = nsight.combined(nsight.parse(found["ncu_text"]), set(program.compiled.entries))
    found["counters"] = counters
    print(nsight.sentence(counters) if counters else found["ncu_text"][-600:])
    bad = load_kernel(REDTEAM / "writes_past_end.cu")
    task = Task.from_spec({**SPEC, "shapes": [{"M": 128, "K": 512, "N": 160}]})
    small = make_case(task, {"M": 128, "K": 512, "N": 160}, bad.format, seed=0, data="normal", gpu=GPU)
    for tool, name in (
        ("memcheck", "writes_past_end"),
        ("memcheck", "reads_past_end"),
        ("racecheck", "missing_barrier_before_use"),
    ):
        program = _program(load_kernel(REDTEAM / f"{name}.cu"), small)
        text = run_under("compute-sanitizer", ["--tool", tool, "--print-limit", "3"], program, small.inputs, GPU)
        found[f"{tool}_{name}"] = text[:6000]
        print(tool, name, [(f.kind, f.line, f.message[:100]) for f in sanitizer.parse(text, tool, Gate.CONFIRMATION)])
    return found


_DELAY = "{ long long began = clock64(); while (clock64() - began < DELAY) ; }"


def _delayed(kernel: Kernel, clocks: int) -> Kernel:
    """The same kernel whose threads first wait some clocks."""
    source = re.sub(
        r"(extern \"C\"[^{;]*?\)\s*\{)",
        lambda m: m.group(1) + _DELAY.replace("DELAY", str(clocks)),
        kernel.source.split("---*/")[1],
        count=1,
    )
    return parse_kernel(kernel.source.split("---*/")[0] + "---*/" + source, params=kernel.params)


def noise() -> Any:
    """A/A comparisons and a 3 % slower control, 200 interleaved pairs each, at N = 16."""
    from fitness.devices.cuda.cuda import Cuda
    from fitness.timing import CONFIRM, calibrate, is_win, ratio_estimate

    device = Cuda(GPU)
    kernel = load_kernel(next(iter(seed_paths("spmm/nm24_mma_sp_fragment"))))
    case = _case(kernel, 16)
    reference = 2 * case.task.floor_us(case.shape, GPU)

    def compare(slower: Kernel) -> Any:
        pair = [Timeable(_program(k, case), case.inputs, reference_us=reference) for k in (kernel, slower)]
        first, second = device.beside(pair, (), CONFIRM)
        rows = [np.array(m.samples_us).reshape(CONFIRM.blocks, -1) for m in (second, first)]
        return ratio_estimate(rows[0], rows[1]), first.time_us, second.time_us

    began = time.perf_counter()
    equal = [compare(kernel) for _ in range(120)]
    each_s = (time.perf_counter() - began) / 120
    delta = calibrate([ratio.value for ratio, _, _ in equal[:60]])
    false = sum(is_win(ratio, delta) for ratio, _, _ in equal[60:])
    tried = {clocks: compare(_delayed(kernel, clocks))[0].value for clocks in (100, 200, 400, 600, 900)}
    chosen = min(tried, key=lambda clocks: abs(tried[clocks] - 1.03))
    control = _delayed(kernel, chosen)
    slower = [compare(control) for _ in range(60)]
    detected = sum(is_win(ratio, delta) for ratio, _, _ in slower)
    result = {
        "pairs_each": CONFIRM.blocks * CONFIRM.per_block, "seconds_each": each_s, "delta": delta,
        "aa": [asdict(r) for r, _, _ in equal], "false_wins_of_last_60": false, "delays_tried": tried, "delay": chosen,
        "slower": [asdict(r) for r, _, _ in slower], "detected_of_60": detected,
        "times_us": [round(a, 4) for _, a, _ in equal],
    }  # fmt: skip
    ratios = [r.value for r, _, _ in slower]
    print(f"A/A {each_s:.3f} s each, delta {delta:.5f}, false wins {false}/60", tried)
    print(f"control {statistics.median(ratios):.4f} found {detected}/60")
    return result


def _redteam_task() -> Task:
    return Task.from_spec({**SPEC, "shapes": [{"M": 128, "K": 512, "N": 160}]})


def redteam() -> Any:
    """Every red-team kernel on the card alone, without the simulator before it."""
    paths = sorted(REDTEAM.glob("*.cu"))
    rows = {}
    with Pool(DeviceSpec("cuda", "H200"), 1, CandidateLimits(run_s=1.0)) as pool:
        for n, outcome in pool.judge(
            _redteam_task(), [(n, load_kernel(path)) for n, path in enumerate(paths)], Gate.TIMING
        ):
            rows[paths[n].stem] = told(outcome) | {"samples_us": []}
    for name, row in sorted(rows.items()):
        print(name, row["verdict"], row["gate"], row["us"], row["findings"][:1])
    return rows


def faults(count: int = 60) -> Any:
    """Good kernels with 30 % hangs, traps, reads far out of bounds and corrupted memory between them."""
    from fitness.devices.cuda.available import cards

    bad = ["infinite_loop", "traps", "null_pointer", "writes_past_end", "scans_neighbours", "traps_on_condition"]
    good = ["control_honest", "control_shared", "control_split_k", "control_persistent"]
    wanted = itertools.cycle(bad), itertools.cycle(good)
    names = [next(wanted[0]) if n % 10 in (2, 5, 8) else next(wanted[1]) for n in range(count)]
    rows, memory = [], []

    def used() -> int:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int(subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()[0])

    assert cards()
    memory.append(used())
    began = time.perf_counter()
    last = began
    pids: set[int] = set()
    with Pool(DeviceSpec("cuda", "H200"), 1, CandidateLimits(run_s=1.0)) as pool:
        kernels = [(n, load_kernel(REDTEAM / f"{name}.cu")) for n, name in enumerate(names)]
        for n, outcome in pool.judge(_redteam_task(), kernels, Gate.CORRECTNESS):
            now = time.perf_counter()
            rows.append(
                {
                    "n": n,
                    "kernel": names[n],
                    "verdict": outcome.kind,
                    "gate": outcome.stage.name,
                    "s": round(now - last, 3),
                }
            )
            last = now
            pids.update(pool.worker_pids())
    memory.append(used())
    wrong = [row for row in rows if (row["verdict"] == "Timed") != str(row["kernel"]).startswith("control_")]
    orphans = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    print(f"{count} candidates in {last - began:.1f} s; wrong verdicts {wrong}; memory MiB {memory}; orphans {orphans}")
    return {"rows": rows, "wrong": wrong, "memory_used_mib": memory, "orphans": orphans, "workers": len(pids)}


def throughput(count: int = 72) -> Any:
    """Code-distinct settings of the nm24 seeds, by the whole path; candidates per minute."""
    rng, kernels = np.random.default_rng(5), {}
    stems = ("nm24_mma_sp", "nm24_mma_sp_fragment", "nm24_dense_mma", "nm24_shared")
    for kernel in itertools.cycle([load_kernel(next(iter(seed_paths(f"spmm/{stem}")))) for stem in stems]):
        params = {name: int(rng.choice(param.values)) for name, param in kernel.header.params.items()}
        if kernel.feasible(params):
            child = kernel.with_params(params)
            kernels[child.id] = child
        if len(kernels) >= count:
            break
    with GpuPool("H200", [0], WORKERS) as pool:
        task = Task.from_spec(SPEC)
        list(pool.judge(task, [(0, load_kernel(next(iter(seed_paths("spmm/nm24_mma_sp")))))]))  # warm
        began = time.perf_counter()
        keys = {r.code_key for _, r in pool.prepare(task, enumerate(kernels.values())) if not isinstance(r, Outcome)}
        prepared_s = time.perf_counter() - began
        rows = [
            told(o) | {"samples_us": []} for _, o in pool.judge(task, enumerate(kernels.values()), Gate.TIMING, 25.0)
        ]
        seconds = time.perf_counter() - began
    valid = sum(row["verdict"] == "Timed" for row in rows)
    print(f"{valid} valid of {len(rows)}, {len(keys)} codes, in {seconds:.1f} s (compiling {prepared_s:.1f} s)")
    print(f"{60 * valid / seconds:.0f} valid a minute")
    return {"rows": rows, "valid": valid, "codes": len(keys), "seconds": seconds, "prepare_s": prepared_s,
            "valid_per_minute": 60 * valid / seconds}  # fmt: skip


PARTS: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (vendors, seeds, tools, noise, redteam, faults, throughput)
}


def main() -> None:
    out = Path(sys.argv[1])
    for name in sys.argv[2:]:
        began = time.perf_counter()
        print(f"--- {name}")
        try:
            result = PARTS[name]()
        except Exception:  # noqa: BLE001 -- the other parts are still worth having
            traceback.print_exc()
            continue
        finally:
            print(f"    {time.perf_counter() - began:.1f} s", flush=True)
        facts = provenance(" ".join(["python", *sys.argv]))
        (out / f"{name}.json").write_text(json.dumps({**facts, "result": result}, indent=1, default=float))


if __name__ == "__main__":
    main()
