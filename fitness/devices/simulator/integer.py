"""Integer arithmetic on registers held unsigned: add, mul (lo, hi, wide), mad, div, rem, min, max, abs, sad.

Each factory returns the function for one PTX type; results are registers (unsigned, two's complement).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Operation = Callable[..., Array]


def unsigned_type(type_name: str) -> Any:
    """NumPy type of a register of a PTX integer type ("s32" -> uint32)."""
    return np.dtype(f"u{int(type_name[1:]) // 8}").type


def signed_type(type_name: str) -> Any:
    """The signed NumPy type of the same width."""
    return np.dtype(f"i{int(type_name[1:]) // 8}").type


def typed(type_name: str, function: Operation) -> Operation:
    """Run a NumPy function on the signed view of registers where the PTX type is signed."""
    if not type_name.startswith("s"):
        return function
    signed, word = signed_type(type_name), unsigned_type(type_name)

    def run(*registers: Array) -> Array:
        result: Array = function(*(np.asarray(r).view(signed) for r in registers))
        return result.astype(signed, copy=False).view(word)

    return run


def multiply_wide(type_name: str) -> Operation:
    """`mul.wide`: the product in twice the width (16- and 32-bit types)."""
    wide = {"u16": np.uint32, "s16": np.int32, "u32": np.uint64, "s32": np.int64}[type_name]
    word = np.dtype(np.dtype(wide).str.replace("i", "u"))
    if type_name.startswith("u"):
        return lambda a, b: np.multiply(a, b, dtype=wide)
    signed = signed_type(type_name)
    return lambda a, b: np.multiply(np.asarray(a).view(signed), np.asarray(b).view(signed), dtype=wide).view(word)


def multiply_high(type_name: str) -> Operation:
    """`mul.hi`: the upper half of the product."""
    bits = int(type_name[1:])
    if bits < 64:
        wide = multiply_wide(type_name)
        word = unsigned_type(type_name)
        # The upper bits of a signed product are the same in two's complement.
        return lambda a, b: (wide(a, b) >> np.dtype(f"u{bits // 4}").type(bits)).astype(word)
    if type_name == "u64":
        return _high_u64

    def high(a: Array, b: Array) -> Array:
        zero, sign = np.uint64(0), np.uint64(63)
        correction = np.where(a >> sign, b, zero) + np.where(b >> sign, a, zero)
        result: Array = _high_u64(a, b) - correction
        return result

    return high


def _high_u64(a: Array, b: Array) -> Array:
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    carry = (middle & low) + a0 * b1
    result: Array = a1 * b1 + (middle >> half) + (carry >> half)
    return result


def divide(type_name: str) -> Operation:
    """`div`: truncated; by zero all ones (what the device gives; the ISA leaves it open)."""
    word = unsigned_type(type_name)
    ones = word(np.iinfo(word).max)

    def unsigned(a: Array, b: Array) -> Array:
        result: Array = np.where(b == 0, ones, np.floor_divide(a, np.maximum(b, word(1))))
        return result

    if not type_name.startswith("s"):
        return unsigned
    top = word(int(type_name[1:]) - 1)

    def signed(a: Array, b: Array) -> Array:
        quotient = unsigned(_magnitude(a, top), _magnitude(b, top))
        return np.where(b == 0, ones, np.where((a ^ b) >> top, ~quotient + word(1), quotient))

    return signed


def remainder(type_name: str) -> Operation:
    """`rem`: a - div(a, b) * b, so its sign is a's; by zero all ones (as on the device)."""
    quotient = divide(type_name)
    word = unsigned_type(type_name)
    ones = word(np.iinfo(word).max)

    def run(a: Array, b: Array) -> Array:
        result: Array = np.where(b == 0, ones, a - quotient(a, b) * b)
        return result

    return run


def _magnitude(a: Array, top: Any) -> Array:
    return np.where(a >> top, ~a + type(top)(1), a)


def absolute(type_name: str) -> Operation:
    """`abs`: of the most negative number, itself. There are signed types only (KeyError otherwise)."""
    if not type_name.startswith("s"):
        raise KeyError(f"abs.{type_name}")
    top = unsigned_type(type_name)(int(type_name[1:]) - 1)
    return lambda a: _magnitude(a, top)


def negate(type_name: str) -> Operation:
    """`neg`."""
    one = unsigned_type(type_name)(1)
    return lambda a: ~a + one


def absolute_difference(type_name: str) -> Operation:
    """`sad`: c + |a - b|."""
    low, high = typed(type_name, np.minimum), typed(type_name, np.maximum)
    return lambda a, b, c: c + (high(a, b) - low(a, b))


def saturating(type_name: str, function: Operation) -> Operation:
    """`.sat` (s32): add, sub or a mad's sum, clamped to the range."""
    info = np.iinfo(signed_type(type_name))
    signed = signed_type(type_name)

    def run(*registers: Array) -> Array:
        wide = function(*(np.asarray(r).view(signed).astype(np.int64) for r in registers))
        return np.clip(wide, info.min, info.max).astype(signed).view(unsigned_type(type_name))

    return run
