"""Missing `fence.proxy.async`: plain stores to shared memory that bulk stores and `wgmma` may not see.

These read through the async proxy; a fence must lie between a store and such a read, in the warp that stores (before
the barrier) or in the warp that issues the read (PTX ISA, "Async proxy", "membar/fence: .proxy.async").
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.faults import Findings
from fitness.devices.simulator.lanes import WARP, Chunk, Context
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.sites import Site

_CHUNK = 16


class Proxies:
    """When each 16 bytes of shared memory were written plainly, and when each warp fenced (an `Observer`)."""

    sees_landing = False

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._now = 0

    def begin(self, chunk: Chunk) -> None:
        """A new chunk."""
        chunks = chunk.blocks.size * chunk.shared_stride // _CHUNK + 1
        self._written: NDArray[np.int64] = np.zeros(chunks, dtype=np.int64)
        self._writer: NDArray[np.int64] = np.zeros(chunks, dtype=np.int64)
        self._fenced: NDArray[np.int64] = np.zeros(chunk.live.size // WARP, dtype=np.int64)

    def shared(self, context: Context, relative: NDArray[Any], site: Site, bytes_each: int) -> None:
        """Lanes touch shared memory."""
        del bytes_each
        if site.verb == "reads":
            return
        self._now += 1
        where = (relative + context.slot * context.chunk.shared_stride) // _CHUNK
        self._written[where] = self._now
        self._writer[where] = context.lanes // WARP

    def global_(self, context: Context, region: Region, relative: NDArray[Any], site: Site, bytes_each: int) -> None:
        """Global memory is not followed."""

    def fence(self, context: Context) -> None:
        """`fence.proxy.async`."""
        self._now += 1
        self._fenced[context.lanes // WARP] = self._now

    def read(self, one: Context, slot: int, offsets: NDArray[np.int64], site: Site, who: str, warps: int = 1) -> None:
        """A bulk store or a `wgmma` of the `warps` warps from lane `one` on reads 16 bytes at each offset."""
        if self._findings.knows("race", site.line, "proxy"):
            return
        where = (offsets + slot * one.chunk.shared_stride) // _CHUNK
        first = int(one.lanes[0]) // WARP
        own = int(self._fenced[first : first + warps].max())
        written = self._written[where]
        late = (written > own) & (self._fenced[self._writer[where]] < written)
        if late.any():
            place = int(offsets[int(np.argmax(late))])
            message = f"{who} reads byte {place} of shared memory through the async proxy with no fence.proxy.async"
            cure = "Let the threads that write execute fence.proxy.async before the barrier."
            self._findings.add("race", f"{message} after it was written", site.line, "proxy", suggestion=cure)
