"""How far apart two tasks are: op, pattern, types, layouts, shapes, architecture. For picking kernels to learn from."""

from __future__ import annotations

import math
from collections.abc import Mapping

from evo.merit import geometric_mean
from fitness.task import Task

SAME_TYPES = 2.0
"""Tasks closer than this share types; a kernel of the one can serve the other as a seed."""


def distance(task: Task, arch: str, other: Task, other_arch: str) -> float:
    """0 for the same task on the same architecture; infinite for another op.

    A difference of dtypes counts 2, one of layouts 2 (kernels hard-code both), another kind of pattern 1, twice
    the density or twice a dimension (geometric mean over the shapes) 0.25 each, another architecture 0.25; all but
    types and layouts together stay below 2.
    """
    if task.op != other.op:
        return math.inf
    fixed = 2.0 * (_types(task) != _types(other)) + 2.0 * (_layouts(task) != _layouts(other))
    soft = 1.0 * (_kind(task) != _kind(other)) + 0.25 * (arch != other_arch)
    soft += 0.25 * abs(math.log2(_density(task) / _density(other)))
    soft += sum(0.25 * abs(math.log2(_size(task, name) / _size(other, name))) for name in task.shape_names)
    return fixed + 1.99 * soft / (1.0 + soft)


def _types(task: Task) -> tuple[str, str, str]:
    return task.dtype, task.out_dtype, task.acc


def _layouts(task: Task) -> tuple[str, str]:
    return task.x_layout, task.y_layout


def _kind(task: Task) -> str:
    return str((task.pattern or {}).get("kind", "dense"))


def _density(task: Task) -> float:
    shape: Mapping[str, int] = task.shapes[0]
    return max(task.nnz(shape) / (shape["M"] * shape["K"]), 1e-9)


def _size(task: Task, name: str) -> float:
    return geometric_mean(max(1, shape[name]) for shape in task.shapes)
