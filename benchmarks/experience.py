"""What experience buys: the same search with and without verified kernels of a similar task, at equal budget.

    python benchmarks/experience.py [--evaluations 24] [--seed 1]

A first run at other shapes fills an archive in memory; two runs at the shapes in question follow, one from a plain
seed, one from it and `archive:similar`. Built-in operators, modelled times: it measures the archive, not a model.
"""

from __future__ import annotations

import argparse
import os

from evo.archive import Archive
from evo.experiment import Experiment
from evo.loop import run_experiment
from evo.observer import RunSummary
from evo.pool import CandidateLimits, DeviceSpec, Pool

PLAIN, SIMILAR = "spmm/nm24_vector", "archive:similar"


def experiment(shapes: list[dict[str, int]], seeds: list[str], evaluations: int, rng_seed: int) -> Experiment:
    """A 2:4 product with the budget of one arm."""
    return Experiment.from_dict(
        {
            "name": "experience",
            "rng_seed": rng_seed,
            "task": {
                "op": "spmm",
                "pattern": {"kind": "nm", "n": 2, "m": 4},
                "dtype": "float16",
                "shapes": shapes,
                "free": ["N"],
                "seeds": seeds,
            },
            "device": {"kind": "simulator", "gpu": "H200"},
            "search": {"generations": 50, "children": 6, "islands": 1, "confirm": 1},
            "operators": {"tune": 2, "splice": 1},
            "budget": {"evaluations": evaluations},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    earlier, here = [{"M": 512, "K": 512, "N": 32}], [{"M": 256, "K": 1024, "N": 48}]
    seeds = ["spmm/nm24_mma_sp", PLAIN]
    workers = len(os.sched_getaffinity(0))
    with Archive.memory() as archive, Pool(DeviceSpec("simulator", "H200"), workers, CandidateLimits()) as pool:

        def arm(shapes: list[dict[str, int]], names: list[str]) -> RunSummary:
            what = experiment(shapes, names, options.evaluations, options.seed)
            return run_experiment(what, archive, pool=pool)

        arm(earlier, seeds)
        without, with_it = arm(here, [PLAIN]), arm(here, [PLAIN, SIMILAR])
    print(f"{options.evaluations} evaluations each, seed {options.seed}, modelled speedup over the dense baseline:")
    for name, summary in (("without experience", without), ("with experience", with_it)):
        start = summary.generations[0].best_us or 0.0
        best = summary.generations[-1].best_us or 0.0
        print(f"{name:<20} first {start:.2f} us, best {best:.2f} us, speedup {summary.speedup or 0.0:.2f}x")


if __name__ == "__main__":
    main()
