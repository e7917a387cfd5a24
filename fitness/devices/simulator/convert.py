"""`cvt`: every conversion between integers, f16, bf16, tf32, fp8, f32 and f64 (PTX ISA, "cvt").

`conversion` builds the function for one instruction once, when code is generated; running it is NumPy only.
Registers: integers as unsigned arrays of any width (the low bits count), f16 / bf16 as uint16, packed pairs
and tf32 as uint32 bit patterns, f32 and f64 as themselves. Scalars (0-d) are accepted too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.registers import plain
from fitness.devices.simulator.rounding import (
    decode_16,
    encode_16,
    flush_f32,
    round_integral,
    round_to,
    saturate,
)

Array = NDArray[Any]
Convert = Callable[..., Array]

INTEGERS: dict[str, Any] = {
    "u8": np.uint8,
    "s8": np.int8,
    "u16": np.uint16,
    "s16": np.int16,
    "u32": np.uint32,
    "s32": np.int32,
    "u64": np.uint64,
    "s64": np.int64,
}
_FP8: dict[str, Any] = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
_MODES = ("rn", "rz", "rm", "rp", "rna")
_INTEGRAL_MODES = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_REGISTERS: dict[int, Any] = {16: np.uint16, 32: np.uint32, 64: np.uint64}


class UnsupportedConversion(ValueError):  # noqa: N818 - the engine turns it into the outcome Unsupported
    """This form of `cvt` is not modelled (or does not exist)."""


def unsigned(bits: int) -> Any:
    """The NumPy type that holds integer registers of 8 to 64 bits (8-bit values live in 16)."""
    return _REGISTERS[max(bits, 16)]


@functools.cache
def conversion(
    d_type: str, s_type: str, modifiers: Iterable[str] = frozenset(), *, register_bits: int | None = None
) -> Convert:
    """The function for `cvt.<modifiers>.<d_type>.<s_type>`.

    Args:
        d_type: "u8" ... "s64", "f16", "bf16", "tf32", "f32", "f64", or a packed "f16x2", "bf16x2", "e4m3x2",
            "e5m2x2".
        s_type: as `d_type`.
        modifiers: rounding ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"), "ftz", "sat",
            "satfinite", "relu"; any hashable collection.
        register_bits: width of an integer destination register where wider than `d_type`; the result is sign-
            or zero-extended to it.

    Returns:
        A function of the source register, or for packed destinations made of two sources, of (a, b) where a
        goes to the upper half.

    Raises:
        UnsupportedConversion: not modelled.
    """
    flags = frozenset(modifiers)
    if d_type.endswith("x2") or s_type.endswith("x2"):
        convert = _packed(d_type, s_type, flags)
    elif d_type in INTEGERS:
        convert = _to_integer(d_type, s_type, flags, register_bits)
    else:
        convert = _to_float(d_type, s_type, flags)
    return lambda *sources: plain(convert(*sources))


# ---------------------------------------------------------------- sources


def integer(name: str, register: Array) -> Array:
    """The value of the low bits of an integer register, as the NumPy type of `name`."""
    dtype = np.dtype(INTEGERS[name])
    value: Array = np.asarray(register).astype(f"u{dtype.itemsize}", copy=False).view(dtype)
    return value


def _float_source(s_type: str, flags: frozenset[str]) -> Convert:
    """Register -> float32 or float64 value."""
    if s_type in ("f16", "bf16"):
        return lambda s: decode_16(s_type, np.asarray(s))
    if s_type == "f32":
        return (lambda s: flush_f32(np.asarray(s))) if "ftz" in flags else np.asarray
    if s_type == "f64":
        return np.asarray
    raise UnsupportedConversion(f"cvt from {s_type}")


# ---------------------------------------------------------------- to integers


def _clamp_integer(value: Array, dtype: Any) -> Array:
    """Integers clamped to a type's range (values and bounds compared exactly)."""
    info = np.iinfo(dtype)
    low = max(int(info.min), int(np.iinfo(value.dtype).min))
    high = min(int(info.max), int(np.iinfo(value.dtype).max))
    return np.clip(value, value.dtype.type(low), value.dtype.type(high))


def _to_integer(d_type: str, s_type: str, flags: frozenset[str], register_bits: int | None) -> Convert:
    dtype = np.dtype(INTEGERS[d_type])
    width = np.dtype(unsigned(register_bits or 8 * dtype.itemsize))
    signed_width = np.dtype(f"i{width.itemsize}")

    def extend(value: Array) -> Array:
        """A value of the destination type, extended to the register."""
        wide: Array = value.astype(signed_width if dtype.kind == "i" else width, copy=False).view(width)
        return wide

    if s_type in INTEGERS:
        if "sat" in flags:
            return lambda s: extend(_clamp_integer(integer(s_type, s), dtype.type).astype(dtype))
        return lambda s: extend(integer(s_type, s).astype(dtype, copy=False))
    read = _float_source(s_type, flags)
    modes = [_INTEGRAL_MODES[f] for f in flags if f in _INTEGRAL_MODES]
    if not modes:
        raise UnsupportedConversion(f"cvt.{d_type}.{s_type} without rounding to an integer")
    return lambda s: extend(_float_to_integer(read(s), modes[0], dtype, wide_nan=s_type == "f64"))


def _float_to_integer(x: Array, mode: str, dtype: np.dtype[Any], *, wide_nan: bool) -> Array:
    """Round, clamp to the range, NaN by the ISA's rule ("cvt", Integer Notes).

    NaN gives 0, or 1 << (bits - 1) where the source is f64 or the destination has 64 bits.
    """
    info = np.iinfo(dtype)
    rounded = round_integral(x.astype(np.float64), mode)
    low, high = float(info.min), float(info.max)
    inside = np.where((rounded > low) & (rounded < high), rounded, 0.0)
    whole = inside.astype(np.uint64 if dtype == np.uint64 else np.int64).astype(dtype)
    whole = np.where(rounded >= high, dtype.type(info.max), whole)
    whole = np.where(rounded <= low, dtype.type(info.min), whole)
    top_bit = 1 << (8 * dtype.itemsize - 1)
    missing = 0 if not (wide_nan or dtype.itemsize == 8) else (top_bit if dtype.kind == "u" else -top_bit)
    result: Array = np.where(np.isnan(x), dtype.type(missing), whole)
    return result


# ---------------------------------------------------------------- to floating point


def _to_float(d_type: str, s_type: str, flags: frozenset[str]) -> Convert:
    fast = _fast_path(d_type, s_type, flags)
    if fast is not None:
        return fast
    if s_type in INTEGERS:

        def read(s: Array) -> Array:
            # longdouble (64-bit significand or more) holds every 64-bit integer exactly.
            return integer(s_type, s).astype(np.longdouble if s_type[1:] == "64" else np.float64)
    else:
        source = _float_source(s_type, flags)

        def read(s: Array) -> Array:
            return source(s).astype(np.float64)

    integral = next((_INTEGRAL_MODES[f] for f in flags if f in _INTEGRAL_MODES), None)
    mode = next((f for f in flags if f in _MODES), "rn")
    finite = "satfinite" in flags
    finish = _finisher(d_type, flags)

    def convert(s: Array) -> Array:
        x = read(s)
        if integral is not None:
            x = round_integral(x, integral)
        if "sat" in flags:
            x = saturate(x)
        if "relu" in flags:
            x = np.where(x > 0, x, np.where(np.isnan(x), x, 0.0).astype(x.dtype))
        return finish(round_to(x, d_type, mode, finite=finite))

    return convert


def _fast_path(d_type: str, s_type: str, flags: frozenset[str]) -> Convert | None:
    """One-cast conversions that inner loops use; None where the general way is needed."""
    if flags - {"rn", "ftz"} or (d_type, s_type) == ("tf32", "f32"):
        return None
    if d_type in ("f16", "bf16") and s_type == "f32":
        if "ftz" in flags:
            return lambda s: encode_16(d_type, flush_f32(np.asarray(s)))
        return lambda s: encode_16(d_type, np.asarray(s))
    if d_type == "f32" and s_type in ("f16", "bf16"):
        return lambda s: decode_16(s_type, np.asarray(s))
    if "ftz" not in flags and d_type in ("f32", "f64"):
        dtype = np.float32 if d_type == "f32" else np.float64
        if s_type in ("f32", "f64"):
            return lambda s: np.asarray(s).astype(dtype)
        if s_type in INTEGERS:
            return lambda s: integer(s_type, s).astype(dtype)
    return None


def _finisher(d_type: str, flags: frozenset[str]) -> Convert:
    """Representable values (float64 or wider) -> register."""
    if d_type == "f64":
        return lambda x: x.astype(np.float64)
    if d_type == "f32":
        if "ftz" in flags:
            return lambda x: flush_f32(x.astype(np.float32))
        return lambda x: x.astype(np.float32)
    if d_type == "tf32":
        return lambda x: x.astype(np.float32).view(np.uint32)
    if d_type == "f16":
        return lambda x: encode_16("f16", x.astype(np.float64))
    if d_type == "bf16":
        return lambda x: encode_16("bf16", x.astype(np.float32))
    if d_type in _FP8:
        # Both 8-bit formats have 0x7f as the canonical NaN.
        return lambda x: np.where(np.isnan(x), np.uint8(0x7F), x.astype(np.float32).astype(_FP8[d_type]).view(np.uint8))
    raise UnsupportedConversion(f"cvt to {d_type}")


# ---------------------------------------------------------------- packed


def _packed(d_type: str, s_type: str, flags: frozenset[str]) -> Convert:
    """Pairs: two f32 into f16x2 / bf16x2 / fp8x2, and f16x2 <-> fp8x2."""
    element = d_type.removesuffix("x2")
    if s_type == "f32" and element in ("f16", "bf16"):
        half = _to_float(element, "f32", flags)
        return lambda a, b: (half(a).astype(np.uint32) << np.uint32(16)) | half(b)
    if s_type == "f32" and element in _FP8:
        octet = _to_float(element, "f32", flags | {"satfinite"})
        return lambda a, b: (octet(a).astype(np.uint16) << np.uint16(8)) | octet(b)
    if s_type == "f16x2" and element in _FP8:
        octet = _to_float(element, "f16", flags | {"satfinite"})
        return lambda s: _join_octets(octet(_halves(s)))
    if d_type == "f16x2" and s_type.removesuffix("x2") in _FP8:
        table = np.arange(256, dtype=np.uint8).view(_FP8[s_type.removesuffix("x2")]).astype(np.float32)
        halves = encode_16("f16", np.maximum(table, 0) if "relu" in flags else table)
        return lambda s: (
            (halves[np.asarray(s) >> 8 & 0xFF].astype(np.uint32) << np.uint32(16)) | halves[np.asarray(s) & 0xFF]
        )
    raise UnsupportedConversion(f"cvt.{d_type}.{s_type}")


def _halves(register: Array) -> Array:
    """uint32 registers (L,) -> uint16 (L, 2), low half first."""
    return np.ascontiguousarray(register, dtype=np.uint32).reshape(-1, 1).view(np.uint16)


def _join_octets(octets: Array) -> Array:
    """uint8 (L, 2) -> uint16 (L,)."""
    return np.ascontiguousarray(octets).view(np.uint16).reshape(-1)
