"""Bulk asynchronous copies: `cp.async.bulk` of contiguous bytes and of boxes of tensor maps (TMA).

Each lane that executes one starts a copy of its own. A load lands, and counts towards its mbarrier, when
somebody waits for the phase (phases.py); until then its destination is uninitialised. A store reads shared
memory when it is issued; what is there must still be the same when its group has been waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.box_loads import CHUNK, load_together
from fitness.devices.simulator.faults import Stop, finding, unsupported
from fitness.devices.simulator.given_maps import Maps, lane_value
from fitness.devices.simulator.lanes import Chunk, Context, Value
from fitness.devices.simulator.reductions import Reduction, tensor_reduction
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.tensormap import TensorMap, chunks, fill, overlap
from fitness.devices.simulator.vector_clocks import COPY

Array = NDArray[Any]


@dataclass(frozen=True)
class _Reading:
    """A store that may still read shared memory: where, what it read, and its bulk group."""

    lane: int
    group: int
    index: NDArray[np.int64]
    seen: Array
    site: Site


@dataclass(frozen=True)
class Sites:
    """Memory instructions of one bulk copy: the buffer's side, the shared side, the mbarrier (loads)."""

    far: Site
    near: Site
    barrier: Site | None = None


class Bulk(Maps):
    """Bulk copies of the chunk under way."""

    def __init__(self, machine: Any, *, deferred: bool) -> None:
        super().__init__(machine.memory)
        self.machine, self.deferred = machine, deferred
        self._reading: list[_Reading] = []
        self._groups: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def begin(self, chunk: Chunk) -> None:
        """A new chunk."""
        self._reading = []
        self._groups = np.zeros(chunk.live.size, dtype=np.int64)

    # ---- contiguous bytes

    def load(
        self, context: Context, to: Value, of: Value, size: Value, barrier: Value, ctas: Value | None, sites: Sites,
        reduction: Reduction | None = None,
    ) -> None:  # fmt: skip
        """`cp.async.bulk` to shared memory, from global memory or from the own block's shared memory.

        Args:
            context: lanes.
            to: shared::cluster addresses.
            of: global or shared addresses.
            size: bytes, a multiple of 16.
            barrier: address of the mbarrier, in the same block as `to`.
            ctas: mask of the blocks of the cluster that receive it, None for the one that `to` names.
            sites: the instruction.
            reduction: combined with what is there (`cp.reduce.async.bulk`), None for a copy.
        """
        assert sites.barrier is not None
        near, starts = self._near(context, to, size, sites.near)
        slots, offsets = self.machine.mbarriers.place(context, barrier, sites.barrier)
        for lane, count in enumerate(self._sizes(context, size, sites.near)):
            one = self._lane(context, lane)
            read = None
            if sites.far.space == "shared":
                data, marks, read = self._from_shared(one, of, lane, count, sites.far)
            else:
                region, start = self._region(one, lane_value(of, lane), count, sites.far)
                data, marks = self._bytes(region, start, count)
                self._count(sites.far, region, one, np.array([start]), count)
            index = int(starts[lane]) + CHUNK * np.arange(count // CHUNK)
            for slot in self._receivers(one, int(near[lane]), lane_value(ctas, lane), sites.near):
                there = slot if ctas is not None else int(slots[lane])
                self._arrive(one, slot, index, data, marks, (there, int(offsets[lane])), sites, reduction, read)

    def store(
        self, context: Context, to: Value, of: Value, size: Value, sites: Sites, reduction: Reduction | None = None
    ) -> None:
        """`cp.async.bulk` (with `reduction`: `cp.reduce.async.bulk`) from shared to global memory, in a bulk group."""
        near, starts = self._near(context, of, size, sites.near)
        for lane, count in enumerate(self._sizes(context, size, sites.near)):
            one = self._lane(context, lane)
            index = int(starts[lane]) + CHUNK * np.arange(count // CHUNK)
            data, marks = self._take(one, int(near[lane]), index, sites)
            region, start = self._region(one, lane_value(to, lane), count, sites.far)
            self.memory.check_writable(one, region, start, sites.far)
            self._watch(one, region, np.array([start]), count, sites.far)
            shadow = None if region.poisoned is None else region.poisoned[start : start + count]
            if reduction is not None:
                data = reduction.combine(region.data[start : start + count], data.reshape(-1))
                marks = marks if shadow is None else marks | shadow.reshape(marks.shape)
            region.data[start : start + count] = data.reshape(-1)
            self._mark(one, region, shadow, start, marks, sites.far)
            self._count(sites.far, region, one, np.array([start]), count)

    # ---- boxes of tensor maps

    def tensor_load(
        self, context: Context, to: Value, of: Value, where: tuple[Value, ...], barrier: Value, ctas: Value | None,
        sites: Sites,
    ) -> None:  # fmt: skip
        """`cp.async.bulk.tensor` from global to shared memory.

        Args:
            context: lanes.
            to: shared::cluster addresses.
            of: addresses of the tensor map.
            where: coordinates of the box, innermost first.
            barrier: as in `load`.
            ctas: as in `load`.
            sites: the instruction.
        """
        assert sites.barrier is not None
        slots, offsets = self.machine.mbarriers.place(context, barrier, sites.barrier)
        maps = self._maps(context, of, len(where), sites.far)
        sizes = np.array([found.bytes for found in maps])
        near, starts = self._near(context, to, sizes, sites.near, align=128)
        if ctas is None and load_together(
            self.machine, context, maps, where, (near, starts), (slots, offsets), (sites.far, sites.barrier)
        ):
            return
        for lane, found in enumerate(maps):
            one = self._lane(context, lane)
            data, marks = self._box(one, found, self._coordinates(one, found, where, lane, sites.far), sites.far)
            index = chunks(int(starts[lane]), found.bytes, found.swizzle)
            for slot in self._receivers(one, int(near[lane]), lane_value(ctas, lane), sites.near):
                there = slot if ctas is not None else int(slots[lane])
                self._arrive(one, slot, index, data, marks, (there, int(offsets[lane])), sites)

    def tensor_store(
        self, context: Context, to: Value, where: tuple[Value, ...], of: Value, sites: Sites, operation: str = ""
    ) -> None:
        """`cp.async.bulk.tensor` from shared to global memory: what lies outside of the tensor is not written.

        With an `operation` it is `cp.reduce.async.bulk.tensor`, on the map's element type.
        """
        maps = self._maps(context, to, len(where), sites.far)
        near, starts = self._near(context, of, np.array([found.bytes for found in maps]), sites.near, align=128)
        for lane, found in enumerate(maps):
            one = self._lane(context, lane)
            index = chunks(int(starts[lane]), found.bytes, found.swizzle)
            data, marks = self._take(one, int(near[lane]), index, sites)
            at = self._coordinates(one, found, where, lane, sites.far, store=True)
            part = overlap(found, at)
            if part is None:
                continue
            region, first = self._buffer(one, found, sites.far)
            part = part.moved(first)
            self.memory.check_writable(one, region, part.start, sites.far)
            rows, size = part.rows
            self._watch(one, region, rows, size, sites.far)
            shape = (*found.shape[::-1], found.width)
            cells, given = part.view(region.data, found.width), data.reshape(shape)[part.inside]
            inner = marks.reshape(shape)[part.inside]
            shadow = None if region.poisoned is None else part.view(region.poisoned, found.width)
            if operation:
                given = self._tensor_reduction(operation, found, sites.far).combine(cells, given)
                inner = inner if shadow is None else inner | shadow
            cells[...] = given
            self._mark(one, region, shadow, part.start, inner, sites.far)
            self._count(sites.far, region, one, rows, size)

    @staticmethod
    def _tensor_reduction(operation: str, found: TensorMap, site: Site) -> Reduction:
        reduction = tensor_reduction(operation, found.dtype)
        if reduction is None:
            raise unsupported(f"{operation} on {found.dtype} elements: `{site.text}`", site.line)
        return reduction

    def prefetch(self, context: Context, of: Value, where: tuple[Value, ...], site: Site) -> None:
        """`cp.async.bulk.prefetch.tensor` and `prefetch.tensormap`: checks that there is a map."""
        for lane in range(context.n):
            self._map(self._lane(context, lane), lane_value(of, lane), len(where) or None, site)

    # ---- groups

    def commit(self, context: Context) -> None:
        """`cp.async.bulk.commit_group`."""
        self._groups[context.lanes] += 1

    def wait(self, context: Context, left_open: int, line: int) -> None:
        """`cp.async.bulk.wait_group{.read}`: what older groups read must not have changed since they were issued."""
        del line
        if not self._reading:
            return
        limits = dict(zip(context.lanes.tolist(), (self._groups[context.lanes] - left_open).tolist(), strict=True))
        kept = []
        for reading in self._reading:
            if reading.group >= limits.get(reading.lane, -1):
                kept.append(reading)
                continue
            now = self.memory.windows["shared"].data.reshape(-1, CHUNK).take(reading.index, axis=0)
            if (now != reading.seen).any():
                who = self.memory.where(context, reading.lane)
                message = (
                    f"shared memory that a bulk store of {who} reads was overwritten before its group was waited for"
                )
                suggestion = "Wait with cp.async.bulk.wait_group.read and a barrier before the memory is written again."
                self.memory.findings.add("race", message, reading.site.line, "bulk", suggestion=suggestion)
        self._reading = kept

    # ---- sides of a copy

    def _sizes(self, context: Context, size: Value, site: Site) -> list[int]:
        sizes = np.broadcast_to(np.asarray(size, dtype=np.int64), context.n)
        if (sizes % CHUNK).any() or (sizes <= 0).any():
            wrong = int(sizes[int(np.argmax((sizes % CHUNK != 0) | (sizes <= 0)))])
            message = f"a bulk copy of {wrong} bytes: the size must be a multiple of 16: `{site.text}`"
            raise Stop("fault", finding("misaligned", message, site.line))
        return [int(x) for x in sizes]

    def _near(
        self, context: Context, address: Value, size: Any, site: Site, align: int = CHUNK
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Block (place in the chunk) and offset of the shared side of every lane's copy."""
        there, address = self.machine.clusters.resolve(context, address, site)
        window = self.memory.windows["shared"]
        relative = np.broadcast_to(np.asarray(address, dtype=np.int64), context.n) + site.offset - window.start
        sizes = np.broadcast_to(np.asarray(size, dtype=np.int64), context.n)
        outside = (relative < 0) | (relative + sizes > window.size)
        if outside.any():
            lane = int(np.argmax(outside))
            message = (
                f"{self.memory.where(context, context.lanes[lane])} copies {int(sizes[lane])} bytes at byte "
                f"{int(relative[lane])} of shared memory, which has {window.size} bytes"
            )
            raise Stop("fault", finding("out_of_bounds", message, site.line))
        if (relative % align).any():
            lane = int(np.argmax(relative % align != 0))
            who = self.memory.where(context, context.lanes[lane])
            message = f"{who} copies at byte {int(relative[lane])} of shared memory, not a multiple of {align}"
            raise Stop("fault", finding("misaligned", f"{message}: `{site.text}`", site.line))
        return there.slot, relative

    def _region(self, one: Context, address: Any, size: int, site: Site) -> tuple[Region, int]:
        """Buffer and offset of the global side of a copy of contiguous bytes."""
        where = (int(address) + site.offset) % (1 << 64)
        region = self.memory.find(where)
        if region is None or where + size > region.end:
            sized = Site(site.index, site.verb, site.space, np.uint8, 1, 0, site.line, site.text)
            sized.bytes = size
            raise self.memory.outside(one, one.lanes[0], where, sized)
        if where % CHUNK:
            who = self.memory.where(one, one.lanes[0])
            place = self.memory.element(region, where - region.base)
            message = f"{who} copies at {place}, not a multiple of 16 bytes: `{site.text}`"
            raise Stop("fault", finding("misaligned", message, site.line))
        site.remember(region)
        return region, where - region.base

    def _box(self, one: Context, found: TensorMap, where: tuple[int, ...], site: Site) -> tuple[Array, Array | None]:
        """Bytes of a box, and which are uninitialised (None: none), as 16-byte chunks."""
        data, marks = fill(found), None
        part = overlap(found, where)
        if part is not None:
            region, first = self._buffer(one, found, site)
            part = part.moved(first)
            data[part.inside] = part.view(region.data, found.width)
            if region.poisoned is not None and self.memory.track:
                marks = np.zeros(data.shape, dtype=np.uint8)
                marks[part.inside] = part.view(region.poisoned, found.width)
            rows, size = part.rows
            self._watch(one, region, rows, size, site)
            self._count(site, region, one, rows, size)
        return data.reshape(-1, CHUNK), None if marks is None else marks.reshape(-1, CHUNK)

    def _bytes(self, region: Region, start: int, size: int) -> tuple[Array, Array | None]:
        data = region.data[start : start + size].reshape(-1, CHUNK).copy()
        if region.poisoned is None or not self.memory.track:
            return data, None
        return data, region.poisoned[start : start + size].reshape(-1, CHUNK).copy()

    def _from_shared(
        self, one: Context, of: Value, lane: int, size: int, site: Site
    ) -> tuple[Array, Array | None, tuple[int, int] | None]:
        """What a copy reads from the own block's shared memory: bytes, which are uninitialised, and when it reads."""
        slot, start = self._near(one, np.asarray(lane_value(of, lane)), size, site)
        offsets = int(start[0]) + CHUNK * np.arange(size // CHUNK)
        window = self.memory.windows["shared"]
        tick = None
        if self.machine.races is not None:
            tick = self.machine.races.bulk(one, int(slot[0]), offsets, site, COPY)
        if self.machine.proxies is not None:
            who = f"a bulk copy of {self.memory.where(one, one.lanes[0])}"
            self.machine.proxies.read(one, int(slot[0]), offsets, site, who)
        index = (int(slot[0]) * window.stride + int(start[0])) // CHUNK
        rows = slice(index, index + size // CHUNK)
        marks = None if window.poisoned is None else window.poisoned.reshape(-1, CHUNK)[rows].copy()
        return window.data.reshape(-1, CHUNK)[rows].copy(), marks, tick

    def _receivers(self, one: Context, slot: int, ctas: Any, site: Site) -> list[int]:
        """Blocks that receive a copy: the one addressed, or those of a multicast mask."""
        if ctas is None:
            return [slot]
        size = one.chunk.cluster_size
        mask = int(ctas) & 0xFFFF
        if mask >> size or not mask:
            message = f"a multicast to blocks {mask:#x} of a cluster of {size}"
            raise Stop("fault", finding("out_of_bounds", message, site.line))
        first = slot - slot % size
        return [first + rank for rank in range(size) if mask >> rank & 1]

    # ---- shared memory

    def _arrive(
        self, one: Context, slot: int, offsets: NDArray[np.int64], data: Array, marks: Array | None,
        barrier: tuple[int, int], sites: Sites, reduction: Reduction | None = None,
        read: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """A copy on its way to a block's shared memory, chunk by chunk at byte offsets; it lands later.

        `read`: pseudo warp and clock with which it reads shared memory, for it does so until it has landed.
        """
        assert sites.barrier is not None
        line, mbarriers, window = sites.barrier.line, self.machine.mbarriers, self.memory.windows["shared"]
        mbarriers.known(*barrier, one, sites.barrier, proxy=True)
        index = (slot * window.stride + offsets) // CHUNK
        if self.machine.counting is not None:
            phase = mbarriers.phase(*barrier)
            self.machine.counting.landed(one.chunk, slot, int(offsets[0]), data.size, barrier[1], phase)
        races, tick = self.machine.races, None
        if races is not None:
            tick = races.bulk(one, slot, offsets, sites.near, COPY)
        if window.poisoned is not None and self.deferred and reduction is None:
            window.poisoned.reshape(-1, CHUNK)[index] = 1

        def land() -> None:
            cells = window.data.reshape(-1, CHUNK)
            cells[index] = data if reduction is None else reduction.combine(cells[index], data)
            if window.poisoned is not None:
                shadow = window.poisoned.reshape(-1, CHUNK)
                kept = 0 if reduction is None else shadow[index]
                shadow[index] = kept if marks is None else marks | kept
            mbarriers.transacted(*barrier, data.size, line, tick, read)

        mbarriers.later(*barrier, land)

    def _take(self, one: Context, slot: int, offsets: NDArray[np.int64], sites: Sites) -> tuple[Array, Array]:
        """What a store reads from shared memory: bytes and which are uninitialised, as 16-byte chunks."""
        window = self.memory.windows["shared"]
        index = (slot * window.stride + offsets) // CHUNK
        if self.machine.races is not None:
            self.machine.races.bulk(one, slot, offsets, sites.near)
        if self.machine.proxies is not None:
            who = f"a bulk store of {self.memory.where(one, one.lanes[0])}"
            self.machine.proxies.read(one, slot, offsets, sites.near, who)
        data = window.data.reshape(-1, CHUNK).take(index, axis=0)
        if self.deferred:
            lane = int(one.lanes[0])
            self._reading.append(_Reading(lane, int(self._groups[lane]), index, data, sites.near))
        if window.poisoned is None:
            return data, np.zeros(data.shape, dtype=np.uint8)
        return data, window.poisoned.reshape(-1, CHUNK).take(index, axis=0)

    # ---- global memory

    def _watch(self, one: Context, region: Region, rows: NDArray[np.int64], size: int, site: Site) -> None:
        if self.machine.races is not None:
            self.machine.races.bulk_global(one, region, rows, size, site)

    def _mark(self, one: Context, region: Region, shadow: Array | None, start: int, marks: Array, site: Site) -> None:
        """What a store wrote is initialised, unless it was not so in shared memory (`shadow`: of the bytes written)."""
        if shadow is None:
            return
        if region.role == "output" and marks.any():
            self.memory.tainted_output(one, (True,), site, region, start)
            marks = np.zeros_like(marks)
        shadow[...] = marks.reshape(shadow.shape)

    def _count(self, site: Site, region: Region, one: Context, rows: NDArray[np.int64], size: int) -> None:
        if self.machine.counting is not None:
            self.machine.counting.bulk(one, region, rows, size, site)
