"""Tensor maps that bulk copies are given: found by their address, checked, and where their boxes begin."""

from __future__ import annotations

from typing import Any

import numpy as np

from fitness.devices.device import ResolvedTensorMap
from fitness.devices.simulator.box_loads import CHUNK
from fitness.devices.simulator.faults import Stop, finding, unsupported
from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.tensormap import BYTES, TensorMap, decode
from fitness.tensormap import SWIZZLES, problem


class Maps:
    """Finds the maps in a launch's memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    @staticmethod
    def _lane(context: Context, lane: int) -> Context:
        return context if context.n == 1 else Context(context.chunk, context.lanes[lane : lane + 1])

    def _maps(self, context: Context, of: Value, rank: int, site: Site) -> list[TensorMap]:
        """The tensor map of every lane."""
        if not isinstance(of, np.ndarray) or (of == of[0]).all():
            return [self._map(self._lane(context, 0), lane_value(of, 0), rank, site)] * context.n
        return [self._map(self._lane(context, lane), of[lane], rank, site) for lane in range(context.n)]

    def _map(self, one: Context, address: Any, rank: int | None, site: Site) -> TensorMap:
        """The tensor map at a generic address.

        Raises:
            Stop: there is none, or it has another number of dimensions.
        """
        where = (int(address) + site.offset) % (1 << 64)
        region = self.memory.find(where)
        found = None
        if region is not None and where + BYTES <= region.end and where % 64 == 0:
            found = decode(region.data[where - region.base :][:BYTES].tobytes())
        if found is None:
            who = self.memory.where(one, one.lanes[0])
            message = f"{who} names no tensor map (128 bytes, aligned to 64): `{site.text}`"
            cure = "Pass it as `const __grid_constant__ TensorMap` and take its address."
            raise Stop("fault", finding("tensormap", message, site.line, cure))
        if rank is not None and rank != len(found.dims):
            message = f"a tensor map of {len(found.dims)} dimensions is used with {rank} coordinates: `{site.text}`"
            raise Stop("fault", finding("tensormap", message, site.line, "Use the form of its number of dimensions."))
        if region is not None and region.role != "param":
            self._check_changed(one, found, site)
        if SWIZZLES[found.swizzle] not in (0, found.box[0] * found.width):
            raise unsupported(f"a box whose rows are shorter than its swizzle ({found.swizzle})", site.line)
        return found

    def _check_changed(self, one: Context, found: TensorMap, site: Site) -> None:
        """A map that the kernel made must be one that the driver would encode, of a buffer that holds it."""
        region, offset = self._buffer(one, found, site)
        rest = ResolvedTensorMap(
            "", region.name, found.dtype, found.dims, found.strides, found.box, found.element_strides, found.swizzle,
            oob=found.oob,
        )  # fmt: skip
        key, wrong = problem(rest, region.size - offset, 16 if found.address % 16 == 0 else 1)
        if wrong:
            who = self.memory.where(one, one.lanes[0])
            message = f"{who} uses a tensor map whose {key} was changed to what is not possible: {wrong}"
            raise Stop("fault", finding("tensormap", message, site.line))

    def _buffer(self, one: Context, found: TensorMap, site: Site) -> tuple[Region, int]:
        """Buffer in which the tensor of a map lies, and its first byte there."""
        region = self.memory.find(found.address)
        if region is None or found.address >= region.end:
            who = self.memory.where(one, one.lanes[0])
            raise Stop("fault", finding("tensormap", f"{who} uses a tensor map of no buffer", site.line))
        site.remember(region)
        return region, found.address - region.base

    def _coordinates(
        self, one: Context, found: TensorMap, where: tuple[Value, ...], lane: int, site: Site, *, store: bool = False
    ) -> tuple[int, ...]:
        """Where a box begins. A load off a multiple of 16 bytes faults on an H200; for stores that is not known."""
        at = tuple(int(np.int32(np.uint32(lane_value(c, lane)))) for c in where)
        if at[0] * found.width % CHUNK:
            what = f"a box that begins at innermost coordinate {at[0]}, {at[0] * found.width} bytes: no multiple of 16"
            if store:
                raise unsupported(f"the store of {what}", site.line)
            who = self.memory.where(one, one.lanes[0])
            raise Stop("fault", finding("misaligned", f"{who} loads {what}: `{site.text}`", site.line))
        return at


def lane_value(value: Value | None, lane: int) -> Any:
    """A lane's own value."""
    return value[lane] if isinstance(value, np.ndarray) else value
