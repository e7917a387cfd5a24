"""What works: pattern x format x op x element type, worked out from the code; `docs/formats.md` shows it.

A combination works where a seed of the library stores W in that format and serves the task; the seeds are verified by
`tests/seeds`, the combinations one by one by `tests/seeds/test_support.py`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import scipy.io
import scipy.sparse

import seeds
from fitness.dtypes import DTYPES
from fitness.formats import FORMATS, get_format
from fitness.kernel import Kernel, load_kernel
from fitness.ops import OPS
from fitness.task import Task

PATTERNS: Final[Mapping[str, Mapping[str, Any]]] = {
    "nm 2:4": {"kind": "nm", "n": 2, "m": 4},
    "nm 4:8": {"kind": "nm", "n": 4, "m": 8},
    "block": {"kind": "block", "shape": [16, 32], "density": 0.3},
    "random": {"kind": "random", "density": 0.1},
    "power_law": {"kind": "power_law", "density": 0.05},
    "rows": {"kind": "rows", "density": 0.3},
    "channels": {"kind": "channels", "density": 0.3},
    "banded": {"kind": "banded", "bandwidth": 5},
    "periodic": {"kind": "periodic", "shape": [8, 32], "density": 0.2},
    "file": {"kind": "file"},
    "dense": {"kind": "dense"},
}
"""One of each kind; the file is made by `task_of`."""

SHAPE: Final = {"M": 64, "N": 8, "K": 64}

State = Literal["works", "no seed", "refused", "not applicable"]


@dataclass(frozen=True)
class Support:
    """One combination: `state`, the seeds that serve it, and why it is refused."""

    state: State
    seeds: tuple[str, ...] = ()
    reason: str = ""


@functools.cache
def kernels() -> Mapping[str, Kernel]:
    """The seed library by name."""
    return {f"{path.parent.name}/{path.stem}": load_kernel(path) for path in seeds.seed_paths("*/*")}


@functools.cache
def task_of(op: str, pattern: str, dtype: str, layout: str, folder: Path) -> Task | None:
    """The task, None where the op has none such: W of gemm is dense, and only that of gemm."""
    if (op == "gemm") != (pattern == "dense"):
        return None
    table = dict(PATTERNS[pattern])
    if pattern == "file":
        table["path"] = str(folder / "pattern.mtx")
        if not Path(table["path"]).exists():
            scipy.io.mmwrite(
                table["path"], scipy.sparse.random_array((90, 70), density=0.1, rng=np.random.default_rng(1))
            )
    size = {name: SHAPE[name] for name in ("M", "K") if op == "spmv"} or SHAPE
    spec = {"op": op, "dtype": dtype, "shapes": [size], "x_layout": layout, "y_layout": layout}
    return Task.from_spec(spec if op == "gemm" else {**spec, "pattern": table})


def written_for(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Types and layouts of a seed: what its header says, else any through task.cuh, else the defaults of tasks."""
    kernel = kernels()[name]
    if '#include "task.cuh"' not in kernel.source:
        return kernel.header.dtypes or ("float16",), kernel.header.layouts or ("col",)
    return kernel.header.dtypes or tuple(DTYPES), kernel.header.layouts or ("row", "col")


@functools.cache
def _serves(name: str, op: str, pattern: str, dtype: str, layout: str, folder: Path) -> bool:
    """Whether a seed serves a task."""
    if dtype not in written_for(name)[0] or layout not in written_for(name)[1]:
        return False
    task = task_of(op, pattern, dtype, layout, folder)
    return task is not None and not task.domain_violations(kernels()[name])


@functools.cache
def support(op: str, pattern: str, format: str, dtype: str, folder: Path) -> Support:  # noqa: A002
    """What the code makes of one combination, in either layout."""
    task = task_of(op, pattern, dtype, "row", folder)
    if task is None or (op == "gemm" and format != "dense"):
        return Support("not applicable")
    stored = (name for name, kernel in kernels().items() if kernel.header.format.name == format)
    serving = tuple(
        name for name in stored if any(_serves(name, op, pattern, dtype, layout, folder) for layout in ("row", "col"))
    )
    if serving:
        return Support("works", serving)
    reason = task.unsupported(format)
    return Support("refused", reason=reason) if reason else Support("no seed")


def combinations() -> Iterator[tuple[str, str, str, str]]:
    """Op, pattern, format, dtype."""
    for op in sorted(OPS):
        for pattern in PATTERNS:
            for name in sorted(FORMATS):
                for dtype in DTYPES:
                    yield op, pattern, name, dtype


def support_tables(folder: Path) -> str:
    """A table for each op: patterns down, formats across."""
    parts = []
    for op in sorted(OPS, key=lambda name: (name == "gemm", name)):
        rows = [pattern for pattern in PATTERNS if (op == "gemm") == (pattern == "dense")]
        formats = ["dense"] if op == "gemm" else sorted(FORMATS)
        lines = [f"`{op}`:", "", f"| pattern | {' | '.join(formats)} |", f"|---|{'---|' * len(formats)}"]
        for pattern in rows:
            cells = [_cell({dtype: support(op, pattern, name, dtype, folder) for dtype in DTYPES}) for name in formats]
            lines.append(f"| {pattern} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _cell(found: Mapping[str, Support]) -> str:
    """ "all", or what differs by type."""
    states = {dtype: one.state for dtype, one in found.items()}
    working = [dtype for dtype, state in states.items() if state == "works"]
    if len(working) == len(states):
        return "all"
    short = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}
    rest = sorted({state for state in states.values() if state != "works"})
    if not working:
        return " / ".join(rest)
    return ", ".join(short[dtype] for dtype in working)


def format_table() -> str:
    """Every format: what it is, its options, arrays and sizes."""
    lines = ["| format | what it is | options | arguments |", "|---|---|---|---|"]
    for name in sorted(FORMATS):
        storage = get_format(name)
        summary = inspect.cleandoc(sys.modules[type(storage).__module__].__doc__ or "").split("\n\n")[0]
        options = "; ".join(
            f"`{option}` = {', '.join(f'`{choice}`' for choice in choices)}"
            for option, choices in storage.options.items()
        )
        defaults = {option: choices[0] for option, choices in storage.options.items()}
        names = [*storage.argument_names(defaults), *storage.sizes]
        arguments = ", ".join(f"`W.{argument}`" for argument in names)
        lines.append(f"| `{name}` | {' '.join(summary.split())} | {options} | {arguments} |")
    return "\n".join(lines)


def seed_table() -> str:
    """The seeds for sparse W by format."""
    lines = ["| format | seeds |", "|---|---|"]
    for name in sorted(FORMATS):
        own = [seed for seed, kernel in kernels().items() if kernel.header.format.name == name]
        lines.append(f"| `{name}` | {', '.join(f'`{seed}`' for seed in own)} |")
    return "\n".join(lines)
