"""What the engine itself costs: a run of 1,000 evaluations whose evaluator answers at once.

    python -m benchmarks.engine                                    # experiments/gemm_bias_relu.toml, 1,000 evaluations
    python -m benchmarks.engine --experiment experiments/nm24.toml --evaluations 3000

Seeds, operators, search, archive and observer are the real ones; only compiling and judging are left out: the code of
a kernel is its source and params, its time a fixed function of them. What is measured is proposing, archiving, ranking
and showing; what a worker and its messages cost is not part of it. The bar: at most 20 ms per candidate, and memory
that does not grow with their number (what a run must remember of a candidate aside: a few KiB). Where a search has
tried all that its operators reach from its parents, plans are refused: they take time and are counted, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path

from fitness.threads import one_thread

one_thread()  # as `evo run` does; must be said before NumPy is imported, hence the imports below

import psutil  # noqa: E402
from rich.console import Console  # noqa: E402

from evo.archive import Archive  # noqa: E402
from evo.evaluator import never  # noqa: E402
from evo.experiment import Experiment  # noqa: E402
from evo.loop import run_experiment  # noqa: E402
from evo.observer import GenerationStats, State  # noqa: E402
from evo.pool import DeviceSpec  # noqa: E402
from evo.progress import PlainProgress  # noqa: E402
from fitness import gpu as gpus  # noqa: E402
from fitness.evaluate import Prepared  # noqa: E402
from fitness.kernel import Kernel  # noqa: E402
from fitness.outcome import Cost, Gate, Outcome, Resources, Timed, Timing  # noqa: E402
from fitness.task import Task  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
_CHILDREN = 25
_WARM = 200
"""Candidates after which memory is looked at first: modules are imported and caches filled then."""


class Instant:
    """An evaluator that answers at once: every kernel is right, its time a hash of its params near the floor."""

    def __init__(self, gpu: str) -> None:
        self.device = DeviceSpec("simulator", gpu)

    def worker_pids(self) -> tuple[int, ...]:
        """None: this process answers."""
        return ()

    def prepare(
        self, task: Task, kernels: Iterable[tuple[int, Kernel]], *, stop: Callable[[], bool] = never
    ) -> Iterator[tuple[int, Prepared | Outcome]]:
        """Every kernel compiles, to code of its own."""
        del task, stop
        for n, kernel in kernels:
            yield n, Prepared(kernel.id)

    def judge(
        self,
        task: Task,
        kernels: Iterable[tuple[int, Kernel]],
        depth: Gate = Gate.TIMING,
        incumbent_us: float | None = None,
        *,
        full: bool = False,
        stop: Callable[[], bool] = never,
    ) -> Iterator[tuple[int, Outcome]]:
        """Every kernel is right, and some factor above the floor."""
        del incumbent_us, full, stop
        card = gpus.load(self.device.gpu)
        for n, kernel in kernels:
            factor = 1.5 + sum(_weight(name, value) for name, value in kernel.params.items())
            timings = []
            for shape in task.shapes:
                floor_us = task.floor_us(shape, card)
                time_us = factor * floor_us
                timings.append(Timing(shape, "modelled", time_us, time_us, time_us, floor_us, 1.0, 1.0, "DRAM"))
            yield n, Timed(depth, (), Cost(), kernel.id, "modelled", tuple(timings), Resources(32, 0, 0, 1.0))


def _weight(name: str, value: int) -> float:
    return hashlib.sha256(f"{name} {value}".encode()).digest()[0] / 256


class Samples(PlainProgress):
    """The progress of a log file, and at every generation: candidates, refusals, seconds, CPU seconds, bytes."""

    def __init__(self) -> None:
        super().__init__(Console(file=StringIO(), width=120), "")
        self.taken: list[tuple[int, int, float, float, int]] = []
        self._process = psutil.Process()

    def on_generation(self, stats: GenerationStats, state: State) -> None:
        """Take a sample behind every generation."""
        super().on_generation(stats, state)
        times = self._process.cpu_times()
        seconds, bytes_ = time.monotonic(), self._process.memory_info().rss
        self.taken.append((state.judged, state.refused, seconds, times.user + times.system, bytes_))


def measure(experiment: Experiment) -> list[tuple[int, int, float, float, int]]:
    """Samples of one run, in an archive of its own."""
    samples = Samples()
    with tempfile.TemporaryDirectory() as folder, Archive.open(Path(folder) / "archive.db") as archive:
        run_experiment(experiment, archive, pool=Instant(experiment.device.gpu), observer=samples)
        assert archive.check() == []
    return samples.taken


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", type=Path, default=ROOT / "experiments" / "gemm_bias_relu.toml")
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    settings = (
        f"search.generations={4 * asked.evaluations // _CHILDREN}",
        f"search.children={_CHILDREN}",
        f"budget.evaluations={asked.evaluations}",
        "budget.minutes=1000",
        "search.target_speedup=0",
    )
    taken = measure(Experiment.load(asked.experiment, settings))
    first, last = next(sample for sample in taken if sample[0] >= min(_WARM, taken[-1][0] // 2)), taken[-1]
    count, plans = last[0] - first[0], last[0] + last[1] - first[0] - first[1]
    result = {
        "experiment": asked.experiment.stem,
        "candidates": last[0],
        "refused": last[1],
        "ms_per_candidate": 1000 * (last[2] - first[2]) / count,
        "ms_per_plan": 1000 * (last[2] - first[2]) / plans,
        "cpu_ms_per_candidate": 1000 * (last[3] - first[3]) / count,
        "mib_at_first": first[4] / 2**20,
        "mib_at_end": last[4] / 2**20,
        "kib_per_candidate": (last[4] - first[4]) / 1024 / count,
    }
    if asked.json:
        print(json.dumps(result, indent=2))
        return
    for done, refused, seconds, cpu, held in taken[:: max(1, len(taken) // 10)]:
        print(
            f"{done:6} candidates {refused:6} refused {seconds - taken[0][2]:7.1f} s  CPU {cpu:7.1f} s"
            f"  {held / 2**20:7.1f} MiB"
        )
    print(
        f"{result['experiment']}: {last[0]} candidates, {last[1]} plans refused; from {first[0]} on"
        f" {result['ms_per_candidate']:.1f} ms each ({result['cpu_ms_per_candidate']:.1f} of CPU;"
        f" {result['ms_per_plan']:.1f} a plan), {result['kib_per_candidate']:.1f} KiB each"
    )


if __name__ == "__main__":
    main()
