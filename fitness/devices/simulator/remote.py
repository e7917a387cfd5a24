"""`st.async` and `red.async`: stores and reductions in a cluster's shared memory that count at an mbarrier.

Each lane's operation lands, and counts its bytes towards the mbarrier, when somebody waits for the phase (phases.py).
Until then what a store will write is uninitialised; what a reduction will change keeps its old value, and reading it is
a race.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.atomics import apply
from fitness.devices.simulator.barrier_state import groups, some
from fitness.devices.simulator.elements import deposit, mark
from fitness.devices.simulator.faults import Stop, finding
from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.sites import Site

Array = NDArray[Any]
Slots = NDArray[np.int64]
#: What lands: given the lanes of a group (their places) and the elements of shared memory they name.
Landing = Callable[[Any, NDArray[np.int64]], None]


class Remote:
    """Asynchronous stores and reductions of one launch."""

    def __init__(self, machine: Any, *, deferred: bool) -> None:
        self.machine, self.deferred = machine, deferred
        self.memory: Memory = machine.memory

    def store(
        self, context: Context, address: Value, values: tuple[Value, ...], taints: tuple[Value, ...] | None,
        barrier: Value, site: Site, barrier_site: Site,
    ) -> None:  # fmt: skip
        """`st.async`.

        Args:
            context: lanes.
            address: shared::cluster addresses of the destination.
            values: elements of each lane.
            taints: which are uninitialised, None where none is.
            barrier: address of the mbarrier, in the same block as the destination.
            site: the store.
            barrier_site: its mbarrier.
        """
        window = self.memory.windows["shared"]
        block = np.stack([np.broadcast_to(v, context.n).astype(site.dtype, copy=False) for v in values], axis=1)
        marks = None
        if taints is not None:
            marks = np.stack([np.broadcast_to(np.asarray(t), context.n) for t in taints], axis=1)

        def land(here: Any, index: NDArray[np.int64]) -> None:
            rows = block[here]
            tainted = None if marks is None else tuple(marks[here].T)
            deposit(window.views, window.shadow, index, tuple(rows.T), tainted, site)

        self._issue(context, address, barrier, (site, barrier_site), land, self._collisions(context, block, site))

    def reduce(
        self, context: Context, address: Value, value: Value, mark: Value, operation: str, kind: str, barrier: Value,
        site: Site, barrier_site: Site,
    ) -> None:  # fmt: skip
        """`red.async`: `operation` on integers of type `kind`; the other arguments as in `store`."""
        window = self.memory.windows["shared"]
        given = np.broadcast_to(value, context.n)
        marks = np.broadcast_to(np.asarray(mark), context.n)

        def land(here: Any, index: NDArray[np.int64]) -> None:
            cells = window.views[site.width]
            apply(cells, index, operation, kind, [np.ascontiguousarray(given[here]).view(cells.dtype)], needed=False)
            if window.shadow is not None and marks[here].any():
                full = window.shadow[site.width].dtype.type((1 << (8 * site.width)) // 255)
                np.bitwise_or.at(window.shadow[site.width], index, marks[here] * full)

        self._issue(context, address, barrier, (site, barrier_site), land, None)

    def _issue(
        self, context: Context, address: Value, barrier: Value, sites: tuple[Site, Site], land: Landing,
        collide: Callable[[Any, NDArray[np.int64]], None] | None,
    ) -> None:  # fmt: skip
        """Check the places, and let each group of lanes with one mbarrier land when it is waited for."""
        site, barrier_site = sites
        memory, mbarriers, window = self.memory, self.machine.mbarriers, self.memory.windows["shared"]
        there, local = self.machine.clusters.resolve(context, address, site)
        relative = np.broadcast_to(np.asarray(memory.offsets(there, local, site, window), dtype=np.int64), context.n)
        slots, offsets = mbarriers.place(context, barrier, barrier_site)
        if (there.slot != slots).any():
            who = memory.where(context, context.lanes[int(np.argmax(there.slot != slots))])
            message = f"{who} writes to one block and counts at the mbarrier of another: `{site.text}`"
            raise Stop("fault", finding("mbarrier", message, site.line, "Map both addresses to the same block (mapa)."))
        if self.machine.counting is not None:
            self.machine.counting.shared(there, relative, site, site.bytes)
        for slot in np.unique(slots).tolist():
            mine = np.flatnonzero(slots == slot)
            for offset, which in groups(offsets[mine]):
                here = mine[which]
                index = (slot * window.stride + relative[here]) >> site.shift
                if collide is not None:
                    collide(here, index)
                part = some(context, slice(None) if here.size == context.n else here)
                mbarriers.known(slot, offset, part, barrier_site)
                tick = None
                if self.machine.races is not None:
                    tick = self.machine.races.asynchronous(part, slot, relative[here], site)
                if self.deferred and window.shadow is not None and site.verb == "writes":
                    mark(window.shadow, index, (True,) * site.count, site)
                mbarriers.later(slot, offset, self._arrival((slot, offset), here, index, site, land, tick))

    def _arrival(
        self, barrier: tuple[int, int], here: Slots, index: NDArray[np.int64], site: Site, land: Landing,
        tick: tuple[int, int] | None,
    ) -> Callable[[], None]:  # fmt: skip
        def arrive() -> None:
            land(here, index)
            self.machine.mbarriers.transacted(*barrier, here.size * site.bytes, site.line, tick)

        return arrive

    def _collisions(self, context: Context, block: Array, site: Site) -> Callable[[Any, NDArray[np.int64]], None]:
        """Finds lanes of one store that write different values to one place."""
        bits = block.view(f"u{site.width}")

        def check(here: Any, index: NDArray[np.int64]) -> None:
            order = np.argsort(index, kind="stable")
            places, rows = index[order], bits[here][order]
            wrong = (places[1:] == places[:-1]) & (rows[1:] != rows[:-1]).any(axis=1)
            if wrong.any():
                second = order[1 + int(np.argmax(wrong))]
                who = self.memory.where(context, context.lanes[here[second]])
                byte = (int(index[second]) << site.shift) % max(1, context.chunk.shared_stride)
                what = f"byte {byte} of a block's shared memory"
                message = f"{who} and another thread write different values to {what} in one instruction"
                self.memory.findings.add("race", message, site.line, "collision", suggestion="Let one thread write it.")

        return check
