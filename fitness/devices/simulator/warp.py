"""Warp-wide instructions: shfl, vote, match, redux, activemask, elect (PTX ISA, the sections of those names).

Values of G warps are arrays of shape (G, 32); `active` (G, 32) bool says which lanes execute the instruction, `mask`
is the membermask operand. Lanes of a warp may form several sets with masks of their own: `by_mask` takes each set by
itself, since the functions below (but for shuffles) expect one mask to a warp. A lane outside the mask that is read by
one inside, or a named lane that does not execute, is undefined behaviour on the device: the functions say so, the
engine makes it a finding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Word = NDArray[Any] | np.uint32

LANES = 32
_LANE = np.arange(LANES, dtype=np.int64)
_BIT = (np.uint32(1) << np.arange(LANES, dtype=np.uint32)).astype(np.uint32)


def pack_mask(lanes: Array) -> Array:
    """Bool (G, 32) -> uint32 (G, 1), bit l = lane l."""
    return np.packbits(np.ascontiguousarray(lanes), axis=-1, bitorder="little").view(np.uint32)


def unpack_mask(mask: Word) -> Array:
    """Uint32 of any shape that broadcasts to (G, 32) -> bool: is the lane of each column in its own mask?"""
    inside: Array = (np.asarray(mask, dtype=np.uint32) & _BIT) != 0
    return inside


def shfl_source(mode: str, b: Word, c: Word) -> tuple[Array, Array]:
    """Source lane and in-range predicate of `shfl.sync` for every lane.

    Args:
        mode: "up", "down", "bfly" or "idx".
        b: lane or offset operand, broadcastable to (G, 32).
        c: the clamp (bits 0-4) and segment mask (bits 8-12) operand.

    Returns:
        (source lane (G, 32) int64, predicate (G, 32) bool); where the predicate is false the source is the
        lane itself.
    """
    b = np.asarray(b).astype(np.int64) & 31
    c = np.asarray(c).astype(np.int64)
    clamp, segment = c & 31, (c >> 8) & 31
    # PTX ISA: minLane = lane & segmask, maxLane = minLane | (cval & ~segmask); .up compares with maxLane,
    # whose clamp value is then 0.
    limit = (_LANE & segment) | (clamp & ~segment & 31)
    if mode == "up":
        source = _LANE - b
        valid = source >= limit
    elif mode == "down":
        source = _LANE + b
        valid = source <= limit
    elif mode == "bfly":
        source = _LANE ^ b
        valid = source <= limit
    else:
        source = (_LANE & segment) | (b & ~segment & 31)
        valid = source <= limit
    source, valid = np.broadcast_arrays(source, valid)
    return np.where(valid, source, _LANE), valid


def shfl(mode: str, value: Array, b: Word, c: Word) -> tuple[Array, Array, Array]:
    """`shfl.sync.<mode>.b32 d|p, a, b, c, mask`.

    Args:
        mode: as in `shfl_source`.
        value: (G, 32) source register.
        b: as in `shfl_source`.
        c: as in `shfl_source`.

    Returns:
        (d, p, source lane), each (G, 32). Check the source lanes with `unreadable`.
    """
    source, valid = shfl_source(mode, b, c)
    value = np.atleast_2d(value)
    if source.ndim == 1:
        return value[:, source], np.broadcast_to(valid, value.shape), np.broadcast_to(source, value.shape)
    return np.take_along_axis(value, source, axis=1), valid, source


def unreadable(source: Array, active: Array, mask: Word) -> Array:
    """Lanes whose shuffle reads a lane that is inactive or outside the membermask: undefined (G, 32) bool."""
    active = np.atleast_2d(active)
    source = np.broadcast_to(source, active.shape)
    named = (np.asarray(mask, dtype=np.uint32) & _BIT[source]) != 0
    undefined: Array = active & ~(named & np.take_along_axis(active, source, axis=1))
    return undefined


def missing_lanes(active: Array, mask: Word) -> Array:
    """Lanes named by an executing lane's membermask that do not execute (they must, or it hangs): (G, 32)."""
    active = np.atleast_2d(active)
    mask = np.broadcast_to(np.asarray(mask, dtype=np.uint32), active.shape)
    named = np.bitwise_or.reduce(np.where(active, mask, np.uint32(0)), axis=1, keepdims=True)
    missing: Array = unpack_mask(named) & ~active
    return missing


def by_mask(
    function: Callable[[Array, Word], tuple[Array, ...]], active: Array, mask: Word
) -> tuple[tuple[Array, ...], Array]:
    """Results of a function of (active, mask) for each set of lanes that give one mask.

    Returns:
        (results (G, 32), lanes (G, 32) that break the rules: not in their own mask, or in one that others give not).
    """
    active = np.atleast_2d(active)
    masks = np.broadcast_to(np.asarray(mask, dtype=np.uint32), active.shape)
    whole = np.where(active, masks, np.uint32(0)).max(axis=1, keepdims=True)
    if ((masks == whole) | ~active).all():
        return function(active, whole), active & ~unpack_mask(whole)
    results: tuple[Array, ...] | None = None
    wrong = active & ~unpack_mask(masks)
    for one in np.unique(masks[active]):
        chosen = active & (masks == one)
        found = function(chosen, one)
        if results is None:
            results = tuple(np.array(np.broadcast_to(f, active.shape)) for f in found)
        for result, new in zip(results, found, strict=True):
            np.copyto(result, np.broadcast_to(new, active.shape), where=chosen)
        wrong |= active & unpack_mask(one) & ~chosen & chosen.any(axis=1, keepdims=True)
    assert results is not None
    return results, wrong


def ballot(predicate: Array, active: Array, mask: Word) -> Array:
    """`vote.sync.ballot.b32`: (G, 32) uint32, bit l set where lane l takes part and its predicate holds."""
    taking = np.atleast_2d(active) & unpack_mask(mask)
    votes = pack_mask(taking & np.atleast_2d(predicate))
    return np.broadcast_to(votes, taking.shape)


def vote(mode: str, predicate: Array, active: Array, mask: Word) -> Array:
    """`vote.sync.{all,any,uni}.pred`: (G, 32) bool."""
    taking = np.atleast_2d(active) & unpack_mask(mask)
    held = np.broadcast_to(predicate, taking.shape)
    every = (held | ~taking).all(axis=1, keepdims=True)
    some = (held & taking).any(axis=1, keepdims=True)
    result = {"all": every, "any": some, "uni": every | ~some}[mode]
    return np.broadcast_to(result, taking.shape)


def activemask(active: Array) -> Array:
    """`activemask.b32`: (G, 32) uint32."""
    lanes = np.atleast_2d(active)
    return np.broadcast_to(pack_mask(lanes), lanes.shape)


def match_any(value: Array, active: Array, mask: Word) -> Array:
    """`match.any.sync`: mask of the taking lanes that hold the lane's value, (G, 32) uint32."""
    taking = np.atleast_2d(active) & unpack_mask(mask)
    value = np.broadcast_to(value, taking.shape)
    same = (value[:, :, None] == value[:, None, :]) & taking[:, None, :]
    return pack_mask(same)[..., 0]


def match_all(value: Array, active: Array, mask: Word) -> tuple[Array, Array]:
    """`match.all.sync d|p`: (the mask, True) where all taking lanes hold one value, else (0, False)."""
    same = match_any(value, active, mask)
    taking = np.atleast_2d(active) & unpack_mask(mask)
    members = pack_mask(taking)
    agree = ((same == members) | ~taking).all(axis=1, keepdims=True)
    predicate = np.broadcast_to(agree, taking.shape)
    return np.where(predicate, members, np.uint32(0)), predicate


def redux(operation: str, type_name: str, value: Array, active: Array, mask: Word) -> Array:
    """`redux.sync.<op>.<type>`: add, min, max (u32, s32), and, or, xor (b32) over the taking lanes, (G, 32)."""
    taking = np.atleast_2d(active) & unpack_mask(mask)
    value = np.broadcast_to(np.asarray(value), taking.shape)
    if operation in ("min", "max"):
        signed = type_name.startswith("s")
        info = np.iinfo(np.int32 if signed else np.uint32)
        typed = value.view(np.int32) if signed else value
        neutral = info.max if operation == "min" else info.min
        function = np.minimum if operation == "min" else np.maximum
        reduced = function.reduce(np.where(taking, typed, typed.dtype.type(neutral)), axis=1, keepdims=True)
    else:
        neutral = 0xFFFFFFFF if operation == "and" else 0
        ufunc = {"add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[operation]
        reduced = ufunc.reduce(np.where(taking, value, np.uint32(neutral)), axis=1, keepdims=True, dtype=np.uint32)
    return np.broadcast_to(reduced.view(np.uint32), taking.shape)


def elect(active: Array, mask: Word) -> tuple[Array, Array]:
    """`elect.sync d|p`: (elected lane, is it this lane?), the lowest taking lane being elected, (G, 32) each."""
    taking = np.atleast_2d(active) & unpack_mask(mask)
    leader = taking.argmax(axis=1).astype(np.uint32)[:, None]
    return np.broadcast_to(leader, taking.shape), (leader == _LANE) & taking
