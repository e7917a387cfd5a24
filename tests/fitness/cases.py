"""Tasks, cases and emulated kernels for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.correctness import check
from fitness.gpu import load
from fitness.inputs import Case, make_case
from fitness.kernel import FormatChoice
from fitness.outcome import WrongValues
from fitness.task import Task

Array = NDArray[Any]
H200 = load("H200")


def nm24_task(**changes: object) -> Task:
    spec: dict[str, object] = {
        "op": "spmm",
        "pattern": {"kind": "nm", "n": 2, "m": 4},
        "dtype": "float16",
        "shapes": [{"M": 128, "K": 128, "N": 16}, {"M": 128, "K": 128, "N": 64}],
    }
    return Task.from_spec({**spec, **changes})


def gemm_task(**changes: object) -> Task:
    return Task.from_spec({"op": "gemm", "shapes": [{"M": 64, "K": 64, "N": 32}], **changes})


def case(
    m: int,
    n: int,
    k: int,
    data: str = "normal",
    *,
    seed: int = 0,
    task: Task | None = None,
    format: str = "dense",  # noqa: A002
) -> Case:
    shape = {"M": m, "N": n, "K": k}
    return make_case(task or nm24_task(), shape, FormatChoice(format), seed=seed, data=data, gpu=H200)


def honest(case: Case, chunk: int = 16) -> NDArray[np.float32]:
    """W @ X accumulated in float32 a chunk of k at a time, as mma does; not yet rounded to the output dtype."""
    w, x = case.operands.w.astype(np.float32), case.operands.x.astype(np.float32)
    total = np.zeros((w.shape[0], x.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for first in range(0, w.shape[1], chunk):
            part = slice(first, first + chunk)
            total += (w[:, part].astype(np.float64) @ x[part].astype(np.float64)).astype(np.float32)
    return total


def judged(case: Case, y: Array, *, written: Array | None = None, sampled: bool = False) -> WrongValues | None:
    """The verdict on a result (M, N) given in any precision: rounded to the output dtype, stored in the layout."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = y.astype(case.out.numpy)
    mask = np.ones(y.shape, np.bool_) if written is None else written
    col = case.task.y_layout == "col"
    outputs: Mapping[str, Array] = {"Y": np.ascontiguousarray(rounded.T if col else rounded)}
    return check(case, outputs, {"Y": np.ascontiguousarray(mask.T if col else mask)}, sampled=sampled)
