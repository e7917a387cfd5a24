"""The criterion in emulation: honest arithmetic passes everywhere, every dishonest one fails where it should."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from fitness.correctness import Tolerance, margins
from fitness.inputs import Case, full_runs, make_case, small_runs
from fitness.kernel import FormatChoice
from fitness.operands import DATA
from fitness.task import Task
from tests.fitness.cases import H200, Array, case, gemm_task, honest, judged, nm24_task

DTYPES = ("float16", "bfloat16", "float32")


def fp16_accumulators(case: Case, chunk: int = 16) -> Array:
    w, x = case.operands.w.astype(np.float64), case.operands.x.astype(np.float64)
    total = np.zeros((w.shape[0], x.shape[1]), case.out.numpy)
    for first in range(0, w.shape[1], chunk):
        total = (total + w[:, first : first + chunk] @ x[first : first + chunk]).astype(case.out.numpy)
    return total


def split_k_in_16_bits(case: Case, parts: int = 4) -> Array:
    w, x = case.operands.w.astype(np.float64), case.operands.x.astype(np.float64)
    total = np.zeros((w.shape[0], x.shape[1]), case.out.numpy)
    for ks in np.array_split(np.arange(w.shape[1]), parts):
        total = (total + (w[:, ks] @ x[ks]).astype(case.out.numpy)).astype(case.out.numpy)
    return total


def one_k_skipped(case: Case) -> Array:
    w = case.operands.w.astype(np.float64).copy()
    w[:, w.shape[1] // 3] = 0
    return np.asarray(w @ case.operands.x.astype(np.float64))


def rounded_operands(case: Case, dtype: type) -> Array:
    w, x = (a.astype(dtype).astype(np.float64) for a in (case.operands.w, case.operands.x))
    return np.asarray(w @ x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data", ["normal", "positive", "scaled"])
@pytest.mark.parametrize("k", [64, 640, 4096])
def test_honest_passes_for_every_n(dtype: str, data: str, k: int) -> None:
    task = nm24_task(dtype=dtype)
    for n in (1, 2, 3, 7, 8, 16, 33, 64, 128):
        made = case(80, n, k, data, seed=n, task=task)
        assert judged(made, honest(made, chunk=max(16, k // 64))) is None, n
        assert judged(made, made.reference) is None, n


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("format", ["dense", "nm24"])
def test_honest_passes_on_every_kind_of_data(data: str, format: str) -> None:  # noqa: A002
    made = case(83, 37, 192, data, format=format)
    result = honest(made) if made.operands.finite else made.reference
    assert judged(made, result) is None


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_honest_passes_ten_thousand_random_cases(dtype: str) -> None:
    rng = np.random.default_rng(7)
    task = gemm_task(dtype=dtype)
    for seed in range(3400):
        m, n, k = (int(v) for v in (rng.integers(1, 97), rng.integers(1, 130), rng.integers(1, 400)))
        data = DATA[seed % 9]
        made = case(m, n, k, data, seed=seed, task=task)
        assert judged(made, honest(made)) is None, (m, n, k, data, seed)


def test_honest_one_by_one_passes() -> None:
    made = case(64, 16, 2048, "positive")
    assert judged(made, honest(made, chunk=1)) is None


def test_honest_passes_on_all_fixed_runs() -> None:
    for task in (nm24_task(), gemm_task()):
        for run in (*small_runs(task), *full_runs(task)):
            made = make_case(task, run.shape, FormatChoice("dense"), seed=run.seed, data=run.data, gpu=H200)
            if made.operands.finite:
                assert judged(made, honest(made)) is None, run


@pytest.mark.parametrize("k", [64, 1024, 2048])
@pytest.mark.parametrize("n", [1, 16, 128])
def test_dishonest_arithmetic_fails_on_zero_mean_data(k: int, n: int) -> None:
    made = case(96, n, k, "normal")
    assert judged(made, fp16_accumulators(made, chunk=max(16, k // 64))) is not None
    assert judged(made, split_k_in_16_bits(made)) is not None
    assert judged(made, one_k_skipped(made)) is not None


@pytest.mark.parametrize("k", [192, 2048])
def test_low_precision_operands_fail_in_float32(k: int) -> None:
    made = case(96, 33, k, task=gemm_task(dtype="float32"))
    tf32 = np.array([x & ~np.uint32(0x1FFF) for x in [made.operands.w.view(np.uint32)]])[0].view(np.float32)
    assert judged(made, tf32.astype(np.float64) @ made.operands.x.astype(np.float64)) is not None
    assert judged(made, rounded_operands(made, ml_dtypes.bfloat16)) is not None
    assert judged(made, rounded_operands(made, np.float16)) is not None


def test_small_runs_catch_low_precision_and_skipped_k() -> None:
    """The six runs of gate 4 together reject what a single one may let pass."""
    task = nm24_task()
    cases = [
        make_case(task, r.shape, FormatChoice("dense"), seed=r.seed, data=r.data, gpu=H200) for r in small_runs(task)
    ]
    for cheat in (fp16_accumulators, split_k_in_16_bits, one_k_skipped):
        assert sum(judged(c, cheat(c)) is not None for c in cases) >= 3, cheat.__name__


def test_constants_are_those_of_the_design() -> None:
    fp16 = Tolerance.of(nm24_task(), 4096)
    assert (fp16.unit_roundoff, fp16.eta, fp16.frobenius) == (2.0**-11, 2.0**-25, 4e-4)
    assert math.isclose(fp16.tau, 2e-8 * 4096)
    assert Tolerance.of(nm24_task(), 64).tau == 5e-5
    fp32 = Tolerance.of(gemm_task(dtype="float32"), 16384)
    assert math.isclose(fp32.tau, 3e-9 * 16384)
    assert math.isclose(fp32.frobenius, 6e-10 * 16384)
    own = Tolerance.of(nm24_task(tolerance={"tau": 0.1, "frobenius": 0.2}), 64)
    assert (own.tau, own.frobenius) == (0.1, 0.2)


def test_empty_rows_are_exactly_zero() -> None:
    made = case(83, 37, 192, "awkward")
    y = honest(made)
    assert made.empty_rows[[0, -1]].all()
    y[0, 3] = 2.0**-24
    wrong = judged(made, y)
    assert wrong is not None
    assert wrong.first == (0, 3)
    assert wrong.margin == math.inf


def test_integers_are_exact() -> None:
    made = case(97, 5, 128, "integers")
    y = honest(made).astype(np.float16)
    y[4, 2] = np.nextafter(y[4, 2], np.float16(np.inf))
    wrong = judged(made, y)
    assert wrong is not None
    assert wrong.wrong == 1


def test_nan_and_infinity_never_pass_for_finite() -> None:
    made = case(32, 8, 64)
    for bad in (np.nan, np.inf):
        y = honest(made)
        y[5, 5] = bad
        wrong = judged(made, y)
        assert wrong is not None
        assert wrong.first == (5, 5)
        assert wrong.margin == math.inf


def test_finite_never_passes_for_overflow() -> None:
    made = case(64, 9, 192, "overflow")
    with np.errstate(over="ignore"):
        y = honest(made).astype(np.float16)
    assert np.isinf(y).any()
    assert np.isfinite(y).any()
    y[np.isinf(y)] = 65504
    assert judged(made, y) is not None


def test_structural_zeros_skip_infinity_only_where_no_slot_is_stored() -> None:
    packed, dense = (case(32, 8, 64, "nonfinite", format=f) for f in ("nm24", "dense"))
    assert np.isnan(dense.reference).sum() > np.isnan(packed.reference).sum() > 0
    assert judged(packed, packed.reference) is None
    assert judged(packed, dense.reference) is not None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_line_that_one_large_element_decides_may_be_off_by_its_rounding(dtype: str) -> None:
    """Its relative error is that of one element, up to u, above T: honest sums over a power law were called wrong."""
    pattern = {"kind": "power_law", "density": 0.05}
    task = Task.from_spec({"op": "spmm", "dtype": dtype, "pattern": pattern, "shapes": [{"M": 64, "N": 16, "K": 64}]})
    decided = 0
    for seed in range(60):
        made = make_case(task, {"M": 83, "N": 37, "K": 199}, FormatChoice("csr"), seed=seed, data="positive", gpu=H200)
        result = honest(made)
        assert judged(made, result) is None, seed
        rounded = result.astype(made.out.numpy).astype(np.float64)
        error = np.linalg.norm(rounded - made.reference, axis=0)
        relative = error / np.linalg.norm(made.reference, axis=0)
        decided += bool((relative > Tolerance.of(task, 199).frobenius).any())
    assert decided or dtype == "float16"  # there are such columns, in float16 rarely


def test_a_drifting_row_fails_by_its_frobenius_error_alone() -> None:
    made = case(80, 128, 256)
    y = made.reference.copy()
    y[7] *= 1 + 2.0**-11 * 0.9
    exact = y.astype(np.float32)  # not rounded to fp16 again: every element is within u
    col = {"Y": np.ascontiguousarray(exact.T)}
    from fitness.correctness import check

    wrong = check(made, col, {"Y": np.ones(col["Y"].shape, np.bool_)}, sampled=False)
    assert wrong is not None
    assert wrong.wrong == 128
    assert wrong.first[0] == 7


def test_unwritten_elements_are_wrong_even_if_right() -> None:
    made = case(32, 8, 64)
    written = np.ones((32, 8), np.bool_)
    written[3, 4] = False
    wrong = judged(made, honest(made), written=written)
    assert wrong is not None
    assert wrong.first == (3, 4)


def test_sampled_compares_only_what_was_written() -> None:
    made = case(32, 8, 64)
    y, written = honest(made), np.zeros((32, 8), np.bool_)
    written[:16] = True
    y[16:] = np.nan
    assert judged(made, y, written=written, sampled=True) is None
    y[3, 3] += 1
    assert judged(made, y, written=written, sampled=True) is not None


def test_sampled_blocks_that_write_nothing_are_wrong() -> None:
    made = case(32, 8, 64)
    wrong = judged(made, honest(made), written=np.zeros((32, 8), np.bool_), sampled=True)
    assert wrong is not None
    assert wrong.pattern == "stale"


def test_bsr_lost_block_of_ones() -> None:
    """A public bug: all ones, a dropped K block gives 112.5 where 127.5 is right (scaled)."""
    made = case(64, 64, 256, "positive", task=gemm_task(dtype="float32"))
    w = made.operands.w.astype(np.float64).copy()
    w[:, 240:] = 0
    wrong = judged(made, w @ made.operands.x.astype(np.float64))
    assert wrong is not None
    assert wrong.pattern == "missing k-slice"


def test_margins_say_how_much_of_the_criterion_is_used() -> None:
    for dtype in DTYPES:
        made = case(80, 96, 640, "normal", task=nm24_task(dtype=dtype))
        right = honest(made).astype(made.out.numpy)
        wrong = one_k_skipped(made).astype(made.out.numpy)

        def outputs(logical: Array, like: Array = made.inputs.outputs["Y"]) -> dict[str, Array]:
            return {"Y": logical if like.shape == logical.shape else np.ascontiguousarray(logical.T)}

        assert 0.0 < max(margins(made, outputs(right))) <= 1.0
        assert max(margins(made, outputs(wrong))) > 1.0
    exact = case(80, 96, 640, "integers", task=nm24_task(dtype="float32"))
    assert margins(exact, {"Y": np.ascontiguousarray(exact.reference.T.astype(np.float32))}) == (0.0, 0.0)
