"""Cases: the same bytes for the same seed, each data kind as it claims to be, layouts, caching."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fitness import operands
from fitness.formats import get_format
from fitness.inputs import full_runs, make_case, small_runs
from fitness.kernel import FormatChoice
from fitness.operands import DATA
from tests.fitness.cases import H200, case, gemm_task, nm24_task

SHAPE = {"M": 83, "N": 37, "K": 192}


@pytest.mark.parametrize("data", DATA)
def test_operands_do_not_depend_on_the_format_and_pack_exactly(data: str) -> None:
    dense = case(83, 37, 192, data, format="dense")
    for order in ("row", "fragment", "tile"):
        choice = FormatChoice("nm24", {"values": order})
        packed = make_case(nm24_task(), SHAPE, choice, seed=0, data=data, gpu=H200)
        arrays = {name.removeprefix("W."): array for name, array in packed.inputs.buffers.items()}
        w = get_format("nm24").unpack(arrays, (83, 192), {"values": order})
        np.testing.assert_array_equal(w, dense.operands.w)
        np.testing.assert_array_equal(packed.inputs.buffers["X"], dense.inputs.buffers["X"])


def test_reproducible_and_distinct() -> None:
    first = case(16, 8, 64).operands
    operands._cache.clear()
    again = case(16, 8, 64).operands
    assert first is not again
    assert first.w.tobytes() == again.w.tobytes()
    assert first.x.tobytes() == again.x.tobytes()
    assert case(16, 8, 64, seed=1).operands.w.tobytes() != first.w.tobytes()
    assert case(16, 8, 64, "scaled").operands.w.tobytes() != first.w.tobytes()


def test_buffers_names_and_scalars() -> None:
    made = case(83, 37, 192, format="nm24")
    assert set(made.inputs.buffers) == {"W.values", "W.meta", "X", "bias", "residual"}
    assert made.inputs.buffers["X"].shape == (37, 192)
    assert made.inputs.outputs["Y"].shape == (37, 83)
    assert made.inputs.outputs["Y"].dtype == np.float16
    assert all(a.flags.c_contiguous and not a.flags.writeable for a in made.inputs.buffers.values())
    scalars = dict(made.scalars)
    assert np.isnan(scalars.pop("scale"))  # the task has no epilogue
    assert scalars == {**SHAPE, "ldx": 192, "ldy": 83, "W.nnz": 83 * 96, "W.max_row": 96}
    assert made.names["SMS"] == H200.sms
    assert made.names["L2"] == H200.l2_bytes
    assert made.names["W.max_row"] == 96


def test_row_layouts() -> None:
    task = nm24_task(x_layout="row", y_layout="row")
    made = case(83, 37, 192, task=task)
    assert made.inputs.buffers["X"].shape == (192, 37)
    assert made.inputs.outputs["Y"].shape == (83, 37)
    y = np.arange(83 * 37).reshape(83, 37)
    assert made.logical({"Y": y}) is y
    col = case(83, 37, 192)
    np.testing.assert_array_equal(col.logical({"Y": y.T}), y)
    np.testing.assert_array_equal(col.logical_written({"Y": (y > 5).T}), y > 5)


def test_reference_is_the_product_of_the_quantised_operands() -> None:
    made = case(83, 37, 192)
    w, x = made.operands.w.astype(np.float64), made.operands.x.astype(np.float64)
    np.testing.assert_allclose(made.reference, w @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(made.scale, np.sqrt((w * w) @ (x * x)), rtol=1e-5)


def test_zero_mean_and_positive() -> None:
    normal, positive = case(128, 64, 256), case(128, 64, 256, "positive")
    assert abs(normal.reference.mean()) < 1
    assert (positive.operands.x > 0).all()
    assert positive.reference.min() > 0


@pytest.mark.parametrize("k", [192, 4096])
def test_no_result_near_the_largest_value(k: int) -> None:
    for data in ("normal", "positive", "scaled", "integers", "denormals", "awkward"):
        made = case(64, 16, k, data)
        assert np.abs(made.reference).max() < made.out.largest / 4, data


def test_integers_are_exact_in_the_output() -> None:
    made = case(40, 9, 640, "integers")
    assert set(np.unique(made.operands.w.astype(int))) == {-2, -1, 0, 1, 2}
    assert made.exact
    np.testing.assert_array_equal(made.reference, made.reference.astype(np.float16).astype(np.float64))


def test_needle() -> None:
    made = case(83, 37, 192, "needle")
    assert made.operands.nnz == 1
    row, k = (int(i) for i in np.argwhere(made.operands.w)[0])
    np.testing.assert_array_equal(
        made.reference[row], float(made.operands.w[row, k]) * made.operands.x[k].astype(np.float64)
    )
    assert not np.delete(made.reference, row, axis=0).any()


def test_scaled_rows() -> None:
    sizes = np.abs(case(83, 37, 192, "scaled").operands.w.astype(np.float64)).max(axis=1)
    assert {round(float(v)) for v in np.log2(np.median(sizes) / sizes)} >= {
        -10,
        0,
        10,
    } or sizes.max() / sizes.min() > 2**18


def test_awkward_pattern() -> None:
    made = case(83, 37, 192, "awkward")
    groups = (made.operands.w != 0).reshape(83, 48, 4)
    counts = groups.sum(axis=2)
    assert made.empty_rows[[0, -1]].all()
    assert (counts.sum(axis=1) == 96).sum() >= 1, "one row is full"
    assert not groups.reshape(83, 192)[30:50, 70:120].any(), "a block is empty"
    assert len({tuple(g) for g in groups.reshape(-1, 4).tolist()}) == 11, "every subset of at most two slots"


def test_negative_zeros() -> None:
    made = case(32, 8, 64, "negative_zero")
    zeros = made.operands.w == 0
    assert np.signbit(made.operands.w[zeros]).all()
    assert np.signbit(made.operands.x[made.operands.x == 0]).any()
    assert made.operands.nnz == 32 * 32


def test_denormals() -> None:
    w = np.abs(case(32, 8, 64, "denormals").operands.w[np.nonzero(case(32, 8, 64, "denormals").operands.w)])
    assert (w < np.finfo(np.float16).smallest_normal).all()


def test_empty() -> None:
    made = case(32, 8, 64, "empty", format="nm24")
    assert made.operands.nnz == 0
    assert not made.reference.any()


def test_overflow() -> None:
    for dtype in ("float16", "bfloat16", "float32"):
        made = case(32, 8, 64, "overflow", task=gemm_task(dtype=dtype))
        with np.errstate(over="ignore"):
            rounded = made.reference.astype(made.out.numpy).astype(np.float64)
        assert np.isinf(rounded[::2]).all()
        assert np.isfinite(rounded[1::2]).all()


def test_nonfinite_differs_by_format() -> None:
    dense, packed = (case(83, 37, 192, "nonfinite", format=f) for f in ("dense", "nm24"))
    assert np.isfinite(packed.reference).any()
    assert np.isfinite(packed.reference).sum() > np.isfinite(dense.reference).sum()


def test_small_runs() -> None:
    for task in (nm24_task(), gemm_task()):
        runs = small_runs(task)
        assert len(runs) == 6
        assert {run.data for run in runs} == {"normal", "positive", "integers", "awkward", "needle"}
        assert runs == small_runs(task)
        full = full_runs(task, seed=9)
        assert full[:6] == runs
        assert {run.data for run in full} == set(DATA)
        assert full != full_runs(task, seed=10)


def test_cache_is_bounded_and_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    operands._cache.clear()
    first = case(16, 8, 64)
    assert case(16, 8, 64, format="nm24").operands is first.operands
    monkeypatch.setattr(operands, "_CACHE_BYTES", 3 * operands._held_bytes())
    for seed in range(10):
        case(16, 8, 64, seed=seed)
    assert 1 <= len(operands._cache) <= 4


@pytest.mark.parametrize("data", DATA)
def test_shapes_that_differ_in_n_share_w_and_all_it_is_packed_into(data: str) -> None:
    narrow, wide = (case(32, n, 64, data, format="nm24") for n in (8, 24))
    assert narrow.operands.w is wide.operands.w
    for name in ("W.values", "W.meta"):
        assert narrow.inputs.buffers[name] is wide.inputs.buffers[name]
    assert narrow.inputs.buffers["X"].shape != wide.inputs.buffers["X"].shape
    assert case(32, 8, 128, data, format="nm24").operands.w is not narrow.operands.w


def test_unknown_data() -> None:
    with pytest.raises(ValueError, match="not one of"):
        case(16, 8, 64, "norml")


def test_operands_of_an_epilogue() -> None:
    task = gemm_task(epilogue=["scale", "bias", "gelu", "residual"], out_dtype="float32")
    made = case(64, 32, 48, task=task)
    bias, residual = made.inputs.buffers["bias"], made.inputs.buffers["residual"]
    assert (bias.shape, str(bias.dtype)) == ((64,), "float16")
    assert (residual.shape, str(residual.dtype)) == ((32, 64), "float32")  # col, as Y
    product = made.operands.w.astype(np.float64) @ made.operands.x.astype(np.float64)
    value = product * made.scalars["scale"] + bias.astype(np.float64)[:, None]
    gelu = 0.5 * value * (1 + np.vectorize(math.erf)(value / math.sqrt(2)))
    np.testing.assert_allclose(made.reference, gelu + residual.T, rtol=1e-9, atol=1e-12)
    assert not made.exact


def test_integers_stay_exact_behind_a_piecewise_linear_epilogue() -> None:
    task = gemm_task(epilogue=["scale", "bias", "relu", "residual"])
    made = case(64, 32, 48, "integers", task=task)
    assert made.exact
    np.testing.assert_array_equal(made.reference, np.round(made.reference))
    assert not case(64, 32, 48, "empty", task=task).exact
    assert not case(64, 32, 48, "integers", task=gemm_task(epilogue=["silu"])).exact


def test_an_epilogue_leaves_the_other_operands_as_they_are() -> None:
    plain, fused = case(64, 32, 48, task=gemm_task()), case(64, 32, 48, task=gemm_task(epilogue=["bias"]))
    assert plain.inputs.buffers["W.values"].shape == fused.inputs.buffers["W.values"].shape
    assert np.isnan(plain.inputs.buffers["bias"]).all()
    assert np.isfinite(fused.inputs.buffers["bias"]).all()
