"""SpMV and SpMM over real and generated matrices: every seed against every cuSPARSE algorithm, on one card.

    python -m benchmarks.matrices.measure OUT.jsonl FOLDER        all real matrices of a folder, N = 1, 8, 32, 128, 256
    python -m benchmarks.matrices.measure OUT.jsonl --generated   the large generated ones
    python -m benchmarks.matrices.measure OUT.jsonl FOLDER --dry-run   compile and resolve everything; needs no card

One line of JSON for each matrix and N; lines that are there already are kept, so a run that was cut off goes on. Every
subject is screened; the fastest seed and the fastest routine are then timed interleaved. W is float32 with values drawn
from a seed, X row-major; results are checked on 512 rows and the longest ones. `benchmarks.matrices.summary` sums up.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.matrices.cusparse import SELL_ROWS, SPMM, SPMV, CusparseError, Routine, library
from benchmarks.matrices.generated import GENERATED
from benchmarks.matrices.operands import SparseOperands, SparseWeights
from fitness.compile import compile_source
from fitness.devices.device import Compiled, Program, Timeable, TimingError
from fitness.formats import FormatError
from fitness.gpu import Gpu, load
from fitness.inputs import Case, case_of
from fitness.kernel import FormatChoice, Kernel, load_kernel
from fitness.matrices import Mask, MatrixError, matrix_files, open_matrices
from fitness.program import build_program
from fitness.task import Task
from fitness.timing import CONFIRM, SCREEN, ratio_estimate
from seeds import seed_paths

COLUMNS = (1, 8, 32, 128, 256)
MOST_OPERAND_BYTES = 4 * 2**30


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


def kernels_of(task: Task) -> Iterator[tuple[str, Kernel | str]]:
    """Every seed of the op, and of spmm for one column; those not written for such a task by the reason why."""
    paths = seed_paths(f"{task.op}/*") if task.op == "spmm" else (*seed_paths("spmv/*"), *seed_paths("spmm/*"))
    for path in paths:
        kernel = load_kernel(path)
        header = kernel.header
        why = ""
        if header.dtypes and "float32" not in header.dtypes:
            why = f"written for {', '.join(header.dtypes)}"
        elif header.layouts and "row" not in header.layouts:
            why = f"written for layout {', '.join(header.layouts)}"
        elif not all(bool(term.evaluate({**task.expression_names(task.shapes[0]), **kernel.params}))
                     for term in header.require):  # fmt: skip
            why = "its `require` does not hold"
        yield f"{path.parent.name}/{path.stem}", why or kernel


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
    """One card, and what is timed on it."""

    def __init__(self, gpu: Gpu, *, dry: bool) -> None:
        self.gpu, self.device, self.lib = gpu, None, None
        if not dry:
            from fitness.devices.cuda.cuda import Cuda

            self.device, self.lib = Cuda(gpu), library()

    def row(self, name: str, mask: Mask, weights: SparseWeights, n: int) -> dict[str, Any]:
        """Everything of one matrix at one N."""
        x = np.random.default_rng(n).standard_normal((mask.shape[1], n), dtype=np.float32)
        made = SparseOperands(task_of(mask, n), weights, x)
        floor_us = self._floor_us(mask, n)
        row: dict[str, Any] = {"matrix": name, "M": mask.shape[0], "K": mask.shape[1], "nnz": mask.nnz, "N": n}
        row |= {"floor_us": floor_us, "gpu": self.gpu.name, "seeds": {}, "cusparse": {}, "left_out": {}}
        best: tuple[float, Timeable] | None = None
        for title, kernel in kernels_of(made.task):
            found = kernel if isinstance(kernel, str) else program_of(kernel, made, self.gpu)
            if isinstance(found, str):
                row["left_out"][title] = found
                continue
            subject = Timeable(found[1], found[0].inputs, reference_us=2 * floor_us)
            time_us = self._time_seed(title, subject, made, row)
            if time_us is not None and (best is None or time_us < best[0]):
                best, row["best_seed"] = (time_us, subject), title
        rival = self._time_routines(made, floor_us, row)
        if best and rival and self.device:
            self._pair(best[1], rival, row)
        return row

    def _pair(self, subject: Timeable, rival: Any, row: dict[str, Any]) -> None:
        """The fastest of both sides, interleaved: the speedup with its interval."""
        assert self.device is not None
        try:
            own, theirs = self.device.beside((subject,), (rival,), CONFIRM)
        except (TimingError, CusparseError, MemoryError) as error:
            row["left_out"]["both together"] = str(error)[:160]
            if self.device.spent:
                raise
            return
        pair = [np.array(each.samples_us).reshape(CONFIRM.blocks, -1) for each in (theirs, own)]
        row["speedup"] = dataclasses.asdict(ratio_estimate(pair[0], pair[1]))
        row["best_us"], row["best_cusparse_us"] = own.time_us, theirs.time_us

    def _floor_us(self, mask: Mask, n: int) -> float:
        """Launch and the bytes that must move: a value and a column for each nonzero, a pointer a row, X, Y."""
        used = int(np.count_nonzero(mask.column_counts))
        moved = 8 * mask.nnz + 4 * mask.shape[0] + 4 * n * (used + mask.shape[0])
        return self.gpu.floor_us(moved, 2.0 * mask.nnz * n, "float32")

    def _time_seed(self, title: str, subject: Timeable, made: SparseOperands, row: dict[str, Any]) -> float | None:
        if self.device is None:
            row["seeds"][title] = {"launches": len(subject.program.launches)}
            return None
        try:
            (found,) = self.device.beside((subject,), (), SCREEN)
        except (TimingError, MemoryError) as error:
            row["left_out"][title] = str(error)[:160]
            if self.device.spent:
                raise
            return None
        if wrong := next((why for outputs in found.outputs if (why := made.wrong(outputs["Y"]))), ""):
            row["left_out"][title] = f"wrong: {wrong}"
            return None
        row["seeds"][title] = {"us": found.time_us, "low_us": found.low_us, "high_us": found.high_us}
        return found.time_us

    def _time_routines(self, made: SparseOperands, floor_us: float, row: dict[str, Any]) -> Any:
        """Times every algorithm; gives the maker of the fastest."""
        n = row["N"]
        best: tuple[float, Any] | None = None
        for title, (storage, _) in (SPMV if n == 1 else SPMM).items():
            options = {"c": str(SELL_ROWS), "sigma": "1"} if storage == "sell" else {}
            try:
                case = case_of(made.task, made, FormatChoice(storage, options), seed=0, data="normal", gpu=self.gpu)  # type: ignore[arg-type]
            except FormatError as error:
                row["left_out"][f"cusparse/{title}"] = str(error)[:160]
                continue
            if self.device is None:
                row["cusparse"][title] = {}
                continue
            make = self._maker(title, case, made)
            try:
                found = self.device.routine(make, 2 * floor_us, SCREEN)
            except (CusparseError, MemoryError) as error:
                row["left_out"][f"cusparse/{title}"] = str(error)[:160]
                continue
            if wrong := next((why for outputs in found.outputs if (why := made.wrong(outputs["Y"]))), ""):
                row["left_out"][f"cusparse/{title}"] = f"wrong: {wrong}"
                continue
            row["cusparse"][title] = {"us": found.time_us, "low_us": found.low_us, "high_us": found.high_us}
            if best is None or found.time_us < best[0]:
                best, row["best_cusparse"] = (found.time_us, make), title
        return best[1] if best else None

    def _maker(self, title: str, case: Case, made: SparseOperands) -> Any:
        shape = (case.shape["M"], case.shape["K"], case.shape["N"])
        return lambda card, cache, runs: Routine(self.lib, title, case.inputs, shape, made.nnz, card, cache, runs)


def matrices(asked: argparse.Namespace) -> Iterator[tuple[str, Mask]]:
    """What is measured: name and mask; files that cannot be read are said and left out."""
    if asked.generated:
        for name, (make, arguments) in GENERATED.items():
            if not asked.only or any(word in name for word in asked.only):
                yield name, make(*arguments)
    for path in matrix_files(asked.folder) if asked.folder else ():
        name = str(path.relative_to(asked.folder))
        if asked.only and not any(word in name for word in asked.only):
            continue
        try:
            entry = open_matrices(path).entries[0]
            mask = entry.load().mask
        except MatrixError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        if mask.nnz >= asked.least:
            yield name, mask


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in OUT."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--generated", action="store_true")
    parser.add_argument("--only", action="append", metavar="WORD", help="matrices whose name has it; repeatable")
    parser.add_argument("--least", type=int, default=1000, help="nonzeros; smaller real matrices are left out")
    parser.add_argument("--columns", type=int, nargs="+", default=COLUMNS)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--minutes", type=float, default=9.0, help="no further matrix is begun after so long")
    parser.add_argument("--dry-run", action="store_true", help="compile and resolve everything, time nothing")
    asked = parser.parse_args(arguments)
    if asked.folder is None and not asked.generated:
        parser.error("give a FOLDER, or --generated")
    done = (
        {(row["matrix"], row["N"]) for row in map(json.loads, asked.out.read_text().splitlines())}
        if asked.out.exists()
        else set()
    )
    end = time.monotonic() + 60 * asked.minutes
    bench = Bench(load(asked.gpu), dry=asked.dry_run)
    for name, mask in matrices(asked):
        wanted = [n for n in asked.columns if (name, n) not in done and _fits(mask, n)]
        weights = SparseWeights(mask) if wanted else None
        for n in wanted:
            if time.monotonic() > end:
                print("time is over; run it again to go on", file=sys.stderr)
                return
            assert weights is not None
            began = time.monotonic()
            row = bench.row(name, mask, weights, n)
            with asked.out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row, default=float) + "\n")
            print(f"{told(row)} ({time.monotonic() - began:.1f} s)", flush=True)


def told(row: dict[str, Any]) -> str:
    """A row in one line."""
    where = f"{row['matrix']} N={row['N']}"
    if "speedup" not in row:
        return f"{where}: {len(row['seeds'])} seeds, {len(row['cusparse'])} routines, {len(row['left_out'])} left out"
    own = f"{row['best_seed']} {row['best_us']:.3g} us"
    theirs = f"cuSPARSE {row['best_cusparse']} {row['best_cusparse_us']:.3g} us"
    return f"{where}: {own}, {theirs}, {row['speedup']['value']:.2f}x"


def _fits(mask: Mask, n: int) -> bool:
    return 4 * n * max(mask.shape) <= MOST_OPERAND_BYTES


if __name__ == "__main__":
    main()
