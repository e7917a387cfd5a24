"""f32 and f64 arithmetic against exact rationals and the NaN and zero rules of the PTX ISA."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fitness.devices.simulator.arithmetic import instruction
from tests.fitness.simulator.exact import round_fraction

Array = NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
RNG = np.random.default_rng(51)
F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
NAN, INF = math.nan, math.inf


def singles(count: int = 400) -> Array:
    bits = RNG.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), RNG.standard_normal(count).astype(np.float32)])
    return RNG.permutation(x[np.isfinite(x)][: 2 * count - 50])[:count]


ORACLES: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_every_rounding_mode_is_exact(name: str, mode: str) -> None:
    sources = [singles() for _ in range(3 if name == "fma" else 2)]
    sources[-1][:100] = -sources[0][:100]
    got = instruction(f"{name}.{mode}.f32", exact=True)(*sources)
    for result, *raw in zip(got.tolist(), *(s.tolist() for s in sources), strict=True):
        assert result == round_fraction(ORACLES[name](*map(Fraction, raw)), "f32", mode), raw


def doubles(count: int = 250) -> Array:
    """Random bits (all exponents), ordinary numbers, subnormals and extremes."""
    bits = RNG.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    small = RNG.integers(0, 2**50, count // 8, dtype=np.uint64).view(np.float64)
    edges = np.array([0.0, -0.0, 1.0, -1.0, 2.0**-1074, 2.0**-1022, np.finfo(np.float64).max, -(2.0**1023), 3.0])
    x = np.concatenate([bits[np.isfinite(bits)], RNG.standard_normal(count), small, edges])
    return RNG.permutation(x)


QUOTIENTS: dict[str, Callable[..., Fraction]] = ORACLES | {"div": lambda a, b: a / b, "rcp": lambda a: 1 / a}


@pytest.mark.parametrize("name", QUOTIENTS)
@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_doubles_round_in_every_direction(name: str, mode: str) -> None:
    sources = [doubles() for _ in range({"fma": 3, "rcp": 1}.get(name, 2))]
    sources = [s[: min(map(len, sources))] for s in sources]
    if name in ("add", "sub", "mul", "fma"):
        sources[-1][:100] = -sources[0][:100]
    if name == "div":
        sources[0][:60] = sources[1][:60] * 3  # quotients that are exact, or nearly
    got = instruction(f"{name}.{mode}.f64")(*sources)
    for result, *raw in zip(got.tolist(), *(s.tolist() for s in sources), strict=True):
        if name in ("div", "rcp") and raw[-1] == 0:
            assert math.isnan(result) or math.isinf(result)
            continue
        assert result == round_fraction(QUOTIENTS[name](*map(Fraction, raw)), "f64", mode), raw


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_quotients_and_roots_in_every_mode(kind: str, mode: str) -> None:
    """Roots by squares: the result is the last number on its side of the exact root."""
    x, y = (singles() if kind == "f32" else doubles() for _ in range(2))
    y = np.resize(np.where(y == 0, y.dtype.type(3), y), x.shape)
    for result, a, b in zip(instruction(f"div.{mode}.{kind}")(x, y).tolist(), x.tolist(), y.tolist(), strict=True):
        assert result == round_fraction(Fraction(a) / Fraction(b), kind, mode), (a, b)
    for result, b in zip(instruction(f"rcp.{mode}.{kind}")(y).tolist(), y.tolist(), strict=True):
        assert result == round_fraction(1 / Fraction(b), kind, mode), b
    up, down = x.dtype.type(np.inf), x.dtype.type(0)
    positive = np.abs(x)
    roots = instruction(f"sqrt.{mode}.{kind}")(positive)
    for root, square in zip(roots, positive.tolist(), strict=True):
        exact, held = Fraction(square), Fraction(float(root))
        above, below = (Fraction(float(np.nextafter(root, side))) for side in (up, down))
        if mode in ("rz", "rm"):
            assert held**2 <= exact < above**2
        elif mode == "rp":
            assert held**2 >= exact > below**2 or square == 0
        else:
            assert abs(exact - held**2) <= max(above**2 - exact, exact - below**2)
            assert ((held + below) / 2) ** 2 <= exact <= ((held + above) / 2) ** 2


def test_zero_sums_toward_minus_infinity_are_negative() -> None:
    one, zero = np.array([1.5, 0.0, -0.0, 0.0]), np.array([-1.5, 0.0, -0.0, -0.0])
    np.testing.assert_array_equal(np.signbit(instruction("add.rm.f64")(one, zero)), [True, False, True, True])
    np.testing.assert_array_equal(np.signbit(instruction("add.rz.f64")(one, zero)), [False, False, True, False])
    minus = instruction("fma.rm.f64")(np.array([2.0]), np.array([3.0]), np.array([-6.0]))
    assert np.signbit(minus[0])


@given(F32, F32, F32)
def test_exact_fma_rounds_once(a: float, b: float, c: float) -> None:
    got = instruction("fma.rn.f32", exact=True)(*(np.array([x], np.float32) for x in (a, b, c)))
    assert float(got[0]) == round_fraction(Fraction(a) * Fraction(b) + Fraction(c), "f32")


def test_default_fma_is_wrong_only_in_the_documented_halfway_case() -> None:
    # a * b is a tie of float32 exactly; c breaks it but is lost in float64.
    a, b, c = (np.array([x], np.float32) for x in (1 + 2.0**-23, 1 + 2.0**-1, -(2.0**-100)))
    assert instruction("fma.rn.f32")(a, b, c)[0] != instruction("fma.rn.f32", exact=True)(a, b, c)[0]
    x, y, z = singles(4000), singles(4000), singles(4000)
    same = instruction("fma.rn.f32")(x, y, z) == instruction("fma.rn.f32", exact=True)(x, y, z)
    assert same.all()


DOUBLE = st.floats(min_value=-1e100, max_value=1e100).filter(lambda x: x == 0 or abs(x) > 1e-100)


@given(DOUBLE, DOUBLE, DOUBLE)
def test_double_fma_rounds_once(a: float, b: float, c: float) -> None:
    got = float(instruction("fma.rn.f64")(*(np.array([x]) for x in (a, b, c)))[0])
    want = Fraction(a) * Fraction(b) + Fraction(c)
    assert got == want.numerator / want.denominator  # Python's division of integers rounds correctly


@pytest.mark.parametrize(("name", "function"), [("div.rn", lambda a, b: a / b), ("rcp.rn", lambda a: 1 / a)])
def test_division_rounds_to_nearest(name: str, function: Callable[..., Fraction]) -> None:
    sources = [singles() for _ in range(2 if name == "div.rn" else 1)]
    sources[-1][sources[-1] == 0] = 1
    got = instruction(f"{name}.f32")(*sources)
    for result, *raw in zip(got.tolist(), *(s.tolist() for s in sources), strict=True):
        assert result == round_fraction(function(*map(Fraction, raw)), "f32")


def test_square_root_is_within_half_an_ulp() -> None:
    x = np.abs(singles())
    got = instruction("sqrt.rn.f32")(x)
    for value, root in zip(x.tolist(), got.tolist(), strict=True):
        below = Fraction(float(np.nextafter(np.float32(root), np.float32(0)))) + Fraction(root)
        above = Fraction(float(np.nextafter(np.float32(root), np.float32(9e38)))) + Fraction(root)
        assert (below / 2) ** 2 <= Fraction(value) <= (above / 2) ** 2 or root == 0


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(
    ("opcode", "a", "b", "want"),
    [
        ("min", NAN, 1.0, 1.0),
        ("min", 1.0, NAN, 1.0),
        ("max", NAN, -INF, -INF),
        ("max", NAN, NAN, NAN),
        ("min.NaN", NAN, 1.0, NAN),
        ("max.NaN", 1.0, NAN, NAN),
        ("max", 0.0, -0.0, 0.0),
        ("max", -0.0, 0.0, 0.0),
        ("min", 0.0, -0.0, -0.0),
        ("min", -0.0, 0.0, -0.0),
        ("min", 2.0, 3.0, 2.0),
        ("max", -2.0, -3.0, -2.0),
        ("max.xorsign.abs", -2.0, 3.0, -3.0),
        ("min.xorsign.abs", -2.0, -3.0, 2.0),
        ("copysign", -1.0, 3.0, -3.0),
    ],
)
def test_minimum_and_maximum(kind: str, opcode: str, a: float, b: float, want: float) -> None:
    dtype = np.float32 if kind == "f32" else np.float64
    got = float(instruction(f"{opcode}.{kind}")(np.array([a], dtype), np.array([b], dtype))[0])
    assert math.isnan(got) if math.isnan(want) else got == want
    assert math.isnan(want) or math.copysign(1, got) == math.copysign(1, want)


def test_flush_and_saturate() -> None:
    tiny = np.array([1e-40, 2.0**-126], np.float32)
    one = np.ones(2, np.float32)
    assert instruction("add.ftz.f32")(tiny, np.zeros(2, np.float32)).tolist() == [0, 2.0**-126]
    assert instruction("mul.ftz.f32")(tiny, one / 2).tolist() == [0, 0]  # results flush too
    assert instruction("fma.rn.ftz.sat.f32")(one, one * 3, tiny).tolist() == [1, 1]
    assert instruction("add.sat.f32")(np.array([NAN], np.float32), one[:1]).tolist() == [0]


COMPARISONS = {
    "eq": (False, True, False), "ne": (True, False, False), "lt": (True, False, False), "le": (True, True, False),
    "gt": (False, False, False), "ge": (False, True, False), "equ": (False, True, True), "neu": (True, False, True),
    "ltu": (True, False, True), "leu": (True, True, True), "gtu": (False, False, True), "geu": (False, True, True),
    "num": (True, True, False), "nan": (False, False, True),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_comparisons_with_nan(name: str, kind: str) -> None:
    a, b = np.array([1.0, 2.0, NAN]), np.array([2.0, 2.0, 1.0])
    if kind in ("f16", "bf16"):
        encode = instruction(f"cvt.rn.{kind}.f32")
        sources = [encode(x.astype(np.float32)) for x in (a, b)]
    else:
        sources = [x.astype(np.float32 if kind == "f32" else np.float64) for x in (a, b)]
    assert tuple(instruction(f"setp.{name}.{kind}")(*sources).tolist()) == COMPARISONS[name]


@pytest.mark.parametrize(
    ("opcode", "function", "low", "bound"),
    [
        ("ex2.approx.ftz", lambda x: 2.0**x, -3.0, 2.0**-22),
        ("lg2.approx", math.log2, 0.1, 2.0**-22),
        ("rsqrt.approx.ftz", lambda x: 1 / math.sqrt(x), 0.1, 2.0**-22.9),
        ("rcp.approx.ftz", lambda x: 1 / x, -3.0, 2.0**-23),
        ("sqrt.approx", math.sqrt, 0.0, 2.0**-23),
        ("tanh.approx", math.tanh, -3.0, 2.0**-11),
        ("sin.approx", math.sin, -3.0, 2.0**-20.5),
        ("cos.approx", math.cos, -3.0, 2.0**-20.5),
    ],
)
def test_approximations_keep_the_isas_bounds(
    opcode: str, function: Callable[[float], float], low: float, bound: float
) -> None:
    x = RNG.uniform(low, 3, 200).astype(np.float32)
    got = instruction(f"{opcode}.f32")(x).astype(np.float64)
    want = np.array([function(float(v)) for v in x])
    absolute = opcode.split(".")[0] in ("sin", "cos", "lg2")  # the ISA bounds these absolutely
    scale = 1.0 if absolute else np.abs(want)
    assert (np.abs(got - want) <= bound * scale).all()


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("finite", [1, 1, 0, 0, 1]),
        ("infinite", [0, 0, 1, 0, 0]),
        ("number", [1, 1, 1, 0, 1]),
        ("notanumber", [0, 0, 0, 1, 0]),
        ("normal", [1, 0, 0, 0, 0]),
        ("subnormal", [0, 1, 0, 0, 1]),
    ],
)
def test_properties(name: str, want: list[int]) -> None:
    x = np.array([1, 1e-40, INF, NAN, 0], np.float32)
    assert instruction(f"testp.{name}.f32")(x).tolist() == [bool(w) for w in want]
