"""f64 arithmetic toward zero and either infinity, exactly, by rational numbers.

Compilers use these seldom (`round` of a double, interval arithmetic), so they are computed lane by lane: the nearest
double, then a comparison with the exact value. Only sums, which `round` is made of, have a fast form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Operation = Callable[..., Array]

_LARGEST = float(np.finfo(np.float64).max)


def operation_f64(name: str, mode: str) -> Operation:
    """`add`, `sub`, `mul`, `div`, `rcp`, `sqrt` or `fma` of doubles, rounded "rz", "rm" or "rp".

    Raises:
        KeyError: there is no such operation.
    """
    if name == "add":
        return lambda a, b: _sum(np.asarray(a), np.asarray(b), mode)
    if name == "sub":
        return lambda a, b: _sum(np.asarray(a), -np.asarray(b), mode)
    near, exact = _OPERATIONS[name]

    def run(*sources: Array) -> Array:
        columns = np.broadcast_arrays(*(np.asarray(s, dtype=np.float64) for s in sources))
        first = np.array(near(*columns), dtype=np.float64)
        flat = first.reshape(-1)
        for place, values in enumerate(zip(*(c.reshape(-1).tolist() for c in columns), strict=True)):
            if all(math.isfinite(v) for v in values) and not math.isnan(flat[place]):
                flat[place] = _adjusted(float(flat[place]), exact(*values), mode)
        return first

    return run


def _sum(a: Array, b: Array, mode: str) -> Array:
    """Knuth's two-sum gives the error of the nearest sum, and so the direction."""
    total = a + b
    virtual = total - a
    error = (a - (total - virtual)) + (b - virtual)
    finite = np.isfinite(a) & np.isfinite(b)
    down = {"rz": ((error < 0) & (total > 0)), "rm": error < 0, "rp": np.zeros(total.shape, bool)}[mode]
    up = {"rz": ((error > 0) & (total < 0)), "rm": np.zeros(total.shape, bool), "rp": error > 0}[mode]
    result = np.where(down, np.nextafter(total, -np.inf), np.where(up, np.nextafter(total, np.inf), total))
    over = finite & np.isinf(total)
    kept = over & {"rz": np.ones(total.shape, bool), "rm": total > 0, "rp": total < 0}[mode]
    result = np.where(over, np.where(kept, np.copysign(_LARGEST, total), total), result)
    if mode == "rm":  # an exact zero is -0, unless both terms are +0
        negative = (total == 0) & finite & ~((a == 0) & ~np.signbit(a) & (b == 0) & ~np.signbit(b))
        result = np.where(negative, -0.0, result)
    return np.asarray(result)


def _adjusted(near: float, exact: Exact | None, mode: str) -> float:
    """The nearest double moved to the other side of the exact value where the mode asks for it.

    None: the nearest is exact (zeros, division by zero).
    """
    if exact is None:
        return near
    if exact.zero:
        return -0.0 if mode == "rm" and exact.signed else near
    low = mode == "rm" or (mode == "rz" and exact.positive)
    if math.isinf(near):
        return near if low == (near < 0) else math.copysign(_LARGEST, near)
    side = exact.compare(near)  # of the exact value beside the nearest
    if low and side < 0:
        return math.nextafter(near, -math.inf)
    if not low and side > 0:
        return math.nextafter(near, math.inf)
    return near


class Exact:
    """An exact result: a rational, or the root of one (`root`).

    Attributes:
        zero, positive: its sign. signed: an exact zero made of nonzero terms, whose sign depends on the mode.
    """

    def __init__(self, value: Fraction, *, root: bool = False, signed: bool = False) -> None:
        self.value, self.root, self.signed = value, root, signed
        self.zero, self.positive = value == 0, value > 0

    def compare(self, near: float) -> int:
        """-1, 0 or 1: below, equal to or above a double."""
        held = Fraction(near)
        difference = self.value - (held * held if self.root else held)
        return (difference > 0) - (difference < 0)


def _product(a: float, b: float) -> Exact | None:
    return Exact(Fraction(a) * Fraction(b)) if a and b else None


def _quotient(a: float, b: float) -> Exact | None:
    return Exact(Fraction(a) / Fraction(b)) if a and b else None


def _root(a: float) -> Exact | None:
    return Exact(Fraction(a), root=True) if a > 0 else None


def _fused(a: float, b: float, c: float) -> Exact | None:
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value:
        return Exact(value)
    product_negative = math.copysign(1, a) * math.copysign(1, b) < 0
    alike = product_negative == (math.copysign(1, c) < 0)
    return Exact(value, signed=not ((not a or not b) and not c and alike))


def _near_fused(a: Array, b: Array, c: Array) -> Array:
    """The nearest double of a * b + c, exactly (0 where it overflows: `_adjusted` sees the true value)."""
    out = np.array(a * b + c)
    flat = out.reshape(-1)
    for place, (x, y, z) in enumerate(zip(*(v.reshape(-1).tolist() for v in (a, b, c)), strict=True)):
        if math.isfinite(x) and math.isfinite(y) and math.isfinite(z):
            value = Fraction(x) * Fraction(y) + Fraction(z)
            if value:
                try:
                    flat[place] = value.numerator / value.denominator
                except OverflowError:
                    flat[place] = math.inf if value > 0 else -math.inf
            elif math.isnan(flat[place]):
                flat[place] = 0.0
    return out


_OPERATIONS: dict[str, tuple[Operation, Callable[..., Exact | None]]] = {
    "mul": (np.multiply, _product),
    "div": (np.divide, _quotient),
    "rcp": (lambda a: np.divide(np.float64(1), a), lambda a: _quotient(1.0, a)),
    "sqrt": (np.sqrt, _root),
    "fma": (_near_fused, _fused),
}
