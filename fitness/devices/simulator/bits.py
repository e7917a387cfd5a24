"""Bit-field instructions: lop3, prmt, bfe, bfi, shf, popc, clz, brev, bfind, shifts, dot products of bytes.

Registers are uint16 / uint32 / uint64 arrays or scalars; functions return registers. PTX ISA, "Integer
Arithmetic Instructions" and "Logic and Shift Instructions"; the ISA's pseudo code is quoted in the tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_U32, _U64 = np.uint32, np.uint64


@functools.cache
def lop3(table: int) -> Callable[[Array, Array, Array], Array]:
    """`lop3.b32` with the immediate truth table: the sum of its minterms, or less where it simplifies."""
    short: dict[int, Callable[[Array, Array, Array], Array]] = {
        0x96: lambda a, b, c: a ^ b ^ c,
        0x80: lambda a, b, c: a & b & c,
        0xFE: lambda a, b, c: a | b | c,
        0xC0: lambda a, b, _: a & b,
        0xFC: lambda a, b, _: a | b,
        0x3C: lambda a, b, _: a ^ b,
        0xF8: lambda a, b, c: a | (b & c),
        0xEA: lambda a, b, c: (a & b) | c,
        0xCA: lambda a, b, c: (a & b) | (~a & c),
        0xE8: lambda a, b, c: (a & b) | (b & c) | (a & c),
        0x6C: lambda a, b, c: (a & c) ^ b,
        0x78: lambda a, b, c: a ^ (b & c),
        0x0C: lambda a, b, _: ~a & b,
        0x30: lambda a, b, _: a & ~b,
    }
    if table in short:
        return short[table]

    def minterms(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)), dtype=_U32)
        for i in range(8):
            if table >> i & 1:
                result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        return result

    return minterms


def prmt(mode: str) -> Callable[[Array, Array, Array], Array]:
    """`prmt.b32{.mode}`: pick four of the eight bytes of b:a ("" is the generic mode)."""
    if mode == "":
        return _prmt_generic
    picks = {
        "f4e": [[i, i + 1, i + 2, i + 3] for i in range(4)],
        "b4e": [[i, (i - 1) % 8, (i - 2) % 8, (i - 3) % 8] for i in range(4)],
        "rc8": [[i] * 4 for i in range(4)],
        "ecl": [[max(i, j) for j in range(4)] for i in range(4)],
        "ecr": [[min(i, j) for j in range(4)] for i in range(4)],
        "rc16": [[0, 1, 0, 1], [2, 3, 2, 3]] * 2,
    }[mode]
    selectors = np.array([sum(p << (4 * n) for n, p in enumerate(pick)) for pick in picks], dtype=_U32)
    return lambda a, b, c: _prmt_generic(a, b, selectors[np.asarray(c) & _U32(3)])


def _prmt_generic(a: Array, b: Array, selector: Array) -> Array:
    """Nibble n of the selector chooses byte n: bits 0-2 the source byte, bit 3 replicates its sign."""
    if np.ndim(selector) == 0 and not int(selector) & 0x8888:
        return _prmt_fixed(a, b, int(selector))
    both = (np.asarray(b).astype(_U64) << _U64(32)) | a
    selector = np.asarray(selector)
    result = np.zeros(np.broadcast_shapes(both.shape, selector.shape), dtype=_U32)
    for n in range(4):
        nibble = (selector >> _U32(4 * n)) & _U32(0xF)
        byte = ((both >> ((nibble & _U32(7)) * _U32(8)).astype(_U64)) & _U64(0xFF)).astype(_U32)
        signed = np.where(nibble & _U32(8), (byte >> _U32(7)) * _U32(0xFF), byte)
        result |= signed << _U32(8 * n)
    return result


def _prmt_fixed(a: Array, b: Array, selector: int) -> Array:
    """The same with one selector for all lanes and no sign: bytes that stay neighbours move together."""
    picks = [selector >> 4 * n & 7 for n in range(4)]
    result: Array | None = None
    n = 0
    while n < 4:
        first, size = picks[n], 1
        while n + size < 4 and picks[n + size] == first + size != 4:
            size += 1
        moved = np.asarray(a if first < 4 else b) >> _U32(8 * (first % 4)) & _U32((1 << 8 * size) - 1)
        moved = moved << _U32(8 * n)
        result = moved if result is None else result | moved
        n += size
    assert result is not None
    return result


def _mask(length: Array, dtype: Any) -> Array:
    """`length` low ones (0 .. width)."""
    bits = 8 * np.dtype(dtype).itemsize
    full = dtype(np.iinfo(dtype).max)
    clipped = np.minimum(length, dtype(bits))
    result: Array = np.where(clipped == 0, dtype(0), full >> (dtype(bits) - np.maximum(clipped, dtype(1))))
    return result


def bfe(type_name: str) -> Callable[[Array, Array, Array], Array]:
    """`bfe`: extract `c` bits of `a` from bit `b`; signed types extend the field's sign."""
    dtype = _U64 if type_name.endswith("64") else _U32
    top = np.uint32(8 * np.dtype(dtype).itemsize - 1)

    def extract(a: Array, position: Array, length: Array) -> Array:
        position = np.asarray(position).astype(_U32) & _U32(0xFF)
        length = np.asarray(length).astype(_U32) & _U32(0xFF)
        shifted = np.where(position > top, dtype(0), a >> np.minimum(position, top).astype(dtype))
        mask = _mask(length.astype(dtype), dtype)
        field = shifted & mask
        if type_name.startswith("s"):
            last = np.minimum(position + length - _U32(1), top)
            sign = (np.asarray(a) >> last.astype(dtype)) & dtype(1)
            # The sign fills everything from where the field, or the register above it, ends.
            valid = mask & _mask(np.maximum(top + _U32(1), position) - position, dtype)
            field = np.where((sign == 1) & (length > 0), field | ~valid, field)
        return field

    return extract


def bfi(type_name: str) -> Callable[[Array, Array, Array, Array], Array]:
    """`bfi`: insert the low `d` bits of `a` into `b` at bit `c`."""
    dtype = _U64 if type_name.endswith("64") else _U32
    top = np.uint32(8 * np.dtype(dtype).itemsize - 1)

    def insert(a: Array, b: Array, position: Array, length: Array) -> Array:
        position = np.asarray(position).astype(_U32) & _U32(0xFF)
        length = np.asarray(length).astype(_U32) & _U32(0xFF)
        shift = np.minimum(position, top).astype(dtype)
        mask = np.where(position > top, dtype(0), _mask(length.astype(dtype), dtype) << shift)
        merged: Array = (b & ~mask) | ((a << shift) & mask)
        return merged

    return insert


def shf(direction: str, wrap: bool) -> Callable[[Array, Array, Array], Array]:
    """`shf.l` / `shf.r`, `.wrap` or `.clamp`: shift the 64-bit value b:a by c, keep 32 bits."""

    def shift(a: Array, b: Array, c: Array) -> Array:
        count = (c & _U32(31)) if wrap else np.minimum(c, _U32(32))
        both = (np.asarray(b).astype(_U64) << _U64(32)) | a
        count = np.asarray(count).astype(_U64)
        if direction == "l":
            return ((both << count) >> _U64(32)).astype(_U32)
        return (both >> count).astype(_U32)

    return shift


def shift_left(bits: int) -> Callable[[Array, Array], Array]:
    """`shl`: amounts of `bits` or more give 0."""
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]

    def shift(a: Array, amount: Array) -> Array:
        # NumPy defines shifts by the width or more as PTX does; only the type must not widen.
        result: Array = np.left_shift(a, np.minimum(amount, amount.dtype.type(bits)).astype(dtype))
        return result

    return shift


def shift_right(type_name: str) -> Callable[[Array, Array], Array]:
    """`shr`: logical for .b and .u; arithmetic for .s, where amounts of the width or more leave the sign."""
    bits = int(type_name[1:])
    dtype = np.dtype(f"u{bits // 8}")
    if not type_name.startswith("s"):
        return lambda a, n: np.right_shift(a, np.minimum(n, n.dtype.type(bits)).astype(dtype))
    signed = np.dtype(f"i{bits // 8}")

    def shift(a: Array, amount: Array) -> Array:
        count = np.minimum(amount, amount.dtype.type(bits - 1)).astype(signed)
        result: Array = np.right_shift(np.asarray(a).view(signed), count).view(dtype)
        return result

    return shift


def popc(a: Array) -> Array:
    """`popc`: number of ones, a .u32."""
    return np.bitwise_count(a).astype(_U32)


def clz(a: Array) -> Array:
    """`clz`: number of leading zeros of a 32- or 64-bit register, a .u32."""
    bits = 8 * a.dtype.itemsize
    smeared = a
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < bits:
            smeared = smeared | (smeared >> a.dtype.type(shift))
    return _U32(bits) - popc(smeared)


def bfind(type_name: str, shift_amount: bool) -> Callable[[Array], Array]:
    """`bfind`: index of the highest one (signed: of the highest non-sign bit), 0xffffffff if there is none."""
    bits = int(type_name[1:])

    def find(a: Array) -> Array:
        if type_name.startswith("s"):
            signed = np.asarray(a).view(np.dtype(f"i{bits // 8}"))
            a = np.where(signed < 0, ~np.asarray(a), a)
        zeros = clz(np.asarray(a))
        position = _U32(bits - 1) - zeros
        found = zeros if shift_amount else position
        return np.where(zeros == bits, _U32(0xFFFFFFFF), found)

    return find


_REVERSED = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], dtype=np.uint8)


def brev(a: Array) -> Array:
    """`brev`: reverse the bits."""
    a = np.asarray(a)
    octets = np.ascontiguousarray(a).reshape(-1, 1).view(np.uint8)
    return np.ascontiguousarray(_REVERSED[octets[:, ::-1]]).view(a.dtype).reshape(a.shape)


def bmsk(wrap: bool) -> Callable[[Array, Array], Array]:
    """`bmsk`: `b` ones from bit `a`."""

    def mask(a: Array, b: Array) -> Array:
        position = (a & _U32(31)) if wrap else np.minimum(a, _U32(32))
        width = (b & _U32(31)) if wrap else np.minimum(b, _U32(32))
        return np.left_shift(_mask(width, _U32), position)

    return mask


def dp4a(a_type: str, b_type: str) -> Callable[[Array, Array, Array], Array]:
    """`dp4a`: c plus the dot product of four bytes of a and b."""
    left, right = (np.int8 if t.startswith("s") else np.uint8 for t in (a_type, b_type))

    def dot(a: Array, b: Array, c: Array) -> Array:
        shape = np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c))
        x = np.ascontiguousarray(a, dtype=_U32).reshape(-1, 1).view(left).astype(np.int32)
        y = np.ascontiguousarray(b, dtype=_U32).reshape(-1, 1).view(right).astype(np.int32)
        total = (x * y).sum(axis=1, dtype=np.int32).view(_U32)
        result: Array = (total + np.asarray(c)).reshape(shape)
        return result

    return dot


def dp2a(a_type: str, b_type: str, high: bool) -> Callable[[Array, Array, Array], Array]:
    """`dp2a`: c plus the dot product of the halves of a and the two lower (or higher) bytes of b."""
    left = np.int16 if a_type.startswith("s") else np.uint16
    right = np.int8 if b_type.startswith("s") else np.uint8
    first = 2 if high else 0

    def dot(a: Array, b: Array, c: Array) -> Array:
        shape = np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c))
        x = np.ascontiguousarray(a, dtype=_U32).reshape(-1, 1).view(left).astype(np.int64)
        y = np.ascontiguousarray(b, dtype=_U32).reshape(-1, 1).view(right)[:, first : first + 2].astype(np.int64)
        total = (x * y).sum(axis=1).astype(_U32)
        result: Array = (total + np.asarray(c)).reshape(shape)
        return result

    return dot


def fns(mask: Array, base: Array, offset: Array) -> Array:
    """`fns`: place of the offset-th one of the mask from bit `base` on (down where negative), 0xffffffff if none."""
    mask, base, offset = np.broadcast_arrays(np.asarray(mask), np.asarray(base), np.asarray(offset).view(np.int32))
    step = np.where(offset > 0, 1, -1)
    left = np.maximum(np.abs(offset.astype(np.int64)) - 1, 0)
    found = np.full(mask.shape, 0xFFFFFFFF, dtype=_U32)
    place, open_ = base.astype(np.int64), np.ones(mask.shape, dtype=bool)
    for _ in range(32):
        open_ &= (place >= 0) & (place < 32)
        one = open_ & ((mask >> np.clip(place, 0, 31).astype(_U32)) & _U32(1)).astype(bool)
        here = one & (left == 0)
        found = np.where(here, place.astype(_U32), found)
        open_ &= ~here & (offset != 0)  # an offset of 0 asks for bit `base` alone
        left = left - (one & ~here)
        place = place + step
    return found


def szext(signed: bool, wrap: bool) -> Callable[[Array, Array], Array]:
    """`szext`: the low b bits of a, sign- or zero-extended."""

    def extend(a: Array, b: Array) -> Array:
        width = (b & _U32(31)) if wrap else np.minimum(b, _U32(32))
        low = a & _mask(width, _U32)
        if not signed:
            return low
        # With no bits at all the result is zero.
        negative = (width > 0) & (((low >> np.where(width > 0, width - _U32(1), _U32(0))) & _U32(1)) != 0)
        return np.where(negative, low | ~_mask(width, _U32), low)

    return extend


def absolute_differences(width: int, a_type: str, b_type: str, total: bool) -> Callable[[Array, Array, Array], Array]:
    """`vabsdiff2`, `vabsdiff4`: |a - b| of each part of `width` bits; with `total` the parts' sum plus c."""

    def parts(register: Array, kind: str) -> Array:
        dtype = np.dtype(f"{'i' if kind.startswith('s') else 'u'}{width // 8}")
        return np.ascontiguousarray(register, dtype=_U32).reshape(-1, 1).view(dtype).astype(np.int64)

    def run(a: Array, b: Array, c: Array) -> Array:
        shape = np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c))
        apart = np.abs(parts(a, a_type) - parts(b, b_type))
        if total:
            summed: Array = (apart.sum(axis=1).astype(_U32) + np.asarray(c)).reshape(shape).astype(_U32)
            return summed
        packed = np.ascontiguousarray(apart.astype(f"u{width // 8}")).view(_U32)
        return np.broadcast_to(packed.reshape(-1) if shape else packed.reshape(()), shape)

    return run
