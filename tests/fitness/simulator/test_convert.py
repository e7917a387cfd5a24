"""Every family of `cvt` against exact arithmetic in Python."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator.convert import UnsupportedConversion, conversion
from tests.fitness.simulator.exact import round_fraction, value_16

Array = NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
RNG = np.random.default_rng(21)
BITS = {"u8": 8, "s8": 8, "u16": 16, "s16": 16, "u32": 32, "s32": 32, "u64": 64, "s64": 64}


def span(name: str) -> tuple[int, int]:
    bits = BITS[name]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


def wrap(value: int, name: str) -> int:
    """The low bits of a Python integer read as a type."""
    bits = BITS[name]
    value &= (1 << bits) - 1
    return value - (1 << bits) if name[0] == "s" and value >> (bits - 1) else value


def registers(bits: int, count: int = 300) -> Array:
    """Random registers with the extremes of every width among them."""
    edges = [0, 1, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
    drawn = RNG.integers(0, 2**64, count, dtype=np.uint64).tolist()
    return np.array([v & ((1 << bits) - 1) for v in edges + drawn], dtype=f"u{bits // 8}")


@pytest.mark.parametrize("d", BITS)
@pytest.mark.parametrize("s", BITS)
@pytest.mark.parametrize("saturate", [False, True])
def test_integers(d: str, s: str, saturate: bool) -> None:
    source = registers(max(BITS[s], 16))
    got = conversion(d, s, ("sat",) if saturate else ())(source)
    low, high = span(d)
    for register, result in zip(source.tolist(), got.tolist(), strict=True):
        value = wrap(register, s)
        want = min(max(value, low), high) if saturate else wrap(value, d)
        assert result == want % (1 << max(BITS[d], 16)), (register, result)


def test_a_wider_destination_register_is_extended() -> None:
    source = np.array([0x80, 0x7F], np.uint32)
    assert conversion("s8", "s32", register_bits=32)(source).tolist() == [0xFFFFFF80, 0x7F]
    assert conversion("u8", "u32", register_bits=32)(source).tolist() == [0x80, 0x7F]


F32_EDGES = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    126.5,
    127.5,
    255.5,
    -128.5,
    2.0**31,
    -(2.0**31),
    2147483520.0,
    2.0**32,
    2.0**63,
    -(2.0**63),
    2.0**64,
    3e38,
    -3e38,
    math.inf,
    -math.inf,
    math.nan,
    1e-42,
]


@pytest.mark.parametrize("d", BITS)
@pytest.mark.parametrize("s", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_floats_to_integers(d: str, s: str, mode: str) -> None:
    values = np.array(F32_EDGES + (RNG.standard_normal(60) * 10.0 ** RNG.integers(-2, 20, 60)).tolist())
    types: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    source = values.astype(types[s])
    got = conversion(d, s, (mode,))(source.view(np.uint16) if s in ("f16", "bf16") else source)
    low, high = span(d)
    for x, result in zip(source.astype(np.float64).tolist(), got.tolist(), strict=True):
        if math.isnan(x):
            want = (1 << (BITS[d] - 1)) if s == "f64" or BITS[d] == 64 else 0
            want = wrap(want, d)
        elif math.isinf(x):
            want = high if x > 0 else low
        else:
            rounders: dict[str, Any] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
            whole = rounders[mode](Fraction(x))
            want = min(max(whole, low), high)
        assert result == want % (1 << max(BITS[d], 16)), (x, result, want)


@pytest.mark.parametrize("d", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("s", ["u32", "s32", "u64", "s64", "s16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integers_to_floats(d: str, s: str, mode: str) -> None:
    source = registers(BITS[s], 100)
    got = conversion(d, s, (mode,))(source)
    for register, result in zip(source.tolist(), got.tolist(), strict=True):
        want = round_fraction(Fraction(wrap(register, s)), d, mode)
        assert (result if d == "f32" else value_16(d, result)) == want, register


@pytest.mark.parametrize("d", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_f32_to_16_bits(d: str, mode: str) -> None:
    source = registers(32, 500).view(np.float32)
    source = source[np.isfinite(source)]
    got = conversion(d, "f32", (mode,))(source)
    for x, result in zip(source.tolist(), got.tolist(), strict=True):
        assert value_16(d, result) == round_fraction(Fraction(x), d, mode), x


@pytest.mark.parametrize("s", ["f16", "bf16"])
def test_16_bits_to_f32_for_every_pattern(s: str) -> None:
    bits = np.arange(1 << 16).astype(np.uint16)
    got = conversion("f32", s)(bits)
    want = np.array([value_16(s, b) for b in bits.tolist()])
    np.testing.assert_array_equal(got.astype(np.float64), want)


def test_every_half_survives_bf16_as_rounded_f32() -> None:
    bits = np.arange(0x7C00).astype(np.uint16)
    got = conversion("bf16", "f16", ("rn",))(bits)
    want = [round_fraction(Fraction(value_16("f16", b)), "bf16") for b in bits[::37].tolist()]
    assert [value_16("bf16", b) for b in got[::37].tolist()] == want


def test_tf32_rounds_half_away() -> None:
    source = registers(32, 300).view(np.float32)
    source = source[np.isfinite(source)]
    got = conversion("tf32", "f32", ("rna",))(source)
    for x, result in zip(source.tolist(), got.tolist(), strict=True):
        value = struct.unpack("<f", struct.pack("<I", result))[0]
        assert value == round_fraction(Fraction(x), "tf32", "rna")
        assert result & 0x1FFF == 0


def test_packed_puts_the_first_source_in_the_upper_half() -> None:
    a, b = np.array([1.0, 2.0], np.float32), np.array([-1.0, 0.5], np.float32)
    assert conversion("f16x2", "f32", ("rn",))(a, b).tolist() == [0x3C00BC00, 0x40003800]
    assert conversion("bf16x2", "f32", ("rn",))(a, b).tolist() == [0x3F80BF80, 0x40003F00]
    assert conversion("e4m3x2", "f32", ("rn", "satfinite"))(a, np.array([1e9, -0.0], np.float32)).tolist() == [
        0x387E,
        0x4080,
    ]


def test_fp8_pairs_to_half_pairs() -> None:
    octets = np.arange(256, dtype=np.uint16)
    got = conversion("f16x2", "e5m2x2", ("rn",))(octets << 8 | octets)
    # e5m2 is the upper byte of an f16.
    finite = (octets & 0x7F) <= 0x7C
    np.testing.assert_array_equal(
        got[finite], ((octets.astype(np.uint32) << 24) | (octets.astype(np.uint32) << 8))[finite]
    )


def test_modifiers_on_f32() -> None:
    x = np.array([-0.5, 0.5, 1.5, 2.5, math.nan, 1e-40], np.float32)
    assert conversion("f32", "f32", ("sat",))(x).tolist() == pytest.approx([0, 0.5, 1, 1, 0, 1e-40])
    assert conversion("f32", "f32", ("rni",))(x)[:4].tolist() == [-0.0, 0, 2, 2]
    assert conversion("f32", "f32", ("ftz", "sat"))(x)[5] == 0
    assert conversion("f16", "f32", ("rn", "relu"))(x).tolist() == [0, 0x3800, 0x3E00, 0x4100, 0x7FFF, 0]


def test_scalars_stay_scalars() -> None:
    assert isinstance(conversion("f16", "f32", ("rn",))(np.float32(1)), np.uint16)
    assert isinstance(conversion("s32", "f32", ("rzi",))(np.float32(-1)), np.uint32)
    assert isinstance(conversion("f32", "f64", ("rz",))(np.float64(1.1)), np.float32)


@pytest.mark.parametrize(("d", "s"), [("f16x2", "s32"), ("f32", "e4m3"), ("s32", "f32")])
def test_unknown_forms_are_refused(d: str, s: str) -> None:
    with pytest.raises(UnsupportedConversion):
        conversion(d, s, ("rn",))
