"""`cp.async`: copies that land when their group is waited for.

While a run tracks uninitialised values or races, the destination of a copy stays poisoned until the issuing
lane has waited for it, so a wait group counted wrongly shows. Otherwise (cost runs) copies land at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.elements import deposit, mark
from fitness.devices.simulator.lanes import Chunk, Context, Value, gather
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.sites import Site, spread

Array = NDArray[Any]


@dataclass
class _Pending:
    """One copy instruction of a group of lanes, in flight.

    `number`: commit group of each lane (or of all); `order`: place in the order of issue.
    """

    context: Context
    relative: Value
    values: tuple[Value, ...]
    taints: tuple[Value, ...] | None
    site: Site
    number: Any
    order: int


class Copies:
    """Asynchronous copies of the chunk under way."""

    def __init__(self, memory: Memory, *, deferred: bool) -> None:
        self.memory, self.deferred = memory, deferred
        self.pending: list[_Pending] = []
        self.groups: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._issued = 0

    def begin(self, chunk: Chunk) -> None:
        """A new chunk."""
        self.pending = []
        self.groups = np.zeros(chunk.live.size, dtype=np.int64)

    def _number(self, context: Context) -> Any:
        numbers = self.groups[context.lanes]
        return int(numbers[0]) if numbers.min() == numbers.max() else numbers

    def issue(self, context: Context, to: Value, of: Value, amount: Value | None, write: Site, read: Site) -> None:
        """`cp.async`: `amount` source bytes per lane (None: all), the rest zeros."""
        memory = self.memory
        values = self._source(context, of, amount, read)
        taints: tuple[Value, ...] | None = None
        if memory.track:
            values, marks = values[: read.count], values[read.count :]
            taints = None if all(m is False for m in marks) else marks
        window = memory.windows["shared"]
        relative = memory.offsets(context, to, write, window)
        for observer in memory.observers:
            observer.shared(context, spread(relative, context), write, write.bytes)
        index = memory._index(context, relative, write, window)
        if not self.deferred:
            deposit(window.views, window.shadow, index, values, taints, write)
            return
        if window.shadow is not None:
            mark(window.shadow, index, (True,) * write.count, write)
        self._issued += 1
        self.pending.append(_Pending(context, relative, values, taints, write, self._number(context), self._issued))

    def touch(self, context: Context, to: Value, of: Value, amount: Value | None, write: Site, read: Site) -> None:
        """`cp.async` of values that do not matter, in a run that lands copies at once."""
        memory = self.memory
        if amount is None:
            memory.touch(context, of, read)
        else:
            self._source(context, of, amount, read)
        relative = memory.offsets(context, to, write, memory.windows["shared"])
        for observer in memory.observers:
            observer.shared(context, spread(relative, context), write, write.bytes)

    def _source(self, context: Context, of: Value, amount: Value | None, read: Site) -> tuple[Value, ...]:
        if amount is None:
            return self.memory.load(context, of, read)
        if not isinstance(amount, np.ndarray):
            if int(amount) == read.bytes:
                return self.memory.load(context, of, read)
            amount = np.full(context.n, amount)
        size = np.minimum(amount, read.bytes)
        zeros = [np.zeros(context.n, dtype=read.dtype) for _ in range(read.count)]
        marks: list[Any] = [np.zeros(context.n, dtype=bool) for _ in range(read.count)]
        full = size == read.bytes
        if full.all():
            return self.memory.load(context, of, read)
        if full.any():
            some = context.split(full)[0]
            assert some.where is not None
            address = of[some.where] if isinstance(of, np.ndarray) else of
            loaded = self.memory.load(some, address, read)
            for place in range(read.count):
                zeros[place][some.where] = loaded[place]
                if self.memory.track:
                    marks[place][some.where] = loaded[read.count + place]
        partial = (size > 0) & ~full
        if partial.any():
            self._bytes(context, of, np.where(partial, size, 0), read, zeros)
        if not self.memory.track:
            return tuple(zeros)
        return (*zeros, *(m if m.any() else False for m in marks))

    def _bytes(self, context: Context, of: Value, size: Array, read: Site, zeros: list[Array]) -> None:
        """Lanes that copy only part of their vector, byte by byte."""
        block = np.stack(zeros, axis=1).view(np.uint8)
        for place in range(int(size.max())):
            where = np.flatnonzero(size > place)
            part = Context(context.chunk, context.lanes[where])
            site = Site(read.index, read.verb, read.space, np.uint8, 1, read.offset + place, read.line, read.text)
            address = of[where] if isinstance(of, np.ndarray) else of
            block[where, place] = self.memory.load(part, address, site)[0]
        for place, column in enumerate(block.view(read.dtype).T):
            zeros[place][:] = column

    def commit(self, context: Context) -> None:
        """`cp.async.commit_group`."""
        if self.deferred:
            self.groups[context.lanes] += 1

    def wait(self, context: Context, count: int, everything: bool, line: int) -> None:
        """`cp.async.wait_group count` (or `wait_all`): older groups of these lanes land."""
        del line
        if not self.pending:
            return
        numbers = self._number(context)
        limit = np.iinfo(np.int64).max if everything else numbers - count
        kept = []
        for copy in self.pending:
            rest = self._land(copy, context, limit)
            if rest is not None:
                kept.append(rest)
        self.pending = kept

    def arrive(self, context: Context, address: Value, site: Site, mbarriers: Any, *, counted: bool) -> None:
        """`cp.async.mbarrier.arrive`: the lanes' copies so far arrive at an mbarrier when they have landed.

        Args:
            context: lanes.
            address: of the mbarrier.
            site: the instruction.
            mbarriers: of the chunk.
            counted: `.noinc`: the mbarrier was initialised for these arrivals; else the phase awaits one more.
        """
        slots, offsets = mbarriers.place(context, address, site)
        for slot, offset in sorted(set(zip(slots.tolist(), offsets.tolist(), strict=True))):
            here = np.flatnonzero((slots == slot) & (offsets == offset))
            some = context if here.size == context.n else Context(context.chunk, context.lanes[here])
            mbarriers.known(slot, offset, some, site)
            if not counted:
                mbarriers.more(slot, offset, some.n)
            mbarriers.later(slot, offset, self._arrival(some, self._issued, (slot, offset), site, mbarriers))

    def _arrival(
        self, context: Context, issued: int, barrier: tuple[int, int], site: Site, mbarriers: Any
    ) -> Callable[[], None]:
        def land() -> None:
            everything = np.iinfo(np.int64).max
            kept = []
            for copy in self.pending:
                rest = self._land(copy, context, everything) if copy.order <= issued else copy
                if rest is not None:
                    kept.append(rest)
            self.pending = kept
            mbarriers.arrived(*barrier, context.lanes, site.line)

        return land

    def exit(self, context: Context) -> None:
        """Threads end: what they copied lands."""
        if self.pending:
            self.wait(context, 0, True, 0)

    def _land(self, copy: _Pending, context: Context, limit: Any) -> _Pending | None:
        """Land the part of a copy that is due; what remains in flight."""
        if copy.context is context and not isinstance(copy.number, np.ndarray) and not isinstance(limit, np.ndarray):
            if copy.number >= limit:
                return copy
            self._write(copy)
            return None
        limits = np.full(self.groups.size, np.iinfo(np.int64).min, dtype=np.int64)
        limits[context.lanes] = limit
        due = np.broadcast_to(copy.number < limits[copy.context.lanes], copy.context.n)
        if not due.any():
            return copy
        if due.all():
            self._write(copy)
            return None
        landed, rest = copy.context.split(due)
        self._write(self._part(copy, landed))
        return self._part(copy, rest)

    @staticmethod
    def _part(copy: _Pending, part: Context) -> _Pending:
        assert part.where is not None
        relative, number = gather((copy.relative, copy.number), part.where)
        taints = gather(copy.taints, part.where) if copy.taints is not None else None
        return _Pending(part, relative, gather(copy.values, part.where), taints, copy.site, number, copy.order)

    def _write(self, copy: _Pending) -> None:
        memory = self.memory
        window = memory.windows["shared"]
        for observer in memory.observers:
            if observer.sees_landing:
                observer.shared(copy.context, spread(copy.relative, copy.context), copy.site, copy.site.bytes)
        index = memory._index(copy.context, copy.relative, copy.site, window)
        deposit(window.views, window.shadow, index, copy.values, copy.taints, copy.site)
