"""f16 and bf16 arithmetic against exact rationals on random bit patterns, and its special rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator.arithmetic import instruction
from tests.fitness.simulator.exact import round_fraction, value_16

Array = NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
RNG = np.random.default_rng(61)


def finite(kind: str, count: int = 500) -> Array:
    bits = RNG.integers(0, 2**16, 2 * count).astype(np.uint16)
    exponent = 0x7C00 if kind == "f16" else 0x7F80
    chosen: Array = bits[(bits & exponent) != exponent][:count]
    return chosen


ORACLES: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
}


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_arithmetic_rounds_once(name: str, kind: str, mode: str) -> None:
    sources = [finite(kind) for _ in range(3 if name == "fma" else 2)]
    sources[-1][:120] = sources[0][:120] ^ np.uint16(0x8000)  # cancellation
    got = instruction(f"{name}.{mode}.{kind}")(*sources)
    for result, *raw in zip(got.tolist(), *(s.tolist() for s in sources), strict=True):
        want = round_fraction(ORACLES[name](*(Fraction(value_16(kind, r)) for r in raw)), kind, mode)
        assert value_16(kind, result) == want, raw


def test_bf16_fma_keeps_a_far_away_sticky_bit() -> None:
    # 1.0078125 * 1.5 = 1.51171875 is a tie of bf16; 2**-100 above it must round up.
    encode = instruction("cvt.rn.bf16.f32")
    a, b, c = (encode(np.array([x], np.float32)) for x in (1.0078125, 1.5, 2.0**-100))
    got = value_16("bf16", int(instruction("fma.rn.bf16")(a, b, c)[0]))
    assert got == round_fraction(Fraction(1.0078125) * Fraction(1.5) + Fraction(2) ** -100, "bf16")


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("name", "arity"),
    [("add", 2), ("mul", 2), ("fma.rn", 3), ("neg", 1), ("abs", 1), ("min", 2), ("max.NaN", 2), ("fma.rn.relu", 3)],
)
def test_pairs_are_two_singles(name: str, arity: int, kind: str) -> None:
    halves = [RNG.integers(0, 2**16, (200, 2)).astype(np.uint16) for _ in range(arity)]
    pairs = [np.ascontiguousarray(h).view(np.uint32).reshape(-1) for h in halves]
    got = instruction(f"{name}.{kind}x2")(*pairs)
    single = instruction(f"{name}.{kind}")
    want = np.stack([single(*(h[:, i].copy() for h in halves)) for i in range(2)], axis=1)
    np.testing.assert_array_equal(got.view(np.uint16).reshape(-1, 2), want)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(("opcode", "pick"), [("min", min), ("max", max)])
def test_extremes_order_numbers_and_prefer_them_to_nan(kind: str, opcode: str, pick: Callable[..., float]) -> None:
    a, b = (RNG.integers(0, 2**16, 2000).astype(np.uint16) for _ in range(2))
    got = instruction(f"{opcode}.{kind}")(a, b)
    strict = instruction(f"{opcode}.NaN.{kind}")(a, b)
    for x, y, result, nan_wins in zip(a.tolist(), b.tolist(), got.tolist(), strict.tolist(), strict=True):
        numbers = [v for v in (value_16(kind, x), value_16(kind, y)) if not math.isnan(v)]
        if numbers:
            assert value_16(kind, result) == pick(numbers)
        else:
            assert result == 0x7FFF
        assert (nan_wins == 0x7FFF) == (len(numbers) < 2)


def test_signed_zeros_are_ordered() -> None:
    zero, minus = np.array([0], np.uint16), np.array([0x8000], np.uint16)
    assert instruction("max.f16")(minus, zero)[0] == 0
    assert instruction("min.f16")(zero, minus)[0] == 0x8000


def test_modifiers() -> None:
    subnormal, one, two = (np.array([x], np.uint16) for x in (0x0001, 0x3C00, 0x4000))
    minus = one ^ np.uint16(0x8000)
    nan = np.array([0x7E00], np.uint16)
    assert instruction("add.f16")(subnormal, subnormal)[0] == 2
    assert instruction("add.ftz.f16")(subnormal, subnormal)[0] == 0
    assert instruction("add.sat.f16")(one, two)[0] == 0x3C00
    assert instruction("fma.rn.sat.f16")(minus, two, one)[0] == 0
    assert instruction("fma.rn.relu.f16")(minus, two, one)[0] == 0
    assert instruction("fma.rn.relu.f16")(nan, two, one)[0] == 0x7FFF


def test_packed_comparison_gives_two_predicates() -> None:
    a, b = np.array([0x3C004000], np.uint32), np.array([0x40003C00], np.uint32)  # (low 2, high 1), (low 1, high 2)
    low, high = instruction("setp.gt.f16x2")(a, b)
    assert (low.tolist(), high.tolist()) == ([True], [False])
