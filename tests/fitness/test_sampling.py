"""Which blocks are sampled, which kernels are run whole, and at which reduced shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.devices.device import Compiled, Entry, Program, ResolvedLaunch
from fitness.sampling import (
    FEWEST_BLOCKS,
    MOST_BLOCKS,
    blocks_for,
    cooperates,
    fewer_rows,
    sample_blocks,
    smaller_k,
    whole_grid,
)
from tests.fitness.fakes import gemm_task

sizes = st.integers(1, 300)


@given(grid=st.tuples(sizes, sizes, st.integers(1, 4)), count=st.integers(2, 16), seed=st.integers(0, 99))
def test_samples_are_distinct_in_the_grid_and_hold_both_ends(grid: tuple[int, int, int], count: int, seed: int) -> None:
    total = grid[0] * grid[1] * grid[2]
    blocks = sample_blocks(grid, count, np.random.default_rng(seed))
    assert len(blocks) == len(set(blocks)) == min(count, total)
    assert list(blocks) == sorted(blocks)
    assert blocks[0] == 0
    assert blocks[-1] == total - 1


def test_corners_first_then_seeded_random_ones() -> None:
    grid = (10, 20, 1)
    first, second = (sample_blocks(grid, 12, np.random.default_rng(seed)) for seed in (1, 2))
    assert {0, 9, 190, 199} <= set(first) & set(second)
    assert first != second
    assert first == sample_blocks(grid, 12, np.random.default_rng(1))


def test_the_number_of_blocks_follows_their_work() -> None:
    shape = {"M": 4096, "N": 256, "K": 4096}
    assert blocks_for(shape, (8192, 1, 1)) == MOST_BLOCKS
    assert blocks_for(shape, (64, 1, 1)) == FEWEST_BLOCKS


def program(ptx_body: str = "ret;", launches: int = 1, **extra: object) -> Program:
    ptx = f".visible .entry k()\n{{\n\t{ptx_body}\n}}\n"
    entry = Entry("k", (), 16, 0, 0, 0, 0)
    launch = ResolvedLaunch("k", (4, 1, 1), (32, 1, 1), 0, (), **extra)  # type: ignore[arg-type]
    return Program(Compiled("sm_90a", ptx, b"", "", {"k": entry}), (launch,) * launches)


def test_which_kernels_cooperate() -> None:
    assert not cooperates(program())
    assert cooperates(program(launches=2))
    assert cooperates(program(cooperative=True))
    assert cooperates(program(cluster=(2, 1, 1)))
    assert cooperates(program("red.global.add.f32 [%rd1], %f1;"))


def test_reduced_shapes_change_one_dimension_and_stay_in_the_domain() -> None:
    task = gemm_task((4096, 256, 4096))
    (shape,) = task.shapes
    assert fewer_rows(task, shape) == {**shape, "M": 128}
    assert whole_grid(task, shape) == {**shape, "M": 128, "K": 128}
    assert smaller_k(task, shape) == ({**shape, "K": 512}, {**shape, "K": 1024})


@pytest.mark.parametrize("k", [64, 1024, 1536])
def test_small_k_is_not_reduced(k: int) -> None:
    task = gemm_task((64, 8, k))
    assert smaller_k(task, task.shapes[0]) == ()
    assert fewer_rows(task, task.shapes[0]) == task.shapes[0]
