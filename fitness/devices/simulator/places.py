"""Address arrays seen lately: their extent, alignment and element indices, for instructions that share a base register.

Unrolled code addresses many elements as constant offsets from one register, whose value is one array object (arrays of
registers are never changed in place). What can be known of the array is found once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.lanes import Context
from fitness.devices.simulator.regions import Region, Window

Array = NDArray[Any]
Indices = NDArray[np.int64]
_KEPT = 48


class Place:
    """One address array: smallest and largest address, the low bits any address has, and indices by base and shift.

    `patterns`: what accesses at it cost (tally.py), by their size and place within 128 bytes.
    """

    __slots__ = ("address", "bits", "context", "high", "indices", "low", "patterns")

    def __init__(self, address: Array, context: Context) -> None:
        self.address, self.context = address, context
        self.low, self.high = int(np.minimum.reduce(address)), int(np.maximum.reduce(address))
        self.bits = int(np.bitwise_or.reduce(address)) & 15
        self.indices: dict[tuple[int, int], Indices] = {}
        self.patterns: dict[tuple[str, int, int], Any] = {}

    def fits(self, offset: int, size: int, mask: int, start: int, end: int) -> bool:
        """Whether accesses of `size` bytes at a constant offset are aligned and within [start, end), and base too."""
        if (self.bits | offset | start) & mask:
            return False
        return start <= self.low and start <= self.low + offset and self.high + offset + size <= end

    def in_region(self, region: Region, shift: int) -> Indices:
        """Element indices into a buffer, for offset 0."""
        key = (region.base, shift)
        found = self.indices.get(key)
        if found is None:
            found = ((self.address - region.base_u64) >> np.uint64(shift)).view(np.int64)
            self.indices[key] = found
        return found

    def in_window(self, window: Window, shift: int) -> Indices:
        """Element indices into a window, for offset 0, where `fits` is true of accesses of 2**shift bytes."""
        key = (window.start, shift)
        found = self.indices.get(key)
        if found is None:
            # `fits` has found both the address and the window's start aligned, so each may be shifted by itself.
            steps = self.address >> self.address.dtype.type(shift)
            found = steps.view(np.int64) if steps.dtype.itemsize == 8 else steps.astype(np.int64)
            found += self.context.window(window.space, shift, window.start >> shift)
            self.indices[key] = found
        return found


class Places:
    """The address arrays of the last few memory instructions."""

    def __init__(self) -> None:
        self._known: dict[int, Place] = {}

    def clear(self) -> None:
        """Forget all (another chunk)."""
        self._known.clear()

    def of(self, address: Array, context: Context) -> Place:
        """What is known of an address array."""
        found = self._known.get(id(address))
        if found is not None and found.address is address and found.context is context:
            return found
        if len(self._known) >= _KEPT:
            self._known.clear()
        found = self._known[id(address)] = Place(address, context)
        return found
