"""Tensor-core instructions: `mma`, sparse `mma.sp`, and their fragment layouts, on whole warps at once.

Registers of G warps are arrays of shape (G, 32), one column per lane; a fragment is a tuple of registers.
Layouts: PTX ISA, "Matrix Fragments for mma" and "... for sparse mma". They all follow one rule, so there is
one function for each operand: with g = lane // 4, t = lane % 4 and E elements in a 32-bit register,

* A (16 x K): register 2q + h holds row g + 8h, columns 4Eq + Et ... 4Eq + Et + E-1;
* B (K x 8): register q holds column g, rows 4Eq + Et ... + E-1;
* C and D (16 x 8): element 2h + j is row g + 8h, column 2t + j (32-bit: a register each; f16: register h);
* sparse A: the layout of a dense A with K/2 columns, holding the stored values in their order.

Arithmetic: products and their sum (with c) are formed in float64, where fp16, bf16, fp8 and tf32 products are
exact, and the result is rounded once to the accumulator type. Hardware aligns the addends to the largest
and truncates, so its last bits differ; both are far inside the tolerances of fitness/correctness.py.
Integer accumulation is exact, wrapping (or saturating with `.satfinite`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.floating import fma_f64
from fitness.devices.simulator.rounding import decode_16

Array = NDArray[Any]
Registers = Sequence[Array]

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


def _depth(shape: str, a_type: str, b_type: str, shapes: dict[str, frozenset[int]]) -> int:
    """K of a shape such as "m16n8k16" after checking that it exists for these types."""
    head, _, k = shape.partition("k")
    known = a_type in TYPES and b_type in TYPES and TYPES[a_type].bits == TYPES[b_type].bits
    both_integer = known and TYPES[a_type].integer and TYPES[b_type].integer
    both_fp8 = {a_type, b_type} <= {"e4m3", "e5m2"}
    compatible = a_type == b_type or both_integer or both_fp8
    if head != "m16n8" or not compatible or int(k) not in shapes.get(a_type, frozenset()):
        raise UnsupportedShape(f"mma {shape} with {a_type} x {b_type}")
    return int(k)


# ---------------------------------------------------------------- fragment layouts


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
def _gather_map(operand: str, k: int, bits: int) -> Array:
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
def _scatter_map(bits: int) -> Array:
    """Flat [row, column] position in a 16 x 8 tile of each element, in order register, lane, element."""
    rows, columns = c_fragment(bits)
    return np.ascontiguousarray((rows * 8 + columns).transpose(1, 0, 2)).ravel()


# ---------------------------------------------------------------- element values


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


def _stack(registers: Registers, dtype: type[np.generic]) -> Array:
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


_recent = _Recent(24)


def _values(kind: MatrixType, registers: Registers, index: Array) -> Array:
    """Elements of a fragment in matrix order, (G, index.size) float64."""
    return _recent.get((kind.name, id(index)), registers, lambda: _decoded(kind, registers, index))


def _decoded(kind: MatrixType, registers: Registers, index: Array) -> Array:
    stacked = _stack(registers, np.uint32)
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


def _accumulators(c_type: str, registers: Registers) -> Array:
    """C in matrix order, (G, 16, 8) float64."""
    if c_type == "f16":
        stacked = _stack(registers, np.uint32)
        halves = stacked.view(np.uint16).reshape(stacked.shape[0], -1)
        return decode("f16", halves.take(_gather_map("c", 0, 16), axis=1)).reshape(-1, 16, 8)
    dtype = np.float32 if c_type == "f32" else np.int32
    if dtype is np.int32:
        registers = [np.asarray(r).astype(np.uint32, copy=False).view(np.int32) for r in registers]
    stacked = _stack(registers, dtype)
    flat = stacked.reshape(stacked.shape[0], -1)
    return flat.take(_gather_map("c", 0, 32), axis=1).astype(np.float64).reshape(-1, 16, 8)


def _results(d_type: str, tile: Array, saturate: bool) -> tuple[Array, ...]:
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
    dealt = rounded.take(_scatter_map(bits), axis=1)
    if d_type == "f16":
        dealt = dealt.view(np.uint32)
    width = dealt.shape[1] // LANES
    return tuple(dealt[:, i * LANES : (i + 1) * LANES] for i in range(width))


def _multiply(a: Array, b: Array, c: Array) -> Array:
    """Compute a @ b + c over G warps, float64; NaN and Inf propagate silently, as on the device."""
    with np.errstate(invalid="ignore", over="ignore"):
        tile: Array = np.matmul(a, b)
        tile += c
    return tile


def _multiply_selected(stored: Array, column: Array, b: Array, c: Array) -> Array:
    """Sparse a @ b + c where each stored value meets the row of b that its index selects, and no other.

    The device has no product for a column that is not stored, so Inf and NaN of b do not spread from there
    (seen on an H200; a stored zero that selects one does give NaN).

    Args:
        stored: (G, 16 * k/2) values of A.
        column: which column of the dense A each one has, same shape.
        b: (G, k, 8).
        c: (G, 16, 8).
    """
    groups = max(stored.shape[0], column.shape[0], b.shape[0])
    left = np.broadcast_to(stored, (groups, stored.shape[1])).reshape(groups, 16, -1)
    chosen = np.take_along_axis(
        np.broadcast_to(b, (groups, *b.shape[1:])),
        np.broadcast_to(column, (groups, column.shape[1]))[:, :, None],
        axis=1,
    )
    with np.errstate(invalid="ignore", over="ignore"):
        tile: Array = np.einsum("gij,gijn->gin", left, chosen.reshape(groups, 16, -1, 8))
        tile += c
    return tile


# ---------------------------------------------------------------- instructions


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
    k = _depth(shape, a_type, b_type, DENSE_SHAPES)
    kind_a, kind_b = TYPES[a_type], TYPES[b_type]
    if a_type == "f64":
        return _mma_f64(k, a, b, c)
    if a_type == "b1":
        raise UnsupportedShape(f"mma {shape} of single bits without .and or .xor")
    left = _values(kind_a, a, _gather_map("a", k, kind_a.bits)).reshape(-1, 16, k)
    right = _values(kind_b, b, _gather_map("b", k, kind_b.bits)).reshape(-1, k, 8)
    return _results(d_type or c_type, _multiply(left, right, _accumulators(c_type, c)), saturate)


def _in_order(registers: Registers, operand: str, k: int) -> Array:
    """Registers of one float64 element each as matrices, flat in matrix order."""
    stacked = _stack(registers, np.float64)
    ordered: Array = stacked.reshape(stacked.shape[0], -1).take(_gather_map(operand, k, 32), axis=1)
    return ordered


def _mma_f64(k: int, a: Registers, b: Registers, c: Registers) -> tuple[Array, ...]:
    """Doubles: one fused multiply-add for each k, ascending."""
    left, right = _in_order(a, "a", k).reshape(-1, 16, k), _in_order(b, "b", k).reshape(-1, k, 8)
    tile = fused(left, right, _in_order(c, "c", 0).reshape(-1, 16, 8))
    dealt = tile.reshape(tile.shape[0], 128).take(_scatter_map(32), axis=1)
    return tuple(dealt[:, i * LANES : (i + 1) * LANES] for i in range(4))


def fused(left: Array, right: Array, total: Array) -> Array:
    """Give left @ right + total of doubles, by a chain of fused multiply-adds along K."""
    for place in range(left.shape[2]):
        total = fma_f64(left[:, :, place, None], right[:, None, place, :], total)
    return total


def mma_bits(shape: str, operation: str, a: Registers, b: Registers, c: Registers) -> tuple[Array, ...]:
    """`mma.m16n8kK.s32.b1.b1.s32.<and|xor>.popc`: d = c + ones in the combination of each row with each column.

    Raises:
        UnsupportedShape: there is no such shape.
    """
    k = _depth(shape, "b1", "b1", DENSE_SHAPES)
    words = k // 32
    # A register is one word of 32 columns: the layouts of 32-bit elements, `words` of them along K.
    index_a, index_b = _gather_map("a", words, 32), _gather_map("b", words, 32)
    stacked_a, stacked_b = _stack(a, np.uint32), _stack(b, np.uint32)
    left = stacked_a.reshape(stacked_a.shape[0], -1).take(index_a, axis=1).reshape(-1, 16, 1, words)
    right = stacked_b.reshape(stacked_b.shape[0], -1).take(index_b, axis=1).reshape(-1, words, 8)
    pairs = right.transpose(0, 2, 1)[:, None]
    combined = left ^ pairs if operation == "xor" else left & pairs
    ones = np.bitwise_count(combined).sum(axis=-1, dtype=np.float64)
    return _results("s32", ones + _accumulators("s32", c), saturate=False)


class _Metadata(NamedTuple):
    """Where the indices of the stored values of a (16 x k/2) compressed A lie, flat over [row, column].

    `lane` holds them (for selector 0), at bits `shift` and `shift` + 1; `base` is the position of the
    value's group in the dense (16, k) matrix, and `moved` how far from there each of the four indices leads.
    `lane_step` lanes per selector value.
    """

    lane: Array
    shift: Array
    base: Array
    moved: Array
    lane_step: int


@functools.cache
def sparse_metadata(k: int, bits: int) -> _Metadata:
    """Layout of the metadata operand of `mma.sp` (PTX ISA, "Sparse matrix storage" and metadata figures).

    Each group of four along K has two 2-bit indices, the first value's in the lower bits. 16-bit types:
    a lane's low half-word serves row g, its high half-word row g + 8, 16 columns of K each; m16n8k16 takes
    one lane of each quad (selector 0..3), m16n8k32 two (selector 0: t = 0, 1; selector 1: t = 2, 3; the
    first lane of the pair has columns 0-15, the second 16-31). 8-bit types: a lane's word serves one row,
    32 columns of K; t even: row g, t odd: row g + 8; m16n8k32 takes two lanes (selector 0 or 1), m16n8k64
    all four (t // 2 chooses the columns; selector 0). tf32 is stored as pairs of 16-bit halves, one of two
    values, of which 0b0100 is the first and 0b1110 the second; of 4-bit integers an index chooses a pair.
    """
    if bits == 32:
        halves = sparse_metadata(2 * k, 16)
        lane, shift, base = (x.reshape(16, -1)[:, ::2].ravel() for x in halves[:3])
        return _Metadata(lane, shift, base // 2, np.array([0, 0, 1, 1]), halves.lane_step)
    if bits == 4:
        pairs = sparse_metadata(k // 2, 8)
        lane, shift, base = (np.repeat(x, 2) for x in pairs[:3])
        return _Metadata(lane, shift, 2 * base + np.arange(base.size) % 2, np.array([0, 2, 4, 6]), pairs.lane_step)
    row, column = (x.ravel() for x in np.mgrid[:16, : k // 2])
    group = column // 2
    if bits == 16:
        lane_in_quad = group // 4
        shift = 16 * (row // 8) + 4 * (group % 4) + 2 * (column % 2)
        lane_step = k // 16
    else:
        lane_in_quad = row // 8 + 2 * (group // 8)
        shift = 4 * (group % 8) + 2 * (column % 2)
        lane_step = 2
    lane = 4 * (row % 8) + lane_in_quad
    base = (row * k + 4 * group).astype(np.intp)
    return _Metadata(lane, shift.astype(np.uint32), base, np.arange(4), lane_step)


def _indices(layout: _Metadata, metadata: Array, selector: int) -> Array:
    """The 2-bit index of every stored value, (G, 16 * k/2)."""
    words = np.atleast_2d(metadata).take(layout.lane + layout.lane_step * selector, axis=1)
    words >>= layout.shift
    words &= np.uint32(3)
    return words


def metadata_ordered(shape: str, a_type: str, metadata: Array, selector: int) -> Array:
    """For each warp: are both indices of every group distinct and ascending (of tf32: 0, 1 or 2, 3)?

    `mma.sp::ordered_metadata` requires it (PTX ISA: undefined behaviour otherwise).

    Returns:
        (G,) bool.
    """
    k, bits = _depth(shape, a_type, a_type, SPARSE_SHAPES), TYPES[a_type].bits
    layout = sparse_metadata(*{32: (2 * k, 16), 4: (k // 2, 8)}.get(bits, (k, bits)))
    index = _indices(layout, metadata, selector)
    first, second = index[:, 0::2], index[:, 1::2]
    ordered: Array = np.all((second == first + 1) & (first % 2 == 0) if bits == 32 else first < second, axis=1)
    return ordered


def mma_sp(
    shape: str,
    a_type: str,
    b_type: str,
    c_type: str,
    a: Registers,
    b: Registers,
    c: Registers,
    metadata: Array,
    selector: int,
    *,
    saturate: bool = False,
    d_type: str | None = None,
) -> tuple[Array, ...]:
    """`mma.sp` and `mma.sp::ordered_metadata`: d = expand(a, metadata) @ b + c for every warp.

    Two stored values with the same index (forbidden in ordered metadata, see `metadata_ordered`) keep the
    second one.

    Args:
        shape: as in `mma`, K counted before compression.
        a_type: as in `mma`, without "f64" and "b1".
        b_type: as in `mma`.
        c_type: as in `mma`.
        a: registers of the 16 x K/2 stored values.
        b: registers of B, K x 8.
        c: registers of C.
        metadata: (G, 32) uint32, the metadata register of every lane.
        selector: the immediate that chooses the lanes whose metadata is used.
        saturate: as in `mma`.
        d_type: as in `mma`.

    Returns:
        Registers of d.

    Raises:
        UnsupportedShape: the combination is not modelled, or the selector is out of its range.
    """
    k = _depth(shape, a_type, b_type, SPARSE_SHAPES)
    kind_a, kind_b = TYPES[a_type], TYPES[b_type]
    layout = sparse_metadata(k, kind_a.bits)
    lanes_used = int(layout.lane.max()) % 4 + 1
    if not 0 <= selector < 4 // lanes_used:
        raise UnsupportedShape(f"mma.sp {shape} {a_type}: selector {selector} out of range")
    stored = _values(kind_a, a, _gather_map("a", k // 2, kind_a.bits))
    position = _recent.get(
        ("position", shape, a_type, selector),
        (metadata,),
        lambda: layout.base + layout.moved.take(_indices(layout, metadata, selector)),
    )
    groups = max(stored.shape[0], position.shape[0])

    def expanded() -> Array:
        dense = np.zeros(groups * 16 * k)
        dense[position + np.arange(0, groups * 16 * k, 16 * k)[:, None]] = stored
        return dense

    dense = _recent.get(("expanded", shape, a_type, selector), (*a, metadata), expanded)
    right = _values(kind_b, b, _gather_map("b", k, kind_b.bits)).reshape(-1, k, 8)
    finite = _recent.get(("finite", b_type), b, lambda: np.asarray(np.isfinite(right).all()))
    if finite:
        tile = _multiply(dense.reshape(groups, 16, k), right, _accumulators(c_type, c))
    else:
        tile = _multiply_selected(stored, position % k, right, _accumulators(c_type, c))
    return _results(d_type or c_type, tile, saturate)
