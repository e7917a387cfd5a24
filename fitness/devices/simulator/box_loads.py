"""Loads of boxes of one tensor map by many lanes at once.

A launch whose blocks do the same issues the same `cp.async.bulk.tensor` in each. Where nobody watches for races and no
lane can be at fault, the boxes of all lanes are read with one gather and land with one scatter; else bulk.py goes
lane by lane, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.barrier_state import distinct
from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.tensormap import Overlap, TensorMap, chunks, fill, overlap, starts_of

Array = NDArray[Any]
Places = tuple[NDArray[np.int64], NDArray[np.int64]]
CHUNK = 16
"""Bytes of the pieces in which bulk copies move: their sizes and places are multiples of it."""


@dataclass(frozen=True)
class _Boxes:
    """What the lanes read.

    Attributes:
        data: (n, chunks, CHUNK) bytes, a box per lane.
        marks: of the same shape, which are uninitialised; None: not tracked.
        region: the buffer.
        rows: (n, rows) offsets there of the contiguous rows.
        row_bytes: bytes of a row.
    """

    data: Array
    marks: Array | None
    region: Region
    rows: NDArray[np.int64]
    row_bytes: int


def load_together(
    machine: Any, context: Context, maps: list[TensorMap], where: tuple[Value, ...], near: Places, barrier: Places,
    sites: tuple[Site, Site],
) -> bool:  # fmt: skip
    """`cp.async.bulk.tensor` of all lanes in one: boxes of one map, to a block each, that nobody watches.

    Args:
        machine: the machine.
        context: lanes.
        maps: per lane.
        where: coordinates of the box, innermost first.
        near: blocks (places in the chunk) and offsets of the shared side.
        barrier: the same of the mbarriers.
        sites: the buffer's side and the mbarrier of the instruction.

    Returns:
        False where the lanes differ, or one may be at fault: nothing has been done.
    """
    found, slots = maps[0], near[0]
    if context.n == 1 or machine.races is not None or any(other is not found for other in maps):
        return False
    if not machine.mbarriers.awaiting(*barrier, found.bytes) or not distinct(slots):
        return False
    boxes = _read(machine, found, where, context.n)
    if boxes is None:
        return False
    if machine.counting is not None:
        machine.counting.bulk_copies(context, boxes.region, boxes.rows, boxes.row_bytes, sites[0])
        _count_landing(machine, context, near, barrier, found.bytes)
    land = _landing(machine, found, boxes, near)
    machine.mbarriers.later_together(*barrier, found.bytes, land, sites[1].line)
    return True


def _landing(machine: Any, found: TensorMap, boxes: _Boxes, near: Places) -> Callable[[Any], None]:
    """What writes the boxes of some lanes to shared memory, which is uninitialised until then."""
    slots, starts = near
    window = machine.memory.windows["shared"]
    places = np.array([chunks(int(start), found.bytes, found.swizzle) for start in starts])
    index = (slots[:, None] * window.stride + places) // CHUNK
    shadow = None if window.poisoned is None else window.poisoned.reshape(-1, CHUNK)
    if shadow is not None and machine.bulk.deferred:
        shadow[index] = 1
    cells = window.data.reshape(-1, CHUNK)
    data, marks = boxes.data, boxes.marks

    def land(here: Any) -> None:
        cells[index[here]] = data[here]
        if shadow is not None:
            shadow[index[here]] = 0 if marks is None else marks[here]

    return land


def _count_landing(machine: Any, context: Context, near: Places, barrier: Places, size: int) -> None:
    """Count the copies on their way."""
    for slot, start, there, offset in zip(*(part.tolist() for part in (*near, *barrier)), strict=True):
        phase = machine.mbarriers.phase(there, offset)
        machine.counting.landed(context.chunk, slot, start, size, offset, phase)


def _read(machine: Any, found: TensorMap, where: tuple[Value, ...], n: int) -> _Boxes | None:
    """The boxes of n lanes; None where they are not alike, or one has to be asked whether it is at fault."""
    at = np.empty((len(where), n), dtype=np.int64)
    for dimension, c in enumerate(where):
        at[dimension] = np.asarray(c).astype(np.uint32).view(np.int32)
    region = machine.memory.find(found.address)
    if region is None or found.address >= region.end or (at[0] * found.width % CHUNK).any():
        return None
    placed = starts_of(found, at)
    part = overlap(found, tuple(int(c) for c in at[:, 0]))
    if placed is None or part is None:
        return None
    base, size = Overlap(part.inside, 0, part.shape, part.strides).rows
    rows = (placed + (found.address - region.base))[:, None] + base
    lengths = (size, part.inside[-1].start * found.width, found.shape[0] * found.width)
    if (rows % CHUNK).any() or any(length % CHUNK for length in lengths):
        return None
    index = rows[:, :, None] // CHUNK + np.arange(size // CHUNK)
    whole = region.size - region.size % CHUNK
    data = _placed(found, part, region.data[:whole].reshape(-1, CHUNK).take(index, axis=0), fill(found))
    marks = None
    if region.poisoned is not None and machine.memory.track:
        cells = region.poisoned[:whole].reshape(-1, CHUNK).take(index, axis=0)
        marks = _placed(found, part, cells, np.zeros((*found.shape[::-1], found.width), dtype=np.uint8))
    return _Boxes(data, marks, region, rows, size)


def _placed(found: TensorMap, part: Overlap, cells: Array, box: Array) -> Array:
    """The inner parts of boxes, (n, rows, chunks of a row, 16), within what else a box has; (n, chunks, 16)."""
    n = cells.shape[0]
    if part.shape == box.shape[:-1]:
        return cells.reshape(n, -1, CHUNK)
    outer, inner = part.inside[:-1], part.inside[-1]
    shape = (n, *found.shape[:0:-1], found.shape[0] * found.width)
    boxes = np.broadcast_to(box.reshape(shape[1:]), shape).copy()
    boxes[(slice(None), *outer, slice(inner.start * found.width, inner.stop * found.width))] = cells.reshape(
        n, *part.shape[:-1], -1
    )
    return boxes.reshape(n, -1, CHUNK)
