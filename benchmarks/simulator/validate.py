"""The modelled clock against times that were measured on a card and played no part in fitting it.

    python -m benchmarks.simulator.validate [benchmarks/simulator/data/h200_sweep.json]

Every row of the file (a seed, its params, a shape, the median time) is modelled again and compared: rank correlation,
geometric mean of modelled over measured and its spread, the worst on either side, and what choosing by the model costs:
the measured time of its favourites over that of the fastest setting. Rows whose modelled time is not found are counted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.simulator.against_gpu import TASK
from benchmarks.simulator.rank import subject
from fitness.devices.simulator.simulator import Simulator
from fitness.devices.simulator.timing import CostRunError, program_time
from fitness.gpu import load
from fitness.kernel import load_kernel
from fitness.task import Task
from seeds import seed_paths

SWEEP = Path(__file__).parent / "data" / "h200_sweep.json"
FAVOURITES = (1, 3, 10)
Times = NDArray[np.float64]


def modelled(rows: Sequence[dict[str, Any]], gpu_name: str) -> list[float]:
    """Modelled microseconds of every row; NaN where the program does not finish."""
    task, simulator = Task.from_spec(TASK), Simulator(load(gpu_name))
    seeds = {path.stem: load_kernel(path) for path in (*seed_paths("spmm/*"), *seed_paths("gemm/*"))}
    found = []
    for number, row in enumerate(rows):
        kernel = seeds[row["seed"]].with_params(row["params"])
        try:
            time_us = program_time(simulator, subject(task, kernel, simulator.gpu, row["shape"])).time_us
        except CostRunError:
            time_us = float("nan")
        found.append(time_us)
        if number % 20 == 19:
            print(f"  {number + 1} of {len(rows)}", flush=True)
    return found


def report(rows: Sequence[dict[str, Any]], times: Times) -> None:
    """A line per seed and shape, then the rows that are farthest off."""
    measured = np.array([row["median_us"] for row in rows])
    ratio = times / measured
    groups = [(row["seed"], row["shape"]["N"]) for row in rows]
    print(f"{'':32}{'rows':>5}{'rank':>7}{'ratio':>7}{'spread':>8}{'lowest':>8}{'highest':>9}   best of the model's")
    for group in [*sorted(set(groups)), None]:
        chosen = np.array([group is None or mine == group for mine in groups]) & np.isfinite(ratio)
        log = np.log(ratio[chosen])
        rank = spearmanr(times[chosen], measured[chosen]).statistic
        name = "all" if group is None else f"{group[0]} N={group[1]}"
        line = f"{name:32}{chosen.sum():5}{rank:7.3f}{np.exp(log.mean()):7.2f}{log.std():8.2f}"
        line += f"{ratio[chosen].min():8.2f}{ratio[chosen].max():9.2f}"
        if group is not None:
            line += "   " + ", ".join(f"{n}: {regret(times[chosen], measured[chosen], n):.2f}" for n in FAVOURITES)
        print(line)
    print(f"{np.count_nonzero(~np.isfinite(ratio))} rows have no modelled time")
    order = np.argsort(np.abs(np.log(ratio)))[::-1]
    for place in order[:8]:
        row = rows[int(place)]
        params = " ".join(f"{name}={value}" for name, value in row["params"].items())
        print(f"{ratio[place]:5.2f}  {times[place]:8.1f} of {measured[place]:8.1f} us  {groups[place]}  {params}")


def regret(times: Times, measured: Times, count: int) -> float:
    """Fastest measured time among the `count` settings the model likes best, over the fastest of all."""
    return float(measured[np.argsort(times)[:count]].min() / measured.min())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="?", default=SWEEP)
    parser.add_argument("--gpu", default="H200")
    options = parser.parse_args()
    rows = [row for row in json.loads(options.measured.read_text())["rows"] if "median_us" in row]
    report(rows, np.array(modelled(rows, options.gpu)))


if __name__ == "__main__":
    main()
