"""The cache of cases: same arguments same object, bounded memory."""

from __future__ import annotations

from fitness.cases import CaseCache
from fitness.kernel import FormatChoice
from tests.fitness.fakes import H200, gemm_task

TASK = gemm_task()
DENSE = FormatChoice("dense", {})


def test_the_same_arguments_give_the_same_case() -> None:
    cache = CaseCache(1 << 20)
    shape = {"M": 32, "N": 8, "K": 64}
    first = cache.get(TASK, shape, DENSE, seed=0, data="normal", gpu=H200)
    assert cache.get(TASK, dict(shape), DENSE, seed=0, data="normal", gpu=H200) is first
    assert cache.get(TASK, shape, DENSE, seed=1, data="normal", gpu=H200) is not first
    assert cache.get(TASK, shape, DENSE, seed=0, data="positive", gpu=H200) is not first


def test_the_least_recently_used_goes_first_and_the_latest_stays() -> None:
    cache = CaseCache(1)
    shapes = [{"M": 32, "N": n, "K": 64} for n in (1, 2, 3)]
    one = cache.get(TASK, shapes[0], DENSE, seed=0, data="normal", gpu=H200)
    assert cache.held_bytes > cache.capacity_bytes
    size = cache.held_bytes
    cache.capacity_bytes = 3 * size
    cache.get(TASK, shapes[1], DENSE, seed=0, data="normal", gpu=H200)
    assert cache.get(TASK, shapes[0], DENSE, seed=0, data="normal", gpu=H200) is one
    cache.capacity_bytes = int(2.5 * size)
    cache.get(TASK, shapes[2], DENSE, seed=0, data="normal", gpu=H200)  # drops the second
    assert cache.get(TASK, shapes[0], DENSE, seed=0, data="normal", gpu=H200) is one
    assert cache.held_bytes <= cache.capacity_bytes
