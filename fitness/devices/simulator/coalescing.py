"""What one warp-level memory access costs: 32-byte sectors of global memory, wavefronts of shared memory.

Address patterns repeat from one loop iteration to the next but for a common offset, so `PatternCache`
remembers the patterns of a memory instruction and pays for sorting only once per distinct one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.counters import SECTOR_BYTES

Addresses = NDArray[np.int64]
Lanes = NDArray[np.int64]

WARP = 32
LINE_BYTES = 128
_PATTERNS_KEPT = 128
#: Accesses that are put off are counted once they have so many lanes.
BACKLOG_LANES = 1 << 17


def rows_of(lanes: Lanes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group ascending (L,) global lane numbers by warp.

    Returns:
        (G,) warp numbers, and (L,) the index of each lane's warp among them.
    """
    warps = lanes >> 5
    new = np.empty(warps.size, dtype=bool)
    new[0] = True
    np.not_equal(warps[1:], warps[:-1], out=new[1:])
    return warps[new], np.cumsum(new) - 1


def full_warps(lanes: Lanes) -> bool:
    """Whether the ascending lanes are all 32 of each of some consecutive warps."""
    return not lanes.size % WARP and not int(lanes[0]) % WARP and int(lanes[-1]) - int(lanes[0]) + 1 == lanes.size


def spread(values: Addresses, lanes: Lanes) -> tuple[Addresses, NDArray[np.bool_]]:
    """Lay values of active lanes out as (G, 32), inactive lanes repeating the first active one of their warp.

    A repeated address adds no sector and no bank conflict, so what follows needs few masks.

    Returns:
        (G, 32) values, and (G, 32) True where the lane is active.
    """
    if full_warps(lanes):
        return values.reshape(-1, WARP), np.ones((values.size // WARP, WARP), dtype=bool)
    warps, row = rows_of(lanes)
    first = np.searchsorted(row, np.arange(warps.size))
    full = np.repeat(values[first][:, None], WARP, axis=1)
    active = np.zeros(full.shape, dtype=bool)
    full[row, lanes & (WARP - 1)] = values
    active[row, lanes & (WARP - 1)] = True
    return full, active


def narrow(values: NDArray[Any], *, bits: int = 31) -> NDArray[Any]:
    """The same numbers as int32 if they have at most so many bits: these sort four times as fast."""
    return values.astype(np.int32) if int(values.max()) >> bits == 0 else values


def distinct(values: NDArray[Any]) -> NDArray[np.bool_]:
    """(G, n) rows in order -> True at the first of each run of equal values."""
    flags = np.ones(values.shape, dtype=bool)
    np.not_equal(values[:, 1:], values[:, :-1], out=flags[:, 1:])
    return flags


def in_order(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distinct values, ascending (by sorting; `np.unique` hashes, which is slower where most are distinct)."""
    ordered = np.sort(values)
    return np.asarray(ordered[distinct(ordered[None])[0]])


def wavefronts(addresses: Addresses, bytes_per_lane: int, active: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Shared-memory wavefronts of each warp access, bank conflicts included.

    32 banks of 4 bytes; accesses of 8 and 16 bytes per lane go in 2 and 4 phases of 16 and 8 lanes. A phase
    takes as many wavefronts as its busiest bank has distinct words, none where no lane of it is active
    (CUDA C++ Programming Guide, shared memory of compute capability 5.x and on).

    Args:
        addresses: (G, 32) byte addresses, inactive lanes repeating an active one.
        bytes_per_lane: 1, 2, 4, 8 or 16.
        active: (G, 32), None where all lanes are.

    Returns:
        (G,) wavefronts; without conflicts max(1, bytes_per_lane // 4).
    """
    unit = max(4, bytes_per_lane)
    banks = LINE_BYTES // unit
    words = narrow(addresses // unit, bits=26).reshape(-1, banks)
    shift = 8 * words.itemsize - 6  # above every word; a bank number needs five bits
    key = np.sort((words & (banks - 1)) << shift | words, axis=1)
    new = distinct(key)
    key >>= shift
    key += np.arange(0, key.size, banks, dtype=key.dtype)[:, None]
    per_phase = np.bincount(key[new], minlength=key.size).reshape(key.shape).max(axis=1)
    if active is not None and not active.all():
        per_phase = per_phase * active.reshape(-1, banks).any(axis=1)
    return np.asarray(per_phase.reshape(addresses.shape[0], -1).sum(axis=1))


def longest_runs(addresses: Addresses, lanes: Lanes) -> NDArray[np.int64]:
    """(G,) largest number of active lanes of each warp that name the same address (atomics serialise there)."""
    full, active = spread(addresses, lanes)
    same = np.sort(np.where(active, full, -1 - np.arange(WARP)), axis=1)
    new = distinct(same)
    lengths = np.diff(np.flatnonzero(new.ravel()), append=new.size)
    starts = np.concatenate([[0], np.cumsum(new.sum(axis=1))[:-1]])
    return np.asarray(np.maximum.reduceat(lengths, starts))


@dataclass(frozen=True)
class Pattern:
    """What accesses with one pattern of relative addresses cost (fields as in `SiteCounters`).

    Attributes:
        unique: distinct sectors each block touches, relative to the base; empty for shared memory.
        unique_block: which block, counted from the block of the first lane.
        blocks: number of blocks with an active lane.
    """

    requests: int
    sectors: int
    wavefronts: int
    ideal_sectors: int
    ideal_wavefronts: int
    unique: NDArray[np.int64]
    unique_block: NDArray[np.int64]
    blocks: int


_NONE = np.empty(0, dtype=np.int64)


def ideal_wavefronts(full: Addresses, bytes_per_lane: int) -> NDArray[np.int64]:
    """(G,) wavefronts that the distinct bytes each warp asks for must take; 4 bytes a lane fit into one."""
    if bytes_per_lane <= LINE_BYTES // WARP:
        return np.ones(full.shape[0], dtype=np.int64)
    return -(-_asked_bytes(np.sort(full, axis=1), bytes_per_lane) // LINE_BYTES)


def _asked_bytes(ordered: NDArray[Any], bytes_per_lane: int) -> NDArray[np.int64]:
    """(G,) distinct bytes each warp asks for; rows are in order."""
    return np.asarray(distinct(ordered // bytes_per_lane).sum(axis=1) * bytes_per_lane)


def global_pattern(full: Addresses, block_of_row: NDArray[np.int64], bytes_per_lane: int) -> Pattern:
    """Sectors and L1 wavefronts of (G, 32) addresses: at least one per 128-byte line and per 128 bytes."""
    ordered = np.sort(narrow(full), axis=1)
    sectors = ordered // SECTOR_BYTES
    row, column = np.nonzero(distinct(sectors))
    per_warp = sectors[row, column]
    reach = int(per_warp.max()) + 1
    touched = in_order(block_of_row[row] * reach + per_warp)
    lines = distinct(sectors // (LINE_BYTES // SECTOR_BYTES)).sum(axis=1)
    asked = _asked_bytes(ordered, bytes_per_lane)
    ideal = -(-asked // LINE_BYTES)
    return Pattern(
        requests=full.shape[0],
        sectors=per_warp.size,
        wavefronts=int(np.maximum(lines, ideal).sum()),
        ideal_sectors=int((-(-asked // SECTOR_BYTES)).sum()),
        ideal_wavefronts=int(ideal.sum()),
        unique=touched % reach,
        unique_block=touched // reach,
        blocks=int(np.count_nonzero(np.diff(block_of_row))) + 1,
    )


def shared_pattern(full: Addresses, active: NDArray[np.bool_], bytes_per_lane: int) -> Pattern:
    """Shared-memory wavefronts of (G, 32) addresses."""
    fronts = int(wavefronts(full, bytes_per_lane, active).sum())
    ideal = int(ideal_wavefronts(full, bytes_per_lane).sum())
    return Pattern(full.shape[0], 0, fronts, 0, min(ideal, fronts), _NONE, _NONE, 0)


class PatternCache:
    """Patterns one memory instruction has shown, found again by comparing relative addresses."""

    __slots__ = ("_known", "_warps_per_block", "hits", "misses")

    def __init__(self, warps_per_block: int) -> None:
        self._warps_per_block = warps_per_block
        self.hits = self.misses = 0
        self._known: dict[tuple[int, ...], tuple[Addresses, Lanes, Pattern]] = {}

    def find(self, offsets: Addresses, lanes: Lanes, bytes_per_lane: int, *, shared: bool) -> tuple[Pattern, int, int]:
        """Cost of one access.

        Args:
            offsets: (L,) byte offsets, L >= 1.
            lanes: (L,) ascending global lane numbers.
            bytes_per_lane: access width.
            shared: bank wavefronts instead of sectors.

        Returns:
            the pattern, the byte offset its sectors are relative to, and the block its blocks are relative to.
        """
        base = int(offsets.min()) // LINE_BYTES * LINE_BYTES
        block, first = divmod(int(lanes[0]), WARP * self._warps_per_block)
        relative, lanes = offsets - base, lanes - block * WARP * self._warps_per_block
        middle = relative.size // 2
        key = (bytes_per_lane, relative.size, first, int(relative[0]), int(relative[middle]), int(relative[-1]))
        known = self._known.get(key)
        if known is not None and np.array_equal(known[0], relative) and np.array_equal(known[1], lanes):
            self.hits += 1
            return known[2], base, block
        self.misses += 1
        full, active = spread(relative, lanes)
        if shared:
            pattern = shared_pattern(full, active, bytes_per_lane)
        else:
            pattern = global_pattern(full, rows_of(lanes)[0] // self._warps_per_block, bytes_per_lane)
        if known is not None or len(self._known) < _PATTERNS_KEPT:
            self._known[key] = (relative, lanes, pattern)
        return pattern, base, block
