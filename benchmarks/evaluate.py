"""Where the CPU seconds of an evaluation go, seed by seed: `python benchmarks/evaluate.py [--profile]`.

Judges every seed of the nm24 experiment (M = K = 4096, N = 16 and 256) twice in one process with an empty
compile cache: first at its defaults, when operands and references have to be made, then with other params,
as the children of a search are judged. The aim is <= 3 CPU seconds for a child.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

# As in a worker process; must be set before NumPy is imported, hence the imports below.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

from fitness.devices import open_device  # noqa: E402
from fitness.evaluate import judge  # noqa: E402
from fitness.gpu import load  # noqa: E402
from fitness.kernel import Kernel, load_kernel  # noqa: E402
from fitness.outcome import Gate, Outcome  # noqa: E402
from fitness.task import Task  # noqa: E402
from seeds import seed_paths  # noqa: E402

TASK = Task.from_spec(
    {
        "op": "spmm",
        "pattern": {"kind": "nm", "n": 2, "m": 4},
        "dtype": "float16",
        "shapes": [{"M": 4096, "K": 4096, "N": 16}, {"M": 4096, "K": 4096, "N": 256}],
        "free": ["N"],
    }
)
GATES = (Gate.PARSE, Gate.SCREEN, Gate.COMPILE, Gate.SMALL_RUN, Gate.TIMING_SCREEN, Gate.CORRECTNESS, Gate.TIMING)


def child_of(kernel: Kernel, rng: np.random.Generator) -> Kernel:
    """The kernel with three params changed, as `tune` would."""
    for _ in range(1000):
        names = rng.choice(list(kernel.params), min(3, len(kernel.params)), replace=False)
        changed = {str(name): int(rng.choice(kernel.header.params[str(name)].values)) for name in names}
        params = {**kernel.params, **changed}
        if params != dict(kernel.params) and kernel.header.params and kernel.feasible(params):
            return kernel.with_params(params)
    return kernel


def timed(kernel: Kernel) -> tuple[Outcome, dict[str, float]]:
    """The outcome and the CPU seconds of each gate."""
    marks: list[tuple[str, float]] = []
    outcome = judge(kernel, TASK, DEVICE, on_gate=lambda gate: marks.append((gate.name, time.process_time())))
    ends = [at for _, at in marks[1:]] + [time.process_time()]
    return outcome, {name: end - start for (name, start), end in zip(marks, ends, strict=True)}


@contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Prints the dearest functions if wanted."""
    profile = cProfile.Profile()
    if wanted:
        profile.enable()
    yield
    if wanted:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="profile the second pass")
    parser.add_argument("--children", type=int, default=2, help="children of each seed in the second pass")
    options = parser.parse_args()
    kernels = [load_kernel(path) for path in seed_paths("spmm/nm24_*")]
    names = [path.stem for path in seed_paths("spmm/nm24_*")]
    print(f"{'kernel':24}{'outcome':>16}" + "".join(f"{gate.name.lower():>15}" for gate in GATES) + f"{'CPU s':>8}")
    for name, kernel in zip(names, kernels, strict=True):
        row(name, *timed(kernel))
    rng = np.random.default_rng(0)
    with profiled(options.profile):
        totals = [
            row(f"  child of {name[5:]}", *timed(child_of(kernel, rng)))
            for name, kernel in zip(names, kernels, strict=True)
            for _ in range(options.children)
        ]
    print(f"children: mean {np.mean(totals):.2f}, median {np.median(totals):.2f}, worst {max(totals):.2f} CPU s")


def row(name: str, outcome: Outcome, seconds: dict[str, float]) -> float:
    """Prints one line; gives its total."""
    total = sum(seconds.values())
    cells = "".join(f"{seconds.get(gate.name, 0.0):15.2f}" for gate in GATES)
    print(f"{name:24}{outcome.kind:>16}{cells}{total:8.2f}", flush=True)
    return total


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EVO_CACHE"] = folder
        DEVICE = open_device("simulator", load("H200"))
        main()
