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
from tests.fitness.simulator.engine import clean, launch, run
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


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("destination", ["", "u32"])
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "geu"])
def test_set_of_pairs(name: str, destination: str, kind: str) -> None:
    """Each half is 1.0, or all ones for an integer destination, where its comparison holds."""
    random = np.random.default_rng(len(name))
    a = random.integers(0, 1 << 32, 400, dtype=np.uint64).astype(np.uint32)
    b = np.where(random.random(400) < 0.3, a, random.permutation(a))
    element = kind.removesuffix("x2")
    one = {"f16x2": 0x3C00, "bf16x2": 0x3F80}[kind] if not destination else 0xFFFF
    tests = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    got = instruction(f"set.{name}.{destination or kind}.{kind}")(a, b)
    for result, left, right in zip(got.tolist(), a.tolist(), b.tolist(), strict=True):
        want = 0
        for shift in (0, 16):
            x, y = (value_16(element, v >> shift & 0xFFFF) for v in (left, right))
            missing = x != x or y != y
            base = name.removesuffix("u") if name in ("equ", "neu", "ltu", "geu") else name
            held = eval(f"x {tests[base]} y", {"x": x, "y": y})
            want |= (one if (missing if missing and base != name else held and not missing) else 0) << shift
        assert result == want, (hex(left), hex(right))


FUNCTIONS = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(const unsigned short* x, unsigned short* y) {
  int t = threadIdx.x;
  TYPE v = *(const TYPE*)(x + t), r = FUNCTION(v);
  y[t] = *(unsigned short*)&r;
}
"""


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("function", "oracle"),
    [("hsqrt", np.sqrt), ("hrsqrt", lambda x: 1 / np.sqrt(x)), ("hrcp", lambda x: 1 / x), ("hexp", np.exp),
     ("hexp2", np.exp2), ("hexp10", lambda x: np.power(10.0, x)), ("hlog", np.log), ("hlog2", np.log2),
     ("hlog10", np.log10), ("hsin", np.sin), ("hcos", np.cos), ("htanh", np.tanh), ("hfloor", np.floor),
     ("hceil", np.ceil), ("htrunc", np.trunc), ("hrint", np.rint)],
)  # fmt: skip
def test_functions_of_the_half_headers(function: str, oracle: Any, kind: str) -> None:
    """Within two units in the last place; the headers write registers and approximations in PTX of their own."""
    x = np.concatenate([np.linspace(0.01, 9, 300), np.linspace(-9, -0.01, 200)]).astype(np.float32)
    name = {"f16": "__half", "bf16": "__nv_bfloat16"}[kind]
    bits = x.astype(np.float16).view(np.uint16) if kind == "f16" else (x.view(np.uint32) >> 16).astype(np.uint16)
    exact = np.array([value_16(kind, int(b)) for b in bits])
    source = FUNCTIONS.replace("TYPE", name).replace("FUNCTION", function)
    got = clean(run(source, launch("k", 1, 500, "x", "y"), {"x": bits}, {"y": np.zeros(500, np.uint16)})).outputs["y"]
    with np.errstate(all="ignore"):
        want = oracle(exact)
    values = np.array([value_16(kind, int(b)) for b in got])
    np.testing.assert_array_equal(np.isnan(values), np.isnan(want))
    fine = np.isfinite(want) & (np.abs(want) < 6e4)
    unit = 2.0**-10 if kind == "f16" else 2.0**-7
    np.testing.assert_allclose(values[fine], want[fine], rtol=unit, atol=2.0**-11)
