"""One matrix at one N: every seed and every cuSPARSE algorithm screened, the fastest of both timed interleaved.

W is float32 with values drawn from a seed, X row-major. Every result that is timed is checked on 512 rows and the
longest ones. Screening takes 12 samples of 16 runs, fewer of what is slow; its times choose what is compared and are
told, but the speedup is that of the confirmed pair alone, 200 pairs of samples in 10 blocks.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.matrices.cusparse import SELL_ROWS, SPMM, SPMV, CusparseError, Routine, version
from benchmarks.matrices.operands import SparseOperands, SparseWeights
from benchmarks.matrices.settings import Variants
from fitness.compile import compile_source
from fitness.devices.cuda.driver import CudaError
from fitness.devices.device import Compiled, Measurement, Program, Timeable, TimingError
from fitness.formats import FormatError
from fitness.gpu import Gpu
from fitness.inputs import Case, case_of
from fitness.kernel import FormatChoice, Kernel, load_kernel
from fitness.matrices import Mask
from fitness.program import build_program
from fitness.task import Task
from fitness.timing import CONFIRM, Plan, ratio_estimate
from seeds import seed_paths

TOGETHER: Final = "both together"
SCREENING: Final = Plan(3, 4, longest_us=3e4)
"""A hundred subjects a minute or two: slow ones get a sample a block."""
SCREENED_US: Final = 12.5
"""Reference time of screening where the shape's own is less: 16 runs to a sample are enough to choose by."""
HOPELESS: Final = 4.0
"""A seed so many times slower than the fastest at one N is not tried at the next ones of that matrix."""


class BrokenError(RuntimeError):
    """The card is lost to this process: a subject hung or faulted on it."""

    def __init__(self, title: str, why: str) -> None:
        super().__init__(f"{title}: {why}")
        self.title, self.why = title, why


def task_of(mask: Mask, n: int) -> Task:
    """The product at one shape: random pattern by density, for what seeds ask of a task; never drawn from."""
    shape = {"M": mask.shape[0], "N": n, "K": mask.shape[1]}
    return Task(
        op="spmv" if n == 1 else "spmm",
        pattern={"kind": "random", "density": max(mask.density, 1e-9)},
        dtype="float32",
        out_dtype="float32",
        acc="float32",
        x_layout="row",
        y_layout="row",
        shapes=(shape,),
        free=(),
        domain=(),
        seeds=(),
        baseline="auto",
    )


def seeds_of(op: str) -> Iterator[tuple[str, Kernel | str]]:
    """Every seed of the op, and of spmm for one column; those not written for float32 by rows by the reason why."""
    paths = seed_paths(f"{op}/*") if op == "spmm" else (*seed_paths("spmv/*"), *seed_paths("spmm/*"))
    for path in paths:
        kernel = _loaded(path)
        header = kernel.header
        why = ""
        if header.dtypes and "float32" not in header.dtypes:
            why = f"written for {', '.join(header.dtypes)}"
        elif header.layouts and "row" not in header.layouts:
            why = f"written for layout {', '.join(header.layouts)}"
        yield f"{path.parent.name}/{path.stem}", why or kernel


def kernels_of(task: Task) -> Iterator[tuple[str, Kernel | str]]:
    """Those seeds whose `require` holds for the task; the others by the reason why."""
    names = task.expression_names(task.shapes[0])
    for title, kernel in seeds_of(task.op):
        if isinstance(kernel, Kernel) and not all(
            bool(term.evaluate({**names, **kernel.params})) for term in kernel.header.require
        ):
            yield title, "its `require` does not hold"
        else:
            yield title, kernel


@functools.cache
def _loaded(path: Path) -> Kernel:
    return load_kernel(path)


def choices_of(n: int, task: Task, variants: Variants | None = None) -> Iterator[FormatChoice]:
    """Every format that a seed or a routine wants W in; of a sweep, its settings."""
    if variants is not None:
        kernels = dict(kernels_of(task))
        asked = (each.of(kernels.get(seed, "")) for seed, settings in variants.items() for each in settings)
        yield from (kernel.format for kernel in asked if isinstance(kernel, Kernel))
        return
    yield from (kernel.format for _, kernel in kernels_of(task) if isinstance(kernel, Kernel))
    yield from (storage_of(title, n) for title in routines(n))


def routines(n: int) -> Mapping[str, tuple[str, int]]:
    """The cuSPARSE algorithms for so many columns: name -> (format, algorithm)."""
    return SPMV if n == 1 else SPMM


def storage_of(title: str, n: int) -> FormatChoice:
    """How W is stored for a cuSPARSE algorithm."""
    storage = routines(n)[title][0]
    return FormatChoice(storage, {"c": str(SELL_ROWS), "sigma": "1"} if storage == "sell" else {})


def program_of(kernel: Kernel, made: SparseOperands, gpu: Gpu) -> tuple[Case, Program] | str:
    """A seed's program for these operands, or why there is none."""
    try:
        case = case_of(made.task, made, kernel.format, seed=0, data="normal", gpu=gpu)  # type: ignore[arg-type]
    except (FormatError, MemoryError) as error:
        return str(error).splitlines()[0][:160]
    defines = (*made.task.defines, *kernel.defines)
    compiled = compile_source(kernel.source, defines=defines, flags=kernel.header.options, arch=gpu.arch)
    if not isinstance(compiled, Compiled):
        return f"does not compile: {compiled}"[:160]
    program = build_program(kernel, compiled, case, gpu)
    return (case, program) if isinstance(program, Program) else str(program.finding.message)[:160]


class Bench:
    """One card, and what is timed on it.

    Args:
        gpu: the card's data sheet.
        device: `fitness.devices.cuda.Cuda`; None resolves everything and times nothing.
        lib: the cuSPARSE library; None where there is none or no device.
        tell: called with the title of each subject before it is tried.
    """

    def __init__(self, gpu: Gpu, device: Any, lib: Any, tell: Callable[[str], None] = lambda _: None) -> None:
        self.gpu, self.device, self.lib, self.tell = gpu, device, lib, tell

    def row(
        self, name: str, mask: Mask, weights: SparseWeights, n: int, left_out: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Everything of one matrix at one N.

        Args:
            name: of the matrix.
            mask: its pattern.
            weights: W.
            n: columns of X.
            left_out: subjects that are not to be tried, and why.

        Raises:
            BrokenError: a subject lost the card.
        """
        made, about = self._made(name, mask, weights, n)
        row: dict[str, Any] = {**about, "seeds": {}, "cusparse": {}, "left_out": dict(left_out or {})}
        row["library"] = version(self.lib) if self.lib is not None else ""
        subject = self._best_seed(made, row)
        rival = self._best_routine(made, row)
        if subject and rival and self.device and TOGETHER not in row["left_out"]:
            self._pair(subject, rival, made, row)
        return row

    def settings(
        self, name: str, mask: Mask, weights: SparseWeights, n: int, variants: Variants
    ) -> Iterator[dict[str, Any]]:
        """Settings of seeds at one N, a row for each with its time, or why there is none.

        Args:
            name: of the matrix.
            mask: its pattern.
            weights: W.
            n: columns of X.
            variants: seed -> what of its params is tried.

        Raises:
            BrokenError: a setting lost the card.
        """
        made, about = self._made(name, mask, weights, n)
        kernels = dict(kernels_of(made.task))
        for seed, settings in variants.items():
            kernel = kernels.get(seed, "no seed for so many columns")
            for setting in settings:
                row: dict[str, Any] = {**about, "seeds": {}, "left_out": {}}
                title = setting.title(seed)
                self._screen(title, setting.of(kernel), made, row)
                found = row["seeds"].get(title) or {"left_out": row["left_out"].get(title, "")}
                yield {**about, "sweep": seed, "params": dict(setting.params), **found}

    def _made(self, name: str, mask: Mask, weights: SparseWeights, n: int) -> tuple[SparseOperands, dict[str, Any]]:
        """The product's operands, and how every row about it begins."""
        x = np.random.default_rng(n).random((mask.shape[1], n), dtype=np.float32) * 2 - 1
        about = {"matrix": name, "M": mask.shape[0], "K": mask.shape[1], "nnz": mask.nnz, "N": n}
        about |= {"floor_us": self._floor_us(mask, n), "gpu": self.gpu.name}
        return SparseOperands(task_of(mask, n), weights, x), about

    def _floor_us(self, mask: Mask, n: int) -> float:
        """Launch and the bytes that must move: a value and a column for each nonzero, a pointer a row, X, Y."""
        used = int(np.count_nonzero(mask.column_counts))
        moved = 8 * mask.nnz + 4 * mask.shape[0] + 4 * n * (used + mask.shape[0])
        return self.gpu.floor_us(moved, 2.0 * mask.nnz * n, "float32")

    def _best_seed(self, made: SparseOperands, row: dict[str, Any]) -> Timeable | None:
        """Screens every seed; the fastest that is right."""
        best: tuple[float, Timeable] | None = None
        for title, kernel in kernels_of(made.task):
            if title in row["left_out"]:
                continue
            found = self._screen(title, kernel, made, row)
            if found is not None and (best is None or found[0] < best[0]):
                best, row["best_seed"] = found, title
        return best[1] if best else None

    def _screen(
        self, title: str, kernel: Kernel | str, made: SparseOperands, row: dict[str, Any]
    ) -> tuple[float, Timeable] | None:
        """The time of a kernel, and what to time it by again; None, and the reason in the row, where there is none."""
        self.tell(title)
        found = kernel if isinstance(kernel, str) else program_of(kernel, made, self.gpu)
        if isinstance(found, str):
            row["left_out"][title] = found
            return None
        subject = Timeable(found[1], found[0].inputs, reference_us=2 * row["floor_us"])
        if self.device is None:
            row["seeds"][title] = {"launches": len(found[1].launches)}
            return None
        quick = dataclasses.replace(subject, reference_us=max(SCREENED_US, 2 * row["floor_us"]))
        taken = self._taken(title, functools.partial(self.device.beside, (quick,), (), SCREENING), made, row)
        if taken is None:
            return None
        row["seeds"][title] = _times(taken[0])
        return taken[0].time_us, subject

    def _best_routine(self, made: SparseOperands, row: dict[str, Any]) -> Any:
        """Screens every algorithm; the maker of the fastest that is right."""
        n = row["N"]
        best: tuple[float, Any] | None = None
        for algorithm in routines(n):
            title = f"cusparse/{algorithm}"
            if title in row["left_out"]:
                continue
            self.tell(title)
            try:
                case = case_of(made.task, made, storage_of(algorithm, n), seed=0, data="normal", gpu=self.gpu)  # type: ignore[arg-type]
            except FormatError as error:
                row["left_out"][title] = str(error)[:160]
                continue
            if self.device is None or self.lib is None:
                row["cusparse"][algorithm] = {}
                continue
            make = self._maker(algorithm, case, made)
            screen = functools.partial(self._screened, make, max(SCREENED_US, 2 * row["floor_us"]))
            taken = self._taken(title, screen, made, row)
            if taken is None:
                continue
            row["cusparse"][algorithm] = _times(taken[0])
            if best is None or taken[0].time_us < best[0]:
                best, row["best_cusparse"] = (taken[0].time_us, make), algorithm
        return best[1] if best else None

    def _screened(self, make: Any, reference_us: float) -> tuple[Measurement, ...]:
        return (self.device.routine(make, reference_us, SCREENING),)

    def _maker(self, algorithm: str, case: Case, made: SparseOperands) -> Any:
        shape = (case.shape["M"], case.shape["K"], case.shape["N"])
        return lambda card, cache, runs: Routine(self.lib, algorithm, case.inputs, shape, made.nnz, card, cache, runs)

    def _pair(self, subject: Timeable, rival: Any, made: SparseOperands, row: dict[str, Any]) -> None:
        """The fastest of both sides, interleaved: the speedup with its interval."""
        self.tell(TOGETHER)
        together = functools.partial(self.device.beside, (subject,), (rival,), CONFIRM)
        taken = self._taken(TOGETHER, together, made, row)
        if taken is None:
            return
        own, theirs = taken
        pair = [np.array(each.samples_us).reshape(CONFIRM.blocks, -1) for each in (theirs, own)]
        row["speedup"] = dataclasses.asdict(ratio_estimate(pair[0], pair[1]))
        row["best_us"], row["best_cusparse_us"] = own.time_us, theirs.time_us

    def _taken(
        self, title: str, take: Callable[[], tuple[Measurement, ...]], made: SparseOperands, row: dict[str, Any]
    ) -> tuple[Measurement, ...] | None:
        """Times whose results are right; None, and the reason in the row, where there are none such.

        Raises:
            BrokenError: the card is lost.
        """
        try:
            taken = take()
        except (TimingError, CusparseError, CudaError, MemoryError) as error:
            if isinstance(error, CudaError):
                self.device.probe()
            why = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
            if self.device.spent:
                raise BrokenError(title, why) from error
            row["left_out"][title] = why
            return None
        results = [outputs["Y"] for each in taken for outputs in each.outputs]
        wrong = "no result was kept" if len(results) < len(taken) else next(filter(None, map(made.wrong, results)), "")
        if wrong:
            row["left_out"][title] = f"wrong: {wrong}"
            return None
        return taken


def hopeless(row: Mapping[str, Any]) -> dict[str, str]:
    """Seeds that need not be tried at another N of that matrix, and why; never an algorithm of cuSPARSE."""
    times = {title: found["us"] for title, found in row["seeds"].items() if "us" in found}
    least = min(times.values(), default=0.0)
    return {
        title: f"{us / least:.1f} times the fastest seed at N = {row['N']}"
        for title, us in times.items()
        if us > HOPELESS * least
    }


def _times(found: Measurement) -> dict[str, float]:
    return {"us": found.time_us, "low_us": found.low_us, "high_us": found.high_us}
