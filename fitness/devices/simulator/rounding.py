"""Rounding to narrow floating-point formats: every PTX rounding mode, exactly.

`round_to` is the definition (scale by a power of two, round to an integer, scale back; each step exact);
`encode_*` are the fast paths for round-to-nearest-even that inner loops take. f16 and bf16 values are held as
uint16 bit patterns. Callers run under `np.errstate(all="ignore")`, as the whole engine does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class FloatFormat(NamedTuple):
    """A binary floating-point format: `precision` bits with the hidden one, smallest normal 2**emin."""

    precision: int
    emin: int
    largest: float


FORMATS: dict[str, FloatFormat] = {
    "f16": FloatFormat(11, -14, 65504.0),
    "bf16": FloatFormat(8, -126, float.fromhex("0x1.fep127")),
    "tf32": FloatFormat(11, -126, float.fromhex("0x1.ffcp127")),
    "f32": FloatFormat(24, -126, float.fromhex("0x1.fffffep127")),
    "f64": FloatFormat(53, -1022, float.fromhex("0x1.fffffffffffffp1023")),
    "e4m3": FloatFormat(4, -6, 448.0),
    "e5m2": FloatFormat(3, -14, 57344.0),
}

TINY_F32 = np.float32(2.0**-126)
_NAN_16 = np.uint16(0x7FFF)


def round_integral(x: Array, mode: str) -> Array:
    """Round to an integral value: "rn" (ties to even), "rz", "rm" (down), "rp" (up), "rna" (ties away)."""
    if mode == "rna":
        # Not floor(|x| + 0.5): that sum itself rounds up just below one half.
        size = np.abs(x)
        whole = np.floor(size)
        away: Array = np.copysign(whole + (size - whole >= 0.5), x)
        return away
    functions = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}
    rounded: Array = functions[mode](x)
    return rounded


def round_to(x: Array, name: str, mode: str = "rn", *, finite: bool = False) -> Array:
    """Round to a format, exactly, subnormals included.

    Args:
        x: float64 or wider values (exact inputs; an int64 goes through np.longdouble).
        name: a key of `FORMATS`.
        mode: as in `round_integral`.
        finite: `.satfinite`: too large becomes the largest finite value instead of infinity.

    Returns:
        Values in x's type, each representable in the format (or infinite, or NaN).
    """
    form = FORMATS[name]
    _, exponent = np.frexp(x)  # |x| = m * 2**exponent, 0.5 <= m < 1
    quantum = np.maximum(exponent - form.precision, form.emin - form.precision + 1)
    rounded = np.ldexp(round_integral(np.ldexp(x, -quantum), mode), quantum)
    infinite = np.isinf(x)
    over = (np.abs(rounded) > form.largest) & ~infinite
    keeps = {"rz": over, "rm": over & (x > 0), "rp": over & (x < 0)}.get(mode, np.zeros_like(over))
    if finite:
        keeps = over | infinite
    rounded = np.where(over | infinite, np.copysign(np.inf, x), rounded)
    result: Array = np.where(keeps, np.copysign(form.largest, x), rounded).astype(x.dtype, copy=False)
    return result


def to_odd_f32(x: Array) -> Array:
    """float64 -> float32, rounding to odd, so that a second rounding to fewer bits is right."""
    near = x.astype(np.float32)
    bits = near.view(np.int32)
    error = x - near.astype(np.float64)
    fix = (error != 0) & ((bits & 1) == 0) & np.isfinite(near)
    outward = (error > 0) == (x > 0)
    odd: Array = np.where(fix, bits + np.where(outward, 1, -1).astype(np.int32), bits).astype(np.int32)
    return odd.view(np.float32)


def to_odd_sum(a: Array, b: Array) -> Array:
    """A + b of float64 rounded to odd: the exact sum's sticky bit survives (Knuth's two-sum)."""
    total = a + b
    virtual = total - a
    error = (a - (total - virtual)) + (b - virtual)
    bits = total.view(np.int64)
    fix = (error != 0) & ((bits & 1) == 0) & np.isfinite(total) & np.isfinite(error)
    outward = (error > 0) == (total > 0)
    odd: Array = np.where(fix, bits + np.where(outward, 1, -1), bits)
    return odd.view(np.float64)


#: float32 value of every f16 bit pattern: looking it up takes half the time of NumPy's conversion.
_HALVES: Array = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def decode_16(kind: str, bits: Array) -> Array:
    """float32 values of f16 or bf16 bit patterns (uint16)."""
    values: Array = _HALVES.take(bits) if kind == "f16" else (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values


def encode_16(kind: str, x: Array) -> Array:
    """Float32 (f16: or float64) -> uint16 bit patterns, to nearest even; NaN becomes the canonical 0x7fff."""
    if kind == "f16":
        bits: Array = x.astype(np.float16).view(np.uint16)
    else:
        word = x.view(np.uint32)
        odd = (word >> np.uint32(16)) & np.uint32(1)
        bits = ((word + (odd + np.uint32(0x7FFF))) >> np.uint32(16)).astype(np.uint16)
    missing = np.isnan(x)
    if missing.any():
        bits = np.where(missing, _NAN_16, bits)
    return bits


def encode_16_from_f64(kind: str, x: Array) -> Array:
    """float64 -> uint16 bit patterns of f16 or bf16, rounded once, to nearest even."""
    return encode_16(kind, x if kind == "f16" else to_odd_f32(x))


def flush_f32(x: Array) -> Array:
    """`.ftz`: float32 subnormals become zeros of their sign."""
    flushed: Array = x * (np.abs(x) >= TINY_F32)
    return flushed


def flush_16(kind: str, bits: Array) -> Array:
    """`.ftz` on f16 or bf16 bit patterns."""
    exponent = np.uint16(0x7C00 if kind == "f16" else 0x7F80)
    flushed: Array = np.where((bits & exponent) == 0, bits & np.uint16(0x8000), bits)
    return flushed


def saturate(x: Array) -> Array:
    """`.sat` of floating-point results: clamp to [0, 1], NaN becomes +0."""
    # fmax also turns NaN into 0; adding 0 turns -0 into +0.
    clamped: Array = np.fmin(np.fmax(x, x.dtype.type(0)), x.dtype.type(1)) + x.dtype.type(0)
    return clamped
