"""Seeds that serve any type, layout and epilogue give right results with every check of the simulator on.

Each is run at two of the shapes of gate 4, with tails and awkward data; all six, and the full lists, are slow tests.
The quick list crosses types, layouts, epilogues and patterns so that each occurs with each family; other pairs of a
seed and a task, and types that `test_bug_reports.py` has run already, are slow ones.
"""

from __future__ import annotations

import numpy as np
import pytest

import fitness.gpu
import seeds
from fitness.correctness import check
from fitness.devices import open_device
from fitness.devices.device import FULL_CHECKS, Device, Program
from fitness.evaluate import judge
from fitness.inputs import make_case, small_runs
from fitness.kernel import Kernel, load_kernel
from fitness.outcome import Gate
from fitness.program import build_program
from fitness.task import Task
from tests.seeds.running import compiled

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
BAND = {"kind": "banded", "bandwidth": 5}
POWER = {"kind": "power_law", "density": 0.05}
NM24 = {"kind": "nm", "n": 2, "m": 4}


def flexible(pattern: dict[str, object], **first: object) -> dict[str, dict[str, object]]:
    """The task of a pattern in two types, one of them with an epilogue."""
    return {
        "float16": {"pattern": pattern, **first},
        "float32": {"pattern": pattern, "dtype": "float32", "epilogue": ["scale", "bias", "gelu", "residual"]},
    }


def tensor_core(pattern: dict[str, object]) -> dict[str, dict[str, object]]:
    """The same for kernels that know 16-bit types only."""
    return {
        "float16": {"pattern": pattern, "domain": []},
        "bfloat16": {"pattern": pattern, "dtype": "bfloat16", "out_dtype": "float32", "epilogue": ["bias", "relu"]},
    }


FAMILIES: dict[str, dict[str, dict[str, object]]] = {
    "gemm/fused_*": GEMM_TASKS,
    "spmm/csr_*": CSR_TASKS,
    "spmm/bsr_*": BSR_TASKS,
    "spmm/bitmap_mma": tensor_core({"kind": "random", "density": 0.3}),
    "spmm/bitmap_rows": flexible(RANDOM),
    "spmm/blocked_ell_mma": tensor_core(BLOCK),
    "spmm/blocked_ell_scalar": flexible(BLOCK, domain=[]),
    "spmm/channels_*": flexible({"kind": "channels", "density": 0.3}),
    "spmm/coo_*": flexible(POWER),
    "spmm/csc_*": flexible(POWER),
    "spmm/dia_*": flexible(BAND),
    "spmm/ell_*": flexible(RANDOM),
    "spmm/nm24_bf16": {
        "bfloat16": {"pattern": NM24, "dtype": "bfloat16"},
        "bfloat16-row": {
            "pattern": NM24,
            "dtype": "bfloat16",
            **ROW,
            "out_dtype": "float32",
            "epilogue": ["bias", "relu"],
        },
    },
    "spmm/nm_*": flexible({"kind": "nm", "n": 2, "m": 4}, **ROW),
    "spmm/periodic_*": flexible({"kind": "periodic", "shape": [8, 32], "density": 0.1}),
    "spmm/rows_*": flexible({"kind": "rows", "density": 0.3}),
    "spmm/sell_*": flexible(POWER),
    "spmv/csr_*": {**flexible(RANDOM), "bfloat16": {"pattern": POWER, "dtype": "bfloat16"}},
    "spmv/dia_*": flexible(BAND),
    "spmv/ell_*": flexible(RANDOM),
    "spmv/sell_*": flexible(POWER),
}


def kernel(name: str) -> Kernel:
    (path,) = seeds.seed_paths(name)
    return load_kernel(path)


def names(pattern: str) -> list[str]:
    return [f"{path.parent.name}/{path.stem}" for path in seeds.seed_paths(pattern)]


def make_task(op: str, changes: dict[str, object]) -> Task:
    size = {"M": 64, "K": 64} if op == "spmv" else {"M": 64, "N": 16, "K": 64}
    return Task.from_spec({"op": op, "shapes": [size], **changes})


CROSSED = ("gemm/", "spmm/csr_", "spmm/bsr_", "spmm/nm24_")


def quick(pattern: str, name: str) -> set[str]:
    """Labels of the tasks that are tried always: in the crossed families two, others for the next seed."""
    if not pattern.startswith(CROSSED):
        return {"float16"}
    served = [label for label, changes in FAMILIES[pattern].items() if serves(name, changes)]
    first = names(pattern).index(name)
    return {served[(first + step) % len(served)] for step in (0, 1)}


def serves(name: str, changes: dict[str, object]) -> bool:
    return not make_task(name.partition("/")[0], changes).domain_violations(kernel(name))


CASES = [
    pytest.param(
        name,
        make_task(name.partition("/")[0], changes),
        id=f"{name}-{label}",
        marks=() if label in quick(pattern, name) else pytest.mark.slow,
    )
    for pattern, tasks in FAMILIES.items()
    for name in names(pattern)
    for label, changes in tasks.items()
    if serves(name, changes)
]
#: Settings far from the defaults: other tile shapes, both orders, blocks of other sizes than the pattern's.
SETTINGS: dict[str, dict[str, int]] = {
    "gemm/fused_mma": {"BM": 32, "BN": 16, "WM": 16, "WN": 8, "STAGES": 2, "GROUP": 1},
    "gemm/fused_skinny": {"ROWS": 4, "NB": 4, "BK": 256, "WARPS": 2},
    "gemm/fused_splitk": {"SPLITK": 3, "BN": 8, "WN": 8, "STAGES": 5},
    "gemm/fused_tiled": {"BM": 32, "BN": 128, "BK": 8, "TN": 8},
    "gemm/fused_wgmma": {"SMALL_N": 0, "WG": 2, "BN": 32, "KB": 2, "SPLITK": 2, "CLUSTER_M": 2, "STAGES": 2},
    "spmm/bsr_mma": {"R": 64, "C": 16, "BN": 32, "WN": 8, "SLOTS": 4, "STAGES": 2},
    "spmm/bsr_wgmma": {"R": 16, "C": 64, "ROWS": 3, "NT": 1, "STAGES": 2, "WB": 1, "W_STAGES": 2},
    "spmm/bsr_scalar": {"R": 4, "C": 64, "BM": 16, "BN": 8},
    "spmm/bitmap_mma": {"WARPS": 1, "MT": 2, "BN": 16, "BK": 64, "STAGES": 2},
    "spmm/bitmap_rows": {"TX": 4, "THREADS": 64, "VEC": 8, "UNROLL": 1},
    "spmm/blocked_ell_mma": {"R": 16, "C": 64, "BN": 32, "WN": 16, "SLOTS": 2, "STAGES": 2},
    "spmm/blocked_ell_scalar": {"R": 4, "C": 64, "BM": 16, "BN": 8},
    "spmm/bsr_mma_reordered": {"R": 16, "C": 16, "ROWS": 1, "COLUMNS": 1, "BN": 32, "WN": 16},
    "spmm/channels_tiled": {"BM": 32, "BN": 128, "BK": 8, "TN": 8},
    "spmm/coo_segments": {"SHARE": 16, "TX": 4, "VEC": 1},
    "spmm/csc_scatter": {"TX": 32, "THREADS": 256, "VEC": 2},
    "spmm/csr_adaptive": {"ORDER": 1, "SHARE": 1, "VEC": 2, "THREADS": 64},
    "spmm/csr_binned": {"THREADS": 64, "PER": 8, "QUADS": 1, "AHEAD": 1, "VEC": 2, "WIDE": 500_000},
    "spmm/csr_merge": {"ORDER": 2, "LARGE": 1000, "UNROLL": 1, "VEC": 1, "THREADS": 64},
    "spmm/csr_rows": {"ORDER": 1, "VEC": 8, "TX": 4, "TY": 8},
    "spmm/csr_strip": {"THREADS": 256, "FOURS": 1, "VEC": 8, "STRIP": 32_768},
    "spmm/csr_vector": {"ORDER": 1, "LANES": 1, "UNROLL": 4},
    "spmm/csr_warp": {"ORDER": 1, "VEC": 8, "TILES": 2, "WARPS": 1},
    "spmm/dia_rows": {"ORDER": 0, "UNROLL": 8, "VEC": 1},
    "spmm/ell_rows": {"ORDER": 0, "UNROLL": 1, "VEC": 8},
    "spmm/nm24_bf16": {"WARPS": 2, "MT": 4, "BN": 16, "BK": 64, "STAGES": 2},
    "spmm/nm_tiled": {"RATIO": 0, "BN": 4, "BK": 256, "THREADS": 32},
    "spmm/periodic_tiled": {"R": 16, "C": 64, "BM": 64, "TM": 8, "BK": 32},
    "spmm/rows_tiled": {"BM": 128, "TM": 8, "BN": 32, "BK": 8},
    "spmm/sell_slices": {"C": 32, "SIGMA": 64, "UNROLL": 2, "VEC": 2},
    "spmv/csr_binned": {"LONG": 8, "MIDDLE": 3, "SHORT": 1, "BLOCKS": 2, "THREADS": 64},
    "spmv/csr_merge": {"THREADS": 64, "ITEMS": 3, "ORDER": 1},
    "spmv/csr_scalar": {"ORDER": 2, "THREADS": 32},
    "spmv/csr_spread": {"THREADS": 64, "QUADS": 4, "PER": 8, "WIDE": 50_000},
    "spmv/csr_vector": {"SHARE": 8, "ORDER": 1, "UNROLL": 1},
    "spmv/dia_scalar": {"UNROLL": 1, "THREADS": 32},
    "spmv/ell_scalar": {"UNROLL": 8, "THREADS": 32},
    "spmv/sell_scalar": {"C": 4, "SIGMA": 1, "UNROLL": 8},
}


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("simulator", fitness.gpu.load("H200"))


def right(candidate: Kernel, task: Task, device: Device, *, full: bool = False) -> None:
    outcome = judge(candidate, task, device, depth=Gate.SMALL_RUN, full=full)
    assert outcome.valid, (dict(candidate.params), outcome.findings)
    assert not outcome.findings


def right_at(candidate: Kernel, task: Task, device: Device, places: tuple[int, ...]) -> None:
    """Some of the six small runs of gate 4, by number: 1 has every tail, 3 awkward data and an odd K."""
    assert not task.domain_violations(candidate)
    for place in places:
        shape, data, seed = small_runs(task)[place]
        case = make_case(task, shape, candidate.format, seed=seed, data=data, gpu=device.gpu)
        program = build_program(candidate, compiled(candidate, task), case, device.gpu)
        assert isinstance(program, Program), program
        execution = device.run(program, case.inputs, FULL_CHECKS)
        assert execution.ended == "finished", execution.findings
        assert not execution.findings
        wrong = check(case, execution.outputs, execution.written, sampled=False)
        assert wrong is None, (dict(candidate.params), shape, wrong)


@pytest.mark.parametrize(("name", "task"), CASES)
def test_seeds_are_right(name: str, task: Task, device: Device) -> None:
    right_at(kernel(name), task, device, (1, 3))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), CASES)
def test_seeds_pass_the_small_runs(name: str, task: Task, device: Device) -> None:
    right(kernel(name), task, device)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n.endswith(("_mma", "_tiled")) else n for n in SETTINGS]
)
def test_seeds_are_right_far_from_their_defaults(name: str, device: Device) -> None:
    tasks = next(tasks for pattern, tasks in FAMILIES.items() if name in names(pattern))
    right_at(
        kernel(name).with_params(SETTINGS[name]),
        make_task(name.partition("/")[0], next(iter(tasks.values()))),
        device,
        (3,),
    )


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


def test_every_seed_is_of_a_family_and_has_settings() -> None:
    flexible = {name for name in names("*/*") if '#include "task.cuh"' in kernel(name).source}
    assert {name for pattern in FAMILIES for name in names(pattern)} == flexible
    assert flexible - set(SETTINGS) == {"spmm/csr_scalar"}


@pytest.mark.parametrize("params", [{"LONG": 8}, {"LONG": 9, "SHORT": 16}])
def test_every_bin_of_rows_is_met(params: dict[str, int], device: Device) -> None:
    task = make_task("spmv", {"pattern": {"kind": "rows", "density": 0.2}, "dtype": "float32"})
    right(kernel("spmv/csr_binned").with_params(params), task, device)


def test_every_task_of_a_crossed_family_is_tried_always_with_some_seed() -> None:
    for pattern, tasks in FAMILIES.items():
        if pattern.startswith(CROSSED):
            assert {label for name in names(pattern) for label in quick(pattern, name)} == set(tasks)


def test_every_family_is_tested_in_two_types_or_more() -> None:
    for pattern in FAMILIES:
        for name in names(pattern):
            types = {case.values[1].dtype for case in CASES if case.values[0] == name}  # type: ignore[union-attr]
            assert len(types) >= min(2, len(kernel(name).header.dtypes or (1, 2))), name
