"""Seeds that serve any type, layout and epilogue give right results with every check of the simulator on.

Each is judged by gate 4: six shapes with every kind of tail and every kind of data. The quick list crosses types,
layouts, epilogues and patterns so that each occurs with each family; the slow one runs the full lists.
"""

from __future__ import annotations

import numpy as np
import pytest

import fitness.gpu
import seeds
from fitness.devices import open_device
from fitness.devices.device import Device
from fitness.evaluate import judge
from fitness.kernel import Kernel, load_kernel
from fitness.outcome import Gate
from fitness.task import Task

ROW = {"x_layout": "row", "y_layout": "row"}
GEMM_TASKS: dict[str, dict[str, object]] = {
    "float16": {"epilogue": ["bias", "relu"]},
    "bfloat16-row": {"dtype": "bfloat16", **ROW, "epilogue": ["scale", "bias", "gelu_tanh"]},
    "float16-mixed": {"x_layout": "row", "out_dtype": "float32", "epilogue": ["bias", "silu", "residual"]},
    "float32": {"dtype": "float32", "epilogue": ["bias", "gelu"]},
}
RANDOM, BLOCK = {"kind": "random", "density": 0.1}, {"kind": "block", "shape": [16, 32], "density": 0.3}
CSR_TASKS: dict[str, dict[str, object]] = {
    "float16": {"pattern": RANDOM},
    "bfloat16": {"dtype": "bfloat16", "pattern": {"kind": "power_law", "density": 0.05}, "epilogue": ["bias"]},
    "float32": {"dtype": "float32", "pattern": {"kind": "rows", "density": 0.5}},
}
BSR_TASKS: dict[str, dict[str, object]] = {
    "float16": {"pattern": BLOCK},
    "bfloat16": {"dtype": "bfloat16", "pattern": {**BLOCK, "shape": [8, 8]}, "epilogue": ["bias", "relu"]},
    "float16-32": {"out_dtype": "float32", "pattern": BLOCK, "domain": []},  # ragged blocks
    "float32": {"dtype": "float32", "pattern": BLOCK},
}
FAMILIES = {"gemm/fused_*": GEMM_TASKS, "spmm/csr_*": CSR_TASKS, "spmm/bsr_*": BSR_TASKS}


def kernel(name: str) -> Kernel:
    (path,) = seeds.seed_paths(name)
    return load_kernel(path)


def names(pattern: str) -> list[str]:
    return [f"{path.parent.name}/{path.stem}" for path in seeds.seed_paths(pattern)]


def make_task(op: str, changes: dict[str, object]) -> Task:
    shapes = [{"M": 64, "N": 16, "K": 64}]
    return Task.from_spec({"op": op, "shapes": shapes, "free": ["N"], **changes})


CASES = [
    pytest.param(name, make_task(name.partition("/")[0], changes), id=f"{name}-{label}")
    for pattern, tasks in FAMILIES.items()
    for name in names(pattern)
    for label, changes in tasks.items()
    if not make_task(name.partition("/")[0], changes).domain_violations(kernel(name))
]
#: Settings far from the defaults: other tile shapes, both orders, blocks of other sizes than the pattern's.
SETTINGS: dict[str, dict[str, int]] = {
    "gemm/fused_mma": {"BM": 32, "BN": 16, "WM": 16, "WN": 8, "STAGES": 2, "GROUP": 1},
    "gemm/fused_skinny": {"ROWS": 4, "NB": 4, "BK": 256, "WARPS": 2},
    "gemm/fused_splitk": {"SPLITK": 3, "BN": 8, "WN": 8, "STAGES": 5},
    "gemm/fused_tiled": {"BM": 32, "BN": 128, "BK": 8, "TN": 8},
    "spmm/bsr_mma": {"R": 64, "C": 16, "BN": 32, "WN": 8, "SLOTS": 4, "STAGES": 2},
    "spmm/bsr_scalar": {"R": 4, "C": 64, "BM": 16, "BN": 8},
    "spmm/csr_rows": {"ORDER": 1, "VEC": 8, "TX": 4, "TY": 8},
    "spmm/csr_vector": {"ORDER": 1, "LANES": 1, "UNROLL": 4},
    "spmm/csr_warp": {"ORDER": 1, "VEC": 8, "TILES": 2, "WARPS": 1},
}


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("simulator", fitness.gpu.load("H200"))


def right(candidate: Kernel, task: Task, device: Device, *, full: bool = False) -> None:
    outcome = judge(candidate, task, device, depth=Gate.SMALL_RUN, full=full)
    assert outcome.valid, (dict(candidate.params), outcome.findings)
    assert not outcome.findings


@pytest.mark.parametrize(("name", "task"), CASES)
def test_seeds_are_right(name: str, task: Task, device: Device) -> None:
    right(kernel(name), task, device)


@pytest.mark.parametrize("name", SETTINGS)
def test_seeds_are_right_far_from_their_defaults(name: str, device: Device) -> None:
    (tasks,) = (tasks for pattern, tasks in FAMILIES.items() if name in names(pattern))
    right(kernel(name).with_params(SETTINGS[name]), make_task(name.partition("/")[0], tasks["float16"]), device)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), CASES)
def test_seeds_are_right_on_the_full_lists(name: str, task: Task, device: Device) -> None:
    right(kernel(name), task, device, full=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), CASES)
def test_seeds_are_right_all_over_their_space(name: str, task: Task, device: Device) -> None:
    seed, rng = kernel(name), np.random.default_rng(len(name))
    for _ in range(4):
        params = {key: int(rng.choice(param.values)) for key, param in seed.header.params.items()}
        if seed.feasible(params):
            right(seed.with_params(params), task, device)


def test_every_family_is_tested_in_two_types_or_more() -> None:
    for pattern in FAMILIES:
        for name in names(pattern):
            types = {case.values[1].dtype for case in CASES if case.values[0] == name}  # type: ignore[union-attr]
            assert len(types) >= 2, name
