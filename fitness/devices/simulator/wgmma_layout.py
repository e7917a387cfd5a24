"""Operands of `wgmma` in shared memory: matrix descriptors and the canonical layouts.

PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout" and "Matrix-descriptor format".

A matrix has R rows (M of A, N of B) and K columns. In units of 16-byte chunks, with the leading (LBO) and stride
(SBO) byte offsets of the descriptor and a swizzle span of S bytes (16: none):

* K-major, no swizzle: row r, chunk c of K at (r / 8) SBO + (r % 8) 16 + c LBO;
* K-major, swizzled: (r / 8) SBO + (r % 8) S + 16 c (LBO is not used);
* M/N-major, no swizzle: chunk c of 8 rows, column k at c SBO + (k / 8) LBO + (k % 8) 16;
* M/N-major, swizzled: c / (S / 16) LBO + (k / 8) SBO + (k % 8) S + 16 (c % (S / 16)).

The swizzle then exchanges chunks by the address bits above bit 7, as it does for tensor maps.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.tensormap import swizzled

Array = NDArray[Any]

_SPANS = (0, 128, 64, 32)  # swizzle span by the two topmost bits of a descriptor
_FIELD = (1 << 14) - 1


class UnsupportedLayout(ValueError):  # noqa: N818 - the engine turns it into the outcome Unsupported
    """A descriptor whose layout is not modelled."""


@dataclass(frozen=True)
class Descriptor:
    """A decoded matrix descriptor, bytes. `span`: of the swizzle, 0 without."""

    start: int
    leading: int
    stride: int
    base_offset: int
    span: int

    @classmethod
    def of(cls, bits: int) -> Descriptor:
        """Decode the 64 bits: start address, leading and stride offsets in units of 16 bytes, base offset, swizzle."""
        return cls(
            (bits & _FIELD) << 4, (bits >> 16 & _FIELD) << 4, (bits >> 32 & _FIELD) << 4, bits >> 49 & 7,
            _SPANS[bits >> 62 & 3],
        )  # fmt: skip


@functools.lru_cache(maxsize=512)
def addresses(bits: int, rows: int, columns: int, width: int, *, k_major: bool) -> Array:
    """Shared address of every element of an operand.

    Args:
        bits: the matrix descriptor.
        rows: M of A or N of B.
        columns: K (for sparse A, of the stored values).
        width: bytes of an element.
        k_major: elements of a row are adjacent; else (16-bit types only) those of a column.

    Returns:
        (rows, columns) int64; read-only.

    Raises:
        UnsupportedLayout: a base offset, or a row that leaves its swizzle span.
    """
    found = Descriptor.of(bits)
    if found.base_offset:
        raise UnsupportedLayout("a matrix descriptor with a base offset")
    row, column = np.ogrid[:rows, :columns]
    bytes_of_row = columns * width
    plain = _k_major(found, row, column * width, bytes_of_row) if k_major else _mn_major(found, row * width, column)
    where = swizzled(found.start + plain, found.span)
    where.flags.writeable = False
    return where


def _k_major(found: Descriptor, row: Array, byte: Array, row_bytes: int) -> Array:
    if not found.span:
        return np.asarray(row // 8 * found.stride + row % 8 * 16 + byte // 16 * found.leading + byte % 16)
    if found.start % found.span + row_bytes > found.span:
        raise UnsupportedLayout(f"a row of {row_bytes} bytes that leaves its swizzle span of {found.span}")
    return np.asarray(row // 8 * found.stride + row % 8 * found.span + byte)


def _mn_major(found: Descriptor, byte: Array, column: Array) -> Array:
    if not found.span:
        return np.asarray(byte // 16 * found.stride + column // 8 * found.leading + column % 8 * 16 + byte % 16)
    inside = byte // found.span * found.leading + byte % found.span
    return np.asarray(inside + column // 8 * found.stride + column % 8 * found.span)
