"""Integer arithmetic against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator.arithmetic import instruction
from tests.fitness.simulator.engine import clean, launch, run

Array = NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
RNG = np.random.default_rng(41)
TYPES = ["u16", "s16", "u32", "s32", "u64", "s64"]


def operands(bits: int, count: int = 150) -> tuple[Array, Array, Array]:
    top = (1 << bits) - 1
    edges = [0, 1, 2, top, top - 1, top >> 1, (top >> 1) + 1, 7]
    pairs = [(a, b) for a in edges for b in edges]
    drawn = RNG.integers(0, 2**64, (count, 2), dtype=np.uint64).tolist()
    # Small divisors too.
    pairs += [(a & top, (b & top) >> int(RNG.integers(0, bits))) for a, b in drawn]
    dtype = f"u{bits // 8}"
    a, b = (np.array([p[i] for p in pairs], dtype=dtype) for i in range(2))
    return a, b, RNG.permutation(a)


def value(x: int, kind: str) -> int:
    bits = int(kind[1:])
    return x - (1 << bits) if kind[0] == "s" and x >> (bits - 1) else x


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


ORACLES: dict[str, Callable[[int, int, int, int], int]] = {
    "add": lambda a, b, _c, _n: a + b,
    "sub": lambda a, b, _c, _n: a - b,
    "mul.lo": lambda a, b, _c, _n: a * b,
    "mul.hi": lambda a, b, _c, n: (a * b) >> n,
    "mad.lo": lambda a, b, c, _n: a * b + c,
    "mad.hi": lambda a, b, c, n: ((a * b) >> n) + c,
    "div": lambda a, b, _c, _n: truncated(a, b) if b else -1,
    "rem": lambda a, b, _c, _n: a - truncated(a, b) * b if b else -1,
    "min": lambda a, b, _c, _n: min(a, b),
    "max": lambda a, b, _c, _n: max(a, b),
    "sad": lambda a, b, c, _n: c + abs(a - b),
    "abs": lambda a, _b, _c, _n: abs(a),
    "neg": lambda a, _b, _c, _n: -a,
}
ARITY = {"mad.lo": 3, "mad.hi": 3, "sad": 3, "abs": 1, "neg": 1}


@pytest.mark.parametrize(
    ("name", "kind"), [(n, k) for n in ORACLES for k in TYPES if k[0] == "s" or n not in ("abs", "neg")]
)
def test_matches_python(name: str, kind: str) -> None:
    bits = int(kind[1:])
    sources = operands(bits)
    got = instruction(f"{name}.{kind}")(*sources[: ARITY.get(name, 2)])
    assert got.dtype == sources[0].dtype
    for result, *raw in zip(got.tolist(), *(s.tolist() for s in sources), strict=True):
        a, b, c = (value(x, kind) for x in raw)
        assert result == ORACLES[name](a, b, c, bits) % (1 << bits), (name, a, b, c)


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products(kind: str) -> None:
    bits = int(kind[1:])
    a, b, _ = operands(bits)
    c = np.arange(len(a)).astype(f"u{bits // 4}") * 12345
    product, total = instruction(f"mul.wide.{kind}")(a, b), instruction(f"mad.wide.{kind}")(a, b, c)
    assert product.dtype == c.dtype
    for x, y, z, p, t in zip(a.tolist(), b.tolist(), c.tolist(), product.tolist(), total.tolist(), strict=True):
        want = value(x, kind) * value(y, kind)
        assert p == want % (1 << 2 * bits)
        assert t == (want + z) % (1 << 2 * bits)


def test_saturating_s32() -> None:
    a, b, _ = operands(32)
    for name, oracle in (("add", int.__add__), ("sub", int.__sub__)):
        got = instruction(f"{name}.sat.s32")(a, b)
        for x, y, result in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
            want = min(max(oracle(value(x, "s32"), value(y, "s32")), -(2**31)), 2**31 - 1)
            assert result == want % 2**32


def test_mul24_uses_the_low_24_bits() -> None:
    a, b, c = operands(32)
    for kind in ("u32", "s32"):

        def low(x: int, kind: str = kind) -> int:
            x &= 0xFFFFFF
            return x - (1 << 24) if kind == "s32" and x >> 23 else x

        got = instruction(f"mad24.lo.{kind}")(a, b, c)
        for x, y, z, result in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
            assert result == (low(x) * low(y) + z) % 2**32


WIDE = """
extern "C" __global__ void wide(const unsigned long long* x, unsigned long long* y) {
  const unsigned long long* a = x + 4 * threadIdx.x;
  unsigned __int128 p = (unsigned __int128)a[0] << 64 | a[1], q = (unsigned __int128)a[2] << 64 | a[3];
  unsigned __int128 all[4] = {p + q, p - q, p * q, (unsigned __int128)((__int128)p * (long long)a[3])};
  for (int i = 0; i < 4; i++) {
    y[8 * threadIdx.x + 2 * i] = all[i] >> 64;
    y[8 * threadIdx.x + 2 * i + 1] = (unsigned long long)all[i];
  }
}
extern "C" __global__ void chain(const unsigned* x, unsigned* y) {
  const unsigned *a = x + 9 * threadIdx.x, *b = a + 3, *c = a + 6;
  unsigned *d = y + 9 * threadIdx.x;
  asm("{add.cc.u32 %0, %3, %6; addc.cc.u32 %1, %4, %7; addc.u32 %2, %5, %8;}"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(b[0]), "r"(b[1]), "r"(b[2]));
  asm("{sub.cc.u32 %0, %3, %6; subc.cc.u32 %1, %4, %7; subc.u32 %2, %5, %8;}"
      : "=r"(d[3]), "=r"(d[4]), "=r"(d[5]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(b[0]), "r"(b[1]), "r"(b[2]));
  asm("{mad.lo.cc.u32 %0, %3, %4, %5; madc.hi.cc.u32 %1, %3, %4, %6; addc.u32 %2, %7, 0;}"
      : "=r"(d[6]), "=r"(d[7]), "=r"(d[8]) : "r"(a[0]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]));
}
"""


def joined(*parts: int, bits: int) -> int:
    """A number of its parts, highest first."""
    total = 0
    for part in parts:
        total = total << bits | part
    return total


def test_extended_precision_sums_and_products_carry() -> None:
    edges = [0, 1, (1 << 64) - 1, 1 << 63, (1 << 32) - 1]
    rows = [[a, b, c, d] for a in edges for b in edges for c in edges for d in edges]
    x = np.concatenate([np.array(rows, np.uint64), RNG.integers(0, 2**64, (143, 4), dtype=np.uint64)])
    y = {"y": np.zeros((768, 8), np.uint64)}
    options = ("--device-int128",)
    got = clean(run(WIDE, launch("wide", 1, 768, "x", "y"), {"x": x}, y, options=options)).outputs["y"]
    for row, out in zip(x.tolist(), got.tolist(), strict=True):
        p, q, last = joined(*row[:2], bits=64), joined(*row[2:], bits=64), value(row[3], "s64")
        for place, want in enumerate((p + q, p - q, p * q, p * last)):
            assert joined(*out[2 * place : 2 * place + 2], bits=64) == want % (1 << 128), (row, place)


def chain_operands() -> Array:
    """Three numbers of three words for each of 512 lanes; half of the words are all ones."""
    random = np.random.default_rng(42)
    x: Array = random.integers(0, 2**32, (512, 9), dtype=np.uint64).astype(np.uint32)
    x[random.random(x.shape) < 0.5] = 0xFFFFFFFF
    return x


def test_carries_go_through_a_chain() -> None:
    x = chain_operands()
    y = {"y": np.zeros((512, 9), np.uint32)}
    options = ("--device-int128",)
    got = clean(run(WIDE, launch("chain", 1, 512, "x", "y"), {"x": x}, y, options=options)).outputs["y"]
    for row, out in zip(x.tolist(), got.tolist(), strict=True):
        a, b, c = (joined(*row[i : i + 3][::-1], bits=32) for i in (0, 3, 6))
        wants = (a + b, a - b, row[0] * row[3] + c)
        for place, want in enumerate(wants):
            assert joined(*out[3 * place : 3 * place + 3][::-1], bits=32) == want % (1 << 96), (row, place)
