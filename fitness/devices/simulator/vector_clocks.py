"""Vector clocks: which accesses of one warp are ordered before another's, by barriers and mbarriers.

For kernels whose warps synchronise in other ways than block-wide barriers. Every warp has a clock of its own, which
ticks when it releases (arrives somewhere), and knows of every other warp of its cluster the latest clock whose
accesses happened before (Lamport 1978; Mattern 1989). Bulk copies and `wgmma` read and write when they like: each
block has a pseudo warp for either, whose clock ticks with every copy or product and is known to those only who have
waited for it. Lanes of a warp are taken as one, so that a race may be missed, never invented.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.lanes import WARP, Chunk

Clock = NDArray[np.int64]
Warps = NDArray[np.int64]
COPY, PRODUCT = 0, 1


class VectorClocks:
    """Clocks of the chunk under way.

    Attributes:
        known: (warps, columns) latest clock of each column's warp that a warp knows of. A column is a warp of the
            cluster, or one of its pseudo warps.
    """

    def __init__(self, chunk: Chunk) -> None:
        blocks, per_block, cluster = chunk.blocks.size, chunk.warps_per_block, chunk.cluster_size
        self.warps = blocks * per_block
        self._per_block, self._cluster = per_block, cluster
        own = np.arange(self.warps) % (per_block * cluster)
        slots = np.arange(blocks) % cluster
        first = per_block * cluster
        #: Column of every warp, then of the copies of every block, then of its products.
        self.column: NDArray[np.int64] = np.concatenate([own, first + slots, first + cluster + slots])
        self.known: Clock = np.zeros((self.warps, first + 2 * cluster), dtype=np.int64)
        self.known[np.arange(self.warps), own] = 1
        self._pseudo: Clock = np.zeros((2, blocks), dtype=np.int64)

    def own(self, warps: Warps) -> Clock:
        """Present clock of warps."""
        return np.asarray(self.known[warps, self.column[warps]])

    def cluster_of(self, warps: Warps) -> NDArray[np.int64]:
        """Cluster of warps and pseudo warps."""
        blocks = self._pseudo.shape[1]
        slot = np.where(warps < self.warps, warps // self._per_block, (warps - self.warps) % blocks)
        return np.asarray(slot // self._cluster)

    def unordered(self, viewers: Warps, before: Warps, clock: Clock) -> NDArray[np.bool_]:
        """Whether accesses by warps `before` at their `clock` are not ordered before what `viewers` do now."""
        return np.asarray(self.known[viewers, self.column[before]] < clock)

    def pseudo(self, kind: int, slot: int) -> tuple[int, int]:
        """A new tick of a block's copies or products: (number of the pseudo warp, its clock)."""
        self._pseudo[kind, slot] += 1
        return self.warps + kind * self._pseudo.shape[1] + slot, int(self._pseudo[kind, slot])

    # ---- order

    def _tick(self, warps: Warps) -> None:
        self.known[warps, self.column[warps]] += 1

    def blocks(self, slots: NDArray[np.bool_] | None, together: int = 1) -> None:
        """A barrier of all warps of these blocks (None: of all), `together` blocks of a cluster at once."""
        size = self._per_block * together
        rows = self.known.reshape(-1, size, self.known.shape[1])
        chosen: Any = slice(None) if slots is None else slots[::together]
        rows[chosen] = rows[chosen].max(axis=1, keepdims=True)
        which = np.arange(self.warps).reshape(-1, size)[chosen].ravel()
        self._tick(which)

    def new_barrier(self, blocks: int) -> Clock:
        """What an mbarrier of each block knows at first: nothing."""
        return np.zeros((blocks, self.known.shape[1]), dtype=np.int64)

    def release(self, warps: Warps, slots: NDArray[np.int64], into: Clock) -> None:
        """Warps arrive at the mbarriers of blocks `slots` that know `into`."""
        np.maximum.at(into, slots, self.known[warps])
        self._tick(np.unique(warps))

    def acquire(self, warps: Warps, slots: NDArray[np.int64], of: Clock) -> None:
        """Warps have waited for a phase of the mbarriers of blocks `slots`, at whose end these knew `of`."""
        np.maximum.at(self.known, warps, of[slots])

    def landed(self, pseudo: int, clock: int, slot: int, into: Clock) -> None:
        """A copy counts at the mbarrier of the block `slot`."""
        column = self.column[pseudo]
        into[slot, column] = max(int(into[slot, column]), clock)

    def finished(self, warps: Warps, slots: NDArray[np.int64], clocks: Clock) -> None:
        """Warps have waited for products of their blocks up to these clocks."""
        column = self.column[self.warps + self._pseudo.shape[1] + slots]
        self.known[warps, column] = np.maximum(self.known[warps, column], clocks)


def warps_of(lanes: NDArray[np.int64]) -> Warps:
    """Warp of each lane."""
    return np.asarray(lanes // WARP)
