"""Accesses to shared memory whose patterns hardly repeat, for their addresses depend on data.

They are kept and their wavefronts counted many at once, which costs a fraction of one by one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.coalescing import BACKLOG_LANES, Addresses, Lanes, ideal_wavefronts, spread, wavefronts


class PutOff:
    """One access that is kept, and the instructions that made it or one of the same cost.

    Attributes:
        cost: (requests, lanes, sectors, wavefronts, ideal sectors, ideal wavefronts, serial) once it is counted.
    """

    __slots__ = ("_waiting", "cost")

    def __init__(self) -> None:
        self.cost: tuple[int, ...] | None = None
        self._waiting: list[NDArray[np.float64]] = []

    def charge(self, totals: NDArray[np.float64]) -> None:
        """Add the cost to an instruction's totals, as of `SiteCounters`, now or as soon as it is known."""
        if self.cost is None:
            self._waiting.append(totals)
        else:
            totals += self.cost

    def settle(self, cost: tuple[int, ...]) -> None:
        """The cost is known."""
        self.cost = cost
        for totals in self._waiting:
            np.add(totals, cost, out=totals)
        self._waiting.clear()


class Backlog:
    """Shared-memory accesses of one launch that are yet to be counted."""

    def __init__(self) -> None:
        self._held: dict[int, list[tuple[PutOff, Addresses, Lanes]]] = {}  # by bytes per lane
        self._lanes = 0

    def add(self, offsets: Addresses, lanes: Lanes, bytes_per_lane: int) -> PutOff:
        """Keep one access (arguments as of `PatternCache.find`)."""
        kept = PutOff()
        self._held.setdefault(bytes_per_lane, []).append((kept, offsets, lanes))
        self._lanes += offsets.size
        if self._lanes >= BACKLOG_LANES:
            self.count()
        return kept

    def count(self) -> None:
        """Count all that are kept."""
        for bytes_per_lane, held in self._held.items():
            parts = [spread(offsets, lanes) for _, offsets, lanes in held]
            full, active = (np.concatenate(column) for column in zip(*parts, strict=True))
            starts = np.cumsum([0, *(part.shape[0] for part, _ in parts[:-1])])
            fronts = np.add.reduceat(wavefronts(full, bytes_per_lane, active), starts).tolist()
            ideal = np.add.reduceat(ideal_wavefronts(full, bytes_per_lane), starts).tolist()
            for (kept, offsets, _), (part, _), taken, least in zip(held, parts, fronts, ideal, strict=True):
                kept.settle((part.shape[0], offsets.size, 0, taken, 0, min(least, taken), 0))
        self._held.clear()
        self._lanes = 0
