"""Registers of warps to matrices of float64 and back.

Registers of G warps are arrays of shape (G, 32), one column per lane; a fragment is a tuple of registers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.floating import fma_f64
from fitness.devices.simulator.mma_layout import LANES, MatrixType, gather_map, scatter_map
from fitness.devices.simulator.rounding import decode_16

Array = NDArray[Any]
Registers = Sequence[Array]


@functools.cache
def _octets(name: str) -> Array:
    """float64 value of every bit pattern of an 8-bit type."""
    kinds: dict[str, Any] = {
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
        "s8": np.int8,
        "u8": np.uint8,
    }
    values: Array = np.arange(256, dtype=np.uint8).view(kinds[name]).astype(np.float64)
    return values


def decode(kind: str, bits: Array) -> Array:
    """float64 values of bit patterns: uint16 for "f16" and "bf16", uint8 for the 8-bit types."""
    values: Array
    if kind == "f16":
        values = decode_16("f16", bits).astype(np.float64)
    elif kind == "bf16":
        values = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    else:
        values = _octets(kind)[bits]
    return values


def stacked_registers(registers: Registers, dtype: type[np.generic]) -> Array:
    """Registers as one array (G, 32, R); scalars and single warps broadcast."""
    groups = np.broadcast_shapes((1, LANES), *(np.shape(r) for r in registers))
    stacked = np.empty((*groups, len(registers)), dtype=dtype)
    for i, register in enumerate(registers):
        stacked[..., i] = register
    return stacked


class _Recent:
    """What was made of the registers seen last: kernels multiply each fragment of A and B several times.

    Registers are recognised by identity, which is sound because the engine never changes an array in place.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._held: dict[tuple[object, ...], tuple[tuple[Array, ...], Array]] = {}

    def get(self, tag: tuple[object, ...], registers: Registers, make: Callable[[], Array]) -> Array:
        """The array that `make` gives for these registers; it must not be changed."""
        key = (*tag, *map(id, registers))
        found = self._held.get(key)
        if found is not None:  # the registers are held with it, so an id cannot have passed to another array
            return found[1]
        while len(self._held) >= self._kept:
            del self._held[next(iter(self._held))]
        made = make()
        self._held[key] = (tuple(registers), made)
        return made


recent = _Recent(24)


def matrix_values(kind: MatrixType, registers: Registers, index: Array) -> Array:
    """Elements of a fragment in matrix order, (G, index.size) float64."""
    return recent.get((kind.name, id(index)), registers, lambda: decoded(kind, registers, index))


def decoded(kind: MatrixType, registers: Registers, index: Array) -> Array:
    """The same, made anew."""
    stacked = stacked_registers(registers, np.uint32)
    groups = stacked.shape[0]
    if kind.name == "tf32":
        # The tensor core reads the upper 19 bits of the register (PTX ISA: the lower 13 are ignored).
        flat = (stacked.reshape(groups, -1) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
        picked: Array = flat.take(index, axis=1)
        return picked
    if kind.bits == 4:
        octets = stacked.view(np.uint8).reshape(groups, -1)
        nibbles = np.stack([octets & np.uint8(15), octets >> np.uint8(4)], axis=-1).reshape(groups, -1)
        whole = nibbles.take(index, axis=1).astype(np.float64)
        signed: Array = whole - 16.0 * (whole > 7) if kind.name == "s4" else whole
        return signed
    narrow: Array = stacked.view(np.uint16 if kind.bits == 16 else np.uint8).reshape(groups, -1)
    return decode(kind.name, narrow.take(index, axis=1))


def accumulators(c_type: str, registers: Registers) -> Array:
    """C in matrix order, (G, 16, 8) float64."""
    if c_type == "f16":
        stacked = stacked_registers(registers, np.uint32)
        halves = stacked.view(np.uint16).reshape(stacked.shape[0], -1)
        return decode("f16", halves.take(gather_map("c", 0, 16), axis=1)).reshape(-1, 16, 8)
    dtype = np.float32 if c_type == "f32" else np.int32
    if dtype is np.int32:
        registers = [np.asarray(r).astype(np.uint32, copy=False).view(np.int32) for r in registers]
    stacked = stacked_registers(registers, dtype)
    flat = stacked.reshape(stacked.shape[0], -1)
    return flat.take(gather_map("c", 0, 32), axis=1).astype(np.float64).reshape(-1, 16, 8)


def results(d_type: str, tile: Array, saturate: bool) -> tuple[Array, ...]:
    """Round a (G, 16, 8) float64 tile to the accumulator type and deal it out to the lanes."""
    groups = tile.shape[0]
    flat = tile.reshape(groups, 128)
    with np.errstate(over="ignore", invalid="ignore"):
        if d_type == "f32":
            rounded = flat.astype(np.float32)
        elif d_type == "f16":
            rounded = flat.astype(np.float16)
        elif saturate:
            rounded = np.clip(flat, -(2.0**31), 2.0**31 - 1).astype(np.int64).astype(np.uint32)
        else:
            rounded = flat.astype(np.int64).astype(np.uint32)
    bits = 16 if d_type == "f16" else 32
    dealt = rounded.take(scatter_map(bits), axis=1)
    if d_type == "f16":
        dealt = dealt.view(np.uint32)
    width = dealt.shape[1] // LANES
    return tuple(dealt[:, i * LANES : (i + 1) * LANES] for i in range(width))


def multiplied(a: Array, b: Array, c: Array) -> Array:
    """Compute a @ b + c over G warps, float64; NaN and Inf propagate silently, as on the device."""
    with np.errstate(invalid="ignore", over="ignore"):
        tile: Array = np.matmul(a, b)
        tile += c
    return tile


def fused(left: Array, right: Array, total: Array) -> Array:
    """Give left @ right + total of doubles, by a chain of fused multiply-adds along K."""
    for place in range(left.shape[2]):
        total = fma_f64(left[:, :, place, None], right[:, None, place, :], total)
    return total
