"""Waiting for phases of mbarriers, and what lands meanwhile (PTX ISA, "mbarrier.test_wait / mbarrier.try_wait").

What is asynchronous (a bulk copy, `cp.async.mbarrier.arrive`) lands as late as it can: when somebody waits for
the phase it counts in. Lanes that wait are parked until their phase is complete; where nothing else can run they
get `false`, as hardware's time limit gives it, and after many fruitless rounds the run ends with a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.barrier_state import Barrier, Slots, groups, some
from fitness.devices.simulator.faults import Stop, finding
from fitness.devices.simulator.lanes import Chunk, Context, Value, gather
from fitness.devices.simulator.mbarrier import Objects
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.vector_clocks import warps_of

_ROUNDS = 1024


@dataclass
class _Parked:
    """Lanes that wait: where (per lane), for which phase to end, and where they go on.

    `number`: per lane, the parity or the phase; `place`: of the predicate among `values`, -1 where it is not used.
    """

    context: Context
    slots: Slots
    offsets: Slots
    number: NDArray[np.int64]
    parity: bool
    line: int
    target: int
    values: tuple[Value, ...]
    place: int


class Mbarriers(Objects):
    """The mbarriers of the chunk under way, and who waits for them.

    Args:
        machine: of the launch.
        deferred: asynchronous operations land when waited for; else at once (cost runs).
    """

    def __init__(self, machine: Any, *, deferred: bool) -> None:
        super().__init__(machine)
        self.deferred = deferred
        self._parked: list[_Parked] = []
        self._rounds = 0

    def begin(self, chunk: Chunk) -> None:
        """A new chunk."""
        super().begin(chunk)
        self._parked, self._rounds = [], 0

    @property
    def waiting(self) -> bool:
        """Whether any lane is parked."""
        return bool(self._parked)

    # ---- asynchronous operations

    def later(self, slot: int, offset: int, land: Callable[[], None]) -> None:
        """Something in flight that counts in the present phase of an mbarrier: `land` does it."""
        barrier = self._barriers[offset]
        if not self.deferred:
            land()
            return
        barrier.landing.setdefault(slot, []).append(land)
        if any(((p.slots == slot) & (p.offsets == offset)).any() for p in self._parked):
            self._land(barrier, np.array([slot]))

    def later_together(
        self, slots: Slots, offsets: Slots, size: int, land: Callable[[Any], None], line: int
    ) -> None:  # fmt: skip
        """`later` for copies of `size` bytes to distinct blocks (`awaiting`); `land` takes which of them have come."""
        offset = int(offsets[0])
        if not self.deferred:
            land(slice(None))
            self.transacted_together(slots, offset, size)
            return
        for place, slot in enumerate(slots.tolist()):

            def one(place: int = place, slot: int = slot) -> None:
                land(place)
                self.transacted(slot, offset, size, line)

            self.later(slot, offset, one)

    def _land(self, barrier: Barrier, slots: Slots) -> bool:
        landed = False
        for slot in np.unique(slots).tolist():
            for land in barrier.landing.pop(slot, []):
                land()
                landed = True
        return landed

    # ---- waiting

    def wait(
        self,
        context: Context,
        address: Value,
        number: Value,
        parity: bool,
        site: Site,
        place: int,
        target: int,
        values: tuple[Value, ...],
    ) -> Any:
        """`mbarrier.test_wait` and `try_wait`: lanes whose phase is complete go on with true, others are parked.

        Args:
            context: lanes.
            address: of the mbarrier.
            number: the state that `arrive` gave, or with `parity` the parity of the phase.
            parity: the `.parity` form.
            site: the instruction.
            place: of the result among `values`, -1 where it is not used.
            target: basic block that follows.
            values: its live registers.
        """
        slots, offsets = self.place(context, address, site)
        wanted = np.broadcast_to(np.asarray(number).astype(np.int64), context.n)
        wanted = wanted & 1 if parity else wanted >> 32
        for offset, here in groups(offsets):
            self._known(slots[here], offset, some(context, here), site)
        parked = _Parked(context, slots, offsets, wanted, parity, site.line, target, values, place)
        done = self._done(parked)
        if not done.all():
            early = ~done
            for offset, here in groups(offsets[early]):
                if self._land(self._barriers[offset], slots[early][here]):
                    done = self._done(parked)
        if done.all():
            self._acquire(parked, done)
            return target, _answered(values, place, yes=True)
        self._part(parked, done)
        return None

    def _acquire(self, parked: _Parked, done: NDArray[np.bool_]) -> None:
        """What happened before the end of the phase is ordered before what these lanes do now."""
        races = self.machine.races
        if races is None or races.clocks is None:
            return
        for offset, here in groups(parked.offsets[done]):
            lanes, slots = parked.context.lanes[done][here], parked.slots[done][here]
            races.ordered_anew().acquire(warps_of(lanes), slots, self._barriers[offset].told)

    def _done(self, parked: _Parked) -> NDArray[np.bool_]:
        """Lanes whose phase is complete."""
        done = np.zeros(parked.context.n, dtype=bool)
        for offset, here in groups(parked.offsets):
            phase = self._barriers[offset].phase[parked.slots[here]]
            wanted = parked.number[here]
            done[here] = (phase & 1) != wanted if parked.parity else (phase & 0xFFFFFFFF) != wanted
        return done

    def _part(self, parked: _Parked, go: NDArray[np.bool_], *, yes: bool = True) -> None:
        """Lanes that may go on do, with their answer; the others stay."""
        if not go.any():
            self._parked.append(parked)
            return
        if yes:
            self._acquire(parked, go)
        if go.all():
            self.machine.resume(parked.target, parked.context, _answered(parked.values, parked.place, yes=yes))
            return
        gone, stay = parked.context.split(go)
        where = stay.where
        assert gone.where is not None
        assert where is not None
        answer = _answered(gather(parked.values, gone.where), parked.place, yes=yes)
        self.machine.resume(parked.target, gone, answer)
        self._parked.append(
            _Parked(
                stay, parked.slots[where], parked.offsets[where], parked.number[where], parked.parity, parked.line,
                parked.target, gather(parked.values, where), parked.place,
            )
        )  # fmt: skip

    def _progress(self) -> None:
        self._rounds = 0
        before, self._parked = self._parked, []
        for parked in before:
            self._part(parked, self._done(parked))

    def time_out(self) -> bool:
        """Give all parked lanes false, as a time limit does. Returns whether there were any.

        Raises:
            Stop: nothing has happened for many rounds.
        """
        if not self._parked:
            return False
        self._rounds += 1
        if self._rounds > _ROUNDS:
            raise self._deadlock()
        before, self._parked = self._parked, []
        for parked in before:
            self._part(parked, np.ones(parked.context.n, dtype=bool), yes=False)
        return True

    def _deadlock(self) -> Stop:
        parked = self._parked[0]
        slot, offset = int(parked.slots[0]), int(parked.offsets[0])
        barrier = self._barriers[offset]
        who = self.memory.where(parked.context, parked.context.lanes[0])
        message = (
            f"{who} waits for phase {int(barrier.phase[slot])} of the mbarrier at byte {offset} of shared "
            f"memory, which never completes: {int(barrier.pending[slot])} of {int(barrier.expected[slot])} arrivals "
            f"and {int(barrier.tx[slot])} bytes are missing"
        )
        return Stop("fault", finding("deadlock", message, parked.line))


def _answered(values: tuple[Value, ...], place: int, *, yes: bool) -> tuple[Value, ...]:
    return values if place < 0 else (*values[:place], np.bool_(yes), *values[place + 1 :])
