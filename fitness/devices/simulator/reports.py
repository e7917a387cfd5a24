"""Findings about memory accesses in the candidate's terms: which thread, which buffer, which element."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from fitness.devices.simulator.faults import Stop, finding
from fitness.devices.simulator.lanes import Context
from fitness.devices.simulator.regions import Region, Window
from fitness.devices.simulator.sites import Site


class Reports:
    """Knows the buffers of a launch by address.

    Args:
        regions: all buffers. Attribute `launch`: name of the kernel, for messages.
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions = sorted(regions, key=lambda r: r.base)
        self.bases = [r.base for r in self.regions]
        self.launch = ""

    def find(self, where: int) -> Region | None:
        """The buffer that begins at or last before an address, None where there is none."""
        number = bisect_right(self.bases, where) - 1
        return self.regions[number] if number >= 0 else None

    def where(self, context: Context, lane: int) -> str:
        """A lane in words: `thread (x, y, z) of block (x, y, z) of kernel`."""
        block, thread = context.chunk.position(int(lane))
        return f"thread {thread} of block {block} of {self.launch}"

    def element(self, region: Region, offset: int) -> str:
        """A place in a buffer as the candidate would write it."""
        return f"{region.name}[{offset // region.dtype.itemsize}]"

    def outside(self, context: Context, lane: int, where: int, site: Site) -> Stop:
        """An access to global memory that leaves its buffer."""
        action = f"{self.where(context, lane)} {site.verb} {site.bytes} bytes "
        before = self.find(where)
        number = bisect_right(self.bases, where)
        after = self.regions[number] if number < len(self.regions) else None
        place = f"at address {where:#x}, in no buffer"
        if before is not None and where + site.bytes - before.end < 1 << 31:
            beyond = where - before.end
            elements = before.size // before.dtype.itemsize
            place = (
                f"at {self.element(before, where - before.base)}, {max(beyond, 0)} bytes past the end of "
                f"{before.name} ({elements} elements)"
            )
        if after is not None and after.base - where < 2048:
            place = f"{after.base - where} bytes before the start of {after.name}"
        return Stop("fault", finding("out_of_bounds", action + place, site.line))

    def outside_window(self, context: Context, lane: int, address: int, site: Site, window: Window) -> Stop:
        """An access that leaves the block's shared or the thread's local memory."""
        offset = address + site.offset - window.start
        message = (
            f"{self.where(context, lane)} {site.verb} {site.bytes} bytes at byte {offset} of {window.space} memory, "
            f"which has {window.size} bytes"
        )
        return Stop("fault", finding("out_of_bounds", message, site.line))

    def misaligned(self, context: Context, lane: int, where: int, site: Site, region: Region | Window) -> Stop:
        """An access whose address is no multiple of its width."""
        if isinstance(region, Region):
            aligned = region.base & -region.base
            place = f"{self.element(region, where - region.base)} ({region.name} is aligned to {aligned} bytes)"
        else:
            place = f"byte {where - region.start} of {region.space} memory"
        message = (
            f"{self.where(context, lane)} {site.verb} {site.bytes} bytes at {place}, not a multiple of {site.bytes}"
        )
        return Stop("fault", finding("misaligned", message, site.line))
