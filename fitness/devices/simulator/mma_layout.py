"""Element types, shapes and fragment layouts of `mma` (PTX ISA, "Matrix Fragments for mma" and "... for sparse mma").

The layouts all follow one rule, so there is one function for each operand: with g = lane // 4, t = lane % 4 and E
elements in a 32-bit register,

* A (16 x K): register 2q + h holds row g + 8h, columns 4Eq + Et ... 4Eq + Et + E-1;
* B (K x 8): register q holds column g, rows 4Eq + Et ... + E-1;
* C and D (16 x 8): element 2h + j is row g + 8h, column 2t + j (32-bit: a register each; f16: register h);
* sparse A: the layout of a dense A with K/2 columns, holding the stored values in their order.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LANES = 32


class MatrixType(NamedTuple):
    """An element type of a multiplicand. `bits` it takes in a register; `integer` ones sum exactly."""

    name: str
    bits: int
    integer: bool


TYPES: dict[str, MatrixType] = {
    t.name: t
    for t in (
        MatrixType("f16", 16, False),
        MatrixType("bf16", 16, False),
        MatrixType("tf32", 32, False),
        MatrixType("e4m3", 8, False),
        MatrixType("e5m2", 8, False),
        MatrixType("s8", 8, True),
        MatrixType("u8", 8, True),
        MatrixType("s4", 4, True),
        MatrixType("u4", 4, True),
        MatrixType("b1", 1, True),
        MatrixType("f64", 32, False),  # one element to a register, as the layouts count them
    )
}

DENSE_SHAPES: dict[str, frozenset[int]] = {
    "f16": frozenset({8, 16}),
    "bf16": frozenset({8, 16}),
    "tf32": frozenset({4, 8}),
    "e4m3": frozenset({16, 32}),
    "e5m2": frozenset({16, 32}),
    "s8": frozenset({16, 32}),
    "u8": frozenset({16, 32}),
    "s4": frozenset({32, 64}),
    "u4": frozenset({32, 64}),
    "b1": frozenset({128, 256}),
    "f64": frozenset({4, 8, 16}),
}
"""K of the dense m16n8kK shapes by multiplicand type."""

SPARSE_SHAPES: dict[str, frozenset[int]] = {
    "f16": frozenset({16, 32}),
    "bf16": frozenset({16, 32}),
    "e4m3": frozenset({64}),
    "e5m2": frozenset({64}),
    "s8": frozenset({32, 64}),
    "u8": frozenset({32, 64}),
    "tf32": frozenset({8, 16}),
    "s4": frozenset({64, 128}),
    "u4": frozenset({64, 128}),
}
"""K of the sparse m16n8kK shapes by multiplicand type."""


class UnsupportedShape(ValueError):  # noqa: N818 - the engine turns it into the outcome Unsupported
    """This `mma` shape or type combination is not modelled (or does not exist)."""


def depth(shape: str, a_type: str, b_type: str, shapes: dict[str, frozenset[int]]) -> int:
    """K of a shape such as "m16n8k16" after checking that it exists for these types."""
    head, _, k = shape.partition("k")
    known = a_type in TYPES and b_type in TYPES and TYPES[a_type].bits == TYPES[b_type].bits
    both_integer = known and TYPES[a_type].integer and TYPES[b_type].integer
    both_fp8 = {a_type, b_type} <= {"e4m3", "e5m2"}
    compatible = a_type == b_type or both_integer or both_fp8
    if head != "m16n8" or not compatible or int(k) not in shapes.get(a_type, frozenset()):
        raise UnsupportedShape(f"mma {shape} with {a_type} x {b_type}")
    return int(k)


@functools.cache
def a_fragment(k: int, bits: int) -> tuple[Array, Array]:
    """Rows and columns of operand A (16 x k).

    Returns:
        (rows, columns), each of shape (32 lanes, registers, elements per register).
    """
    per_register = 32 // bits
    lane, register, element = np.ogrid[:LANES, : k // (4 * per_register) * 2, :per_register]
    rows = lane // 4 + 8 * (register % 2) + 0 * element
    columns = 4 * per_register * (register // 2) + per_register * (lane % 4) + element
    return rows, columns


@functools.cache
def b_fragment(k: int, bits: int) -> tuple[Array, Array]:
    """Rows (k) and columns (n) of operand B (k x 8), shaped as in `a_fragment`."""
    per_register = 32 // bits
    lane, register, element = np.ogrid[:LANES, : k // (4 * per_register), :per_register]
    rows = 4 * per_register * register + per_register * (lane % 4) + element
    columns = lane // 4 + 0 * register + 0 * element
    return rows, columns


@functools.cache
def c_fragment(bits: int) -> tuple[Array, Array]:
    """Rows and columns of C and D (16 x 8), shaped as in `a_fragment`; bits = 32, or 16 for f16."""
    per_register = 32 // bits
    lane, register, element = np.ogrid[:LANES, : 4 // per_register, :per_register]
    index = register * per_register + element
    return lane // 4 + 8 * (index // 2), 2 * (lane % 4) + index % 2


@functools.cache
def gather_map(operand: str, k: int, bits: int) -> Array:
    """Flat position of each matrix element within a warp's (32, registers, elements) fragment.

    Matrices are indexed [row, column].
    """
    if operand == "a":
        rows, columns, width = (*a_fragment(k, bits), k)
    else:
        rows, columns, width = (*(b_fragment(k, bits) if operand == "b" else c_fragment(bits)), 8)
    index = np.empty(rows.size, dtype=np.intp)
    index[(rows * width + columns).ravel()] = np.arange(rows.size)
    return index


@functools.cache
def scatter_map(bits: int) -> Array:
    """Flat [row, column] position in a 16 x 8 tile of each element, in order register, lane, element."""
    rows, columns = c_fragment(bits)
    return np.ascontiguousarray((rows * 8 + columns).transpose(1, 0, 2)).ravel()
