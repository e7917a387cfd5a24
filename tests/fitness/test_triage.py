"""Each pattern of wrongness, made in NumPy, is recognised as itself."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.correctness import check
from fitness.inputs import Case
from fitness.triage import SUGGESTIONS, classify
from tests.fitness.cases import Array, case, gemm_task, honest, judged, nm24_task


def pattern_of(case: Case, y: Array, written: Array | None = None) -> str:
    wrong = judged(case, y, written=written)
    assert wrong is not None, "the mutant passes"
    assert wrong.suggestion
    return wrong.pattern


def both(case: Case) -> tuple[Array, Array]:
    return case.operands.w.astype(np.float64), case.operands.x.astype(np.float64)


@pytest.fixture(params=[(128, 64, 256), (83, 37, 192)], ids=["aligned", "tails"])
def made(request: pytest.FixtureRequest) -> Case:
    return case(*request.param)


def test_zeros(made: Case) -> None:
    assert pattern_of(made, np.zeros(made.reference.shape)) == "zeros"


def test_stale(made: Case) -> None:
    garbage = np.random.default_rng(1).standard_normal(made.reference.shape)
    assert pattern_of(made, garbage, np.zeros(garbage.shape, np.bool_)) == "stale"


def test_nan(made: Case) -> None:
    y = honest(made)
    y[8:24] = np.nan
    assert pattern_of(made, y) == "nan"


def test_accumulators_that_overflow_16_bits() -> None:
    made = case(64, 32, 256, "positive")
    y = honest(made)
    y[:, ::2] = np.inf
    assert pattern_of(made, y) == "nan"


@pytest.mark.parametrize("tile", [(16, 8), (64, 32), (32, 16)])
@pytest.mark.parametrize("empty", [0.0, np.nan])
def test_missing_tile(made: Case, tile: tuple[int, int], empty: float) -> None:
    y, written = honest(made), np.ones(made.reference.shape, np.bool_)
    y[: tile[0], : tile[1]] = empty
    written[: tile[0], : tile[1]] = empty == 0.0
    assert pattern_of(made, y, written) == "missing tile"


def test_missing_tile_is_named() -> None:
    made = case(128, 64, 64)
    y = honest(made)
    y[64:, 32:] = 0
    wrong = judged(made, y)
    assert wrong is not None
    assert "m = 64, n = 32" in wrong.suggestion


@pytest.mark.parametrize("row", [0, 5, -1])
def test_missing_row(row: int) -> None:
    made = case(128, 64, 128)
    y = honest(made)
    y[row] = 0
    assert pattern_of(made, y) == "missing row"


@pytest.mark.parametrize(
    "ks", [slice(0, 16), slice(64, 128), slice(-32, None), slice(128, None), slice(77, 78), slice(64, None)]
)
def test_missing_k_slice(made: Case, ks: slice) -> None:
    w, x = both(made)
    w[:, ks] = 0
    assert pattern_of(made, w @ x) == "missing k-slice"


def test_missing_last_k_tail() -> None:
    made = case(40, 24, 199, task=gemm_task())
    w, x = both(made)
    w[:, 192:] = 0
    wrong = judged(made, w @ x)
    assert wrong is not None
    assert wrong.pattern == "missing k-slice"
    assert "k = 192 .. 198" in wrong.suggestion


def test_k_slice_counted_twice(made: Case) -> None:
    w, x = both(made)
    wrong = judged(made, w @ x + w[:, 32:64] @ x[32:64])
    assert wrong is not None
    assert wrong.pattern == "missing k-slice"
    assert "twice" in wrong.suggestion


def test_missing_k_slice_of_one_tile(made: Case) -> None:
    w, x = both(made)
    y = w @ x
    y[16:32, :16] -= w[16:32, 64:128] @ x[64:128, :16]
    assert pattern_of(made, y) == "missing k-slice"


def test_missing_k_of_a_single_column() -> None:
    made = case(97, 1, 128)
    w, x = both(made)
    w[:, 96:] = 0
    assert pattern_of(made, w @ x) == "missing k-slice"


@pytest.mark.parametrize(("axis", "shift"), [(0, 1), (0, -1), (1, 1), (1, 8), (0, 16)])
def test_shifted_result(made: Case, axis: int, shift: int) -> None:
    assert pattern_of(made, np.roll(made.reference, shift, axis)) == "shifted index"


@pytest.mark.parametrize("shift", [1, -1, 4])
def test_shifted_k(made: Case, shift: int) -> None:
    w, x = both(made)
    moved = np.roll(x, -shift, axis=0)
    moved[-shift if shift > 0 else 0 : None if shift > 0 else -shift] = 0
    assert pattern_of(made, w @ moved) == "shifted index"


def test_transposed_output(made: Case) -> None:
    flat = np.ascontiguousarray(made.reference)  # row-major bytes in a column-major Y
    y = flat.reshape(flat.shape[::-1]).T
    assert pattern_of(made, y) == "transposed"


@pytest.mark.parametrize("layout", ["col", "row"])
def test_transposed_operand(layout: str) -> None:
    made = case(64, 24, 128, task=nm24_task(x_layout=layout))
    w = made.operands.w.astype(np.float64)
    k, n = made.operands.x.shape
    buffer = made.inputs.buffers["X"].astype(np.float64).ravel()
    misread = buffer.reshape(k, n) if layout == "col" else buffer.reshape(n, k).T
    assert pattern_of(made, w @ misread) == "transposed"


@pytest.mark.parametrize("where", [np.s_[80:], np.s_[:, 32:], np.s_[64:, :]])
@pytest.mark.parametrize("value", [0.0, 1234.0])
def test_tails_only(where: slice, value: float) -> None:
    made = case(83, 37, 192)
    y = honest(made)
    y[where] = value
    assert pattern_of(made, y) == "tails only"


def test_wrong_tile_and_wrong_row() -> None:
    made = case(128, 64, 128)
    noise = np.random.default_rng(3).standard_normal((128, 64)) * 100
    y = honest(made).astype(np.float64)
    y[32:64, 16:32] = noise[32:64, 16:32]
    assert pattern_of(made, y) == "wrong tile"
    y = honest(made).astype(np.float64)
    y[70] = noise[70]
    assert pattern_of(made, y) == "wrong row"


@pytest.mark.parametrize("data", ["normal", "positive"])
@pytest.mark.parametrize("n", [1, 16, 64])
def test_low_precision_accumulation(data: str, n: int) -> None:
    made = case(96, n, 1024, data)
    w, x = both(made)
    total = np.zeros(made.reference.shape, np.float16)
    for first in range(0, 1024, 16):
        total = (total + w[:, first : first + 16] @ x[first : first + 16]).astype(np.float16)
    assert pattern_of(made, total) == "low-precision accumulation"


def test_nondeterministic(made: Case) -> None:
    first, second = honest(made), honest(made)
    first[3, :4] += 1
    second[5, :4] += 1
    wrong = np.zeros(first.shape, np.bool_)
    wrong[3, :4] = True
    assert classify(made, first, wrong, again=second).pattern == "nondeterministic"
    assert classify(made, first, wrong, again=first).pattern != "nondeterministic"


def test_unclassified_noise(made: Case) -> None:
    y = np.random.default_rng(5).standard_normal(made.reference.shape) * 50
    assert pattern_of(made, y) == "unclassified"


def test_every_pattern_has_a_suggestion_and_is_made_above() -> None:
    made_here = {"nondeterministic", "stale", "zeros", "nan", "missing tile", "missing row", "missing k-slice",
                 "shifted index", "transposed", "tails only", "wrong tile", "wrong row", "low-precision accumulation",
                 "unclassified"}  # fmt: skip
    assert made_here == SUGGESTIONS.keys()


def test_full_size_takes_reasonable_time() -> None:
    """A wrong 1024 x 128 result at K = 4096 is diagnosed without recomputing all of it."""
    made = case(1024, 128, 4096)
    y = made.reference.astype(np.float16)
    y[:64, :32] = 7.0
    outputs = {"Y": np.ascontiguousarray(y.T)}
    wrong = check(made, outputs, {"Y": np.ones(outputs["Y"].shape, np.bool_)}, sampled=False)
    assert wrong is not None
    assert wrong.pattern == "wrong tile"
