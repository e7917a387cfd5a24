"""Thread-block clusters: shared memory of other blocks, and the cluster-wide barrier (PTX ISA, "Cluster of CTAs").

A shared::cluster address is that of the own block's shared memory, or one that `mapa` made: the rank of the
block plus one above bit 24, the address within its shared memory below. The generic form adds the shared
window. Blocks of a cluster are simulated in one chunk, side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.faults import Stop, finding
from fitness.devices.simulator.lanes import Chunk, Context, Value, gather
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.regions import SHARED_WINDOW, SPACE_SHIFT
from fitness.devices.simulator.sites import Site

Array = NDArray[Any]
RANK_SHIFT = 24
_OFFSET = (1 << RANK_SHIFT) - 1


class RemoteContext(Context):
    """The lanes of a group as seen by memory when they address the shared memory of other blocks.

    Attributes:
        slot: (n,) place in the chunk of the block whose memory each lane addresses.
    """

    def __init__(self, context: Context, slot: NDArray[np.int64]) -> None:
        super().__init__(context.chunk, context.lanes)
        self.__dict__["slot"] = slot


class Clusters:
    """Clusters of the chunk under way."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.memory: Memory = machine.memory
        self.chunk: Chunk | None = None
        self._arrived: NDArray[np.bool_] = np.zeros(0, dtype=bool)  # in the present phase
        self._open: NDArray[np.bool_] = np.zeros(0, dtype=bool)  # arrived and has not waited yet
        self._phase_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # in which each lane arrived last
        self._phase: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # of each cluster
        self._parked: list[_Parked] = []

    @property
    def waiting(self) -> bool:
        """Whether any lane waits at the cluster barrier."""
        return bool(self._parked)

    def begin(self, chunk: Chunk) -> None:
        """A new chunk."""
        self.chunk = chunk
        lanes = chunk.live.size
        self._arrived, self._open = np.zeros(lanes, dtype=bool), np.zeros(lanes, dtype=bool)
        self._phase_of = np.zeros(lanes, dtype=np.int64)
        self._phase = np.zeros(chunk.blocks.size // chunk.cluster_size, dtype=np.int64)
        self._parked = []

    # ---- addresses

    def resolve(self, context: Context, address: Value, site: Site) -> tuple[Context, Value]:
        """Context and address within a block's shared memory of a shared::cluster (or generic shared) address.

        Raises:
            Stop: the address is of no shared memory, or of a block that the cluster does not have.
        """
        if site.space == "generic":
            top = np.asarray(address, dtype=np.uint64) >> np.uint64(SPACE_SHIFT)
            if (top != SHARED_WINDOW >> SPACE_SHIFT).any():
                lane = context.lanes[int(np.argmax(np.atleast_1d(top) != SHARED_WINDOW >> SPACE_SHIFT))]
                message = f"{self.memory.where(context, lane)} {site.verb} no shared memory with `{site.text}`"
                raise Stop("fault", finding("out_of_bounds", message, site.line))
            address = (address - np.uint64(SHARED_WINDOW)).astype(np.uint32)
        return self.within(context, address, site)

    def within(self, context: Context, address: Value, site: Site) -> tuple[Context, Value]:
        """The same for addresses of the shared::cluster window.

        Raises:
            Stop: the cluster does not have that block.
        """
        high = np.asarray(address) >> address.dtype.type(RANK_SHIFT)
        if not high.any():
            return context, address
        rank = np.broadcast_to(high, context.n).astype(np.int64)
        size = context.chunk.cluster_size
        if (rank > size).any():
            lane = context.lanes[int(np.argmax(rank > size))]
            message = f"{self.memory.where(context, lane)} {site.verb} shared memory of block {int(rank.max()) - 1} "
            message += f"of a cluster of {size}"
            raise Stop("fault", finding("out_of_bounds", message, site.line))
        own = context.slot
        slot = np.where(rank > 0, own - own % size + rank - 1, own)
        return RemoteContext(context, slot), address & address.dtype.type(_OFFSET)

    def map_address(self, context: Context, address: Value, rank: Value, line: int) -> Value:
        """`mapa`: the address of the same variable in the shared memory of another block of the cluster.

        Args:
            context: lanes.
            address: 32-bit shared or 64-bit generic addresses.
            rank: %cluster_ctarank of the block meant.
            line: source line.
        """
        if np.any(np.asarray(rank) >= context.chunk.cluster_size):
            message = f"mapa names block {int(np.max(rank))} of a cluster of {context.chunk.cluster_size}"
            raise Stop("fault", finding("out_of_bounds", message, line))
        kind = address.dtype.type
        plain = address & ~kind(0xFF << RANK_SHIFT)
        ranks = np.asarray(rank)
        moved = plain | ((ranks.astype(kind) + kind(1)) << kind(RANK_SHIFT))
        found = np.where(ranks == context.cluster_ctarank, plain, moved)
        return found[()] if found.ndim == 0 else found

    def rank_of(self, context: Context, address: Value) -> Value:
        """`getctarank`: rank of the block whose shared memory an address lies in."""
        rank = (np.asarray(address) >> address.dtype.type(RANK_SHIFT)) & address.dtype.type(0xFF)
        mine = context.cluster_ctarank
        found = np.where(rank > 0, rank.astype(np.uint32) - np.uint32(1), mine)
        return found[()] if found.ndim == 0 else found

    # ---- the barrier

    def arrive(self, context: Context, line: int, *, relaxed: bool = False) -> None:
        """`barrier.cluster.arrive`; `relaxed`: it releases nothing.

        Raises:
            Stop: a thread arrives twice without waiting.
        """
        lanes = context.lanes
        again = self._open[lanes]
        if again.any():
            message = f"{self.memory.where(context, lanes[int(np.argmax(again))])} arrives twice at the cluster barrier"
            raise Stop("fault", finding("barrier_divergence", message + " without waiting in between", line))
        if not relaxed:
            self.machine.mbarriers.fence(context, proxy=False, cluster=True)
        self._open[lanes] = self._arrived[lanes] = True
        self._phase_of[lanes] = self._phase[self._cluster(context)]
        self._complete()

    def wait(self, context: Context, line: int, target: int, values: tuple[Value, ...]) -> Any:
        """`barrier.cluster.wait`: lanes go on once all threads of their cluster that have not exited have arrived."""
        missing = ~self._open[context.lanes]
        if missing.any():
            lane = context.lanes[int(np.argmax(missing))]
            message = f"{self.memory.where(context, lane)} waits at the cluster barrier without having arrived"
            raise Stop("fault", finding("barrier_divergence", message, line))
        parked = _Parked(context, line, target, values)
        if self._done(context).all():
            self._open[context.lanes] = False
            return target, values
        self._part(parked, self._done(context))
        return None

    def release(self) -> bool:
        """Let lanes go on whose cluster is complete. Returns whether any could."""
        before = sum(parked.context.n for parked in self._parked)
        if before:
            self._complete()
        return sum(parked.context.n for parked in self._parked) < before

    def _wake(self) -> None:
        before, self._parked = self._parked, []
        for parked in before:
            self._part(parked, self._done(parked.context))

    def _cluster(self, context: Context) -> NDArray[np.int64]:
        return np.asarray(context.slot // context.chunk.cluster_size)

    def _done(self, context: Context) -> NDArray[np.bool_]:
        """Lanes whose phase of the barrier is complete."""
        return np.asarray(self._phase[self._cluster(context)] > self._phase_of[context.lanes])

    def _complete(self) -> None:
        """Begin the next phase in clusters whose threads have all arrived."""
        chunk = self.chunk
        assert chunk is not None
        absent = chunk.live & ~self._arrived
        arrived = self._arrived.reshape(self._phase.size, -1)
        ready = arrived.any(axis=1) & ~absent.reshape(self._phase.size, -1).any(axis=1)
        if not ready.any():
            return
        self._phase[ready] += 1
        arrived[ready] = False
        if self.machine.races is not None:
            slots = np.repeat(ready, chunk.cluster_size)
            if self.machine.races.clocks is None:
                self.machine.races.block_barrier(slots)
            else:
                self.machine.races.cluster_barrier(slots, chunk.cluster_size)
        self._wake()

    def _part(self, parked: _Parked, go: NDArray[np.bool_]) -> None:
        if not go.any():
            self._parked.append(parked)
            return
        if go.all():
            self._open[parked.context.lanes] = False
            self.machine.resume(parked.target, parked.context, parked.values)
            return
        gone, stay = parked.context.split(go)
        assert gone.where is not None
        assert stay.where is not None
        self._open[gone.lanes] = False
        self.machine.resume(parked.target, gone, gather(parked.values, gone.where))
        self._parked.append(_Parked(stay, parked.line, parked.target, gather(parked.values, stay.where)))

    def deadlock(self) -> Stop:
        """Threads wait for others of their cluster that will never come."""
        first = self._parked[0]
        who = self.memory.where(first.context, first.context.lanes[0])
        message = f"{who} waits at the cluster barrier, which other threads of its cluster never reach"
        return Stop("fault", finding("barrier_divergence", message, first.line))


@dataclass
class _Parked:
    """A group at the cluster barrier and where it goes on."""

    context: Context
    line: int
    target: int
    values: tuple[Value, ...]
