"""What the race detector remembers of a memory: the last accesses to every granule, stamped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.lanes import Context
from fitness.devices.simulator.sites import Site

Stamps = NDArray[np.int64]

EPOCH = 44  # bits above: block epoch
WARP_EPOCH = 24  # 20 bits: warp epoch
MANY = np.int64(1 << 23)  # several lanes of the warp read it
ATOMIC = np.int64(1 << 22)
LANE = np.int64((1 << 22) - 1)
_PATIENCE = 4  # epochs in a row


@dataclass
class Read:
    """An access that is yet to be entered into the history (at first only reads are put off)."""

    context: Context
    relative: NDArray[np.int64]
    bytes_each: int
    site: Site
    stamps: Stamps
    epochs: Stamps

    @cached_property
    def extent(self) -> tuple[int, int]:
        """First byte touched of each owner's memory, and the one after the last."""
        return int(self.relative.min()), int(self.relative.max()) + self.bytes_each

    def meets(self, other: Read) -> bool:
        """Whether two accesses may touch the same bytes."""
        return self.extent[0] < other.extent[1] and other.extent[0] < self.extent[1]


class History:
    """Last accesses to every granule of one memory: a buffer by name, or all shared memory ("").

    As long as every granule has been touched by one lane alone (since all blocks met at a barrier, of a buffer: ever),
    nothing can conflict: it is enough to note whose each granule is, and accesses are entered when that ends.

    Attributes:
        writer, reader: stamp of the last one, and its site; stranger: a reader of another warp than `reader`'s.
        owner: stamp of the lane that touched it last while that is so, as `exclusive` says.
        log: reads not entered yet (most are forgotten at the next barrier, before any write could race with them);
            writes: the same of writes, while `exclusive`.
    """

    def __init__(self, granules: int, buffer: str, *, exclusive: bool) -> None:
        self.buffer = buffer
        self.writer: Stamps = np.zeros(granules, dtype=np.int64)
        self.writer_site: NDArray[np.int32] = np.zeros(granules, dtype=np.int32)
        self.reader: Stamps = np.zeros(granules, dtype=np.int64)
        self.reader_site: NDArray[np.int32] = np.zeros(granules, dtype=np.int32)
        self.stranger: Stamps = np.zeros(granules, dtype=np.int64)
        self.owner: Stamps = np.zeros(granules if exclusive else 0, dtype=np.int64)
        self.exclusive = exclusive
        self.log: list[Read] = []
        self.writes: list[Read] = []
        self._failed = self._epochs = 0

    def met(self) -> None:
        """All blocks have met: what was accessed before is ordered before what comes."""
        self.log.clear()
        self.writes.clear()
        self._failed = 0 if self.exclusive else self._failed + 1
        self._epochs += 1
        # Where lanes share granules in every epoch, looking for owners is only tried now and then.
        self.exclusive = self.owner.size > 0 and (self._failed < _PATIENCE or self._epochs % _PATIENCE**2 == 0)

    def forget(self) -> None:
        """The whole grid has met: nothing that was accessed before matters."""
        self.log.clear()
        self.writes.clear()
        for stamps in (self.writer, self.reader, self.stranger, self.owner):
            stamps[:] = 0
        self.exclusive = self.owner.size > 0

    def claim(self, index: NDArray[np.int64], count: int, stamps: Stamps, epochs: Any) -> bool:
        """Lanes touch `count` granules each from `count` times `index` on: whether no other lane has, now or before.

        `epochs`: the smallest stamp of each lane's block epoch; a buffer's have none, there the first touch counts.
        """
        before = _vectors(self.owner, count).take(index, axis=0)
        mine = stamps if count == 1 else stamps[:, None]
        if (before == mine).all():
            return True
        free = before == 0 if self.buffer else before < (epochs if count == 1 else epochs[:, None])
        if not (free | (((before ^ mine) & LANE) == 0)).all():
            return False
        _vectors(self.owner, count)[index] = mine
        return bool((_vectors(self.owner, count).take(index, axis=0) == mine).all())

    def enter(self, kind: str, index: NDArray[np.int64], count: int, stamps: Stamps, site: Site) -> None:
        """Note an access as the last one of its kind ("writer" or "reader"); of granules that it alone touches."""
        last, sites = (self.writer, self.writer_site) if kind == "writer" else (self.reader, self.reader_site)
        _vectors(last, count)[index] = stamps if count == 1 else stamps[:, None]
        _vectors(sites, count)[index] = site.index


class Access(NamedTuple):
    """One executed access.

    Per granule its stamp, the smallest stamp of the lane's block epoch, and the warp that makes it.
    """

    context: Context
    site: Site
    granules: NDArray[np.int64]
    per_lane: int
    stamps: Stamps
    epochs: Stamps
    viewers: Stamps


def _vectors(flat: NDArray[Any], count: int) -> NDArray[Any]:
    """Granules in rows of `count`."""
    return flat if count == 1 else flat[: flat.size // count * count].reshape(-1, count)


def granule_shift(sites: Iterable[Site]) -> int:
    """log2 of the bytes of a granule: as few as the narrowest of these accesses has."""
    return min((s.shift for s in sites), default=4)


def spread_granules(first: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Granules of accesses that cover `count` each."""
    if count == 1:
        return first
    return np.asarray((first[:, None] + np.arange(count)).reshape(-1))
