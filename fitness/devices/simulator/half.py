"""f16, bf16 and their packed pairs: arithmetic on bit patterns (uint16; pairs in uint32).

add, sub, mul, and the functions are formed in float32 and rounded to 16 bits: with 24 >= 2 * 11 + 2 bits the
second rounding changes nothing. fma is formed in float64 (bf16: rounded to odd, since its exponents spread
further), so it too is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.rounding import (
    decode_16,
    encode_16,
    encode_16_from_f64,
    flush_16,
    round_to,
    saturate,
    to_odd_sum,
)

Array = NDArray[Any]
Operation = Callable[..., Array]

KINDS = ("f16", "bf16", "f16x2", "bf16x2")
_SIGN = np.uint16(0x8000)
_MAGNITUDE = np.uint16(0x7FFF)
_NAN = np.uint16(0x7FFF)

_BINARY: dict[str, Operation] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
# float64 results that keep the exact one's sticky bit, for rounding toward zero.
_ODD: dict[str, Operation] = {"add": to_odd_sum, "sub": lambda a, b: to_odd_sum(a, -b), "mul": np.multiply}
_UNARY: dict[str, Operation] = {"ex2": np.exp2, "tanh": np.tanh}


def operation(name: str, kind: str, flags: frozenset[str]) -> Operation:
    """The function of one 16-bit floating-point instruction.

    Args:
        name: "add", "sub", "mul", "fma", "mad", "neg", "abs", "min", "max", "ex2" or "tanh".
        kind: one of `KINDS`.
        flags: "ftz", "sat", "relu", "NaN", "xorsign", "rn", "rz".

    Returns:
        A function of registers giving a register.

    Raises:
        KeyError: there is no such instruction.
    """
    element = kind.removesuffix("x2")
    single = _finished(_single(name, element, flags), element, flags)
    return paired(single) if kind.endswith("x2") else single


def _single(name: str, kind: str, flags: frozenset[str]) -> Operation:
    if name in _BINARY:
        function = _BINARY[name]
        if "rz" in flags:
            return lambda a, b: _narrow_toward_zero(kind, _ODD[name](_wide(kind, a), _wide(kind, b)))
        return lambda a, b: encode_16(kind, function(decode_16(kind, a), decode_16(kind, b)))
    if name in ("fma", "mad"):
        return lambda a, b, c: _fma(kind, a, b, c, flags)
    if name in _UNARY:
        unary = _UNARY[name]
        return lambda a: encode_16(kind, unary(decode_16(kind, a)))
    if name in ("neg", "abs"):
        # A NaN becomes the canonical one, its sign included (seen on an H200).
        if name == "neg":
            return lambda a: np.where(_missing(kind, a), _NAN, a ^ _SIGN)
        return lambda a: np.where(_missing(kind, a), _NAN, a & _MAGNITUDE)
    return {"min": _minimum, "max": _maximum}[name](kind, flags)


def _wide(kind: str, bits: Array) -> Array:
    return decode_16(kind, bits).astype(np.float64)


def _narrow_toward_zero(kind: str, value: Array) -> Array:
    rounded = round_to(value, kind, "rz")
    return encode_16(kind, rounded.astype(np.float32))


def _fma(kind: str, a: Array, b: Array, c: Array, flags: frozenset[str]) -> Array:
    product = _wide(kind, a) * decode_16(kind, b)
    total = product + decode_16(kind, c) if kind == "f16" else to_odd_sum(product, _wide(kind, c))
    if "rz" in flags:
        return _narrow_toward_zero(kind, total)
    return encode_16_from_f64(kind, total)


def _order(bits: Array) -> Array:
    """Bit patterns as int32 that order like the numbers they stand for, -0 below +0."""
    signed = bits.view(np.int16).astype(np.int32)
    return np.where(signed < 0, np.int32(-32769) - signed, signed)


def _missing(kind: str, bits: Array) -> Array:
    infinity = np.uint16(0x7C00 if kind == "f16" else 0x7F80)
    missing: Array = (bits & _MAGNITUDE) > infinity
    return missing


def _extremum(kind: str, flags: frozenset[str], *, largest: bool) -> Operation:
    xor_sign = "xorsign" in flags

    def run(a: Array, b: Array, *rest: Array) -> Array:
        if rest:
            return run(run(a, b), *rest)
        x, y = (a & _MAGNITUDE, b & _MAGNITUDE) if xor_sign else (a, b)
        a_wins = (_order(x) >= _order(y)) if largest else (_order(x) <= _order(y))
        nan_x, nan_y = _missing(kind, x), _missing(kind, y)
        picked = np.where((a_wins & ~nan_x) | nan_y, x, y)
        if xor_sign:
            picked = picked | ((a ^ b) & _SIGN)
        void = (nan_x | nan_y) if "NaN" in flags else (nan_x & nan_y)
        return np.where(void, _NAN, picked)

    return run


def _minimum(kind: str, flags: frozenset[str]) -> Operation:
    return _extremum(kind, flags, largest=False)


def _maximum(kind: str, flags: frozenset[str]) -> Operation:
    return _extremum(kind, flags, largest=True)


def _finished(function: Operation, kind: str, flags: frozenset[str]) -> Operation:
    """Flush, saturate or rectify as the modifiers say."""
    if not flags & {"ftz", "sat", "relu"}:
        return function

    def run(*sources: Array) -> Array:
        if "ftz" in flags:
            sources = tuple(flush_16(kind, s) for s in sources)
        result = function(*sources)
        if "ftz" in flags:
            result = flush_16(kind, result)
        if "sat" in flags:
            result = encode_16(kind, saturate(decode_16(kind, result)))
        if "relu" in flags:
            result = np.where((result & _SIGN).astype(bool) & ~_missing(kind, result), np.uint16(0), result)
        return result

    return run


def paired(function: Operation) -> Operation:
    """Apply a function of uint16 to both halves of uint32 registers."""

    def run(*sources: Array) -> Array:
        shape = np.broadcast_shapes(*(np.shape(s) for s in sources))
        halves = [np.ascontiguousarray(s, dtype=np.uint32).reshape(-1, 1).view(np.uint16) for s in sources]
        result = np.ascontiguousarray(function(*halves)).view(np.uint32)
        return result.reshape(shape)

    return run


def compare(test: Callable[[Array, Array], Array], kind: str) -> Callable[[Array, Array], Any]:
    """A comparison of f16 or bf16 registers; of a pair, the tuple (low halves, high halves)."""
    element = kind.removesuffix("x2")
    if kind == element:
        return lambda a, b: test(decode_16(kind, np.asarray(a)), decode_16(kind, np.asarray(b)))

    def run(a: Array, b: Array) -> tuple[Array, Array]:
        results = []
        for shift in (np.uint32(0), np.uint32(16)):
            low = [(np.asarray(s) >> shift).astype(np.uint16) for s in (a, b)]
            results.append(test(decode_16(element, low[0]), decode_16(element, low[1])))
        return results[0], results[1]

    return run
