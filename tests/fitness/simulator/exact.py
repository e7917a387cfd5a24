"""Exact rational rounding, the oracle of the arithmetic tests: nothing here uses the code under test."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

PRECISION = {
    "f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "tf32": (11, -126, 127),
    "f64": (53, -1022, 1023),
}  # fmt: skip


def round_fraction(value: Fraction, kind: str, mode: str = "rn") -> float:
    """The nearest (or next lower, ...) value of a format, infinity when too large, +0 for an exact zero."""
    if value == 0:
        return 0.0
    precision, emin, emax = PRECISION[kind]
    sign, size = (-1, -value) if value < 0 else (1, value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    quantum = Fraction(2) ** (max(exponent, emin) - precision + 1)
    steps = size / quantum
    floor = steps.numerator // steps.denominator
    rest = steps - floor
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1),
        "rna": rest >= Fraction(1, 2),
        "rz": False,
        "rm": sign < 0 and rest > 0,
        "rp": sign > 0 and rest > 0,
    }[mode]
    rounded = (floor + int(up)) * quantum
    largest = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** emax
    if rounded > largest:
        to_largest = mode == "rz" or (mode == "rm" and sign > 0) or (mode == "rp" and sign < 0)
        return sign * float(largest) if to_largest else sign * math.inf
    return math.copysign(float(rounded), sign)


def value_16(kind: str, bits: int) -> float:
    """The number a 16-bit pattern stands for."""
    if kind == "f16":
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
