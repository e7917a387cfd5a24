"""Accesses to global memory whose patterns hardly repeat, for their addresses depend on data.

They are kept in the order they were made and counted many at once, which costs a fraction of one by one and gives the
same counters to the bit: what a read finds in L1 depends on the reads before it, so those of known patterns that fall
in between are kept too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.coalescing import (
    BACKLOG_LANES,
    LINE_BYTES,
    WARP,
    Addresses,
    Lanes,
    Pattern,
    distinct,
    in_order,
    narrow,
)
from fitness.devices.simulator.counters import SECTOR_BYTES
from fitness.devices.simulator.footprint import Footprint

Indices = NDArray[np.int64]


class Access(NamedTuple):
    """One warp-level instruction of a group of lanes.

    Attributes:
        totals: (7,) running totals of the instruction, as of `SiteCounters`.
        buffer: what it accesses.
        cached: whether L1 may serve it.
    """

    totals: NDArray[np.float64]
    buffer: Footprint
    cached: bool
    write: bool
    bytes_per_lane: int


@dataclass(frozen=True)
class _Touched:
    """Sectors of several accesses: distinct (access, block, sector), and (accesses,) sums.

    Attributes:
        sectors: as warps asked for them, before those of the same block are taken as one.
        blocks: that take part.
    """

    access: Indices
    block: Indices
    sector: Indices
    sectors: Indices
    blocks: Indices


class Accesses:
    """Accesses of one launch that are yet to be counted.

    Args:
        warps_per_block: of the launch.
    """

    def __init__(self, warps_per_block: int) -> None:
        self._warps_per_block = warps_per_block
        self._made: list[Access] = []
        self._raw: list[tuple[int, Addresses, Lanes]] = []
        self._known: list[tuple[int, Pattern, int, int]] = []
        self._lanes = 0

    def __bool__(self) -> bool:
        return bool(self._made)

    @property
    def full(self) -> bool:
        """Whether it is time to count."""
        return self._lanes >= BACKLOG_LANES

    def add(self, access: Access, offsets: Addresses, lanes: Lanes) -> None:
        """Keep one access.

        Args:
            access: what is made.
            offsets: (L,) byte offsets into the buffer, L >= 1.
            lanes: (L,) ascending global lane numbers.
        """
        self._raw.append((len(self._made), offsets, lanes))
        self._made.append(access)
        self._lanes += offsets.size

    def add_known(self, access: Access, pattern: Pattern, base: int, block: int) -> None:
        """Keep a read of a known pattern, at sector `base` from block `block` on, whose totals are counted already."""
        self._known.append((len(self._made), pattern, base, block))
        self._made.append(access)
        self._lanes += pattern.unique.size

    def count(self, clock: float) -> float:
        """Count all that are kept.

        Args:
            clock: sectors a block has read through L1 before the first of them.

        Returns:
            the same after the last.
        """
        if not self._made:
            return clock
        parts = ([self._count_raw()] if self._raw else []) + ([self._count_known()] if self._known else [])
        found = parts[0] if len(parts) == 1 else _joined(parts)
        reads = np.array([not access.write for access in self._made])
        cached = np.array([access.cached for access in self._made]) & reads
        unique = np.bincount(found.access, minlength=reads.size)
        steps = np.where(cached, np.maximum(1.0, unique / np.maximum(1, found.blocks)), 0.0)
        clocks = np.cumsum(np.concatenate([[clock], steps]))
        buffers: dict[Footprint, int] = {}
        owner = np.array([buffers.setdefault(access.buffer, len(buffers)) for access in self._made])
        for buffer, number in buffers.items():
            buffer.reuse[0] += float((found.sectors - unique)[cached & (owner == number)].sum())
            mine = owner[found.access] == number
            self._mark(buffer, found, mine & reads[found.access], mine & ~reads[found.access], clocks, cached)
        self._made.clear()
        self._raw.clear()
        self._known.clear()
        self._lanes = 0
        return float(clocks[-1])

    @staticmethod
    def _mark(
        buffer: Footprint,
        found: _Touched,
        read: NDArray[np.bool_],
        written: NDArray[np.bool_],
        clocks: NDArray[np.float64],
        cached: NDArray[np.bool_],
    ) -> None:
        if written.any():
            buffer.mark_written(found.block[written], found.sector[written])
        if read.any():
            at = clocks[:-1].astype(np.int64)
            buffer.mark_reads(found.access[read], found.block[read], found.sector[read], at, cached)

    def _count_raw(self) -> _Touched:
        """Add to the totals of those whose addresses are kept; what they touch."""
        numbers = np.array([number for number, _, _ in self._raw])
        made = [self._made[number] for number in numbers]
        sizes = np.array([offsets.size for _, offsets, _ in self._raw])
        entry = np.repeat(np.arange(numbers.size), sizes)
        full, first, warp = _laid_out(
            np.concatenate([offsets for _, offsets, _ in self._raw]),
            np.concatenate([lanes for _, _, lanes in self._raw]),
            entry,
        )
        row_entry = entry[first]
        row_block = warp // self._warps_per_block
        ordered = np.sort(narrow(full), axis=1)
        sectors = ordered // SECTOR_BYTES
        row, column = np.nonzero(distinct(sectors))
        lines = distinct(sectors // (LINE_BYTES // SECTOR_BYTES)).sum(axis=1)
        asked = _asked(ordered, np.array([access.bytes_per_lane for access in made])[row_entry])
        ideal = -(-asked // LINE_BYTES)
        per_row = np.bincount(row, minlength=row_entry.size)
        columns = (None, None, per_row, np.maximum(lines, ideal), -(-asked // SECTOR_BYTES), ideal)
        totals = [np.bincount(row_entry, weights=column, minlength=numbers.size) for column in columns]
        totals[1] = sizes
        for access, added in zip(made, np.stack(totals, axis=1), strict=True):
            access.totals[:6] += added
        blocks, reach = int(row_block.max()) + 1, int(sectors.max()) + 1
        pair = row_entry * blocks + row_block
        key = in_order(pair[row] * reach + sectors[row, column])
        pairs, sector = np.divmod(key, reach)
        return _Touched(
            numbers[pairs // blocks],
            pairs % blocks,
            sector,
            self._of_all(numbers, totals[2]),
            self._of_all(numbers, np.bincount(in_order(pair) // blocks, minlength=numbers.size)),
        )

    def _count_known(self) -> _Touched:
        """What those of known patterns touch."""
        numbers = np.array([number for number, _, _, _ in self._known])
        patterns = [pattern for _, pattern, _, _ in self._known]
        sizes = np.array([pattern.unique.size for pattern in patterns])
        bases = np.array([(base, block) for _, _, base, block in self._known])
        return _Touched(
            np.repeat(numbers, sizes),
            np.concatenate([pattern.unique_block for pattern in patterns]) + np.repeat(bases[:, 1], sizes),
            np.concatenate([pattern.unique for pattern in patterns]) + np.repeat(bases[:, 0], sizes),
            self._of_all(numbers, np.array([pattern.sectors for pattern in patterns])),
            self._of_all(numbers, np.array([pattern.blocks for pattern in patterns])),
        )

    def _of_all(self, numbers: Indices, values: NDArray[Any]) -> Indices:
        """A value of some accesses, 0 for the others."""
        found = np.zeros(len(self._made), dtype=np.int64)
        found[numbers] = values
        return found


def _laid_out(offsets: Addresses, lanes: Lanes, entry: Indices) -> tuple[Addresses, Indices, Indices]:
    """(G, 32) offsets of the warps of all entries, inactive lanes repeating their warp's first active one.

    Returns:
        these; (G,) where each warp's first active lane is among the lanes, and its warp number.
    """
    warps = lanes // WARP
    new = np.ones(warps.size, dtype=bool)
    np.not_equal(warps[1:], warps[:-1], out=new[1:])
    new[1:] |= entry[1:] != entry[:-1]
    place = np.flatnonzero(new)
    if place.size * WARP == lanes.size:
        return offsets.reshape(-1, WARP), place, warps[place]
    full = np.repeat(offsets[place][:, None], WARP, axis=1)
    full[np.cumsum(new) - 1, lanes % WARP] = offsets
    return full, place, warps[place]


def _asked(ordered: NDArray[Any], bytes_per_lane: Indices) -> Indices:
    """(G,) distinct bytes each warp asks for; rows are in order and have sizes of their own."""
    asked = np.empty(ordered.shape[0], dtype=np.int64)
    for size in set(bytes_per_lane.tolist()):
        rows = bytes_per_lane == size
        asked[rows] = distinct(ordered[rows] // size).sum(axis=1) * size
    return asked


def _joined(parts: Sequence[_Touched]) -> _Touched:
    one, other = parts
    return _Touched(
        np.concatenate([one.access, other.access]),
        np.concatenate([one.block, other.block]),
        np.concatenate([one.sector, other.sector]),
        one.sectors + other.sectors,
        one.blocks + other.blocks,
    )
