"""Tensor-core instructions on whole warps at once: dense `mma` (sparse ones: mma_sparse.py).

Arithmetic: products and their sum (with c) are formed in float64, where fp16, bf16, fp8 and tf32 products are
exact, and the result is rounded once to the accumulator type. Hardware aligns the addends to the largest
and truncates, so its last bits differ; both are far inside the tolerances of fitness/correctness.py.
Integer accumulation is exact, wrapping (or saturating with `.satfinite`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.mma_layout import (
    DENSE_SHAPES,
    LANES,
    TYPES,
    UnsupportedShape,
    depth,
    gather_map,
    scatter_map,
)
from fitness.devices.simulator.mma_values import (
    Registers,
    accumulators,
    fused,
    matrix_values,
    multiplied,
    results,
    stacked_registers,
)

Array = NDArray[Any]


def mma(
    shape: str,
    a_type: str,
    b_type: str,
    c_type: str,
    a: Registers,
    b: Registers,
    c: Registers,
    *,
    saturate: bool = False,
    d_type: str | None = None,
) -> tuple[Array, ...]:
    """`mma.sync.aligned.<shape>.row.col`: d = a @ b + c for every warp.

    Args:
        shape: "m16n8k16" and the like.
        a_type: "f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "s4", "u4" or "f64".
        b_type: as `a_type`; only fp8 types, and integers of one width, may be mixed.
        c_type: "f32", "f16", "s32" or "f64".
        a: registers (G, 32) uint32 holding operand A (float64 for "f64").
        b: registers (G, 32) uint32 holding operand B (float64 for "f64").
        c: registers (G, 32): float32 for "f32", float64 for "f64", uint32 bit patterns otherwise.
        saturate: `.satfinite` (integer accumulators only).
        d_type: type of the result where it differs from `c_type`.

    Returns:
        Registers of d, as those of `c`.

    Raises:
        UnsupportedShape: the combination is not modelled.
    """
    k = depth(shape, a_type, b_type, DENSE_SHAPES)
    kind_a, kind_b = TYPES[a_type], TYPES[b_type]
    if a_type == "f64":
        return _mma_f64(k, a, b, c)
    if a_type == "b1":
        raise UnsupportedShape(f"mma {shape} of single bits without .and or .xor")
    left = matrix_values(kind_a, a, gather_map("a", k, kind_a.bits)).reshape(-1, 16, k)
    right = matrix_values(kind_b, b, gather_map("b", k, kind_b.bits)).reshape(-1, k, 8)
    return results(d_type or c_type, multiplied(left, right, accumulators(c_type, c)), saturate)


def _in_order(registers: Registers, operand: str, k: int) -> Array:
    """Registers of one float64 element each as matrices, flat in matrix order."""
    stacked = stacked_registers(registers, np.float64)
    ordered: Array = stacked.reshape(stacked.shape[0], -1).take(gather_map(operand, k, 32), axis=1)
    return ordered


def _mma_f64(k: int, a: Registers, b: Registers, c: Registers) -> tuple[Array, ...]:
    """Doubles: one fused multiply-add for each k, ascending."""
    left, right = _in_order(a, "a", k).reshape(-1, 16, k), _in_order(b, "b", k).reshape(-1, k, 8)
    tile = fused(left, right, _in_order(c, "c", 0).reshape(-1, 16, 8))
    dealt = tile.reshape(tile.shape[0], 128).take(scatter_map(32), axis=1)
    return tuple(dealt[:, i * LANES : (i + 1) * LANES] for i in range(4))


def mma_bits(shape: str, operation: str, a: Registers, b: Registers, c: Registers) -> tuple[Array, ...]:
    """`mma.m16n8kK.s32.b1.b1.s32.<and|xor>.popc`: d = c + ones in the combination of each row with each column.

    Raises:
        UnsupportedShape: there is no such shape.
    """
    k = depth(shape, "b1", "b1", DENSE_SHAPES)
    words = k // 32
    # A register is one word of 32 columns: the layouts of 32-bit elements, `words` of them along K.
    index_a, index_b = gather_map("a", words, 32), gather_map("b", words, 32)
    stacked_a, stacked_b = stacked_registers(a, np.uint32), stacked_registers(b, np.uint32)
    left = stacked_a.reshape(stacked_a.shape[0], -1).take(index_a, axis=1).reshape(-1, 16, 1, words)
    right = stacked_b.reshape(stacked_b.shape[0], -1).take(index_b, axis=1).reshape(-1, words, 8)
    pairs = right.transpose(0, 2, 1)[:, None]
    combined = left ^ pairs if operation == "xor" else left & pairs
    ones = np.bitwise_count(combined).sum(axis=-1, dtype=np.float64)
    return results("s32", ones + accumulators("s32", c), saturate=False)
