from __future__ import annotations

import math

from evo.similarity import SAME_TYPES, distance
from fitness.task import Task
from tests.evo import fakes


def task(**changes: object) -> Task:
    return fakes.experiment(**{f"task__{name}": value for name, value in changes.items()}).checked_task


BASE = task()


def test_the_same_task_is_at_no_distance_and_distance_is_symmetric() -> None:
    assert distance(BASE, "sm_90a", task(), "sm_90a") == 0.0
    other = task(shapes=[{"M": 4096, "K": 4096, "N": 1}])
    assert distance(BASE, "sm_90a", other, "sm_80") == distance(other, "sm_80", BASE, "sm_90a")


def test_nearer_shapes_and_cards_are_nearer() -> None:
    near = task(shapes=[{"M": 256, "K": 256, "N": 16}])
    far = task(shapes=[{"M": 8192, "K": 8192, "N": 1}])
    assert 0 < distance(BASE, "sm_90a", near, "sm_90a") < distance(BASE, "sm_90a", far, "sm_90a") < SAME_TYPES
    assert 0 < distance(BASE, "sm_90a", task(), "sm_80") < SAME_TYPES


def test_other_types_or_layouts_cannot_serve_whatever_else_fits() -> None:
    assert distance(BASE, "sm_90a", task(dtype="bfloat16"), "sm_90a") >= SAME_TYPES
    assert distance(BASE, "sm_90a", task(x_layout="row"), "sm_90a") >= SAME_TYPES


def test_another_op_is_infinitely_far() -> None:
    gemm = Task.from_spec({"op": "gemm", "dtype": "float16", "shapes": [{"M": 64, "K": 64, "N": 8}]})
    assert distance(BASE, "sm_90a", gemm, "sm_90a") == math.inf
