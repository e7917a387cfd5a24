"""How much there is to gain by tuning a seed: defaults, random feasible params and a few of an expert's choice.

    python benchmarks/seeds_landscape.py spmm/nm24_mma_sp_fragment --samples 20

Times are modelled (H200 by default). Each sample passes the small checked runs first, so a wrong corner of a seed's
space shows up here too.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping

import numpy as np

import fitness.gpu
import seeds
from fitness.devices import open_device
from fitness.devices.device import Device
from fitness.evaluate import judge
from fitness.kernel import Kernel, load_kernel
from fitness.outcome import Gate, Timed
from fitness.task import Task

SHAPES = [{"M": 4096, "K": 4096, "N": 16}, {"M": 4096, "K": 4096, "N": 256}]
#: Fast on a real H200 (graph of cold launches): 8.0 us at N = 16 and 28.9 us at N = 256 for the fragment seed.
EXPERT: Mapping[str, Mapping[str, int]] = {
    "spmm/nm24_mma_sp_fragment": {
        "S_MT": 2, "S_BN": 16, "S_WARPS": 4, "S_DEPTH": 8, "S_ASYNC": 1,
        "BM": 128, "BN": 128, "BK": 128, "WM": 64, "WN": 64, "WK": 2, "STAGES": 3, "SPLITK": 2, "GROUP": 1,
    },
    "spmm/nm24_mma_sp": {
        "S_BM": 16, "S_BN": 16, "S_BK": 512, "S_WM": 16, "S_WN": 16, "S_WK": 8, "S_STAGES": 4,
        "BM": 128, "BN": 128, "BK": 128, "WM": 32, "WN": 64, "STAGES": 3, "SPLITK": 2,
    },
    "gemm/dense_mma_pipelined": {
        "S_BM": 16, "S_BN": 16, "S_BK": 256, "S_WM": 16, "S_WN": 16, "S_WK": 8, "S_STAGES": 6,
        "BM": 128, "BN": 64, "BK": 128, "WM": 64, "WN": 32, "STAGES": 3,
    },
}  # fmt: skip


def random_params(kernel: Kernel, rng: np.random.Generator) -> dict[str, int]:
    while True:
        params = {name: int(rng.choice(param.values)) for name, param in kernel.header.params.items()}
        if kernel.feasible(params):
            return params


def mean_us(outcome: Timed) -> float:
    return math.exp(sum(math.log(timing.time_us) for timing in outcome.timings) / len(outcome.timings))


def line(label: str, outcome: Timed) -> str:
    times = "  ".join(f"N={t.shape['N']}: {t.time_us:8.2f} us ({t.floor_us / t.time_us:.2f})" for t in outcome.timings)
    floor = math.exp(sum(math.log(t.floor_us) for t in outcome.timings) / len(outcome.timings))
    mean = mean_us(outcome)
    return f"{label:8s} {times}  geometric mean {mean:8.2f} us, {floor / mean:.3f} of the floor"


def explore(name: str, task: Task, device: Device, samples: int, rng: np.random.Generator) -> None:
    (path,) = seeds.seed_paths(name)
    kernel = load_kernel(path)
    named = [("default", kernel)]
    if name in EXPERT:
        named.append(("expert", kernel.with_params(EXPERT[name])))
    print(name)
    timed: list[tuple[float, Kernel, Timed]] = []
    invalid = 0
    for label, candidate in [*named, *(("", kernel.with_params(random_params(kernel, rng))) for _ in range(samples))]:
        outcome = judge(candidate, task, device, depth=Gate.TIMING_SCREEN)
        if not isinstance(outcome, Timed):
            invalid += 1
            print(f"  {outcome.kind}: {outcome.findings[0].message} {dict(candidate.params)}")
            continue
        timed.append((mean_us(outcome), candidate, outcome))
        if label:
            print(f"  {line(label, outcome)}", flush=True)
    timed.sort(key=lambda entry: entry[0])
    for label, (_, candidate, outcome) in (
        ("best", timed[0]),
        ("median", timed[len(timed) // 2]),
        ("worst", timed[-1]),
    ):
        print(f"  {line(label, outcome)}\n           {dict(candidate.params)}", flush=True)
    print(f"  {len(timed)} timed, {invalid} invalid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="*", default=list(EXPERT), help="names such as spmm/nm24_mma_sp")
    parser.add_argument("--samples", type=int, default=20, help="random feasible params per seed")
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--rng-seed", type=int, default=0)
    arguments = parser.parse_args()
    task = Task.from_spec(
        {
            "op": "spmm",
            "pattern": {"kind": "nm", "n": 2, "m": 4},
            "dtype": "float16",
            "shapes": SHAPES,
            "free": ["N"],
            "seeds": ["spmm/nm24_*"],
        }
    )
    device = open_device("simulator", fitness.gpu.load(arguments.gpu))
    for name in arguments.seeds:
        explore(name, task, device, arguments.samples, np.random.default_rng(arguments.rng_seed))


if __name__ == "__main__":
    main()
