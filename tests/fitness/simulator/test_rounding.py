"""Rounding against exact rational arithmetic and against the sorted list of all values of a format."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fitness.devices.simulator import rounding
from tests.fitness.simulator.exact import round_fraction

Array = NDArray[Any]

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    65504.0,
    65519.99,
    65520.0,
    -65536.0,
    2.0**-24,
    2.0**-25,
    3 * 2.0**-26,
    2.0**-14,
    1e30,
    -1e-40,
]


def all_values(kind: str) -> Array:
    """Every finite value of a narrow format, ascending, float64."""
    patterns = np.arange(1 << (16 if kind in ("f16", "bf16") else 8))
    types: dict[str, Any] = {
        "f16": (np.uint16, np.float16),
        "bf16": (np.uint16, ml_dtypes.bfloat16),
        "e4m3": (np.uint8, ml_dtypes.float8_e4m3fn),
        "e5m2": (np.uint8, ml_dtypes.float8_e5m2),
    }
    raw, view = types[kind]
    with np.errstate(invalid="ignore"):
        values = patterns.astype(raw).view(view).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "e5m2"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp", "rna"])
def test_result_is_the_right_neighbour(kind: str, mode: str) -> None:
    values = all_values(kind)
    rng = np.random.default_rng(11)
    middles = (values[:-1] + values[1:]) / 2
    x = np.concatenate([values, middles, np.nextafter(middles, 9e99), np.nextafter(middles, -9e99)])
    x = np.concatenate([x, rng.choice(values, 4096) * rng.uniform(0.9, 1.1, 4096)])
    x = x[np.abs(x) <= values[-1]]
    got = rounding.round_to(x, kind, mode)
    below = values[np.searchsorted(values, x, side="right") - 1]
    above = values[np.searchsorted(values, x, side="left")]
    inside = (got == below) | (got == above)
    assert inside.all()
    low, high = x - below, above - x
    if mode == "rm":
        assert (got == below).all()
    elif mode == "rp":
        assert (got == above).all()
    elif mode == "rz":
        assert (got == np.where(x > 0, below, above)).all()
    else:
        assert (np.abs(got - x) == np.minimum(low, high)).all()
        if mode == "rna":
            tied = (low == high) & (low > 0)
            assert (np.abs(got[tied]) == np.maximum(np.abs(below), np.abs(above))[tied]).all()


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["f32", "f16", "bf16", "tf32"]),
    st.sampled_from(["rn", "rz", "rm", "rp"]),
)
def test_any_double_rounds_as_the_rationals_say(x: float, kind: str, mode: str) -> None:
    with np.errstate(all="ignore"):
        got = float(rounding.round_to(np.array([x]), kind, mode)[0])
    assert got == round_fraction(Fraction(x), kind, mode)


def test_overflow_by_mode() -> None:
    x = np.array([1e6, -1e6, np.inf, -np.inf, np.nan])
    inf = np.inf
    with np.errstate(all="ignore"):
        results = {m: rounding.round_to(x, "f16", m)[:4].tolist() for m in ("rn", "rz", "rm", "rp")}
        finite = rounding.round_to(x, "f16", finite=True)
    assert results["rn"] == [inf, -inf, inf, -inf]
    assert results["rz"] == [65504, -65504, inf, -inf]
    assert results["rm"] == [65504, -inf, inf, -inf]
    assert results["rp"] == [inf, -65504, inf, -inf]
    assert finite[:4].tolist() == [65504, -65504, 65504, -65504]
    assert np.isnan(finite[4])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_every_16_bit_pattern_round_trips(kind: str) -> None:
    bits = np.arange(1 << 16).astype(np.uint16)
    values = rounding.decode_16(kind, bits)
    missing = np.isnan(values)
    np.testing.assert_array_equal(rounding.encode_16(kind, values)[~missing], bits[~missing])
    assert (rounding.encode_16(kind, values)[missing] == 0x7FFF).all()
    assert missing.sum() == (2046 if kind == "f16" else 254)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_fast_encoding_agrees_with_the_definition(kind: str) -> None:
    bits = np.random.default_rng(12).integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), np.array(SPECIAL, np.float32)])
    with np.errstate(all="ignore"):
        want = rounding.round_to(x.astype(np.float64), kind)
        got = rounding.decode_16(kind, rounding.encode_16(kind, x))
    np.testing.assert_array_equal(got.astype(np.float64), want)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_encoding_a_double_rounds_once(kind: str) -> None:
    # Just above a halfway case: through float32 (to nearest) it would fall on the tie and go to even.
    x = np.array([1 + 2.0 ** -(11 if kind == "f16" else 8) + 2.0**-40, 1.0 + 2.0**-52])
    got = rounding.decode_16(kind, rounding.encode_16_from_f64(kind, x)).astype(np.float64)
    np.testing.assert_array_equal(got, [round_fraction(Fraction(v), kind) for v in x.tolist()])


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30),
)
def test_a_sum_rounded_to_odd_rounds_right_to_f32(a: float, b: float) -> None:
    with np.errstate(all="ignore"):
        got = rounding.to_odd_sum(np.array([a]), np.array([b])).astype(np.float32)[0]
    assert float(got) == round_fraction(Fraction(a) + Fraction(b), "f32")


def test_flush_keeps_signs_normals_and_nan() -> None:
    x = np.array([1e-40, -1e-40, 2.0**-126, -1.5, np.inf, np.nan], np.float32)
    got = rounding.flush_f32(x)
    np.testing.assert_array_equal(got, np.array([0, -0.0, 2.0**-126, -1.5, np.inf, np.nan], np.float32))
    assert np.signbit(got[1])
    halves = np.array([0x0001, 0x83FF, 0x0400, 0x7C01], np.uint16)
    np.testing.assert_array_equal(rounding.flush_16("f16", halves), np.array([0, 0x8000, 0x0400, 0x7C01], np.uint16))


def test_saturation_clamps_and_removes_nan() -> None:
    got = rounding.saturate(np.array([-1, -0.0, 0.25, 1.5, np.inf, -np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(got, np.array([0, 0, 0.25, 1, 1, 0, 0], np.float32))
    assert not np.signbit(got).any()
