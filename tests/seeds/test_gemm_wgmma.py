"""The dense Hopper seed where its operands can be described by tensor maps: rings, clusters, splits, layouts and types.

The shapes of gate 4 have a K that no tensor map takes, unless the domain of the task says otherwise.
"""

from __future__ import annotations

import numpy as np
import pytest

from evo.seeding import starting_seeds
from fitness.correctness import check
from fitness.devices.device import FULL_CHECKS, Program
from fitness.evaluate import judge
from fitness.inputs import make_case
from fitness.kernel import Kernel
from fitness.outcome import Gate
from fitness.program import build_program
from fitness.task import Task
from tests.seeds.running import H200, KERNELS, SIMULATOR, compiled, run

SEED = KERNELS["gemm/fused_wgmma"]
ROW = {"x_layout": "row", "y_layout": "row"}
TASKS: dict[str, dict[str, object]] = {
    "float16": {"epilogue": ["bias", "relu"]},
    "bfloat16": {"dtype": "bfloat16", "y_layout": "row", "epilogue": ["bias", "gelu"]},
    "bfloat16-row": {"dtype": "bfloat16", **ROW, "epilogue": ["scale", "bias", "gelu_tanh", "residual"]},
    "float16-mixed": {"x_layout": "row", "out_dtype": "float32", "epilogue": ["bias", "silu", "residual"]},
    "plain": {},
}
#: Each in a task of its own; together they have every kind of ring, cluster and store.
SETTINGS: list[tuple[str, dict[str, int]]] = [
    ("float16", {"SMALL_N": 0, "WG": 2, "BN": 32, "KB": 2, "SPLITK": 2, "STAGES": 2}),  # odd numbers of k64 blocks
    ("float16", {"SMALL_N": 128, "S_MT": 4, "S_BN": 8, "S_KB": 4, "S_STAGES": 2}),
    ("float16", {"SMALL_N": 128, "S_WGMMA": 1, "S_SPLITK": 4, "S_MT": 4, "S_BN": 32, "S_KB": 1, "S_STAGES": 3}),
    ("bfloat16", {"SMALL_N": 0, "WG": 1, "BN": 64, "KB": 1, "SPLITK": 4, "STAGES": 2}),  # a split without work
    ("bfloat16", {"SMALL_N": 0, "WG": 1, "BN": 16, "SPLITK": 2, "CLUSTER_M": 2, "STAGES": 3}),
    ("bfloat16-row", {"SMALL_N": 0, "WG": 3, "BN": 128, "SPLITK": 1, "CLUSTER_M": 4, "STAGES": 2}),  # registers move
    ("bfloat16-row", {"SMALL_N": 128, "S_MT": 1, "S_BN": 32, "S_KB": 1, "S_STAGES": 3}),
    ("float16-mixed", {"SMALL_N": 0, "WG": 2, "BN": 8, "KB": 2, "STAGES": 2}),
    ("float16-mixed", {"SMALL_N": 128, "S_MT": 2, "S_BN": 64, "S_KB": 2, "S_STAGES": 2}),
    ("float16-mixed", {"SMALL_N": 128, "S_WGMMA": 1, "S_MT": 8, "S_BN": 16, "S_KB": 2, "S_STAGES": 4}),
    ("plain", {"SMALL_N": 0, "WG": 2, "BN": 256, "KB": 1, "STAGES": 4}),
    ("plain", {"SMALL_N": 0, "WG": 4, "BN": 128, "KB": 1, "CLUSTER_M": 2, "STAGES": 2}),
]


def task_of(label: str) -> Task:
    changes = TASKS[label]
    domain = ["K % 8 == 0", *(["N % 8 == 0"] if changes.get("x_layout") == "row" else [])]
    shapes = [{"M": 256, "K": 256, "N": 64}]
    return Task.from_spec({"op": "gemm", "shapes": shapes, "free": ["N"], "domain": domain, **changes})


@pytest.mark.parametrize(("label", "params"), SETTINGS)
def test_rings_clusters_and_layouts_are_right(label: str, params: dict[str, int]) -> None:
    outcome = judge(SEED.with_params(params), task_of(label), SIMULATOR, depth=Gate.SMALL_RUN)
    assert outcome.valid, outcome.findings
    assert not outcome.findings


def wide_and_narrow() -> list[Kernel]:
    return [SEED.with_params({"SMALL_N": 0, "BN": 32}), SEED.with_params({"SMALL_N": 128})]


@pytest.mark.parametrize("kernel", wide_and_narrow(), ids=["wide", "narrow"])
@pytest.mark.parametrize("data", ["nonfinite", "empty"])
@pytest.mark.parametrize("label", ["bfloat16", "float16-mixed"])
def test_what_is_not_finite_reaches_no_other_result(label: str, data: str, kernel: Kernel) -> None:
    task = task_of(label)
    case = make_case(task, {"M": 70, "N": 24, "K": 136}, kernel.format, seed=1, data=data, gpu=H200)
    program = build_program(kernel, compiled(kernel, task), case, H200)
    assert isinstance(program, Program), program
    execution = SIMULATOR.run(program, case.inputs, FULL_CHECKS)
    assert execution.ended == "finished", execution.findings
    assert not execution.findings
    assert check(case, execution.outputs, execution.written, sampled=False) is None


@pytest.mark.parametrize("kernel", wide_and_narrow(), ids=["wide", "narrow"])
@pytest.mark.parametrize("k", [8, 72, 264])
def test_a_last_tile_of_k_that_is_not_full_adds_nothing(k: int, kernel: Kernel) -> None:
    w, x = np.ones((40, k), np.float32), np.full((k, 24), 2.0, np.float32)
    assert (run(kernel, task_of("plain"), w, x).y == 2.0 * k).all()


@pytest.mark.parametrize(("n", "kernel"), [(32, "gemm_small"), (33, "gemm")])
def test_the_number_of_columns_chooses_the_kernel(n: int, kernel: str) -> None:
    task = task_of("plain")
    case = make_case(task, {"M": 64, "N": n, "K": 64}, SEED.format, seed=1, data="normal", gpu=H200)
    program = build_program(SEED, compiled(SEED, task), case, H200)
    assert isinstance(program, Program), program
    assert [launch.entry for launch in program.launches] == [kernel]


@pytest.mark.parametrize(("arch", "starts"), [("sm_80", False), ("sm_90", False), ("sm_90a", True)])
def test_it_starts_on_its_own_cards_only(arch: str, starts: bool) -> None:
    spec = {"op": "gemm", "shapes": [{"M": 256, "K": 256, "N": 64}], "seeds": ["gemm/fused_*"]}
    kept, notes = starting_seeds(Task.from_spec(spec), arch=arch)
    assert ("gemm/fused_wgmma" in {seed.name for seed in kept}) is starts
    assert len(kept) >= 4
    dropped = {note.name: note.dropped for note in notes}
    assert starts or dropped["gemm/fused_wgmma"] == f"archs: the code is written for sm_90a, not for {arch}"
