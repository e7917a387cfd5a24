"""`mbarrier` objects: phases, arrivals, transaction counts (PTX ISA, "mbarrier").

An object is known by its block and its place in shared memory; the 8 bytes there hold a seal, so that a plain
store over it is noticed. Waiting is in phases.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.barrier_state import Barrier, Counts, Slots, distinct, groups, some, state_of
from fitness.devices.simulator.faults import Stop, finding
from fitness.devices.simulator.lanes import Chunk, Context, Value
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.vector_clocks import warps_of

MOST = (1 << 20) - 1
"""Largest count of arrivals and of transactions, bytes (PTX ISA, "Contents of the mbarrier object")."""
_FENCE = (
    "Let the thread that initialises it execute fence.mbarrier_init.release.cluster before the barrier that follows."
)
_SEAL = np.uint64(0xB4221E2EB4221E2E)


class Objects:
    """The mbarrier objects of the chunk under way: their life and their counts."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.memory: Memory = machine.memory
        self.chunk: Chunk | None = None
        self._barriers: dict[int, Barrier] = {}
        self.ended: list[Barrier] = []  # of which a phase has ended and nobody has been woken yet

    def begin(self, chunk: Chunk) -> None:
        """A new chunk."""
        self.chunk, self._barriers = chunk, {}
        self.ended.clear()

    def _progress(self) -> None:
        """A phase has ended somewhere."""

    # ---- places

    def place(self, context: Context, address: Value, site: Site) -> tuple[Slots, Slots]:
        """Block (place in the chunk) and offset in its shared memory of the mbarrier each lane names.

        Raises:
            Stop: out of bounds or misaligned.
        """
        context, address = self.machine.clusters.resolve(context, address, site)
        relative = self.memory.offsets(context, address, site, self.memory.windows["shared"])
        return context.slot, np.broadcast_to(np.asarray(relative, dtype=np.int64), context.n)

    def _cells(self, slots: Slots, offset: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The 8-byte words of an mbarrier in every block's memory, and their indices."""
        window = self.memory.windows["shared"]
        return window.views[8], (slots * window.stride + offset) >> 3

    def _known(self, slots: Slots, offset: int, context: Context, site: Site) -> Barrier:
        """The barrier at an offset, which must be initialised in all these blocks.

        Raises:
            Stop: it is not, or it was overwritten.
        """
        barrier = self._barriers.get(offset)
        words, index = self._cells(slots, offset)
        good = barrier is not None and barrier.valid[slots].all()
        if barrier is None or not good or (words.take(index) != _SEAL).any():
            who = self.memory.where(context, context.lanes[0])
            what = "was overwritten by another store" if good else "is not initialised"
            message = f"{who} uses the mbarrier at byte {offset} of shared memory, which {what}: `{site.text}`"
            raise Stop("fault", finding("mbarrier", message, site.line))
        self._check_born(barrier, slots, offset, context, site)
        self._check_published(barrier, slots, offset, context, site)
        return barrier

    def _check_born(self, barrier: Barrier, slots: Slots, offset: int, context: Context, site: Site) -> None:
        """Warps other than the one that initialised it must have met that one at a barrier since."""
        races = self.machine.races
        if races is None or slots.size != context.n or self.memory.findings.knows("race", site.line, "mbarrier"):
            return
        early = barrier.born_epoch[slots] == races.epochs[slots]
        early &= barrier.born_lane[slots] >> 5 != context.lanes >> 5
        if early.any():
            who = self.memory.where(context, context.lanes[int(np.argmax(early))])
            message = (
                f"{who} uses the mbarrier at byte {offset} of shared memory with no barrier since it was initialised"
            )
            self.memory.findings.add("race", message, site.line, "mbarrier")

    def _check_published(self, barrier: Barrier, slots: Slots, offset: int, context: Context, site: Site) -> None:
        """Other blocks may use an mbarrier only after its initialisation has been released to the cluster."""
        if self.machine.races is None or context.chunk.cluster_size == 1 or barrier.published[slots].all():
            return
        own = context.lanes // context.chunk.stride
        early = (own != slots) & ~barrier.published[slots] if slots.size == own.size else np.zeros(0, dtype=bool)
        if early.any():
            who = self.memory.where(context, context.lanes[int(np.argmax(early))])
            message = (
                f"{who} uses at line {site.line} the mbarrier at byte {offset} of another block, whose initialisation "
                "was not released to the cluster"
            )
            self.memory.findings.add("race", message, barrier.born_line, "mbarrier_init", suggestion=_FENCE)

    def _check_proxied(self, slot: int, offset: int, context: Context, site: Site) -> None:
        """Bulk copies count through the async proxy, which sees an initialisation after a fence only."""
        barrier = self._barriers[offset]
        if self.machine.races is None or barrier.proxied[slot]:
            return
        who = self.memory.where(context, context.lanes[0])
        message = f"a bulk copy of {who} counts at line {site.line} at the mbarrier at byte {offset} of shared memory, "
        message += "whose initialisation no fence made visible to the async proxy"
        self.memory.findings.add("race", message, barrier.born_line, "mbarrier_init", "warning", _FENCE)

    def fence(self, context: Context, *, proxy: bool, cluster: bool) -> None:
        """A fence (or a releasing arrival) of these lanes: what mbarriers they have initialised become visible.

        Args:
            context: lanes. Those of a block that has met at a barrier since also speak for the one that initialised.
            proxy: to the async proxy.
            cluster: to the other blocks of the cluster.
        """
        races = self.machine.races
        if races is None or not self._barriers:
            return
        here = np.zeros(context.chunk.blocks.size, dtype=bool)
        here[context.slot] = True
        for barrier in self._barriers.values():
            told = here & (barrier.born_epoch != races.epochs)
            told |= np.isin(barrier.born_lane, context.lanes)
            barrier.proxied |= told & proxy
            barrier.published |= told & cluster

    # ---- life

    def init(self, context: Context, address: Value, count: Value, site: Site) -> None:
        """`mbarrier.init`.

        Raises:
            Stop: the count is out of range, or a valid mbarrier is there already.
        """
        slots, offsets = self.place(context, address, site)
        counts = np.broadcast_to(np.asarray(count, dtype=np.int64), context.n)
        if counts.min() < 1 or counts.max() > MOST:
            message = f"an mbarrier is initialised with the count {int(counts.min())}; 1 to {MOST} are possible"
            raise Stop("fault", finding("mbarrier", message, site.line))
        for offset, here in groups(offsets):
            assert self.chunk is not None
            barrier = self._barriers.setdefault(offset, Barrier(self.chunk.blocks.size))
            mine = slots[here]
            words, index = self._cells(mine, offset)
            if (barrier.valid[mine] & (words.take(index) == _SEAL)).any() or np.unique(mine).size != mine.size:
                message = f"the mbarrier at byte {offset} of shared memory is initialised twice"
                raise Stop("fault", finding("mbarrier", message, site.line, "Invalidate it first (mbarrier.inval)."))
            words[index] = _SEAL
            self._shadow(mine, offset, 0xFF)
            barrier.valid[mine] = True
            barrier.expected[mine] = barrier.pending[mine] = counts[here]
            barrier.tx[mine] = barrier.phase[mine] = 0
            barrier.published[mine] = barrier.proxied[mine] = False
            barrier.born_line = site.line
            clocks = None if self.machine.races is None else self.machine.races.clocks
            if clocks is not None and barrier.heard is None:
                barrier.heard, barrier.told = clocks.new_barrier(barrier.blocks), clocks.new_barrier(barrier.blocks)
            if self.machine.races is not None:
                barrier.born_epoch[mine] = self.machine.races.epochs[mine]
                barrier.born_lane[mine] = context.lanes[here]

    def invalidate(self, context: Context, address: Value, site: Site) -> None:
        """`mbarrier.inval`: the memory may be used for something else."""
        slots, offsets = self.place(context, address, site)
        for offset, here in groups(offsets):
            barrier = self._known(slots[here], offset, some(context, here), site)
            barrier.valid[slots[here]] = False

    def _shadow(self, slots: Slots, offset: int, mark: int) -> None:
        window = self.memory.windows["shared"]
        if window.shadow is not None:  # its contents are opaque: a plain load reads nothing defined
            word = np.uint64(mark * 0x0101010101010101 & 0x0101010101010101)
            window.shadow[8][(slots * window.stride + offset) >> 3] = word

    # ---- counting

    def expect(self, context: Context, address: Value, count: Value, site: Site, *, complete: bool = False) -> None:
        """`mbarrier.expect_tx` (or `mbarrier.complete_tx`): change the transaction count without arriving."""
        slots, offsets = self.place(context, address, site)
        counts = np.broadcast_to(np.asarray(count, dtype=np.int64), context.n)
        for offset, here in groups(offsets):
            barrier = self._known(slots[here], offset, some(context, here), site)
            np.add.at(barrier.tx, slots[here], -counts[here] if complete else counts[here])
            self._check_tx(barrier, slots[here], site.line)
            self._settle(barrier, slots[here])

    def arrive(
        self,
        context: Context,
        address: Value,
        site: Site,
        *,
        count: Value = 1,
        expect: Value | None = None,
        drop: bool = False,
        incomplete: bool = False,
        wanted: bool = True,
    ) -> tuple[Value, Any]:
        """`mbarrier.arrive` and its forms.

        Args:
            context: lanes.
            address: of the mbarrier.
            site: the instruction.
            count: arrivals of each lane.
            expect: transactions (bytes) it announces first.
            drop: `arrive_drop`: later phases expect fewer arrivals.
            incomplete: `.noComplete`: must not end the phase.
            wanted: the state is used.

        Returns:
            (state, taint): phase in the upper 32 bits, arrivals pending before this one in the lower.

        Raises:
            Stop: no mbarrier, or more arrivals than it expects.
        """
        slots, offsets = self.place(context, address, site)
        counts = np.broadcast_to(np.asarray(count, dtype=np.int64), context.n)
        if counts.min() < 1 or counts.max() > MOST:
            raise Stop("fault", finding("mbarrier", f"`{site.text}` arrives {int(counts.min())} times", site.line))
        state = np.zeros(context.n, dtype=np.uint64) if wanted else None
        for offset, here in groups(offsets):
            barrier = self._known(slots[here], offset, some(context, here), site)
            if expect is not None:
                bytes_ = np.broadcast_to(np.asarray(expect, dtype=np.int64), context.n)[here]
                np.add.at(barrier.tx, slots[here], bytes_)
                self._check_tx(barrier, slots[here], site.line)
            self._release(barrier, slots[here], some(context, here).lanes)
            states = self._count(barrier, slots[here], counts[here], offset, drop, incomplete, context, site, wanted)
            if state is not None and states is not None:
                state[here] = states
        return (np.uint64(0) if state is None else state), False

    def _count(
        self,
        barrier: Barrier,
        slots: Slots,
        counts: Counts,
        offset: int,
        drop: bool,
        incomplete: bool,
        context: Context,
        site: Site,
        wanted: bool,
    ) -> NDArray[np.uint64] | None:
        total = np.bincount(slots, weights=counts, minlength=barrier.blocks).astype(np.int64)
        if (total > barrier.pending).any():
            return self._count_each(barrier, slots, counts, offset, drop, incomplete, context, site)
        states = None
        if wanted:
            before = np.cumsum(counts) - counts
            starts = np.concatenate([[True], slots[1:] != slots[:-1]])
            before -= np.repeat(before[starts], np.diff(np.append(np.flatnonzero(starts), slots.size)))
            states = state_of(barrier.phase[slots], barrier.pending[slots] - before)
        barrier.pending -= total
        if drop:
            barrier.expected -= total
        if incomplete and (barrier.pending[slots] == 0).any():
            message = f"`{site.text}` ends a phase, which .noComplete must not"
            raise Stop("fault", finding("mbarrier", message, site.line))
        self._settle(barrier, slots)
        return states

    def _count_each(
        self,
        barrier: Barrier,
        slots: Slots,
        counts: Counts,
        offset: int,
        drop: bool,
        incomplete: bool,
        context: Context,
        site: Site,
    ) -> NDArray[np.uint64]:
        """Arrivals one after another, where one instruction reaches into the next phase or arrives too often."""
        states = np.zeros(slots.size, dtype=np.uint64)
        for place, (slot, count) in enumerate(zip(slots.tolist(), counts.tolist(), strict=True)):
            if count > barrier.pending[slot]:
                who = self.memory.where(context, context.chunk.stride * slot)
                message = (
                    f"`{site.text}` arrives {count} times at the mbarrier at byte {offset} of shared memory, which "
                    f"awaits {int(barrier.pending[slot])} more arrivals in this phase (block of {who})"
                )
                cure = "Initialise it with the number of arrivals of a phase; wait for a phase before the next one."
                raise Stop("fault", finding("mbarrier", message, site.line, cure))
            one = np.array([slot])
            states[place] = state_of(barrier.phase[one], barrier.pending[one])[0]
            barrier.pending[slot] -= count
            barrier.expected[slot] -= count if drop else 0
            if incomplete and barrier.pending[slot] == 0:
                message = f"`{site.text}` ends a phase, which .noComplete must not"
                raise Stop("fault", finding("mbarrier", message, site.line))
            self._settle(barrier, one)
        return states

    def _release(self, barrier: Barrier, slots: Slots, lanes: NDArray[np.int64]) -> None:
        """What the lanes' warps have done is ordered before the end of the phase."""
        if barrier.heard is not None:
            self.machine.races.ordered_anew().release(warps_of(lanes), slots, barrier.heard)

    def _check_tx(self, barrier: Barrier, slots: Slots, line: int) -> None:
        if (np.abs(barrier.tx[slots]) > MOST).any():
            message = f"the transaction count of an mbarrier leaves its range of {MOST} bytes"
            raise Stop("fault", finding("mbarrier", message, line))

    def _settle(self, barrier: Barrier, slots: Slots) -> None:
        """Begin the next phase in the blocks where all arrivals and transactions are there; wake who waits."""
        done = np.zeros(barrier.blocks, dtype=bool)
        done[slots] = (barrier.pending[slots] == 0) & (barrier.tx[slots] == 0)
        if not done.any():
            return
        if (barrier.ended & done).any():  # nobody may sleep through a phase
            self.wake()
        barrier.phase[done] += 1
        barrier.pending[done] = barrier.expected[done]
        if barrier.heard is not None:
            barrier.told[done] = barrier.heard[done]
        barrier.ended |= done
        self.ended.append(barrier)

    def wake(self) -> None:
        """Lanes whose phase has ended go on. Called once after all that an instruction of many lanes ends."""
        for barrier in self.ended:
            barrier.ended[:] = False
        self.ended.clear()
        self._progress()

    # ---- asynchronous operations

    def transacted(self, slot: int, offset: int, size: int, line: int, *ticks: tuple[int, int] | None) -> None:
        """`complete_tx` of an asynchronous copy of `size` bytes; `ticks`: pseudo warp and clock of its accesses."""
        barrier = self._barriers[offset]
        for tick in ticks:
            if tick is not None and barrier.heard is not None:
                self.machine.races.ordered_anew().landed(*tick, slot, barrier.heard)
        barrier.tx[slot] -= size
        left = int(barrier.tx[slot])
        if abs(left) > MOST:
            self._check_tx(barrier, np.array([slot]), line)
        if left == 0 and barrier.pending[slot] == 0:
            self._settle(barrier, np.array([slot]))

    def awaiting(self, slots: Slots, offsets: Slots, size: int) -> bool:
        """Whether copies of `size` bytes to distinct blocks may count at mbarriers that all have one offset."""
        offset = int(offsets[0])
        barrier = self._barriers.get(offset)
        if barrier is None or (offsets != offset).any() or not distinct(slots):
            return False
        words, index = self._cells(slots, offset)
        if not barrier.valid[slots].all() or (words.take(index) != _SEAL).any():
            return False
        return self.machine.races is None and not bool((np.abs(barrier.tx[slots] - size) > MOST).any())

    def transacted_together(self, slots: Slots, offset: int, size: int) -> None:
        """`transacted` in many blocks at once, where `awaiting` was true and nobody watches for races."""
        barrier = self._barriers[offset]
        barrier.tx[slots] -= size
        self._settle(barrier, slots)

    def arrived(self, slot: int, offset: int, lanes: NDArray[np.int64], line: int) -> None:
        """Arrivals that asynchronous operations of some lanes make.

        Raises:
            Stop: it is one too many.
        """
        barrier, count = self._barriers[offset], lanes.size
        if barrier.pending[slot] < count:
            message = f"an asynchronous copy arrives at the mbarrier at byte {offset}, which awaits no more arrivals"
            raise Stop("fault", finding("mbarrier", message, line))
        self._release(barrier, np.full(count, slot), lanes)
        barrier.pending[slot] -= count
        self._settle(barrier, np.array([slot]))

    def known(self, slot: int, offset: int, context: Context, site: Site, *, proxy: bool = False) -> None:
        """Check that an mbarrier is there (as the operations above do); `proxy`: for the async proxy."""
        self._known(np.full(context.n, slot), offset, context, site)
        if proxy:
            self._check_proxied(slot, offset, context, site)

    def phase(self, slot: int, offset: int) -> int:
        """Number of the present phase."""
        return int(self._barriers[offset].phase[slot])

    def more(self, slot: int, offset: int, count: int) -> None:
        """`cp.async.mbarrier.arrive` without `.noinc`: the phase awaits `count` more arrivals."""
        self._barriers[offset].pending[slot] += count
