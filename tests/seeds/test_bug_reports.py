"""Bugs that others' sparse kernels have had in public, as tests on every seed they can apply to.

Numbers are those of the list: 1 dropped blocks of K in software pipelines, 4 long K, 5 long N, 6 odd numbers of blocks
and empty ones, 7 the last row, 8 races at tails, 9 matrices without nonzeros, 10 sums near overflow and outputs that
were not cleared. 2 and 3, and the part of 9 that needs no kernel, are about formats: see
`tests/fitness/formats/test_bug_reports.py`.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from fitness.correctness import check
from fitness.devices.device import Checks
from fitness.operands import Operands
from fitness.task import Task
from tests.seeds.running import (
    KERNELS,
    SIMULATOR,
    SPARSE,
    SPMM,
    form,
    grouped,
    made_of,
    operands_of,
    run,
    sparse,
    stored_nothing,
    task_of,
)

BLOCKS = tuple(name for name in SPMM if form(name) in ("bsr", "blocked_ell", "bitmap"))


def pipelined() -> list[tuple[str, dict[str, int]]]:
    """Seeds with a software pipeline, at two and three stages deep."""
    return [
        (name, {param: depth})
        for name, seed in KERNELS.items()
        for param in ("STAGES",)
        if param in seed.header.params
        for depth in seed.header.params[param].values
        if depth <= 3 and seed.feasible({**seed.params, param: depth})
    ]


@pytest.mark.parametrize(("name", "params"), pipelined())
def test_1_no_block_of_k_is_dropped_in_a_pipeline(name: str, params: dict[str, int]) -> None:
    kernel, size = KERNELS[name].with_params(params), 256
    w = np.ones((size, size), np.float32)[:64]
    if grouped(name):
        w[:, 2::4] = 0
        w[:, 3::4] = 0
    x = np.full((size, 16), 127.5 / np.count_nonzero(w[0]), np.float32)
    ran = run(kernel, task_of(name), w, x, checks=Checks(races=False, uninitialised=False))
    assert (ran.y == 127.5).all()


@pytest.mark.parametrize("name", SPMM)
def test_1_sums_over_all_of_k_are_exact(name: str) -> None:
    w = np.ones((32, 256), np.float32)
    if grouped(name):
        w[:, [*range(2, 256, 4), *range(3, 256, 4)]] = 0
    x = np.full((256, 8), 127.5 / np.count_nonzero(w[0]), np.float32)
    task = task_of(name, "float16" if "nm24" in name else "float32")
    assert (run(KERNELS[name], task, w, x).y == 127.5).all()


#: They walk over all of K whatever W holds there: many steps to simulate.
STREAMING = (
    *("spmm/bitmap_mma", "spmm/bitmap_rows", "spmm/rows_tiled", "spmm/periodic_tiled", "spmm/nm_tiled"),
    *(name for name in SPARSE if name.startswith("spmm/nm24_")),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in STREAMING else name for name in SPARSE]
)
def test_4_k_may_have_more_groups_than_a_group_has_elements(name: str) -> None:
    k, rng = 28_672, np.random.default_rng(4)
    w = np.zeros((3, k), np.float32)
    w[1, rng.choice(k // 4, 24, replace=False) * 4] = rng.standard_normal(24)
    w[1, [0, k - 4]] = 1, -2  # the first group and the last one
    x = rng.standard_normal((k, 1 if name.startswith("spmv/") else 2)).astype(np.float32)
    run(KERNELS[name], task_of(name), w, x, checks=Checks(races=False, uninitialised=False))


@functools.lru_cache(maxsize=1)
def endless(task: Task, in_pairs: bool, k: int) -> Operands:
    """One row of W and a million columns of X; made once for the seeds of a task, with what it must give."""
    n, rng = 1_048_577, np.random.default_rng(5)
    w = sparse("spmm/nm24_scalar" if in_pairs else "spmm/csr_scalar", 1, k, 0.5, seed=1)
    wide = np.tile(rng.standard_normal((k, 1024)).astype(np.float16), (1, n // 1024 + 1))[:, :n]
    return operands_of(task, w, np.asfortranarray(wide) if task.x_layout == "col" else wide)


@pytest.mark.parametrize("name", [name for name in KERNELS if not name.startswith("spmv/")])
def test_5_n_may_exceed_the_limits_of_a_grid(name: str) -> None:
    operands = endless(task_of(name), grouped(name), 64 if "nm24" in name else 8)
    case, program = made_of(KERNELS[name], operands.task, operands)
    blocks = tuple(
        tuple(sorted({0, 1, *range(max(0, total - 8), total)}))  # the last ones may have nothing left to do
        for total in (int(np.prod(launch.grid)) for launch in program.launches)
    )
    if len(program.launches) > 1:
        return  # later launches read what all blocks of the first wrote: that the grids are possible is all to see
    execution = SIMULATOR.run(program, case.inputs, Checks(races=False, uninitialised=False, blocks=blocks))
    assert execution.ended == "finished"
    assert not execution.findings
    assert check(case, execution.outputs, execution.written, sampled=True) is None
    assert case.logical_written(execution.written)[:, -1].any()


@pytest.mark.parametrize("n", [1, 24])
@pytest.mark.parametrize("k", [16, 48])
@pytest.mark.parametrize("name", BLOCKS)
def test_6_odd_numbers_of_blocks_and_empty_ones(name: str, k: int, n: int) -> None:
    kernel = KERNELS[name]
    if "R" in kernel.params:
        kernel = kernel.with_params({"R": 16, "C": 16})
    rng = np.random.default_rng(6)
    w = rng.standard_normal((80, k)).astype(np.float32)
    w[16:32] = 0  # a block row
    if k > 16:
        w[:, 16:32] = 0  # a block column
    w[64:] = 0  # the last block row
    run(kernel, task_of(name, "float32"), w, rng.standard_normal((k, n)))


def orders(name: str) -> list[dict[str, int]]:
    """Every order of rows a seed can ask for; the default alone where there is no choice."""
    params = KERNELS[name].header.params
    return next(
        ([{key: value} for value in params[key].values] for key in ("ORDER", "SIGMA", "ROWS") if key in params), [{}]
    )


@pytest.mark.parametrize(
    ("name", "params"),
    [(name, params) for name in SPARSE for params in orders(name) if not grouped(name) and form(name) != "dia"],
)
def test_7_the_last_row_by_its_own_norm(name: str, params: dict[str, int]) -> None:
    few = name.startswith("spmv/") or form(name) in ("csr", "csc", "coo", "ell", "sell")
    rows, columns = (1024, 768) if few else (272, 192)
    w, rng = sparse(name, rows, columns, 0.01, seed=7), np.random.default_rng(7)
    w[-1] = sparse(name, 1, columns, 0.02, seed=8) / 1024  # small beside the others, which would hide an error
    x = rng.standard_normal((columns, 1 if name.startswith("spmv/") else 2)).astype(np.float32)
    ran = run(KERNELS[name].with_params(params), task_of(name, "float32"), w, x, checks=Checks(races=False))
    reference = ran.case.reference[-1]
    assert np.linalg.norm(ran.y[-1] - reference) <= 2e-3 * np.linalg.norm(reference)


@pytest.mark.parametrize("name", SPARSE)
def test_8_tails_without_races_and_the_same_bits_again(name: str) -> None:
    w, rng = sparse(name, 40, 256, 0.1, seed=9), np.random.default_rng(9)
    x = rng.standard_normal((256, 1 if name.startswith("spmv/") else 16)).astype(np.float32)
    task = task_of(name)
    first, second = (run(KERNELS[name], task, w, x) for _ in range(2))
    assert first.y.tobytes() == second.y.tobytes()


@pytest.mark.parametrize("name", SPARSE)
def test_9_without_a_nonzero_every_output_is_written_and_zero(name: str) -> None:
    kernel, k = KERNELS[name], 64
    x = np.ones((k, 1 if name.startswith("spmv/") else 9), np.float32)
    if stored_nothing(kernel, (70, k)):
        x[0] = np.inf  # padding taken for row 0 of X gives NaN
    ran = run(kernel, task_of(name), np.zeros((70, k)), x, data="empty")
    assert all(written.all() for written in ran.execution.written.values())
    assert not ran.y.any()


@pytest.mark.parametrize("name", SPARSE)
def test_9_padding_is_never_the_first_row_of_x(name: str) -> None:
    kernel, k, rng = KERNELS[name], 64, np.random.default_rng(10)
    w = sparse(name, 40, k, 0.2, seed=10)
    w[:, :32] = 0
    w[[0, 17, 39]] = 0
    w[5, 32:64:4] = 1  # one row longer than the others
    x = rng.standard_normal((k, 1 if name.startswith("spmv/") else 5)).astype(np.float32)
    options = kernel.format.options
    if form(name) not in ("nm", "nm24", "rows", "periodic", "dia") and "nm24" not in name and "R" not in options:
        x[0] = np.nan  # nothing of W meets it
    if kernel.params.get("C", 32) > 32 or form(name) == "dense":
        x[0] = 1
    ran = run(kernel, task_of(name), w, x)
    assert np.isfinite(ran.y).all()


@pytest.mark.parametrize("name", SPARSE)
def test_10_positive_sums_near_overflow(name: str) -> None:
    k, rng = 512, np.random.default_rng(11)
    w = (sparse(name, 34, k, 0.5, seed=11) != 0) * rng.uniform(0.5, 1, (34, k))
    largest = (w.sum(axis=1)).max()
    x = np.full((k, 1 if name.startswith("spmv/") else 8), 60_000 / largest, np.float32)
    ran = run(KERNELS[name], task_of(name), w, x)
    assert 50_000 < ran.y.max() < 65_504


def test_lists_are_not_empty() -> None:
    assert len(pipelined()) >= 10
    assert set(STREAMING) < set(SPARSE)
    assert {form(name) for name in BLOCKS} == {"bsr", "blocked_ell", "bitmap"}
