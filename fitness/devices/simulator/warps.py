"""Warp-wide instructions at run time: registers of a group to (G, 32) and back, and who must be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator import warp
from fitness.devices.simulator.faults import Stop, finding
from fitness.devices.simulator.lanes import Context, Value

Array = NDArray[Any]
_FULL = np.uint32(0xFFFFFFFF)


class Warps:
    """Warp-wide operations of one launch."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def need_whole(self, context: Context, line: int, text: str) -> None:
        """`.aligned` instructions must be executed by whole warps.

        Raises:
            Stop: part of a warp is elsewhere.
        """
        if not context.whole:
            active = context.active
            partial = int(np.argmin(active.all(axis=1)))
            lane = context.lanes[np.searchsorted(context.lanes >> 5, context.warps[partial])]
            message = f"only part of the warp of {self.machine.memory.where(context, lane)} executes `{text}`"
            raise Stop("fault", finding("barrier_divergence", message, line))

    def named(self, context: Context, mask: Value, line: int) -> None:
        """The lanes that take part in a warp-wide instruction, checked.

        Raises:
            Stop: as of `_each`.
        """
        self._each(context, mask, line, lambda active, _masks: (active,))

    def members(self, context: Context, mask: Value, line: int) -> tuple[Array, Array]:
        """(active lanes, membermask) as (G, 32) or broadcastable.

        Raises:
            Stop: a lane that is named by the mask is elsewhere.
        """
        if context.whole:
            if not isinstance(mask, np.ndarray):
                return np.ones((context.n // 32, 32), dtype=bool), np.asarray(mask)
            return np.ones((context.n // 32, 32), dtype=bool), mask.reshape(-1, 32)
        active = context.active
        masks = context.as_warps(mask)
        missing = warp.missing_lanes(active, masks) & ~context.exited
        if missing.any():
            row = int(np.argmax(missing.any(axis=1)))
            lane = context.lanes[np.searchsorted(context.lanes >> 5, context.warps[row])]
            message = (
                f"the warp of {self.machine.memory.where(context, lane)} names lane {int(np.argmax(missing[row]))} "
                "in its membermask, but that lane does not execute the instruction"
            )
            raise Stop("fault", finding("barrier_divergence", message, line, "Name only the lanes that take part."))
        return active, masks

    def ready(self, context: Context, mask: Value) -> NDArray[np.bool_]:
        """(n,) lanes of warps in which every lane that a membermask names is in the group or has ended."""
        active = context.active
        masks = context.as_warps(mask) if isinstance(mask, np.ndarray) else np.full(active.shape, mask)
        missing = np.asarray((warp.missing_lanes(active, masks) & ~context.exited).any(axis=1))
        return np.asarray(~missing[context.rows[0]])

    def _each(
        self, context: Context, mask: Value, line: int, function: Callable[[Array, Any], tuple[Array, ...]]
    ) -> tuple[Value, ...]:
        """Results of a warp-wide function, for each set of lanes that name one another.

        Raises:
            Stop: a lane is not in its own mask, or lanes that one names give another mask.
        """
        active, masks = self.members(context, mask, line)
        results, wrong = warp.by_mask(function, active, masks)
        if wrong.any():
            row = int(np.argmax(wrong.any(axis=1)))
            lane = int(context.warps[row]) * 32 + int(np.argmax(wrong[row]))
            message = f"{self.machine.memory.where(context, lane)} executes a warp-wide instruction whose membermask "
            message += "does not name it, or is not the one that the lanes it names give"
            raise Stop("fault", finding("barrier_divergence", message, line, "Give all lanes of a set the same mask."))
        return tuple(context.from_warps(result) for result in results)

    def shfl(
        self,
        context: Context,
        mode: str,
        a: Value,
        b: Value,
        clamp: Value,
        mask: Value,
        mark: Any,
        other: Any,
        line: int,
    ) -> tuple[Value, Value, Any]:
        """Value, predicate and taint of `shfl.sync`."""
        active, masks = self.members(context, mask, line)
        lanes, limits = (context.as_warps(v) if isinstance(v, np.ndarray) else v for v in (b, clamp))
        value, inside, source = warp.shfl(mode, context.as_warps(a), lanes, limits)
        taint: Any = False
        if self.machine.memory.track:
            if not context.whole or isinstance(mask, np.ndarray) or mask != _FULL:
                undefined = warp.unreadable(source, active, masks)
                taint = context.from_warps(undefined) if undefined.any() else False
            if mark is not False:
                marks = context.as_warps(np.broadcast_to(mark, context.n))
                taint = context.from_warps(np.take_along_axis(marks, source, axis=1)) | taint
            taint = taint | other
        return context.from_warps(value), context.from_warps(inside), taint

    def vote(
        self, context: Context, mode: str, predicate: Value, mask: Value, mark: Any, line: int
    ) -> tuple[Value, Any]:
        """`vote.sync`."""
        held = context.as_warps(predicate)

        def run(active: Array, masks: Any) -> tuple[Array, ...]:
            return (warp.ballot(held, active, masks) if mode == "ballot" else warp.vote(mode, held, active, masks),)

        return self._each(context, mask, line, run)[0], self._together(context, mark)

    def match(
        self, context: Context, every: bool, value: Value, mask: Value, mark: Any, line: int
    ) -> tuple[Value, Value, Any]:
        """`match.any.sync` and `match.all.sync`."""
        values = context.as_warps(value)
        if every:
            found, agree = self._each(context, mask, line, lambda a, m: warp.match_all(values, a, m))
            return found, agree, self._together(context, mark)
        (found,) = self._each(context, mask, line, lambda a, m: (warp.match_any(values, a, m),))
        return found, np.bool_(True), self._together(context, mark)

    def redux(
        self, context: Context, operation: str, kind: str, value: Value, mask: Value, mark: Any, line: int
    ) -> tuple[Value, Any]:
        """`redux.sync`."""
        values = context.as_warps(value)
        (result,) = self._each(context, mask, line, lambda a, m: (warp.redux(operation, kind, values, a, m),))
        return result, self._together(context, mark)

    def activemask(self, context: Context) -> tuple[Value, Any]:
        """`activemask`: the lanes that happen to execute together."""
        return context.from_warps(warp.activemask(context.active)), False

    def elect(self, context: Context, mask: Value, line: int) -> tuple[Value, Value, Any]:
        """`elect.sync`."""
        leader, chosen = self._each(context, mask, line, warp.elect)
        return leader, chosen, False

    @staticmethod
    def _together(context: Context, mark: Any) -> Any:
        """A result of the whole warp is tainted where any lane's operand is."""
        if mark is False:
            return False
        marks = context.as_warps(np.broadcast_to(mark, context.n)).any(axis=1, keepdims=True)
        return context.from_warps(np.ascontiguousarray(np.broadcast_to(marks, (marks.shape[0], 32))))
