"""Phases that hold the card themselves, in fresh processes: noise of the timing, tolerances of the criterion, tools."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.gpu.recording import Record, from_process
from benchmarks.gpu.subjects import GPU, SMALL, case_of, delayed, program_of, redteam, seed
from fitness.correctness import margins
from fitness.devices.device import Checks, Timeable
from fitness.inputs import Case, make_case
from fitness.kernel import Kernel
from fitness.outcome import Gate
from fitness.task import Task
from fitness.timing import CONFIRM, Estimate, calibrate, is_win, ratio_estimate
from seeds import seed_paths

SUBJECTS = (("spmm/nm24_mma_sp_fragment", 16), ("spmm/nm24_wgmma_sp", 256))
"""What is compared with itself: one kernel below 20 us, one above."""
CONFIRMED = (*SUBJECTS, ("spmm/nm24_wgmma_sp", 16), ("spmm/nm24_mma_sp", 16), ("spmm/nm24_mma_sp_fragment", 256))


_made: dict[tuple[str, int], Timeable] = {}


def _timeable(kernel: Kernel, n: int) -> Timeable:
    """Made once a process: the device knows operands it has by their identity."""
    if (kernel.id, n) not in _made:
        case = _case(kernel.format.name + repr(sorted(kernel.format.options.items())), kernel, n)
        reference_us = 2 * case.task.floor_us(case.shape, GPU)
        _made[kernel.id, n] = Timeable(program_of(kernel, case), case.inputs, reference_us=reference_us)
    return _made[kernel.id, n]


_cases_made: dict[tuple[str, int], Case] = {}


def _case(layout: str, kernel: Kernel, n: int) -> Case:
    if (layout, n) not in _cases_made:
        _cases_made[layout, n] = case_of(kernel, n)
    return _cases_made[layout, n]


def _compare(device: Any, first: Kernel, second: Kernel, n: int) -> tuple[Estimate, list[list[float]]]:
    """First's time / second's time, 200 interleaved pairs, and the samples of both."""
    pair = [_timeable(kernel, n) for kernel in (first, second)]
    taken = device.beside(pair, (), CONFIRM)
    blocks = [np.array(m.samples_us).reshape(CONFIRM.blocks, -1) for m in taken]
    return ratio_estimate(blocks[0], blocks[1]), [[round(v, 3) for v in m.samples_us] for m in taken]


def _row(kind: str, stem: str, n: int, found: tuple[Estimate, list[list[float]]], **more: Any) -> dict[str, Any]:
    ratio, samples = found
    return {"kind": kind, "kernel": stem, "n": n, "ratio": ratio.value, "low": ratio.low, "high": ratio.high,
            "us": [statistics.median(each) for each in samples], "samples_us": samples, **more}  # fmt: skip


def noise_worker(equal: int, slower: int) -> Iterator[dict[str, Any]]:
    """Times of CONFIRMED, then `equal` comparisons of a kernel with itself, then `slower` with one 3 % slower."""
    from fitness.devices.cuda.cuda import Cuda

    device = Cuda(GPU)
    for stem, n in CONFIRMED:
        kernel = seed(stem)
        yield _row("confirmed", stem, n, _compare(device, kernel, kernel, n))
    for number in range(equal):
        stem, n = SUBJECTS[number % len(SUBJECTS)]
        yield _row("equal", stem, n, _compare(device, seed(stem), seed(stem), n))
    if not slower:
        return
    stem, n = SUBJECTS[0]
    kernel = seed(stem)
    tried = {clocks: 1 / _compare(device, kernel, delayed(kernel, clocks), n)[0].value for clocks in (400, 800, 1600)}
    usable = {clocks: ratio for clocks, ratio in tried.items() if ratio > 1.0}
    per_clock = statistics.median((ratio - 1) / clocks for clocks, ratio in usable.items()) if usable else 0.03 / 800
    control = delayed(kernel, round(0.031 / per_clock))
    yield {"kind": "delay", "tried": tried, "clocks": round(0.031 / per_clock)}
    for _ in range(slower):  # reference: the slower one, so that the honest kernel has to win
        yield _row("slower", stem, n, _compare(device, control, kernel, n))


def noise(record: Record) -> str:
    """A/A comparisons and 3 %-slower controls in two processes: `delta` from the first, tested in the second."""
    found: list[list[dict[str, Any]]] = []
    for number, (equal, slower) in enumerate(((40, 0), (100, 40))):
        left_s = record.left_s()
        rows = from_process(noise_worker, equal, slower, seconds=0.36 * left_s if number == 0 else left_s)
        found.append([])
        for row in rows:
            record.add(process=number, **row)
            found[-1].append(row)
    first, second = found
    calibration = [row["ratio"] for row in first if row.get("kind") == "equal"]
    if len(calibration) < 20:
        return f"only {len(calibration)} A/A comparisons in the first process: {[r for r in first if 'died' in r]}"
    delta = calibrate(calibration)
    estimates = {kind: [Estimate(r["ratio"], r["low"], r["high"]) for r in second if r.get("kind") == kind]
                 for kind in ("equal", "slower")}  # fmt: skip
    false = sum(is_win(ratio, delta) for ratio in estimates["equal"])
    detected = sum(is_win(ratio, delta) for ratio in estimates["slower"])
    actual = statistics.median([ratio.value for ratio in estimates["slower"]] or [float("nan")])
    agree = _agreement(first, second)
    record.put(delta=delta, false_wins=false, of=len(estimates["equal"]), detected=detected,
               controls=len(estimates["slower"]), control_ratio=actual, agreement=agree)  # fmt: skip
    return (
        f"delta {delta:.5f} from {len(calibration)}; false wins {false} of {len(estimates['equal'])}; control "
        f"{actual:.4f}x found {detected} of {len(estimates['slower'])}; between processes {agree}"
    )


def _agreement(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> dict[str, str]:
    """Per subject: both processes' times and their difference."""
    times: list[dict[str, float]] = []
    for rows in (first, second):
        confirmed = [row for row in rows if row.get("kind") == "confirmed"]
        times.append({f"{row['kernel']} N={row['n']}": statistics.mean(row["us"]) for row in confirmed})
    both = [name for name in times[0] if name in times[1]]
    return {
        n: f"{times[0][n]:.3f} / {times[1][n]:.3f} us, {100 * (times[1][n] / times[0][n] - 1):+.2f} %" for n in both
    }


# -- tolerances ---------------------------------------------------------------------------------------------------

DTYPES = ("float16", "bfloat16", "float32")
SIZES = ({"M": 256, "K": 512, "N": 128}, {"M": 256, "K": 4096, "N": 128}, {"M": 256, "K": 16384, "N": 128})
DATA = ("normal", "positive")


def _cases(dtype: str) -> Iterator[tuple[Task, dict[str, int], str]]:
    task = Task.from_spec({**SMALL, "dtype": dtype, "shapes": list(SIZES)})
    for shape, data in itertools.product(SIZES, DATA):
        yield task, dict(shape), data


def routine_margins(name: str, dtype: str) -> Iterator[dict[str, Any]]:
    """Errors of a vendor routine in terms of the criterion."""
    import torch

    from fitness.baselines import NotApplicableError
    from fitness.baselines.measuring import RoutineSubject, dense_case
    from fitness.devices.cuda.cuda import Cuda

    base, _, variant = name.partition("+")
    torch.backends.cuda.matmul.allow_tf32 = variant == "tf32"
    device = Cuda(GPU)
    for task, shape, data in _cases(dtype):
        case = dense_case(task, shape, device) if data == "normal" else make_case(
            task, shape, dense_case(task, shape, device).format, seed=0, data=data, gpu=GPU)  # fmt: skip
        try:
            subject = RoutineSubject(base, task, case, device.card, device.operands, 1)
            subject.enqueue(0)
            device.card.wait(10.0)
        except NotApplicableError as error:
            yield {"subject": name, "dtype": dtype, "why_not": str(error)}
            return
        element, line = margins(case, subject.outputs(0))
        yield {"subject": name, "dtype": dtype, "shape": shape, "data": data, "element": element, "line": line}
        subject.close()


def kernel_margins(dtype: str, stems: tuple[str, ...], team: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Errors of seeds at a dtype, and of the red team's kernels, in terms of the criterion."""
    from fitness.devices.cuda.cuda import Cuda

    device = Cuda(GPU)
    kernels = [(stem, seed(stem)) for stem in stems] + [(f"redteam/{name}", redteam(name)) for name in team]
    for name, kernel in kernels:
        for task, shape, data in _cases(dtype):
            if violations := task.domain_violations(kernel):
                yield {"subject": name, "dtype": dtype, "why_not": violations[0].message[:200]}
                break
            case = make_case(task, shape, kernel.format, seed=0, data=data, gpu=GPU)
            try:
                execution = device.run(program_of(kernel, case), case.inputs, Checks())
            except ValueError as error:
                yield {"subject": name, "dtype": dtype, "why_not": str(error)[:200]}
                break
            row: dict[str, Any] = {"subject": name, "dtype": dtype, "shape": shape, "data": data}
            row["ended"] = execution.ended
            if execution.ended == "finished":
                row["element"], row["line"] = margins(case, execution.outputs)
            yield row
            if device.spent:
                return


ARITHMETIC = ("fp16_accumulators", "fp16_partial_sums", "truncates_weights", "skips_one_k", "rescales_k",
              "skips_last_k_tile", "skips_first_k_tile")  # fmt: skip
"""Red-team kernels whose only fault is their arithmetic: what the tolerances are there for."""


def tolerance(record: Record) -> str:
    """How much of the criterion cuBLAS, cuSPARSELt, the seeds and the red team's arithmetic use, at every dtype."""
    stems = tuple(f"{path.parent.name}/{path.stem}" for path in seed_paths("spmm/nm24_*"))
    jobs: list[tuple[Any, ...]] = [(kernel_margins, dtype, stems, ()) for dtype in DTYPES]
    jobs.append((kernel_margins, "float16", (), ARITHMETIC))
    jobs += [(routine_margins, name, dtype) for dtype in DTYPES for name in ("cublas", "cublaslt", "cusparselt")]
    jobs.append((routine_margins, "cublas+tf32", "float32"))

    def work(job: tuple[Any, ...]) -> None:
        for row in from_process(*job, seconds=max(1.0, record.left_s())):
            record.add(**({"job": repr(job[1:3])} | row))

    # Nothing is timed here: the processes share the card. A routine that breaks its context harms its own only.
    with ThreadPoolExecutor(7) as threads:
        list(threads.map(work, jobs))
    worst: dict[str, float] = {}
    for row in record.rows:
        if "element" in row:
            key = f"{row['dtype']} {row['subject']}"
            worst[key] = max(worst.get(key, 0.0), row["element"], row["line"])
    record.put(worst=worst)
    cheats = {key: value for key, value in worst.items() if "redteam/" in key or "+tf32" in key}
    honest = {key: value for key, value in worst.items() if key not in cheats}
    return (
        f"honest at most {max(honest.values(), default=-1):.3f} of the tolerance ({len(honest)} subjects), "
        f"cheats at least {min(cheats.values(), default=-1):.3g} ({len(cheats)}); over 1 among the honest "
        f"{sorted(k for k, v in honest.items() if not v <= 1)}"
    )


# -- tools --------------------------------------------------------------------------------------------------------


def tools(record: Record) -> str:
    """What ncu and compute-sanitizer print, and what becomes of it."""
    from fitness.devices.cuda import nsight, sanitizer
    from fitness.devices.cuda.tools import find_tool, run_under

    record.put(tools={name: find_tool(name) for name in ("ncu", "compute-sanitizer", "nsys", "nvcc")})
    kernel = seed("spmm/nm24_mma_sp_fragment")
    case = case_of(kernel, 256)
    program = program_of(kernel, case)
    options = ["--csv", "--clock-control", "none", "--metrics", ",".join(nsight.METRICS)]
    text = run_under("ncu", options, program, case.inputs, GPU)
    counters = nsight.combined(nsight.parse(text), set(program.compiled.entries))
    record.add(tool="ncu", text=text[-20000:], counters=counters)
    said = [nsight.sentence(counters) if counters else "ncu gave no counters"]
    task = Task.from_spec(SMALL)
    small = make_case(task, task.shapes[0], redteam("writes_past_end").format, seed=0, data="normal", gpu=GPU)
    for tool, name in (("memcheck", "writes_past_end"), ("memcheck", "reads_past_end"), ("memcheck", "control_honest"),
                       ("racecheck", "missing_barrier_before_use"), ("initcheck", "atomics_into_uncleared"),
                       ("synccheck", "divergent_barrier")):  # fmt: skip
        if record.over():
            break
        faulty = program_of(redteam(name), small)
        text = run_under("compute-sanitizer", ["--tool", tool, "--print-limit", "3"], faulty, small.inputs, GPU)
        kinds = [(f.kind, f.line) for f in sanitizer.parse(text, tool, Gate.CONFIRMATION)]
        record.add(tool=tool, kernel=name, text=text[:6000], findings=kinds)
        said.append(f"{tool} {name} {kinds[:2]}")
    return "; ".join(said)
