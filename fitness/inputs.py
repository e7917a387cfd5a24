"""Cases: operands of a task made from a seed, packed in a kernel's format, with the float64 reference.

The operands depend on task, shape, data kind and seed only, never on the format, so that all kernels of a task
meet the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitness.devices.device import Inputs
from fitness.dtypes import DTYPES, Dtype
from fitness.formats import get_format
from fitness.formats.format import complete
from fitness.gpu import Gpu
from fitness.kernel import FormatChoice
from fitness.operands import DATA, Operands, operands, trim_cache
from fitness.task import Shape, Task

Array = NDArray[Any]


class Run(NamedTuple):
    """One correctness run: which shape, which data, which seed."""

    shape: Shape
    data: str
    seed: int


def small_runs(task: Task) -> tuple[Run, ...]:
    """The six fixed runs of gate 4, cheapest to catch most: see `shapes.SMALL_TARGETS` for the shapes."""
    kinds = ("normal", "positive", "integers", "awkward", "normal", "needle")
    return tuple(Run(s, data, i) for i, (s, data) in enumerate(zip(task.small_shapes(), kinds, strict=True)))


def full_runs(task: Task, *, seed: int = 0) -> tuple[Run, ...]:
    """Gate 4's full list, for seeds and confirmation: the six, then every tail shape with the data kinds in turn.

    Args:
        task: the task.
        seed: confirmation passes a fresh one; the six fixed runs keep theirs.
    """
    shapes = task.full_shapes()
    tails = [Run(shape, ("normal", "positive", "awkward")[i % 3], seed + i) for i, shape in enumerate(shapes)]
    tail_shape = task.small_shapes()[1]
    kinds = [Run(tail_shape, data, seed + 100 + i) for i, data in enumerate(DATA)]
    return (*small_runs(task), *tails, *kinds)


@dataclass(frozen=True, eq=False)
class Case:
    """One correctness or timing case of a task, in a kernel's format.

    Attributes:
        task, shape, data, seed: what it was made from.
        inputs: buffers ("W.values", ..., "X") and outputs ("Y") as a device takes them.
        scalars: integer arguments by name ("M", "ldx", ...).
        names: names for the kernel's expressions at this shape and card; params are the caller's to add.
        format: the storage, options complete.
    """

    task: Task
    shape: Shape
    data: str
    seed: int
    format: FormatChoice
    inputs: Inputs
    scalars: Mapping[str, int | float]
    names: Mapping[str, int]
    operands: Operands = field(repr=False)

    @property
    def out(self) -> Dtype:
        """Element type of Y."""
        return DTYPES[self.task.out_dtype]

    @cached_property
    def reference(self) -> NDArray[np.float64]:
        """The float64 result, (M, N), not rounded; NaN and Inf of X count where the format stores a slot."""
        if self.operands.finite:
            return self.operands.reference
        options = {name: str(option) for name, option in self.format.options.items()}
        stored = get_format(self.format.name).stored_mask(self.operands.w, options)
        product = self.task.operation.reference(self.operands.w, self.operands.x, stored)
        return self.task.chain.apply(product, self.operands.added)

    @property
    def scale(self) -> NDArray[np.float64]:
        """sqrt((W*W) @ (X*X)), (M, N)."""
        return self.operands.scale

    @cached_property
    def empty_rows(self) -> NDArray[np.bool_]:
        """(M,) True where W has no nonzero."""
        empty: NDArray[np.bool_] = self.operands.row_nnz == 0
        return empty

    @property
    def exact(self) -> bool:
        """True if results must be bitwise exact where representable (small integers)."""
        chain = self.task.chain
        return self.data in ("integers", "empty") if not chain else self.data == "integers" and chain.exact

    def logical(self, outputs: Mapping[str, Array]) -> Array:
        """Y as (M, N) whatever its layout; a view.

        Args:
            outputs: as an Execution gives them.
        """
        y = outputs["Y"]
        return y.T if self.task.y_layout == "col" else y

    def logical_written(self, written: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Which elements of Y were written, (M, N)."""
        y = written["Y"]
        return y.T if self.task.y_layout == "col" else y


def make_case(task: Task, shape: Shape, format: FormatChoice, *, seed: int, data: str, gpu: Gpu) -> Case:  # noqa: A002
    """Make one case; the same arguments give the same bytes.

    Args:
        task: what is computed.
        shape: M, N, K; in the task's domain.
        format: how W is stored (`Kernel.format`; missing options take their defaults).
        seed: of the operands.
        data: one of `DATA`.
        gpu: gives `SMS` and `L2` to expressions.

    Raises:
        ValueError: unknown data kind.
        FormatError: the format cannot store the operand.
    """
    return case_of(task, operands(task, shape, data, seed), format, seed=seed, data=data, gpu=gpu)


def case_of(task: Task, made: Operands, format: FormatChoice, *, seed: int, data: str, gpu: Gpu) -> Case:  # noqa: A002
    """The case of given operands, for matrices that no data kind makes.

    Args:
        task: what is computed; in its domain.
        made: W (M, K) and X (K, N).
        format: how W is stored.
        seed: told in findings.
        data: likewise; "integers" and "empty" ask for exact results.
        gpu: gives `SMS` and `L2` to expressions.

    Raises:
        FormatError: the format cannot store W.
    """
    storage = get_format(format.name)
    options = complete(storage, {name: str(option) for name, option in format.options.items()})
    choice = FormatChoice(format.name, dict(options))
    (m, k), n = made.w.shape, made.x.shape[1]
    shape = {"M": m, "N": n, "K": k}
    buffers = made.buffers(choice)
    trim_cache()
    y = np.zeros((n, m) if task.y_layout == "col" else (m, n), DTYPES[task.out_dtype].numpy)
    names = task.expression_names(shape)
    matrix = {
        "W.nnz": made.nnz,
        "W.max_row": int(made.row_nnz.max(initial=0)),
        **made.weights.sizes(choice),
    }
    return Case(
        task=task,
        shape=dict(shape),
        data=data,
        seed=seed,
        format=choice,
        inputs=Inputs(buffers, {"Y": y}),
        scalars={
            **names,
            **matrix,
            "scale": np.nan if made.added.factor is None else made.added.factor,
        },
        names={
            **names,
            "SMS": gpu.sms,
            "L2": gpu.l2_bytes,
            **matrix,
        },
        operands=made,
    )
