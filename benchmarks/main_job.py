"""What the main job costs and finds: the shipped experiment against `tune` alone, over several rng seeds.

    python -m benchmarks.main_job                       # experiments/nm24.toml, rng seeds 1 to 5, both arms
    python -m benchmarks.main_job --seeds 1 --arms full # one run: minutes, memory, rate, what was found
    python -m benchmarks.main_job --seeds 1 --arms full --experiment experiments/smoke.toml   # aim: < 20 s

Each run is a process of its own with a cold compile cache. Both arms get the same evaluations. Memory is the
sum over all processes of the run, sampled; a page that several share (a worker and the compiler it forks) counts in
parts (Linux: the proportional set size), so that the sum is what the machine has to hold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from evo.archive import Archive

ROOT = Path(__file__).resolve().parents[1]
ARMS = {"full": (), "tune": ("operators={tune=1}",)}  # the experiment as it is, and `tune` alone
_SAMPLE_S = 0.2


@dataclass(frozen=True)
class Measured:
    """One run: its JSON summary, wall seconds, peak memory, valid candidates that differ in their code."""

    summary: dict[str, Any]
    seconds: float
    peak_bytes: int
    distinct: int


def measure(experiment: Path, rng_seed: int, arm: str, workers: int | None, extra: Sequence[str]) -> Measured:
    """Run one experiment in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"rng_seed={rng_seed}", *ARMS[arm], *extra]
        command = [sys.executable, "-m", "evo.run", str(experiment), "--json", "--quiet"]
        command += [word for setting in settings for word in ("--set", setting)]
        command += ["--workers", str(workers)] if workers else []
        environment = os.environ | {
            "EVO_CACHE": f"{folder}/cache",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
        }
        started = time.monotonic()
        with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
            peak = Peak(process.pid)
            output, _ = process.communicate()
            peak.stop()
        seconds = time.monotonic() - started
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        summary = json.loads(output)
        with Archive.open(Path(folder) / summary["archive"], readonly=True) as archive:
            judged = archive.judged(summary["run"])
    distinct = sum(one.outcome.valid and one.reused_from is None for one in judged)
    return Measured(summary, seconds, peak.bytes, distinct)


class Peak:
    """Samples the memory of a process and all its descendants until stopped."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(pid,))
        self._thread.start()

    def _watch(self, pid: int) -> None:
        while not self._stopped.wait(_SAMPLE_S):
            self.bytes = max(self.bytes, _resident(pid))

    def stop(self) -> None:
        """No more samples."""
        self._stopped.set()
        self._thread.join()


def _resident(pid: int) -> int:
    total = 0
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total


def line(arm: str, rng_seed: int, run: Measured) -> str:
    """One run in one line."""
    s = run.summary
    return (
        f"{arm:<5} {rng_seed:>4} {run.seconds / 60:>5.1f} {run.peak_bytes / 2**30:>6.2f} {s['judged']:>6} "
        f"{s['valid']:>5} {run.distinct:>8} {60 * s['judged'] / run.seconds:>7.0f} "
        f"{s['speedup']:>8.3f} {s['gain']:>6.3f} {s['floor_fraction']:>6.3f}"
    )


def main() -> None:
    """Run all arms and seeds; print a line per run and the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiment", type=Path, default=ROOT / "experiments" / "nm24.toml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="rng seeds")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--workers", type=int)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="as of evo run"
    )
    options = parser.parse_args()
    print("arm   seed   min    GiB judged valid distinct per min  speedup   gain  floor   (times are modelled)")
    found: dict[str, list[Measured]] = {arm: [] for arm in options.arms}
    for rng_seed in options.seeds:
        for arm in options.arms:
            found[arm].append(measure(options.experiment.resolve(), rng_seed, arm, options.workers, options.settings))
            print(line(arm, rng_seed, found[arm][-1]), flush=True)
    for arm, runs in found.items():
        medians = [statistics.median(run.summary[key] for run in runs) for key in ("speedup", "gain", "floor_fraction")]
        print(f"median of {arm}: speedup {medians[0]:.3f}, gain {medians[1]:.3f}, fraction of floor {medians[2]:.3f}")


if __name__ == "__main__":
    main()
