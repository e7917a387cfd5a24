"""The state of an mbarrier in every block, and which lanes name the same one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.lanes import Context

Slots = NDArray[np.int64]
Counts = NDArray[np.int64]


@dataclass
class Barrier:
    """The mbarrier at one offset of every block's shared memory; arrays over the chunk's blocks.

    Attributes:
        valid: initialised. expected: arrivals of a phase. pending: of the present one. tx: transactions it still
            awaits. phase: number of the present phase; ended: one has ended and those who wait have not been woken.
        landing: what is in flight, by block.
        born: (block epoch, lane) of the initialisation, to see that the other threads were told of it.
        published: a release at cluster scope or above has followed; proxied: a fence the async proxy respects has.
    """

    blocks: int
    landing: dict[int, list[Callable[[], None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.valid, self.published, self.proxied, self.ended = (np.zeros(self.blocks, dtype=bool) for _ in range(4))
        self.expected, self.pending, self.tx, self.phase, self.born_epoch, self.born_lane = (
            np.zeros(self.blocks, dtype=np.int64) for _ in range(6)
        )
        self.born_line = 0
        self.heard: Any = None  # vector clocks: what those who have arrived knew (blocks, columns)
        self.told: Any = None  # the same at the end of the last phase


def distinct(slots: Slots) -> bool:
    """Whether no block is named twice; they mostly ascend."""
    return bool((slots[1:] > slots[:-1]).all()) or np.unique(slots).size == slots.size


def groups(offsets: Slots) -> list[tuple[int, Any]]:
    """Distinct offsets, and which lanes have them."""
    if not offsets.size:
        return []
    first = int(offsets[0])
    if (offsets == first).all():
        return [(first, slice(None))]
    return [(int(offset), np.flatnonzero(offsets == offset)) for offset in np.unique(offsets)]


def some(context: Context, here: Any) -> Context:
    """Some lanes of a group (`here` as `groups` gives it)."""
    return context if isinstance(here, slice) else Context(context.chunk, context.lanes[here])


def state_of(phase: NDArray[np.int64], pending: NDArray[np.int64]) -> NDArray[np.uint64]:
    """What `mbarrier.arrive` returns: the phase and the arrivals it still awaits."""
    return np.asarray(((phase & 0xFFFFFFFF) << 32) | pending).astype(np.uint64)
