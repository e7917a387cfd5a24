"""Floors by hand, the break-even density, and advice that follows from them."""

from __future__ import annotations

import numpy as np
import pytest

from fitness import gpu as gpus
from fitness.analysis.floors import Floor, floors_of, paying_density, rates_of
from fitness.analysis.sizes import sizes_of
from fitness.analyze import Analysis, analyze
from fitness.matrices import Matrix
from fitness.task import Task
from tests.fitness.matrices.test_mask import mask_of

H200 = gpus.load("H200")


def analysed(bits: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], dtype: str = "float16") -> Analysis:
    return analyze(Matrix(mask_of(bits), "pattern"), H200, dtype=dtype)


def floor(analysis: Analysis, name: str, n: int) -> Floor:
    return next(f for f in analysis.floors if (f.format, f.columns) == (name, n))


def two_of_four(rows: int, columns: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    rng = np.random.default_rng(0)
    bits = np.zeros((rows, columns // 4, 4), np.bool_)
    np.put_along_axis(bits, rng.random(bits.shape).argsort(axis=2)[..., :2], True, axis=2)
    return bits.reshape(rows, columns)


def test_dense_and_nm24_by_hand() -> None:
    found = analysed(two_of_four(2048, 1024))
    for n in (8, 4096):
        moved = 2 * (2048 * 1024 + n * (2048 + 1024))
        work = 2 * 2048 * 1024 * n
        expected = 1 + max(moved / 4.8e6, work / 1070.5e6)
        assert floor(found, "dense", n).time_us == pytest.approx(expected)
        halved = 2048 * 1024 + 2048 * 1024 / 8 + 2 * n * (2048 + 1024)
        expected = 1 + max(halved / 4.8e6, work / 2 / 1070.5e6)
        assert floor(found, "nm24", n).time_us == pytest.approx(expected, rel=1e-3)
    assert floor(found, "nm24", 4096).bound == "compute"
    assert floor(found, "nm24", 8).bound == "launch"
    assert found.advice.format == "nm24"
    assert found.advice.pays == "yes"
    assert "sparse tensor cores" in found.advice.why


def test_dense_floor_is_the_tasks_own() -> None:
    task = Task.from_spec({"op": "gemm", "shapes": [{"M": 2048, "K": 1024, "N": 64}]})
    found = floor(
        analyze(Matrix(mask_of(np.ones((2048, 1024), np.bool_)), "pattern"), H200, dtype="float16", columns=(64,)),
        "dense",
        64,
    )
    assert found.time_us == pytest.approx(task.floor_us(task.shapes[0], H200))


def test_single_elements_go_to_fma_units_or_are_gathered_into_tiles() -> None:
    rng = np.random.default_rng(1)
    few, half = rng.random((1024, 1024)) < 0.002, rng.random((1024, 1024)) < 0.5
    n = 4096
    assert floor(analysed(few, "float32"), "csr", n).flops == 2 * few.sum() * n  # no exact tensor cores
    tiles = half.reshape(128, 8, 1024).any(axis=1).sum() * 8
    assert floor(analysed(half), "csr", n).flops == pytest.approx(2 * tiles * n)


def test_half_dense_single_elements_cannot_beat_dense_tensor_cores() -> None:
    found = analysed(np.random.default_rng(2).random((2048, 2048)) < 0.5)
    assert found.advice.gain[4096] < 1.05
    assert found.advice.gain[1] > 1.2  # but a bitmap is half the bytes


def test_dense_matrices_stay_dense() -> None:
    found = analysed(np.ones((512, 512), np.bool_))
    assert (found.advice.format, found.advice.pays) == ("dense", "no")
    assert found.advice.verdict.startswith("stay dense: at 100.0% density")


def test_no_nonzeros_need_no_kernel() -> None:
    found = analysed(np.zeros((512, 512), np.bool_))
    assert found.advice.pays == "no"
    assert found.advice.verdict.startswith("no kernel is needed")


def test_blocks_are_recommended_for_blocks() -> None:
    bits = np.kron(np.random.default_rng(3).random((64, 64)) < 0.1, np.ones((32, 32))) > 0
    found = analysed(bits)
    assert found.advice.format == "bsr"
    assert (found.advice.options["r"], found.advice.options["c"]) == ("32", "32")
    assert "32 x 32 blocks that are 100% full" in found.advice.why


def test_paying_density() -> None:
    for n in (1, 4096):
        limit = paying_density((4096, 4096), 4, n, "float32", H200)
        assert limit == pytest.approx(0.5 if n == 1 else 1, rel=0.05)
    limit = paying_density((8192, 8192), 2, 4096, "float16", H200, 1.5)
    assert 1 - (1 - limit) ** 8 == pytest.approx(1 / 1.5, rel=0.02)  # columns of 8 rows with a nonzero
    for share, gains in ((0.8, True), (1.25, False)):
        limit = paying_density((1024, 1024), 2, 4096, "float16", H200, 1.5)
        bits = np.random.default_rng(4).random((1024, 1024)) < share * limit
        assert (floor(analysed(bits), "csr", 4096).gain > 1.5) is gains
    assert paying_density((32, 32), 2, 1, "float16", H200, 1.5) == 0


def test_rates_of_every_card_and_dtype() -> None:
    for name in gpus.known():
        card = gpus.load(name)
        for dtype in ("float32", "float16", "bfloat16"):
            assert rates_of(card, dtype).tensor >= rates_of(card, dtype).fma > 0


def test_every_format_has_a_floor_at_every_n() -> None:
    bits = np.random.default_rng(5).random((256, 256)) < 0.05
    sizes = sizes_of(mask_of(bits), np.dtype(np.float16))
    found = analysed(bits).floors
    assert {f.format for f in found} == {size.format for size in sizes.stored}
    again = floors_of(sizes, analysed(bits).blocks, (256, 256), 256, "float16", H200, (3, 5))
    assert {f.columns for f in again} == {3, 5}
    assert all(f.time_us > H200.launch_us for f in again)
