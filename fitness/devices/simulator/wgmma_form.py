"""A form of `wgmma.mma_async`, and how its accumulators and operands become matrices and registers again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.lanes import WARPGROUP, Value
from fitness.devices.simulator.sites import Site

Array = NDArray[Any]
ROWS = 64


@dataclass(frozen=True)
class Multiplication:
    """One `wgmma.mma_async` instruction.

    Attributes:
        n, k: its shape, K before compression. a_type, b_type, d_type: element types ("f16", "s8", "f32", ...).
        sparse, selector: `.sp` and its sparsity selector. shared: A lies in shared memory.
        negate: the product (imm-scale-a times imm-scale-b is -1). trans_a, trans_b: the operand is M/N-major.
        saturate: `.satfinite`. site: for messages; unfenced: what is wrong with its fences, "" if nothing.
    """

    n: int
    k: int
    a_type: str
    b_type: str
    d_type: str
    sparse: bool
    selector: int
    shared: bool
    negate: bool
    trans_a: bool
    trans_b: bool
    saturate: bool
    site: Site
    unfenced: str

    @property
    def stored(self) -> int:
        """Columns of A as it is stored."""
        return self.k // 2 if self.sparse else self.k

    def held(self, columns: int, element: str) -> tuple[int, str]:
        """Elements that so many columns of an operand are held in, and their type: single bits lie in bytes."""
        return (columns // 8, "u8") if element == "b1" else (columns, element)

    @property
    def registers(self) -> int:
        """Accumulator registers of a thread."""
        return self.n // (4 if self.d_type == "f16" else 2)


def unpacked(what: Multiplication, values: Array) -> Array:
    """Bytes as their bits, zeros and ones, of which products and sums count those set in both operands."""
    if what.a_type != "b1":
        return values
    return np.unpackbits(values.astype(np.uint8), axis=2).astype(np.float64)


def gathered(what: Multiplication, d: tuple[Value, ...], groups: int) -> Array:
    """Accumulators as (warpgroups, 64, n) float64; element 2h + i of tile j: row g + 8h, column 8j + 2t + i."""
    lanes = groups * WARPGROUP
    parts: Array
    if what.d_type == "f16":
        words = np.stack([np.broadcast_to(r, lanes) for r in d], axis=0).astype(np.uint32, copy=False)
        halves = np.ascontiguousarray(words).view(np.float16).reshape(-1, lanes, 2)  # (2j + h, lane, i)
        parts = halves.reshape(what.n // 8, 2, groups, 4, 8, 4, 2).transpose(2, 3, 1, 4, 0, 5, 6)
    else:
        dtype = np.float32 if what.d_type == "f32" else np.int32
        stacked = np.empty((len(d), lanes), dtype=dtype)
        for place, register in enumerate(d):
            stacked[place] = register if dtype is np.float32 else np.asarray(register).view(np.int32)
        parts = stacked.reshape(what.n // 8, 2, 2, groups, 4, 8, 4).transpose(3, 4, 1, 5, 0, 6, 2)
    return parts.astype(np.float64).reshape(groups, ROWS, what.n)


def spread(tile: Array) -> Array:
    """Elements of (warpgroups, 64, n) as registers of one element each, (n / 2, lanes)."""
    groups, _, n = tile.shape
    parts = tile.reshape(groups, 4, 2, 8, n // 8, 4, 2).transpose(4, 2, 6, 0, 1, 3, 5)
    return np.ascontiguousarray(parts).reshape(n // 2, groups * WARPGROUP)


def dealt(what: Multiplication, tile: Array) -> tuple[Value, ...]:
    """Round to the accumulator type and deal out to the lanes."""
    with np.errstate(over="ignore", invalid="ignore"):
        if what.d_type == "f32":
            return tuple(spread(tile.astype(np.float32)))
        if what.d_type == "f16":
            halves = spread(tile.astype(np.float16))
            pairs = np.stack([halves[0::2], halves[1::2]], axis=2)
            return tuple(np.ascontiguousarray(pairs).view(np.uint32)[..., 0])
        if what.saturate:
            tile = np.clip(tile, -(2.0**31), 2.0**31 - 1)
        return tuple(spread(tile.astype(np.int64).astype(np.uint32)))
