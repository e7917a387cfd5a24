"""What experience buys: the same search with and without verified kernels of a similar task, at equal budget.

    python -m benchmarks.experience [--evaluations 24] [--seeds 1 2 3 4 5] [--workers 2]

First one run at the shapes of another layer fills an archive in memory. Then, for each rng seed, three arms search for
the layer in question with the same number of evaluations: from the library's seeds, from these and `archive:similar`,
and from `archive:similar` alone. Built-in operators, modelled times: it measures the archive, not a model.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path

from evo.archive import Archive
from evo.experiment import Experiment
from evo.loop import run_experiment
from evo.observer import RunSummary
from evo.pool import CandidateLimits, DeviceSpec, Pool

LIBRARY, SIMILAR = "spmm/nm24_*", "archive:similar"
EARLIER = ({"M": 4096, "K": 4096, "N": 16}, {"M": 4096, "K": 4096, "N": 256})
HERE = ({"M": 2048, "K": 4096, "N": 32}, {"M": 2048, "K": 4096, "N": 512})
DEVICE = DeviceSpec("simulator", "H200")
ARMS = {"library": (LIBRARY,), "library + experience": (LIBRARY, SIMILAR), "experience": (SIMILAR,)}


def experiment(shapes: tuple[dict[str, int], ...], seeds: tuple[str, ...], evaluations: int, seed: int) -> Experiment:
    """A 2:4 product with the budget of one arm and the operators of experiments/nm24.toml."""
    return Experiment.from_dict(
        {
            "name": "experience",
            "rng_seed": seed,
            "task": {
                "op": "spmm",
                "pattern": {"kind": "nm", "n": 2, "m": 4},
                "dtype": "float16",
                "shapes": list(shapes),
                "free": ["N"],
                "seeds": list(seeds),
            },
            "device": {"kind": "simulator", "gpu": "H200"},
            "search": {"generations": 50, "children": 8, "islands": 1, "confirm": 1},
            "operators": {"tune": 2, "splice": 1, "surrogate": 4},
            "budget": {"evaluations": evaluations},
        }
    )


def main() -> None:
    """Run all arms; print a line per run and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=24, help="of each arm, seeds counted in")
    parser.add_argument("--earlier", type=int, default=80, help="evaluations of the run that gives the experience")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="rng seeds")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    found: dict[str, list[RunSummary]] = {name: [] for name in ARMS}
    with tempfile.TemporaryDirectory() as folder, Pool(DEVICE, options.workers, CandidateLimits()) as pool:
        earlier, copy = Path(folder) / "earlier.db", Path(folder) / "copy.db"
        with Archive.open(earlier) as archive:
            run_experiment(experiment(EARLIER, (LIBRARY,), options.earlier, 0), archive, pool=pool)
        print(f"{options.evaluations} evaluations each after {options.earlier} at other shapes; times are modelled")
        print("arm                  seed  first us  best us  speedup")
        for seed in options.seeds:
            for name, seeds in ARMS.items():
                shutil.copy(earlier, copy)  # none learns from the others
                with Archive.open(copy) as archive:
                    run = run_experiment(experiment(HERE, seeds, options.evaluations, seed), archive, pool=pool)
                found[name].append(run)
                times = f"{_us(run, 0):>8.2f} {_us(run, -1):>8.2f} {run.speedup or 0:>8.3f}"
                print(f"{name:<20} {seed:>4}  {times}", flush=True)
    for name, runs in found.items():
        first, best = (statistics.median(_us(run, place) for run in runs) for place in (0, -1))
        print(f"median of {name}: first {first:.2f} us, best {best:.2f} us")


def _us(run: RunSummary, generation: int) -> float:
    """Best time so far after that generation, the geometric mean over the shapes; infinite where nothing was valid."""
    return run.generations[generation].best_us or float("inf")


if __name__ == "__main__":
    main()
