"""Runs a seed on operands of a test's own, with every check of the simulator on."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fitness.gpu
import seeds
from fitness.compile import CompileError, compile_source
from fitness.correctness import check
from fitness.devices import open_device
from fitness.devices.device import FULL_CHECKS, Checks, Compiled, Execution, Program
from fitness.dtypes import DTYPES
from fitness.epilogue import Operands as EpilogueOperands
from fitness.formats import get_format
from fitness.inputs import Case, case_of
from fitness.kernel import Kernel, load_kernel
from fitness.operands import Operands, Weights
from fitness.program import build_program
from fitness.task import Task

Array = NDArray[Any]

H200 = fitness.gpu.load("H200")
SIMULATOR = open_device("simulator", H200)
KERNELS = {f"{path.parent.name}/{path.stem}": load_kernel(path) for path in seeds.seed_paths("*/*")}
SPARSE = tuple(name for name in KERNELS if not name.startswith("gemm/"))
SPMM = tuple(name for name in SPARSE if name.startswith("spmm/"))


class Ran(NamedTuple):
    """What was run and what came out; `y`: (M, N)."""

    case: Case
    execution: Execution
    y: Array


def form(name: str) -> str:
    """The format a seed stores W in."""
    return KERNELS[name].header.format.name


def grouped(name: str) -> bool:
    """Whether W must have two nonzeros at most in every four."""
    return form(name) in ("nm", "nm24") or name == "spmm/nm24_dense_mma"


def task_of(name: str, dtype: str = "float16", **changes: object) -> Task:
    """A task the seed serves: in that type, or the seed's first one, in the seed's layout, of any shape."""
    header = KERNELS[name].header
    op = name.partition("/")[0]
    if header.dtypes and dtype not in header.dtypes:
        dtype = header.dtypes[0]
    layout = header.layouts[0] if header.layouts else "row" if op == "spmm" and not grouped(name) else "col"
    pattern: dict[str, object] = {"kind": "nm", "n": 2, "m": 4} if grouped(name) else {"kind": "random", "density": 0.5}
    spec: dict[str, object] = {"op": op, "dtype": dtype, "x_layout": layout, "y_layout": layout}
    if op != "gemm":
        spec["pattern"] = pattern
    size = {"M": 64, "K": 64} if op == "spmv" else {"M": 64, "N": 8, "K": 64}
    return Task.from_spec({**spec, "shapes": [size], **changes})


@functools.lru_cache(maxsize=256)
def compiled(kernel: Kernel, task: Task) -> Compiled:
    """The kernel for a task."""
    defines = (*task.defines, *kernel.defines)
    result = compile_source(kernel.source, defines=defines, flags=kernel.header.options, arch=H200.arch)
    assert not isinstance(result, CompileError), result
    return result


def made(kernel: Kernel, task: Task, w: Array, x: Array, *, data: str = "normal") -> tuple[Case, Program]:
    """Operands, rounded to the task's type, and the launches for them."""
    return made_of(kernel, task, operands_of(task, w, x), data=data)


def operands_of(task: Task, w: Array, x: Array) -> Operands:
    """W and X, rounded to the task's type."""
    dtype = DTYPES[task.dtype].numpy
    return Operands(task, Weights(np.asarray(w, dtype)), np.asarray(x, dtype), EpilogueOperands())


def made_of(kernel: Kernel, task: Task, operands: Operands, *, data: str = "normal") -> tuple[Case, Program]:
    """The case of operands in a kernel's format, and the launches for it."""
    case = case_of(task, operands, kernel.format, seed=0, data=data, gpu=H200)
    program = build_program(kernel, compiled(kernel, task), case, H200)
    assert isinstance(program, Program), program
    return case, program


def run(kernel: Kernel, task: Task, w: Array, x: Array, *, data: str = "normal", checks: Checks = FULL_CHECKS) -> Ran:
    """Run a kernel on W and X; it must end without findings and be right by the criterion."""
    case, program = made(kernel, task, w, x, data=data)
    execution = SIMULATOR.run(program, case.inputs, checks)
    assert execution.ended == "finished", execution.findings
    assert not execution.findings
    wrong = check(case, execution.outputs, execution.written, sampled=checks.blocks is not None)
    assert wrong is None, wrong
    return Ran(case, execution, case.logical(execution.outputs))


def sparse(name: str, rows: int, columns: int, density: float, seed: int = 0) -> Array:
    """A random W (M, K) of float32 that the seed can store; columns a multiple of four."""
    rng = np.random.default_rng(seed)
    w = np.where(rng.random((rows, columns)) < density, rng.standard_normal((rows, columns)), 0).astype(np.float32)
    if grouped(name):
        w[:, 1::4] = 0
        w[:, 2::4] = 0
    return w


def stored_nothing(kernel: Kernel, shape: tuple[int, int]) -> bool:
    """Whether the format stores no slot of an empty W, so that no X may be read."""
    options = {key: str(value) for key, value in kernel.format.options.items()}
    return not get_format(kernel.format.name).stored_mask(np.zeros(shape, np.float16), options).any()
