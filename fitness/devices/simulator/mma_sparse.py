"""`mma.sp`: where the metadata lie, and products with the stored values of a sparse A."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.mma_layout import SPARSE_SHAPES, TYPES, UnsupportedShape, depth, gather_map
from fitness.devices.simulator.mma_values import Registers, accumulators, matrix_values, multiplied, recent, results

Array = NDArray[Any]


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


def indices(layout: _Metadata, metadata: Array, selector: int) -> Array:
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
    k, bits = depth(shape, a_type, a_type, SPARSE_SHAPES), TYPES[a_type].bits
    first, second = _pairs(k, bits, metadata, selector)
    ordered: Array = np.all((second == first + 1) & (first % 2 == 0) if bits == 32 else first < second, axis=1)
    return ordered


def valid(k: int, bits: int, metadata: Array, selector: int) -> Array:
    """For each warp: are both indices of every group distinct (of tf32: 0, 1 or 2, 3)? Else a product is undefined.

    Returns:
        (G,) bool.
    """
    first, second = _pairs(k, bits, metadata, selector)
    found: Array = np.all((second == first + 1) & (first % 2 == 0) if bits == 32 else first != second, axis=1)
    return found


def _pairs(k: int, bits: int, metadata: Array, selector: int) -> tuple[Array, Array]:
    """The first and the second index of every group of four (of tf32 halves: four; of 4-bit integers: four pairs)."""
    layout = sparse_metadata(*{32: (2 * k, 16), 4: (k // 2, 8)}.get(bits, (k, bits)))
    index = indices(layout, metadata, selector)
    return index[:, 0::2], index[:, 1::2]


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
    k = depth(shape, a_type, b_type, SPARSE_SHAPES)
    kind_a, kind_b = TYPES[a_type], TYPES[b_type]
    layout = sparse_metadata(k, kind_a.bits)
    lanes_used = int(layout.lane.max()) % 4 + 1
    if not 0 <= selector < 4 // lanes_used:
        raise UnsupportedShape(f"mma.sp {shape} {a_type}: selector {selector} out of range")
    stored = matrix_values(kind_a, a, gather_map("a", k // 2, kind_a.bits))
    position = recent.get(
        ("position", shape, a_type, selector),
        (metadata,),
        lambda: layout.base + layout.moved.take(indices(layout, metadata, selector)),
    )
    groups = max(stored.shape[0], position.shape[0])

    def expanded() -> Array:
        dense = np.zeros(groups * 16 * k)
        dense[position + np.arange(0, groups * 16 * k, 16 * k)[:, None]] = stored
        return dense

    dense = recent.get(("expanded", shape, a_type, selector), (*a, metadata), expanded)
    right = matrix_values(kind_b, b, gather_map("b", k, kind_b.bits)).reshape(-1, k, 8)
    finite = recent.get(("finite", b_type), b, lambda: np.asarray(np.isfinite(right).all()))
    if finite:
        tile = multiplied(dense.reshape(groups, 16, k), right, accumulators(c_type, c))
    else:
        tile = _selected(stored, position % k, right, accumulators(c_type, c))
    return results(d_type or c_type, tile, saturate)


def _selected(stored: Array, column: Array, b: Array, c: Array) -> Array:
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
