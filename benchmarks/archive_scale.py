"""How every command that reads an archive fares with 100,000 candidates.

    python benchmarks/archive_scale.py --candidates 100000 --runs 1 --folder /tmp/scale

Makes an archive of made-up runs (random times of a search that improves; no kernel is compiled), runs each command
in a process of its own and prints its seconds (of the CPU too, which other work on the machine touches less) and the
peak of its memory. The project's bar: two seconds for each but the report (ten), and memory that does not grow with the
archive. Commands that copy all of it (export, merge, vacuum) say how many bytes they leave.
benchmarks/data/archive_scale.txt has what was measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evo.archive import Archive, RunRecord, codec, now
from evo.archive.store import source_id

SHAPES = ({"M": 4096, "K": 4096, "N": 16}, {"M": 4096, "K": 4096, "N": 256})
_FAILURES = (
    ("CompileFailed", "COMPILE"),
    ("WrongResult", "SMALL_RUN"),
    ("WrongResult", "CORRECTNESS"),
    ("TimedOut", "TIMING"),
)
_SOURCE = """/*---
about  = "made up, number {number}"
format = "nm24"

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, BM)"]
block  = ["BM"]
args   = ["W.values", "W.meta", "X", "Y", "M", "N", "K", "ldx", "ldy"]

[params]
BM = {{ values = [{values}], default = {first} }}
---*/
#include <cuda_fp16.h>
extern "C" __global__ void spmm(const __half* values, const unsigned* meta, const __half* X, __half* Y,
                                int M, int N, int K, long long ldx, long long ldy) {{
    int m = blockIdx.x * BM + threadIdx.x;
{body}
}}
"""
_PARAMS = 16
_SEEDS = 10
_LINEAGE = ("blame", "stats", "tree", "json", "dot", "mermaid")
_FORMATS = ("json", "dot", "mermaid")
_EXPORTS = ("jsonl", "csv")
_TABLES = ("sources", "kernels", "candidates", "parents", "outcomes", "timings")
_MEASURED = """
import re, resource, sys
from pathlib import Path
from evo.__main__ import main
try:
    main()
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)  # its ru_maxrss is also that of the parent before the exec
    peak = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]
    sys.stderr.write(f"USED {peak} {used.ru_utime + used.ru_stime}")
"""


def synthetic(
    path: Path, candidates: int, runs: int = 1, *, seed: int = 0, children: int = 100, lines: int = 60
) -> list[str]:
    """Make an archive of `runs` runs with `candidates` candidates in all; returns the ids of the runs."""
    rng = np.random.default_rng(seed)
    with Archive.open(path) as archive:
        ids = []
        for number in range(runs):
            run = archive.add_run(_record(f"made{number % 2}", number))
            ids.append(run.id)
            with archive.database.conn:
                _fill(
                    archive, run.id, candidates // runs, np.random.default_rng(rng.integers(1 << 30)), children, lines
                )
            archive.set_status(run.id, "finished")
        return ids


def _record(name: str, number: int) -> RunRecord:
    task = {"op": "spmm", "pattern": {"kind": "nm", "n": 2, "m": 4}, "dtype": "float16",
            "shapes": [dict(shape) for shape in SHAPES], "free": ["N"], "seeds": []}  # fmt: skip
    return RunRecord("", name, {"name": name, "task": task}, number, "simulator", "H200", "sm_90a", "modelled", "0.1.0",
                     None, {"cpus": 2}, "running", now())  # fmt: skip


def _source(rng: np.random.Generator, number: int, lines: int) -> str:
    values = [16 * (k + 1) for k in range(_PARAMS)]
    body = "\n".join(f"    if (m < {value}) Y[m] = __float2half({value}.0f);" for value in rng.integers(0, 500, lines))
    return _SOURCE.format(number=number, values=", ".join(map(str, values)), first=values[0], body=body)


def _fill(archive: Archive, run_id: str, count: int, rng: np.random.Generator, children: int, lines: int) -> None:
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in _TABLES}
    logs = np.full(count, np.inf)
    source, state = "", hashlib.sha256()
    for n in range(count):
        generation = -(-max(0, n - 9) // children)
        if n % _PARAMS == 0:
            text = _source(rng, n, lines)
            source = source_id(text)
            state = hashlib.sha256(f"[{json.dumps(text)}, ".encode())  # of fitness.kernel.Kernel.id
            rows["sources"].append({"id": source, "text": text})
        pool = np.arange(max(0, n - 3 * children), max(1, n - n % children if n > children else n))
        parents = [] if n < _SEEDS else [int(rng.choice(pool[np.argsort(logs[pool])[:20]]))]
        valid = n < _SEEDS or rng.random() < 0.6
        start = 4.0 - 0.1 * n if n < _SEEDS else float(logs[parents[0]]) if np.isfinite(logs[parents[0]]) else 3.5
        logs[n] = max(1.7, start + rng.normal(0.02, 0.05)) if valid else np.inf
        _rows_of(rows, run_id, n, generation, parents, (source, state), float(logs[n]), rng)
        if n % 2000 == 1999 or n == count - 1:
            for table, pending in rows.items():
                archive.database.table(table).insert_all(pending, ignore=True)
                pending.clear()
    _baseline(archive, run_id)
    best = int(np.argmin(logs))
    verdict = {"verdict": "confirmed", "speedup": float(np.exp(3.2 - logs[best])), "low": 1.0, "high": 2.0}
    archive.database.table("confirmations").insert({"run_id": run_id, "n": best, "evidence": "{}"} | verdict)


def _rows_of(
    rows: dict[str, list[dict[str, object]]],
    run_id: str,
    n: int,
    generation: int,
    parents: list[int],
    genome: tuple[str, hashlib._Hash],
    log: float,
    rng: np.random.Generator,
) -> None:
    source, block, state = genome[0], 16 * (n % _PARAMS + 1), genome[1].copy()
    state.update(f'[["BM", {block}]]]'.encode())
    kernel = state.hexdigest()
    seed = n < _SEEDS
    rows["kernels"].append({"id": kernel, "params": f'{{"BM":{block}}}', "format": "nm24", "source_id": source})
    rows["candidates"].append(
        {
            "run_id": run_id,
            "n": n,
            "kernel_id": kernel,
            "generation": generation,
            "island": n % 2,
            "operator": "seed" if seed else ("tune", "splice", "llm_edit")[n % 3],
            "inspirations": "[]",
            "model": "made-up" if n % 3 == 2 and not seed else None,
            "reason": f"seed s{n}: made up" if seed else f"BM to {block}",
            "created_at": now(),
        }
    )
    for position, parent in enumerate(parents):
        keys = {"run_id": run_id, "n": n, "position": position}
        rows["parents"].append(keys | {"parent_run_id": run_id, "parent_n": parent, "role": "parent"})
    row: dict[str, object] = {"run_id": run_id, "n": n, "code_key": kernel, "findings": "[]", "judged_at": now()}
    row |= {"compile_s": 0.4, "evaluate_s": 1.0}
    if np.isfinite(log):
        mean, spread = float(np.exp(log)), float(rng.normal(0, 0.1))
        row |= {"kind": "Timed", "stage": "TIMING", "clock": "modelled", "registers": int(rng.integers(32, 200))}
        row |= {"shared_bytes": 0, "spill_bytes": 0, "occupancy": 0.5, "time_us": mean, "fitness_us": mean}
        for position, factor in enumerate((-0.6 + spread, 0.6 - spread)):
            rows["timings"].append(_timing(run_id, n, "candidate", position, float(np.exp(log + factor))))
    else:
        kind, stage = _FAILURES[int(rng.integers(len(_FAILURES)))]
        finding = {"gate": stage, "kind": "made_up", "message": "made up"}
        row |= {"kind": kind, "stage": stage, "findings": codec.to_json([finding])}
    rows["outcomes"].append(row)


def _timing(run_id: str, n: int | None, subject: str, position: int, time_us: float) -> dict[str, object]:
    shape = SHAPES[position]
    flops = shape["M"] * shape["K"] * shape["N"]
    keys = {"run_id": run_id, "n": n, "subject": subject, "position": position, "shape": codec.to_json(shape)}
    how = {"stage": "TIMING", "clock": "modelled", "cold": 1, "process": "worker", "limiter": "made up"}
    times = {"time_us": time_us, "low_us": time_us, "high_us": time_us, "floor_us": 5.0, "samples_us": "[]"}
    return keys | how | times | {"tflops": flops / time_us * 1e-6, "gb_per_s": 2.0e7 / time_us * 1e-3}


def _baseline(archive: Archive, run_id: str) -> None:
    times = (14.0, 40.0)
    rows = (_timing(run_id, None, "gemm/made_up", position, time_us) for position, time_us in enumerate(times))
    archive.database.table("timings").insert_all(rows)
    archive.database.execute("update runs set baseline_us = ? where id = ?", [(times[0] * times[1]) ** 0.5, run_id])


def measure(command: Sequence[str]) -> tuple[float, float, float, int]:
    """Seconds of the wall clock and of the CPU, peak MB and exit code of one command in a process of its own."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _MEASURED, *command], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    peak, cpu = done.stderr.rsplit("USED ", 1)[-1].split()
    return seconds, float(cpu), int(peak) / 1024, done.returncode


def commands(run: str, folder: Path) -> list[list[str]]:
    """Every command that reads an archive, on one run."""
    from evo.cli.plot import KINDS

    trees = [["--tree", f"--{name}"] for name in _FORMATS]
    lineage = [["lineage", run, *options] for options in ([], *([f"--{name}"] for name in _LINEAGE), *trees)]
    plot = ["--out", str(folder)]
    return [
        ["archive", "info"],
        ["archive", "check"],
        ["archive", "find", "made", "48"],
        *lineage,
        ["watch", run, "--once"],
        *(["plot", run, "--kind", kind, *plot] for kind in KINDS if kind != "dollars"),
        *(["archive", "export", run, "--out", str(folder / kind), "--format", kind, "--force"] for kind in _EXPORTS),
        ["report", run, "--out", str(folder / "report.html")],
        ["archive", "merge", str(folder / "archive.db")],  # into no archive: pages are copied
        ["archive", "merge", str(folder / "archive.db"), str(folder / "small.db")],  # there already, but for 60
        ["archive", "merge", str(folder / "archive.db"), "--json"],  # into one that has other runs: rows are copied
        ["archive", "promote", run, "--to", str(folder / "library.db")],
        ["archive", "vacuum"],
    ]


def target(command: Sequence[str], folder: Path) -> Path:
    """The archive a command works on: merges make or extend one of their own."""
    if command[:2] != ["archive", "merge"]:
        return folder / "archive.db"
    if command[-1] == "--json":
        path = folder / "other.db"
        path.unlink(missing_ok=True)
        shutil.copy(folder / "small.db", path)
        return path
    return folder / "merged.db"


def left(command: Sequence[str], path: Path, folder: Path) -> int:
    """Bytes that a command which copies everything leaves; 0 for the others."""
    if command[:2] == ["archive", "export"]:
        out = Path(command[command.index("--out") + 1])
        return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    if command[:2] == ["archive", "promote"]:
        return (folder / "library.db").stat().st_size
    return path.stat().st_size if command[:2] in (["archive", "merge"], ["archive", "vacuum"]) else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", default="", help="only commands that contain this word")
    arguments = parser.parse_args()
    path = arguments.folder / "archive.db"
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for made, candidates in ((path, arguments.candidates), (arguments.folder / "small.db", 60)):
        if not made.exists():
            synthetic(made, candidates, min(arguments.runs, candidates // 10))
    for made in ("merged.db", "library.db"):
        (arguments.folder / made).unlink(missing_ok=True)
    with Archive.open(path, readonly=True) as archive:
        run = archive.runs()[0].id
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB, {arguments.candidates} candidates in {arguments.runs} runs")
    for command in commands(run, arguments.folder):
        if arguments.only in " ".join(command):
            into = target(command, arguments.folder)
            seconds, cpu, peak, code = measure([*command, "--archive", str(into)])
            failed = f"exit {code}  " if code else ""
            copied = left(command, into, arguments.folder)
            size = f"  ({copied / 1e6:.0f} MB left)" if copied else ""
            told = " ".join(word.removeprefix(f"{arguments.folder}/") for word in command)
            print(f"{seconds:7.2f} s  {cpu:7.2f} CPU s  {peak:6.0f} MB  {failed}evo {told}{size}", flush=True)


if __name__ == "__main__":
    main()
