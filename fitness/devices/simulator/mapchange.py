"""`tensormap.replace` and `tensormap.cp_fenceproxy`: tensor maps that a kernel changes, in shared or global memory.

Fields and their numbers: PTX ISA, "tensormap.replace". A changed map is checked by the rules of the driver's encoder
when it is used. That a fence.proxy.tensormap lies between a change and a use is not checked.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from fitness.devices.simulator.faults import Stop, finding, unsupported
from fitness.devices.simulator.lanes import WARP, Context, Value
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.regions import SHARED_WINDOW, SPACE_SHIFT
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.tensormap import BYTES, changed

Bytes = Any
_ALIGNMENT: Final = 64


class MapChanges:
    """Changes of tensor maps in one launch."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.memory: Memory = machine.memory

    def replace(self, context: Context, address: Value, field: str, ordinal: int, value: Value, site: Site) -> None:
        """`tensormap.replace.tile.<field>`.

        Args:
            context: lanes.
            address: of the map, in the space the site names.
            field: as the ISA calls it.
            ordinal: the dimension, for fields that have one for each.
            value: its new value.
            site: the instruction.

        Raises:
            Stop: there is no map, or the field cannot have that value.
        """
        for lane in range(context.n):
            one = context if context.n == 1 else Context(context.chunk, context.lanes[lane : lane + 1])
            held = self._bytes(one, _at(address, lane), site)
            image = changed(held.tobytes(), field, ordinal, int(_at(value, lane)))
            if image is None:
                who = self.memory.where(one, one.lanes[0])
                message = f"{who} changes the field {field} of what is no tensor map: `{site.text}`"
                raise Stop(
                    "fault", finding("tensormap", message, site.line, "Copy the map of a parameter there first.")
                )
            if not image:
                raise unsupported(f"the value {int(_at(value, lane))} of a map's {field}: `{site.text}`", site.line)
            held[:] = np.frombuffer(image, np.uint8)

    def publish(self, context: Context, to: Value, of: Value, target: Site, source: Site) -> None:
        """`tensormap.cp_fenceproxy`: a whole warp copies one map from shared to global memory."""
        self.machine.warps.need_whole(context, source.line, source.text)
        for first in range(0, context.n, WARP):
            one = Context(context.chunk, context.lanes[first : first + 1])
            self._bytes(one, _at(to, first), target)[:] = self._bytes(one, _at(of, first), source)

    def _bytes(self, one: Context, address: Any, site: Site) -> Bytes:
        """The 128 bytes of memory at an address, as a view.

        Raises:
            Stop: out of bounds, misaligned, or not writable.
        """
        memory, space = self.memory, site.space
        where = int(address)
        if space == "generic" and where >> SPACE_SHIFT == SHARED_WINDOW >> SPACE_SHIFT:
            space, where = "shared", where - SHARED_WINDOW
        if space == "shared":
            window = memory.windows["shared"]
            start = where + site.offset - window.start
            if start < 0 or start + BYTES > window.size:
                raise memory.outside_window(one, one.lanes[0], where, site, window)
            self._aligned(one, start, site)
            offset = int(one.slot[0]) * window.stride + start
            for observer in memory.observers:
                observer.shared(one, np.array([start]), site, site.bytes)
            return self._initialised(window.data, window.poisoned, offset, site)
        where = (where + site.offset) % (1 << 64)
        region = memory.find(where)
        if region is None or where + BYTES > region.end:
            raise memory.outside(one, one.lanes[0], where, site)
        self._aligned(one, where, site)
        if site.verb != "reads":
            memory.check_writable(one, region, where - region.base, site)
        return self._initialised(region.data, region.poisoned, where - region.base, site)

    @staticmethod
    def _initialised(data: Bytes, poisoned: Bytes | None, offset: int, site: Site) -> Bytes:
        if poisoned is not None and site.verb == "writes":
            poisoned[offset : offset + BYTES] = 0
        return data[offset : offset + BYTES]

    def _aligned(self, one: Context, place: int, site: Site) -> None:
        if place % _ALIGNMENT:
            who = self.memory.where(one, one.lanes[0])
            message = f"{who} names a tensor map at an address that is no multiple of {_ALIGNMENT}: `{site.text}`"
            raise Stop("fault", finding("misaligned", message, site.line))


def _at(value: Value, lane: int) -> Any:
    return value[lane] if isinstance(value, np.ndarray) and value.ndim else value
