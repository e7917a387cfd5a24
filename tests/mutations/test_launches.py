"""What headers say of a task before anything is compiled."""

from __future__ import annotations

import dataclasses

import fitness.gpu
from fitness.kernel import parse_kernel
from mutations.launches import active_launches, launchable, live_params, names_at, serving, servings
from mutations.testing import nm24_task, seed_kernel

TASK = nm24_task()
H200 = fitness.gpu.load("H200")


def test_the_launches_of_a_shape_follow_its_condition() -> None:
    kernel = seed_kernel("spmm/nm24_mma_sp").with_params({"SMALL_N": 32, "S_SPLITK": 2})
    names = {launch.kernel for launch in active_launches(kernel, names_at(kernel, TASK, TASK.shapes[0], H200))}
    assert names == {"spmm_small", "reduce_small"}
    names = {launch.kernel for launch in active_launches(kernel, names_at(kernel, TASK, TASK.shapes[1], H200))}
    assert names == {"spmm"}


def test_params_are_live_where_their_launch_runs() -> None:
    kernel = seed_kernel("spmm/nm24_mma_sp").with_params({"SMALL_N": 32})
    small = live_params(kernel, TASK, H200, (TASK.shapes[0],))
    large = live_params(kernel, TASK, H200, (TASK.shapes[1],))
    assert "S_BM" in small
    assert "BM" not in small
    assert "BM" in large
    assert "S_BM" not in large
    assert "SMALL_N" in small
    assert "SMALL_N" in large


def test_a_param_that_only_chooses_the_launch_does_not_shape_it() -> None:
    kernel = seed_kernel("spmm/nm24_mma_sp").with_params({"SMALL_N": 32})
    small, large = (serving(kernel, TASK, H200, shape) for shape in TASK.shapes)
    assert small[0] != large[0]
    assert {"S_BM"} <= small[1] and not {"BM", "SMALL_N"} & small[1]  # noqa: PT018
    assert {"BM"} <= large[1] and not {"S_BM", "SMALL_N"} & large[1]  # noqa: PT018
    assert serving(kernel.with_params({"SMALL_N": 64}), TASK, H200, TASK.shapes[0]) == small


def test_params_only_the_code_mentions_are_always_live() -> None:
    kernel = seed_kernel("spmm/nm24_mma_sp_fragment")
    assert "GROUP" in live_params(kernel, TASK, H200, (TASK.shapes[0],))


def test_what_a_smaller_card_cannot_hold_is_not_launchable() -> None:
    kernel = seed_kernel("spmm/nm24_mma_sp").with_params({"BM": 128, "BN": 128, "WM": 64, "WN": 32, "STAGES": 6})
    assert launchable(kernel, TASK, H200)
    assert not launchable(kernel, TASK, fitness.gpu.load("L40S"))


def test_what_serves_every_shape_is_known_again_for_the_card_it_was_asked_for() -> None:
    kernel = seed_kernel("spmm/nm24_mma_sp").with_params({"SMALL_N": 32})
    assert servings(kernel, TASK, H200) == tuple(serving(kernel, TASK, H200, shape) for shape in TASK.shapes)
    assert servings(kernel, TASK, H200) is servings(kernel.with_params({}), TASK, H200)
    other = dataclasses.replace(TASK, shapes=TASK.shapes[1:])
    assert servings(kernel, other, H200) == (serving(kernel, TASK, H200, TASK.shapes[1]),)
    larger_only = kernel.source.replace('when   = "N <= SMALL_N', 'when   = "SMS > 140 and N <= SMALL_N')
    grid = parse_kernel(larger_only, params={"SMALL_N": 32})
    assert grid.source != kernel.source
    more = dataclasses.replace(H200, sms=200)
    assert servings(grid, TASK, H200) != servings(grid, TASK, more) == servings(kernel, TASK, H200)
