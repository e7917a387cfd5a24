"""Phases that judge kernels through the pools, as a run does: vendors, seeds, redteam, faults, throughput, confirm."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.extension import Build
from benchmarks.gpu.recording import Record
from benchmarks.gpu.subjects import GPU, REDTEAM, SMALL, SPEC, STEMS, distinct, redteam, seed, told
from evo.gpu_pool import GpuPool
from evo.pool import CandidateLimits, DeviceSpec, Pool, PoolError
from fitness.baselines import BASELINES, BaselineTimes
from fitness.outcome import Gate
from fitness.task import Task
from seeds import seed_paths

CARD = "cuda"
"""Kind of device behind; the tests put another in its place."""


def workers() -> int:
    """CPU workers: every core but those that feed the card."""
    return max(1, (os.cpu_count() or 2) - 4)


def vendors(record: Record) -> str:
    """Vendor routines at the nm24 shapes, by name; one that breaks its context gets the next a fresh process."""
    task, said = Task.from_spec(SPEC), []
    with Pool(DeviceSpec(CARD, GPU.name), 1) as pool:
        for name in BASELINES:
            if record.over():
                break
            try:
                (entry,) = pool.vendor_times(task, (name,))
            except PoolError as error:
                entry = BaselineTimes(name, (), f"its process did not work: {str(error).splitlines()[-1][:200]}")
            us = [round(t.time_us, 2) for t in entry.timings]
            samples = [[round(v, 3) for v in t.samples_us] for t in entry.timings]
            intervals = [[round(t.low_us, 3), round(t.high_us, 3)] for t in entry.timings]
            record.add(name=name, why_not=entry.why_not, us=us, interval_us=intervals, samples_us=samples)
            said.append(f"{name} {us or entry.why_not[:60]}")
    return "; ".join(said)


def seeds(record: Record) -> str:
    """Every nm24 seed and the dense ones by the whole path: simulator, then card."""
    paths = [path for pattern in ("spmm/nm24_*", "gemm/dense_*") for path in seed_paths(pattern)]
    kernels = [(n, seed(f"{path.parent.name}/{path.stem}")) for n, path in enumerate(paths)]
    said = []
    with GpuPool(GPU.name, [0], workers()) as pool:
        for n, outcome in pool.judge(Task.from_spec(SPEC), kernels, stop=record.over):
            row = told(outcome)
            record.add(name=paths[n].stem, **row)
            said.append(f"{paths[n].stem} {row['us'] or outcome.kind}")
    return "; ".join(sorted(said))


def redteam_on_card(record: Record) -> str:
    """Every red-team file on the card alone, without the simulator before it, then whole: which gate stops it."""
    names = sorted(path.stem for path in REDTEAM.glob("*.cu"))
    kernels = [(n, redteam(name)) for n, name in enumerate(names)]
    task, verdicts = Task.from_spec(SMALL), {}
    with tempfile.TemporaryDirectory() as folder:
        spec = DeviceSpec(CARD, GPU.name, lock=f"{folder}/card")
        with Pool(spec, 3, CandidateLimits(run_s=1.0)) as pool:
            for n, outcome in pool.judge(task, kernels, Gate.TIMING, stop=record.over):
                verdicts[n] = outcome
                record.add(name=names[n], path="card", **(told(outcome) | {"samples_us": []}))
    passed = [(n, kernel) for n, kernel in kernels if n in verdicts and verdicts[n].valid]
    unsafe = []
    with GpuPool(GPU.name, [0], workers(), CandidateLimits(run_s=1.0)) as pool:
        for n, outcome in pool.judge(task, passed, Gate.TIMING, stop=record.over):
            record.add(name=names[n], path="simulator and card", **(told(outcome) | {"samples_us": []}))
            if outcome.valid and not names[n].startswith("control_"):
                unsafe.append(names[n])
    controls = {names[n] for n, _ in passed if names[n].startswith("control_")}
    wanted = {name for name in names if name.startswith("control_")}
    only_simulator = sorted(names[n] for n, _ in passed if names[n] not in wanted)
    record.put(passed_on_card_alone=only_simulator, passed_whole=unsafe, controls_failed=sorted(wanted - controls))
    return (
        f"{len(verdicts)} of {len(names)} judged; controls failed {sorted(wanted - controls)}; "
        f"passed on the card alone {only_simulator}; passed the whole path {unsafe} "
        "(neutralised ones may, if they gain nothing)"
    )


#: What a card itself must see, and the verdict it must give.
FAULTY = {
    "infinite_loop": "TimedOut",
    "traps": "Crashed",
    "reads_far": "SanitizerFinding",
    "writes_past_end": "SanitizerFinding",
    "zeroes_inputs": "SanitizerFinding",
    "null_pointer": "SanitizerFinding",
    "waits_for_itself": "TimedOut",
    "traps_on_condition": "Crashed",
    "writes_before_start": "SanitizerFinding",
}
GOOD = ("control_honest", "control_shared", "control_split_k", "control_persistent")


def schedule(count: int) -> list[str]:
    """Names of `count` candidates in a row, three of every ten faulty."""
    bad, good = itertools.cycle(FAULTY), itertools.cycle(GOOD)
    return [next(bad) if n % 10 in (2, 5, 8) else next(good) for n in range(count)]


def faults(record: Record, count: int = 200) -> str:
    """Candidates in a row of which 30 % hang, trap, read out of bounds or corrupt memory; then what one hang costs."""
    names, memory, wrong = schedule(count), [_used_mib()], []
    pids: set[int] = set()
    kernels = [(n, redteam(name)) for n, name in enumerate(names)]
    task = Task.from_spec(SMALL)
    with tempfile.TemporaryDirectory() as folder:
        spec = DeviceSpec(CARD, GPU.name, lock=f"{folder}/card")
        with Pool(spec, 4) as pool:
            for n, outcome in pool.judge(task, kernels, Gate.CORRECTNESS, stop=record.over):
                pids.update(pool.worker_pids())
                expected = FAULTY.get(names[n], "Timed")
                right = outcome.kind == expected
                row = told(outcome)
                found = {key: row[key] for key in ("verdict", "gate", "findings", "seconds")}
                record.add(n=n, kernel=names[n], expected=expected, right=right, **found)
                if not right:
                    wrong.append(f"{names[n]}: {outcome.kind}")
    judged = len(record.rows)
    hangs = list(_hang_costs(record, task, pids))
    time.sleep(1.0)  # the driver takes a moment to give a killed process's memory back
    memory.append(_used_mib())
    orphans = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    record.put(judged=judged, wrong=wrong, memory_used_mib=memory, orphans=orphans, processes=len(pids), hang_s=hangs)
    return (
        f"{judged} of {count} judged, {len(wrong)} wrong {wrong[:4]}; memory {memory} MiB; {len(orphans)} orphans of "
        f"{len(pids)} processes; a hang costs {[round(value, 2) for value in hangs]} s"
    )


def _hang_costs(record: Record, task: Task, pids: set[int]) -> Iterator[float]:
    """Seconds that a hang adds to a row of one worker: its own, and until the next kernel has its verdict."""
    names = ["control_honest", "control_honest", "infinite_loop", "control_honest"]
    for _ in range(3):
        if record.left_s() < 12.0:
            return
        ends = []
        with Pool(DeviceSpec(CARD, GPU.name), 1) as pool:
            for _, _ in pool.judge(task, [(n, redteam(name)) for n, name in enumerate(names)], Gate.CORRECTNESS):
                ends.append(time.monotonic())
                pids.update(pool.worker_pids())
        alone_s = ends[1] - ends[0]
        yield ends[3] - ends[1] - alone_s


def _used_mib() -> int:
    """Memory of the card in use, MiB; -1 without nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        said = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20).stdout
        return int(said.split()[0])
    return -1


class _Busy:
    """Share of time in which a kernel ran on the card, as NVML samples it."""

    def __init__(self) -> None:
        self.samples: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Busy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            while not self._stop.wait(0.2):
                self.samples.append(int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
        except pynvml.NVMLError:
            return


def throughput(record: Record, count: int = 400) -> str:
    """Code-distinct nm24 candidates through gate 7 while a torch extension is built beside them."""
    kernels = distinct(count, np.random.default_rng(5))
    task, incumbent_us = Task.from_spec(SPEC), 25.0
    keys: dict[str, int] = {}
    with GpuPool(GPU.name, [0], workers()) as pool, Build(seed("spmm/nm24_mma_sp_fragment"), task) as build:
        warm = [(n, seed(f"spmm/{stem}")) for n, stem in enumerate(sorted(STEMS * 4))]
        list(pool.judge(task, warm, stop=lambda: record.left_s() < 60.0))  # processes up, operands made
        record.put(warmed_s=time.monotonic() - record.began)
        began = time.perf_counter()
        build.start()
        ends = began + min(45.0, max(5.0, record.left_s() - 15.0))
        timing_s = 0.0
        with _Busy() as busy:
            stream = pool.judge(
                task, enumerate(kernels), Gate.TIMING, incumbent_us, stop=lambda: time.perf_counter() > ends
            )
            for n, outcome in stream:
                record.add(
                    n=n, params=kernels[n].params, code_key=outcome.code_key, **(told(outcome) | {"samples_us": []})
                )
                timing_s += outcome.cost.timing_s
                if outcome.valid and outcome.code_key and outcome.stage >= Gate.TIMING:
                    keys.setdefault(outcome.code_key, n)
            seconds = time.perf_counter() - began
        built = build.wait(max(1.0, record.left_s()))
    return _summed(record, keys, seconds, timing_s, busy.samples, built)


def _summed(
    record: Record, keys: dict[str, int], seconds: float, timing_s: float, busy: list[int], built: dict[str, Any]
) -> str:
    rate = 60.0 * len(keys) / seconds
    screened = sum(row["verdict"] == "Timed" and row["gate"] == "TIMING_SCREEN" for row in record.rows)
    record.put(
        valid_distinct=len(keys),
        judged=len(record.rows),
        seconds_judging=seconds,
        valid_distinct_per_minute=rate,
        stopped_by_screen=screened,
        timing_share=timing_s / seconds,
        nvml_busy_percent=busy,
        extension=built,
    )
    ratio = rate * built["seconds"] / 60.0 if built.get("seconds") else float("nan")
    return (
        f"{len(record.rows)} judged in {seconds:.1f} s: {rate:.0f} valid and code-distinct a minute through gate 7 "
        f"({screened} more stopped by the screen); card timing {100 * timing_s / seconds:.0f} %, NVML busy "
        f"{statistics.mean(busy) if busy else -1:.0f} %; extension built in {built.get('seconds')} s, "
        f"ratio {ratio:.0f}x" + (f" ({built['why'][:120]})" if built.get("why") else "")
    )


def confirm(record: Record) -> str:
    """Gate 8 whole, twice each, in fresh processes: what two confirmations of one kernel differ by."""
    task, said = Task.from_spec(SPEC), []
    with GpuPool(GPU.name, [0], workers(), per_card=1) as pool:
        times = pool.baselines(task)
        record.put(
            vendors=[{"name": e.name, "why_not": e.why_not, "us": [t.time_us for t in e.timings]} for e in times]
        )
        for stem in ("nm24_wgmma_sp", "nm24_mma_sp_fragment", "nm24_mma_sp"):
            pair = []
            for attempt in range(2):
                jobs = [(attempt, seed(f"spmm/{stem}"))]
                for _, outcome in pool.judge(task, jobs, Gate.CONFIRMATION, None, full=True, stop=record.over):
                    record.add(name=stem, attempt=attempt, **told(outcome))
                    pair.append(told(outcome)["us"])
            if len(pair) == 2 and all(pair):
                said.append(f"{stem} {pair[0]} {[f'{100 * (b / a - 1):+.2f} %' for a, b in zip(*pair, strict=True)]}")
    return "; ".join(said) or "no pair"


def tools_here() -> dict[str, str | None]:
    """Where the command-line tools are."""
    return {name: shutil.which(name) for name in ("nvcc", "ncu", "compute-sanitizer", "nvidia-smi")}
