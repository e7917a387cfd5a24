"""f32 and f64 arithmetic: rounding modes, .ftz, .sat, NaN rules, and the approximate functions.

The approximate functions (`ex2.approx`, `rcp.approx`, ...) are computed accurately: within the ISA's error
bounds, not the device's bits. (`sin.approx` and `cos.approx` of a card lose all accuracy far outside +-pi; ours
do not.) `fma.rn.f32` goes through float64: rounded twice, which differs from one rounding only in rare halfway
cases (about 1 in 2**29 of random operands); `exact=True` avoids even that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator import directed
from fitness.devices.simulator.rounding import flush_f32, round_to, saturate, to_odd_sum

Array = NDArray[Any]
Operation = Callable[..., Array]

_MODES = ("rn", "rz", "rm", "rp")
_SPLIT = float(2**27 + 1)


def mode_of(flags: frozenset[str]) -> str:
    """The rounding mode among an instruction's modifiers ("rn" where none is given)."""
    return next((m for m in _MODES if m in flags), "rn")


def finish_f32(function: Operation, flags: frozenset[str]) -> Operation:
    """Wrap an f32 function with the flushing and saturation its modifiers ask for."""
    flush, clamp = "ftz" in flags, "sat" in flags
    if not flush and not clamp:
        return function

    def run(*sources: Array) -> Array:
        if flush:
            sources = tuple(flush_f32(s) for s in sources)
        result = function(*sources)
        if flush:
            result = flush_f32(result)
        return saturate(result) if clamp else result

    return run


def _directed(function: Operation, mode: str) -> Operation:
    """An f32 function rounded in another direction.

    From a float64 result that is exact or rounded to odd (sums, products), or the nearest one of a quotient or root,
    which never falls on an f32 that the exact one is not: 53 bits are more than 2 * 24 + 1.
    """

    def run(*sources: Array) -> Array:
        wide = function(*(np.asarray(s).astype(np.float64) for s in sources))
        return round_to(np.asarray(wide), "f32", mode).astype(np.float32)

    return run


def add(type_name: str, flags: frozenset[str]) -> Operation:
    """`add`, any rounding mode."""
    return _arithmetic("add", np.add, to_odd_sum, type_name, flags)


def subtract(type_name: str, flags: frozenset[str]) -> Operation:
    """`sub`."""
    return _arithmetic("sub", np.subtract, lambda a, b: to_odd_sum(a, -b), type_name, flags)


def multiply(type_name: str, flags: frozenset[str]) -> Operation:
    """`mul`."""
    return _arithmetic("mul", np.multiply, np.multiply, type_name, flags)


def divide(type_name: str, flags: frozenset[str]) -> Operation:
    """`div` in any mode; `div.full`, `div.approx`: the nearest quotient."""
    return _arithmetic("div", np.divide, np.divide, type_name, flags)


def square_root(type_name: str, flags: frozenset[str]) -> Operation:
    """`sqrt` in any mode; `sqrt.approx`: the nearest."""
    return _arithmetic("sqrt", np.sqrt, np.sqrt, type_name, flags)


def reciprocal(type_name: str, flags: frozenset[str]) -> Operation:
    """`rcp` in any mode; `rcp.approx`: the nearest."""
    dtype = np.float32 if type_name == "f32" else np.float64
    return _arithmetic("rcp", lambda a: np.divide(dtype(1), a), lambda a: 1.0 / a, type_name, flags)


def _arithmetic(name: str, near: Operation, wide: Operation, type_name: str, flags: frozenset[str]) -> Operation:
    """`near`: the nearest result. `wide`: one of float64 that tells the direction of every f32 beside it."""
    mode = mode_of(flags)
    if mode == "rn":
        return near if type_name == "f64" else finish_f32(near, flags)
    if type_name == "f64":
        return directed.operation_f64(name, mode)
    return finish_f32(_directed(wide, mode), flags)


# ---------------------------------------------------------------- fused multiply-add


def fma(type_name: str, flags: frozenset[str], *, exact: bool = False) -> Operation:
    """`fma` (and `mad.f32`, `mad.f64`, the same operation on sm_20 and above)."""
    if type_name == "f64":
        return fma_f64 if mode_of(flags) == "rn" else directed.operation_f64("fma", mode_of(flags))
    mode = mode_of(flags)
    if mode != "rn":
        return finish_f32(_directed(lambda a, b, c: to_odd_sum(a * b, c), mode), flags)
    return finish_f32(_fma_f32_exact if exact else _fma_f32, flags)


def _fma_f32(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(a, b, dtype=np.float64)
    product += c
    result: Array = product.astype(np.float32)
    return result


def _fma_f32_exact(a: Array, b: Array, c: Array) -> Array:
    product = np.asarray(np.multiply(a, b, dtype=np.float64))
    return to_odd_sum(product, np.asarray(c, dtype=np.float64)).astype(np.float32)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _split(a: Array) -> tuple[Array, Array]:
    scaled = _SPLIT * a
    high = scaled - (scaled - a)
    return high, a - high


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """A double-precision fma rounded once (Boldo and Melquiond 2008), barring overflow inside the steps.

    Operands beyond 2**996 or results near the subnormals take the plain a * b + c.
    """
    a, b, c = np.asarray(a), np.asarray(b), np.asarray(c)
    product = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    error = al * bl - (((product - ah * bh) - al * bh) - ah * bl)
    th, tl = _two_sum(c, error)
    vh, vl = _two_sum(product, th)
    result = vh + to_odd_sum(tl, vl)
    plain = product + c
    return np.where(np.isfinite(error) & np.isfinite(plain), result, plain)


# ---------------------------------------------------------------- minimum, maximum, sign


def minimum(type_name: str, flags: frozenset[str]) -> Operation:
    """`min`: the operand that is a number wins over NaN (with .NaN: NaN wins); -0 < +0."""
    return _extremum(np.fmin, np.minimum, np.bitwise_or, type_name, flags)


def maximum(type_name: str, flags: frozenset[str]) -> Operation:
    """`max`, by the same rules."""
    return _extremum(np.fmax, np.maximum, np.bitwise_and, type_name, flags)


def _extremum(
    numbers: Operation, nans: Operation, zeros: Operation, type_name: str, flags: frozenset[str]
) -> Operation:
    pick = nans if "NaN" in flags else numbers
    bits = np.uint32 if type_name == "f32" else np.uint64
    dtype = np.float32 if type_name == "f32" else np.float64

    def run(a: Array, b: Array, *rest: Array) -> Array:
        if rest:  # three-operand form
            return run(run(a, b), *rest)
        a, b = np.asarray(a), np.asarray(b)
        # Equal operands differ at most in the sign of zero, which the bit operation settles.
        return np.where(a == b, zeros(a.view(bits), b.view(bits)).view(dtype), pick(a, b))

    def xor_sign(a: Array, b: Array) -> Array:
        sign = (np.asarray(a).view(bits) ^ np.asarray(b).view(bits)) & bits(1 << (8 * bits().itemsize - 1))
        magnitude = run(np.abs(a), np.abs(b)).view(bits)
        result: Array = (magnitude | sign).view(dtype)
        return result

    chosen = xor_sign if "xorsign" in flags else run
    return chosen if type_name == "f64" else finish_f32(chosen, flags)


def copy_sign(_type_name: str) -> Operation:
    """`copysign`: the magnitude of b with the sign of a."""
    return lambda a, b: np.copysign(b, a)


def property_test(name: str, type_name: str) -> Operation:
    """`testp.<name>`: a predicate."""
    tiny = 2.0**-126 if type_name == "f32" else 2.0**-1022
    tests: dict[str, Operation] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": lambda a: np.abs(a) < tiny,
    }
    return tests[name]


# ---------------------------------------------------------------- approximate functions


def approximate(name: str, type_name: str, flags: frozenset[str]) -> Operation:
    """`ex2`, `lg2`, `rsqrt`, `sin`, `cos`, `tanh` (f32; `rsqrt` also f64), accurately rounded."""
    functions: dict[str, Operation] = {
        "ex2": np.exp2,
        "lg2": np.log2,
        "rsqrt": lambda a: 1.0 / np.sqrt(a),
        "sin": np.sin,
        "cos": np.cos,
        "tanh": np.tanh,
    }
    function = functions[name]
    if type_name == "f64":
        return function

    def run(a: Array) -> Array:
        result: Array = function(np.asarray(a).astype(np.float64)).astype(np.float32)
        return result

    return finish_f32(run, flags)
