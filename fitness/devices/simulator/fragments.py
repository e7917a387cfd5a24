"""Instructions that move matrix fragments: `ldmatrix`, `stmatrix`, `movmatrix`, and `wmma` layouts.

Registers of G warps have shape (G, 32), as in mma_values.py. The memory itself is the engine's: these functions
say which row goes where, as index maps.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.mma_layout import LANES, UnsupportedShape, a_fragment, b_fragment, c_fragment
from fitness.devices.simulator.mma_values import decode, fused, multiplied

Array = NDArray[Any]


def ldmatrix(rows: Array, count: int, *, transposed: bool = False) -> tuple[Array, ...]:
    """`ldmatrix.sync.aligned.m8n8.x<count>{.trans}.b16`.

    Lane 8m + i gives the address of row i of matrix m (PTX ISA, ldmatrix). Register m of lane l receives
    elements 2t and 2t + 1 of row g (g = l // 4, t = l % 4); transposed: of column g.

    Args:
        rows: (G, 8 * count, 4) uint32, the 16 bytes at the address of lane 0, 1, ... 8 * count - 1.
        count: 1, 2 or 4 matrices.
        transposed: `.trans`.

    Returns:
        `count` registers of shape (G, 32) uint32.
    """
    groups = rows.shape[0]
    if not transposed:
        words = rows.reshape(groups, count, LANES)
        return tuple(words[:, m] for m in range(count))
    halves = np.ascontiguousarray(rows).view(np.uint16).reshape(groups, count, 8, 8)
    words = np.ascontiguousarray(halves.transpose(0, 1, 3, 2)).view(np.uint32).reshape(groups, count, LANES)
    return tuple(words[:, m] for m in range(count))


def stmatrix(registers: Sequence[Array], *, transposed: bool = False) -> Array:
    """`stmatrix`: the inverse of `ldmatrix`.

    Args:
        registers: 1, 2 or 4 registers of shape (G, 32) uint32.
        transposed: `.trans`.

    Returns:
        (G, 8 * count, 4) uint32: the 16 bytes to store at the address of lane 0, 1, ... 8 * count - 1.
    """
    count = len(registers)
    words = np.stack([np.asarray(r, dtype=np.uint32) for r in registers], axis=1)
    groups = words.shape[0]
    if transposed:
        halves = words.view(np.uint16).reshape(groups, count, 8, 8).transpose(0, 1, 3, 2)
        words = np.ascontiguousarray(halves).view(np.uint32)
    return words.reshape(groups, 8 * count, 4)


def movmatrix(register: Array) -> Array:
    """`movmatrix.sync.aligned.m8n8.trans.b16`: transpose the 8 x 8 matrix spread over a warp's lanes."""
    return ldmatrix(np.ascontiguousarray(register, dtype=np.uint32).reshape(-1, 8, 4), 1, transposed=True)[0]


# ---------------------------------------------------------------- wmma
# PTX leaves the layout of wmma fragments unspecified: only load, store, mma and the same operation on every
# element may touch them. Ours: tiles of the mma layouts, A in tiles of 16 x 16 (8 x 16 for m8n32k16 shares
# the upper half), B and C in tiles of 8 columns. f16 A and B fragments have 8 registers where 4 would do
# (as Volta needed): registers 4..7 duplicate 0..3.

WMMA_SHAPES: frozenset[str] = frozenset({"m16n16k16", "m32n8k16", "m8n32k16"})
"""Shapes of f16, bf16, s8 and u8 multiplicands."""

_OTHER_SHAPES: dict[str, tuple[str, ...]] = {
    "m16n16k8": ("tf32", "f32"),
    "m8n8k4": ("f64",),
    "m8n8k32": ("s4", "u4", "s32"),
    "m8n8k128": ("b1", "s32"),
}
WMMA_BITS = {"f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "s32": 32, "f64": 64, "s8": 8, "u8": 8} | {
    "s4": 4, "u4": 4, "b1": 1
}  # fmt: skip
"""Bits of an element of each type in memory."""


def wmma_dimensions(shape: str) -> tuple[int, int, int]:
    """(m, n, k) of a wmma shape.

    Raises:
        UnsupportedShape: not modelled.
    """
    if shape not in WMMA_SHAPES and shape not in _OTHER_SHAPES:
        raise UnsupportedShape(f"wmma {shape}")
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


@functools.cache
def wmma_fragment(operand: str, shape: str, element_type: str) -> tuple[Array, Array]:
    """Row and column of every element of a wmma fragment.

    Args:
        operand: "a" (m x k), "b" (k x n), "c" or "d" (m x n).
        shape: one of `WMMA_SHAPES`, or that of tf32, of f64, of 4-bit integers or of bits.
        element_type: "f16", "bf16", "s8", "u8", "tf32", "f64", "s4", "u4" or "b1" for a and b; "f32", "f16", "s32" or
            "f64" for c and d.

    Returns:
        (rows, columns), each (32 lanes, registers, elements per register). An element may occur twice (f16
        multiplicands); loads fill both copies, `wmma_mma` reads the first.
    """
    m, n, k = wmma_dimensions(shape)
    rows_total, columns_total = {"a": (m, k), "b": (k, n)}.get(operand, (m, n))
    fits = _OTHER_SHAPES.get(shape, ("f16", "bf16", "f32", "s8", "u8", "s32"))
    if element_type not in fits:
        raise UnsupportedShape(f"wmma {shape} operand {operand} of {element_type}")
    if element_type not in ("f16", "bf16", "f32") or shape in _OTHER_SHAPES:
        return _plain_fragment(operand, rows_total, columns_total, element_type)
    bits = 32 if element_type == "f32" else 16
    per_register = 32 // bits
    copies = 2 if operand in "ab" and element_type == "f16" and m * k + k * n == 512 else 1
    count = rows_total * columns_total // (LANES * per_register)
    if (m, n) != (16, 16) and operand in "ab":
        return _plain_fragment(operand, rows_total, columns_total, element_type)
    if operand == "a":
        rows, columns = a_fragment(k, bits)
    elif operand == "b":
        rows, columns = _tiles(b_fragment(k, bits), n // 8, "columns")
    elif m == 8:
        return _plain_fragment(operand, rows_total, columns_total, element_type)
    else:
        rows, columns = _tiles(_tiles(c_fragment(bits), n // 8, "columns"), m // 16, "rows")
    if rows.shape[1] != count:
        raise UnsupportedShape(f"wmma {shape} operand {operand} of {element_type}")
    return np.tile(rows, (1, copies, 1)), np.tile(columns, (1, copies, 1))


def _tiles(fragment: tuple[Array, Array], count: int, along: str) -> tuple[Array, Array]:
    """Repeat a fragment `count` times side by side, in steps of its height or width."""
    rows, columns = fragment
    step = int((rows if along == "rows" else columns).max()) + 1
    row_step, column_step = (step, 0) if along == "rows" else (0, step)
    return (
        np.concatenate([rows + i * row_step for i in range(count)], axis=1),
        np.concatenate([columns + i * column_step for i in range(count)], axis=1),
    )


def _plain_fragment(operand: str, rows_total: int, columns_total: int, element_type: str) -> tuple[Array, Array]:
    """A fragment in row-major order over lanes (B: column-major), for the oblong shapes.

    f16 multiplicands have 8 registers always, so a smaller operand is repeated.
    """
    per_register = max(1, 32 // WMMA_BITS[element_type])
    flat = np.arange(rows_total * columns_total).reshape(LANES, -1, per_register)
    if operand in "ab" and element_type == "f16":
        flat = np.tile(flat, (1, 8 // flat.shape[1], 1))
    if operand == "b":
        return flat % rows_total, flat // rows_total
    return flat // columns_total, flat % columns_total


def _matrix(operand: str, shape: str, element_type: str, registers: Sequence[Array]) -> Array:
    """A fragment as (G, rows, columns) float64."""
    rows, columns = wmma_fragment(operand, shape, element_type)
    m, n, k = wmma_dimensions(shape)
    height, width = {"a": (m, k), "b": (k, n)}.get(operand, (m, n))
    dtype = {"f32": np.float32, "f64": np.float64}.get(element_type, np.uint32)
    stacked = np.stack([np.asarray(r, dtype=dtype) for r in registers], axis=-1)
    groups = stacked.shape[0]
    if element_type in ("f32", "f64"):
        flat = stacked.reshape(groups, -1).astype(np.float64)
    elif element_type == "s32":
        flat = stacked.reshape(groups, -1).view(np.int32).astype(np.float64)
    elif element_type == "tf32":  # the tensor core reads the upper 19 bits
        flat = (stacked.reshape(groups, -1) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    elif WMMA_BITS[element_type] < 8:
        flat = _below_a_byte(element_type, stacked).reshape(groups, -1)
    else:
        flat = decode(element_type, stacked.view(f"u{WMMA_BITS[element_type] // 8}").reshape(groups, -1))
    matrix = np.empty((groups, height * width))
    matrix[:, (rows * width + columns).ravel()] = flat
    return matrix.reshape(groups, height, width)


def _below_a_byte(element_type: str, words: Array) -> Array:
    """Elements of 32-bit words along a new last axis, the lowest bits first."""
    bits = WMMA_BITS[element_type]
    elements = (words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & np.uint32((1 << bits) - 1)
    values = elements.astype(np.float64)
    signed: Array = values - 16.0 * (values > 7) if element_type == "s4" else values
    return signed


def _differing(left: Array, right: Array, total: Array) -> Array:
    """Give total + how many bits of a row and a column differ (`.xor.popc`), of matrices of 0 and 1."""
    both = np.matmul(left, right)
    tile: Array = total + left.sum(axis=2)[:, :, None] + right.sum(axis=1)[:, None, :] - 2 * both
    return tile


def wmma_mma(
    shape: str,
    multiplicand_type: str,
    c_type: str,
    d_type: str,
    a: Sequence[Array],
    b: Sequence[Array],
    c: Sequence[Array],
    *,
    saturate: bool = False,
    bits: str = "",
) -> tuple[Array, ...]:
    """`wmma.mma.sync.aligned`: d = a @ b + c on fragments laid out by `wmma_fragment`.

    The layouts `.row` / `.col` of A and B concern loads only: fragments are indexed by row and column.

    Args:
        shape: as `wmma_fragment` has them.
        multiplicand_type: "f16", "bf16", "s8", "u8", "tf32", "f64", "s4", "u4" or "b1".
        c_type: "f32", "f16", "s32" or "f64".
        d_type: as `c_type`.
        a: registers (G, 32) uint32 (float64 for "f64").
        b: registers (G, 32) uint32 (float64 for "f64").
        c: registers (G, 32), float32 for "f32", float64 for "f64", else uint32.
        saturate: `.satfinite` of s32.
        bits: "and" or "xor" of b1.

    Returns:
        Registers of d.

    Raises:
        UnsupportedShape: the combination is not modelled.
    """
    sums = {"f16": {"f32", "f16"}, "bf16": {"f32"}, "tf32": {"f32"}, "f64": {"f64"}}
    integers = {"s32"} if multiplicand_type in ("s8", "u8", "s4", "u4", "b1") else set()
    if not {c_type, d_type} <= sums.get(multiplicand_type, integers) or (multiplicand_type == "b1") != bool(bits):
        raise UnsupportedShape(f"wmma of {multiplicand_type} with sums of {c_type}")
    left = _matrix("a", shape, multiplicand_type, a)
    right = _matrix("b", shape, multiplicand_type, b)
    multiply = fused if multiplicand_type == "f64" else _differing if bits == "xor" else multiplied
    tile = multiply(left, right, _matrix("c", shape, c_type, c))
    rows, columns = wmma_fragment("d", shape, d_type)
    flat = tile.reshape(tile.shape[0], -1)
    dealt = flat.take((rows * tile.shape[2] + columns).ravel(), axis=1).reshape(-1, *rows.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        if d_type in ("f32", "f64"):
            registers = dealt.astype(np.float32 if d_type == "f32" else np.float64)[..., 0]
        elif d_type == "s32":
            whole = np.clip(dealt, -(2.0**31), 2.0**31 - 1) if saturate else dealt
            registers = whole.astype(np.int64).astype(np.uint32)[..., 0]
        else:
            registers = dealt.astype(np.float16).view(np.uint32)[..., 0]
    return tuple(np.ascontiguousarray(registers[..., i]) for i in range(registers.shape[-1]))
