"""Seeds that treat rows by their length: every way that one takes, met by rows made for it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.seeds.running import KERNELS, Array, made, run, task_of


def uneven(columns: int, lengths: dict[int, int], rows: int = 40) -> Array:
    """(rows, columns) with rows of given lengths among short and empty ones."""
    rng = np.random.default_rng(columns)
    w = np.zeros((rows, columns), np.float32)
    for row in range(rows):
        places = rng.choice(columns, lengths.get(row, row % 7), replace=False)
        w[row, places] = rng.standard_normal(len(places))
    return w


def x_of(columns: int, n: int) -> Array:
    return np.random.default_rng(n).standard_normal((columns, n)).astype(np.float32)


@pytest.mark.parametrize("n", [3, 8, 13, 32, 70])
@pytest.mark.parametrize(("wide", "ahead"), [(500_000, 1), (8_000_000, 0)])
def test_rows_of_every_bin(n: int, wide: int, ahead: int) -> None:
    """Rows that 1, 4, 16, 64 teams or a block take, whole and shared; few and many teams by nnz * N."""
    w = uneven(2500, {1: 2400, 5: 1100, 6: 1030, 9: 300, 17: 70, 22: 40, 31: 17, 39: 16}, 40)
    kernel = KERNELS["spmm/csr_binned"].with_params({"THREADS": 128, "PER": 8, "WIDE": wide, "AHEAD": ahead})
    run(kernel, task_of("spmm/csr_binned", "float32"), w, x_of(2500, n))


@pytest.mark.parametrize(("name", "n"), [("spmm/csr_binned", 8), ("spmm/csr_binned", 40), ("spmv/csr_spread", 1)])
def test_blocks_share_a_long_row_and_add_it_up_in_order(name: str, n: int) -> None:
    w = uneven(4000, {0: 3900, 3: 1500, 4: 1700, 20: 100}, 24)
    kernel, task = KERNELS[name].with_params({"THREADS": 64, "PER": 8}), task_of(name, "float32")
    (launch,) = made(kernel, task, w, x_of(4000, n))[1].launches
    (alone,) = made(kernel, task, uneven(4000, {}, 24), x_of(4000, n))[1].launches
    assert launch.grid[0] > alone.grid[0] + 2 * 3900 // (64 * 8 * 2)
    first, second = (run(kernel, task, w, x_of(4000, n)) for _ in range(2))
    assert first.y.tobytes() == second.y.tobytes()
    # One row of all nonzeros, in as many parts as there may be.
    most = np.where(np.arange(24)[:, None] == 7, x_of(4000, 1).T, 0)
    run(kernel, task, np.tile(most, (1, 4)), x_of(16_000, n))


@pytest.mark.parametrize(
    ("k", "n", "entry"),
    [(90, 8, "strip_2"), (90, 12, "strip_4"), (90, 33, "strip_8"), (256, 32, "strip_8"), (260, 32, "strip_4"),
     (800, 32, "strip_2"), (800, 4, "strip_2"), (1030, 4, "global_8"), (1030, 40, "global_8")],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_strips_of_x_in_shared_memory_and_without(k: int, n: int, entry: str, dtype: str) -> None:
    """As many columns of X to a strip as there is room for; none where K is too large."""
    kernel = KERNELS["spmm/csr_strip"].with_params({"THREADS": 256, "STRIP": 32_768})
    task, w = task_of("spmm/csr_strip", dtype), uneven(k, {2: k, 7: k // 2, 8: 37}, 70)
    assert made(kernel, task, w, x_of(k, n))[1].launches[0].entry == entry
    run(kernel, task, w, x_of(k, n))


def test_a_strip_is_dealt_to_few_rows_and_to_many() -> None:
    """More warps to a row where rows are few; several turns where they are many."""
    for rows, columns in ((3, 200), (1500, 40)):
        w = uneven(columns, {0: columns}, rows)
        run(KERNELS["spmm/csr_strip"].with_params({"THREADS": 256}), task_of("spmm/csr_strip"), w, x_of(columns, 32))
