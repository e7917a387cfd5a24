"""Bit-field instructions against the pseudo code of the PTX ISA, one value at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator.arithmetic import instruction

Array = NDArray[Any]

RNG = np.random.default_rng(31)
EDGES = [0, 1, 2, 31, 32, 33, 63, 64, 65, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def words(bits: int = 32, count: int = 120) -> Array:
    top = (1 << bits) - 1
    drawn = RNG.integers(0, 2**64, count, dtype=np.uint64).tolist()
    sparse = [v & w for v, w in itertools.pairwise(drawn)]
    return np.array([v & top for v in EDGES + drawn + sparse[: count // 2]], dtype=f"u{bits // 8}")


def amounts(count: int) -> Array:
    return np.concatenate([RNG.integers(0, 70, count - 4), [0, 32, 64, 0xFFFFFFFF]]).astype(np.uint32)


def compare(opcode: str, oracle: Callable[..., int], *sources: Array, **lookup: Any) -> None:
    got = instruction(opcode, **lookup)(*sources)
    for row in zip(got.tolist(), *(s.tolist() for s in sources), strict=True):
        assert row[0] == oracle(*row[1:]), row


@pytest.mark.parametrize(
    "table", [0x96, 0x80, 0xFE, 0xF8, 0xEA, 0xCA, 0xE8, 0x6C, 0x78, 0x0C, 0x30, 0xC0, 0xFC, 0x3C, 0, 0xFF, 0x1B, 0xB1]
)
def test_lop3(table: int) -> None:
    def oracle(a: int, b: int, c: int) -> int:
        return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i for i in range(32))

    a = words()
    compare("lop3.b32", oracle, a, RNG.permutation(a), RNG.permutation(a), table=table)


def prmt_oracle(mode: str) -> Callable[[int, int, int], int]:
    def oracle(a: int, b: int, c: int) -> int:
        octets = [(a >> 8 * i) & 255 for i in range(4)] + [(b >> 8 * i) & 255 for i in range(4)]
        if mode == "":
            picks = [c >> (4 * n) & 0xF for n in range(4)]
        else:
            s = c & 3
            picks = {
                "f4e": [s, s + 1, s + 2, s + 3],
                "b4e": [s, (s + 7) % 8, (s + 6) % 8, (s + 5) % 8],
                "rc8": [s, s, s, s],
                "ecl": [max(s, n) for n in range(4)],
                "ecr": [min(s, n) for n in range(4)],
                "rc16": [0, 1, 0, 1] if s % 2 == 0 else [2, 3, 2, 3],
            }[mode]
        chosen = [(0xFF if octets[p & 7] & 0x80 else 0) if p & 8 else octets[p & 7] for p in picks]
        return sum(octet << 8 * n for n, octet in enumerate(chosen))

    return oracle


@pytest.mark.parametrize("mode", ["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])
def test_prmt(mode: str) -> None:
    a = words()
    compare(f"prmt.b32{'.' if mode else ''}{mode}", prmt_oracle(mode), a, RNG.permutation(a), RNG.permutation(a))


@pytest.mark.parametrize("selector", [0x5410, 0x7632, 0x3210, 0x7654, 0x6543, 0x0123, 0x4444, 0x7770, 0x9410, 0xFEDC])
def test_prmt_with_one_selector_for_all_lanes(selector: int) -> None:
    a = words()
    b = RNG.permutation(a)
    got = np.broadcast_to(instruction("prmt.b32")(a, b, np.uint32(selector)), a.shape)
    wanted = [prmt_oracle("")(int(x), int(y), selector) for x, y in zip(a, b, strict=True)]
    assert got.dtype == np.uint32
    assert got.tolist() == wanted


def bfe_oracle(bits: int, signed: bool) -> Callable[[int, int, int], int]:
    def oracle(a: int, b: int, c: int) -> int:
        msb, position, length = bits - 1, b & 0xFF, c & 0xFF
        sign = 0 if not signed or length == 0 else a >> min(position + length - 1, msb) & 1
        return sum((a >> (position + i) & 1 if i < length and position + i <= msb else sign) << i for i in range(bits))

    return oracle


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bfe(kind: str) -> None:
    a = words(int(kind[1:]))
    compare(f"bfe.{kind}", bfe_oracle(int(kind[1:]), kind[0] == "s"), a, amounts(len(a)), amounts(len(a))[::-1].copy())


@pytest.mark.parametrize("bits", [32, 64])
def test_bfi(bits: int) -> None:
    def oracle(a: int, b: int, c: int, d: int) -> int:
        position, length, result = c & 0xFF, d & 0xFF, b
        for i in range(bits):
            if i < length and position + i < bits:
                result = result & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
        return result

    a = words(bits)
    compare(f"bfi.b{bits}", oracle, a, RNG.permutation(a), amounts(len(a)), amounts(len(a))[::-1].copy())


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("direction", ["l", "r"])
def test_funnel_shift(direction: str, mode: str) -> None:
    def oracle(a: int, b: int, c: int) -> int:
        n = c & 31 if mode == "wrap" else min(c, 32)
        if direction == "l":
            return (b << n | a >> (32 - n)) & 0xFFFFFFFF
        return (b << (32 - n) | a >> n) & 0xFFFFFFFF

    a = words()
    compare(f"shf.{direction}.{mode}.b32", oracle, a, RNG.permutation(a), amounts(len(a)))


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_clamp_their_amount(bits: int) -> None:
    a, n = words(bits), amounts(len(words(bits)))
    top = (1 << bits) - 1
    compare(f"shl.b{bits}", lambda x, s: x << min(s, bits) & top, a, n)
    compare(f"shr.u{bits}", lambda x, s: x >> min(s, bits), a, n)
    compare(f"shr.s{bits}", lambda x, s: (x - ((x >> (bits - 1)) << bits)) >> min(s, bits) & top, a, n)


@pytest.mark.parametrize("bits", [32, 64])
def test_counts_and_reversal(bits: int) -> None:
    a = words(bits)
    compare(f"popc.b{bits}", lambda x: bin(x).count("1"), a)
    compare(f"clz.b{bits}", lambda x: bits - x.bit_length(), a)
    compare(f"brev.b{bits}", lambda x: int(f"{x:0{bits}b}"[::-1], 2), a)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("shift", [False, True])
def test_bfind(kind: str, shift: bool) -> None:
    bits = int(kind[1:])

    def oracle(x: int) -> int:
        if kind[0] == "s" and x >> (bits - 1):
            x = ~x & ((1 << bits) - 1)
        if x == 0:
            return 0xFFFFFFFF
        position = x.bit_length() - 1
        return bits - 1 - position if shift else position

    compare(f"bfind{'.shiftamt' if shift else ''}.{kind}", oracle, words(bits))


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_bmsk(mode: str) -> None:
    def oracle(a: int, b: int) -> int:
        position, width = (a & 31, b & 31) if mode == "wrap" else (min(a, 32), min(b, 32))
        return sum(1 << i for i in range(position, min(position + width, 32)))

    compare(f"bmsk.{mode}.b32", oracle, amounts(100), amounts(100)[::-1].copy())


@pytest.mark.parametrize("types", ["s32.s32", "u32.u32", "s32.u32", "u32.s32"])
def test_dp4a(types: str) -> None:
    signs = [t[0] == "s" for t in types.split(".")]

    def octet(value: int, i: int, signed: bool) -> int:
        b = value >> 8 * i & 255
        return b - 256 if signed and b >= 128 else b

    def oracle(a: int, b: int, c: int) -> int:
        return (c + sum(octet(a, i, signs[0]) * octet(b, i, signs[1]) for i in range(4))) & 0xFFFFFFFF

    a = words()
    compare(f"dp4a.{types}", oracle, a, RNG.permutation(a), RNG.permutation(a))


def fns_oracle(mask: int, base: int, offset: int) -> int:
    offset -= (offset >> 31) << 32
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    place, count, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= place < 32:
        if mask >> place & 1:
            if count == 0:
                return place
            count -= 1
        place += step
    return 0xFFFFFFFF


def test_fns() -> None:
    mask = words()
    base = RNG.integers(0, 32, mask.size).astype(np.uint32)
    compare("fns.b32", fns_oracle, mask, base, RNG.integers(-9, 10, mask.size).astype(np.int32).view(np.uint32))


@pytest.mark.parametrize("signs", ["u32.u32", "s32.u32", "u32.s32", "s32.s32"])
@pytest.mark.parametrize("half", ["lo", "hi"])
def test_dp2a(half: str, signs: str) -> None:
    a_signed, b_signed = (part[0] == "s" for part in signs.split("."))

    def number(value: int, bits: int, signed: bool) -> int:
        return value - (1 << bits) if signed and value >> (bits - 1) else value

    def oracle(a: int, b: int, c: int) -> int:
        b >>= 16 if half == "hi" else 0
        for i in range(2):
            c += number(a >> 16 * i & 0xFFFF, 16, a_signed) * number(b >> 8 * i & 0xFF, 8, b_signed)
        return c % (1 << 32)

    a = words()
    compare(f"dp2a.{half}.{signs}", oracle, a, RNG.permutation(a), RNG.permutation(a))


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_szext(mode: str, kind: str) -> None:
    def oracle(a: int, b: int) -> int:
        n = b & 31 if mode == "wrap" else min(b, 32)
        low = a & ((1 << n) - 1)
        return (low - (1 << n)) % (1 << 32) if kind == "s32" and n and low >> (n - 1) else low

    a = words()
    compare(f"szext.{mode}.{kind}", oracle, a, amounts(a.size))


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
@pytest.mark.parametrize("name", ["add", "min", "max", "min.relu", "max.relu"])
def test_pairs_of_16_bit_integers(name: str, kind: str) -> None:
    if "relu" in name and kind == "u16x2":
        pytest.skip("there is no such form")

    def number(value: int) -> int:
        return signed(value, 16) if kind == "s16x2" else value

    def oracle(a: int, b: int) -> int:
        total = 0
        for shift in (0, 16):
            x, y = number(a >> shift & 0xFFFF), number(b >> shift & 0xFFFF)
            part = {"add": x + y, "min": min(x, y), "max": max(x, y)}[name.split(".")[0]]
            total |= (max(part, 0) if "relu" in name else part) % (1 << 16) << shift
        return total

    a = words()
    compare(f"{name}.{kind}", oracle, a, RNG.permutation(a))


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("types", ["u32.u32.u32", "s32.s32.s32", "u32.s32.s32"])
@pytest.mark.parametrize("add", ["", ".add"])
def test_absolute_differences_of_parts(width: int, types: str, add: str) -> None:
    """PTX ISA, "vabsdiff4": parts of both operands in their types; .add sums them to c."""

    def number(value: int, kind: str) -> int:
        return signed(value, width) if kind == "s32" else value

    def oracle(a: int, b: int, c: int) -> int:
        _, left, right = types.split(".")
        mask = (1 << width) - 1
        parts = [abs(number(a >> s & mask, left) - number(b >> s & mask, right)) & mask for s in range(0, 32, width)]
        if add:
            return (c + sum(parts)) % (1 << 32)
        return sum(part << width * place for place, part in enumerate(parts))

    a = words()
    compare(f"vabsdiff{32 // width}.{types}{add}", oracle, a, RNG.permutation(a), RNG.permutation(a))
