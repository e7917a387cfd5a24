"""`wgmma` at run time: warpgroup-wide products of matrices in shared memory and registers.

Products and sums are formed in float64 and rounded once per instruction to the accumulator type, as in
mma_values.py. A result is there at once, but its registers count as unready until `wgmma.wait_group`: their taint is
a code, twice the wgmma-group of the warp (counted from 1) plus one where the value is uninitialised as well.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator import mma_layout, mma_sparse, mma_values
from fitness.devices.simulator.faults import Stop, finding, unsupported
from fitness.devices.simulator.lanes import WARP, WARPGROUP, Chunk, Context, Value
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.vector_clocks import PRODUCT
from fitness.devices.simulator.wgmma_form import ROWS, Multiplication, dealt, gathered, spread, unpacked
from fitness.devices.simulator.wgmma_layout import UnsupportedLayout, addresses

Array = NDArray[Any]
_KEPT = 64  # groups of a warp that may be in flight


@functools.cache
def _a_index(k: int, bits: int) -> Array:
    """Place in a warp's (32, registers, elements) fragment of each element of its 16 x k of A."""
    return mma_layout.gather_map("a", k, bits)


class Wgmma:
    """Warpgroup-wide products of the chunk under way."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.memory: Memory = machine.memory
        self._committed: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # groups of each warp
        self._landed: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        #: Vector clocks: of each warp's last product, and at the end of its last groups.
        self._issued: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._closed: NDArray[np.int64] = np.zeros((0, _KEPT), dtype=np.int64)

    def begin(self, chunk: Chunk) -> None:
        """A new chunk."""
        warps = chunk.live.size // WARP
        self._committed, self._landed, self._issued = (np.zeros(warps, dtype=np.int64) for _ in range(3))
        self._closed = np.zeros((warps, _KEPT), dtype=np.int64)

    # ---- groups

    def need(self, context: Context, line: int, text: str) -> None:
        """Whole warpgroups must execute it.

        Raises:
            Stop: part of one is elsewhere.
        """
        if not context.whole_warpgroups:
            who = self.memory.where(context, context.lanes[0])
            message = f"only part of the warpgroup of {who} (or of another) executes `{text}`"
            cure = "All 128 threads of a warpgroup must execute it, and warpgroups begin at multiples of 128."
            raise Stop("fault", finding("barrier_divergence", message, line, cure))

    def commit(self, context: Context) -> None:
        """`wgmma.commit_group`."""
        warps = context.warps
        self._committed[warps] += 1
        self._closed[warps, self._committed[warps] % _KEPT] = self._issued[warps]

    def wait(self, context: Context, left_open: int) -> None:
        """`wgmma.wait_group`: all groups of these warps but the last `left_open` are complete."""
        warps = context.warps
        self._landed[warps] = np.maximum(self._landed[warps], self._committed[warps] - left_open)
        races = self.machine.races
        if races is not None and races.clocks is not None:
            clocks = self._closed[warps, self._landed[warps] % _KEPT]
            slots = warps // context.chunk.warps_per_block
            races.ordered_anew().finished(warps, slots, np.where(self._landed[warps] > 0, clocks, 0))

    def mark(self, context: Context, code: Any, line: int) -> Any:
        """Taint of a register that is used, from its code (see above); reports one that is not ready."""
        if isinstance(code, np.ndarray):
            if code.dtype == np.bool_:
                return code
        elif isinstance(code, bool | np.bool_):
            return code
        early = (np.asarray(code) >> 1) > self._landed[context.lanes // WARP]
        if early.any():
            lane = context.lanes[int(np.argmax(early))]
            message = f"{self.memory.where(context, lane)} uses a result of wgmma.mma_async that is not waited for"
            cure = "Commit the group (wgmma.commit_group) and wait for it (wgmma.wait_group) first."
            self.memory.findings.add("wgmma", message, line, "wait", suggestion=cure)
        spoiled = np.asarray(code) & 1 != 0
        if not early.any() and not spoiled.any():
            return False
        return np.broadcast_to(early | spoiled, context.n)

    def _ticket(self, context: Context) -> Any:
        groups = self._committed[context.warps] + 1
        return int(groups[0]) if groups.min() == groups.max() else self._committed[context.lanes // WARP] + 1

    # ---- the product

    def multiply(
        self,
        context: Context,
        what: Multiplication,
        d: tuple[Value, ...],
        a: tuple[Value, ...],
        b: Value,
        metadata: Value,
        accumulate: Value,
        marks: tuple[tuple[Any, ...], tuple[Any, ...], Any],
    ) -> tuple[Any, ...]:
        """`wgmma.mma_async`.

        Args:
            context: lanes, whole warpgroups.
            what: the instruction.
            d: accumulator registers.
            a: registers of A, or its one descriptor.
            b: descriptor of B.
            metadata: of sparse A.
            accumulate: scale-d: add to `d`, else replace it.
            marks: codes of `d`, taints of `a`, taint of `metadata` (when tracking).

        Returns:
            The accumulators, and their codes when tracking.
        """
        self.need(context, what.site.line, what.site.text)
        if what.unfenced:
            message = f"`{what.site.text.split(' ')[0]}`: {what.unfenced}"
            cure = "Put wgmma.fence.sync.aligned between the last write of those registers and this instruction."
            self.memory.findings.add("wgmma", message, what.site.line, "fence", suggestion=cure)
        groups = context.n // WARPGROUP
        left, bad_rows = self._left(context, what, a, marks[1])
        right, bad_columns = self._right(context, what, b)
        if what.sparse:
            tile = self._sparse(context, what, left, right, metadata)
            if self.memory.track and marks[2] is not False:
                quads = np.broadcast_to(marks[2], context.n).reshape(groups, 4, WARP).any(axis=2)
                bad_rows = _either(bad_rows, np.repeat(quads, 16, axis=1))
        else:
            with np.errstate(invalid="ignore", over="ignore"):
                tile = np.matmul(left, right)
        if what.negate:
            tile = -tile
        kept = _flag(accumulate, context)
        if kept.any():
            with np.errstate(invalid="ignore", over="ignore"):
                tile += np.where(kept[:, None, None], gathered(what, d, groups), 0.0)
        results = dealt(what, tile)
        if not self.memory.track:
            return results
        return results + self._codes(context, what, marks[0], kept, bad_rows, bad_columns)

    def _sparse(self, context: Context, what: Multiplication, left: Array, right: Array, metadata: Value) -> Array:
        """Product of stored values with the rows of B that their indices choose."""
        kind = mma_layout.TYPES[what.a_type]
        layout = mma_sparse.sparse_metadata(what.k, kind.bits)
        words = np.broadcast_to(metadata, context.n).reshape(-1, WARP)
        if self.memory.track and not self.memory.findings.knows("invalid_metadata", what.site.line):
            valid = mma_sparse.valid(what.k, kind.bits, words, what.selector)
            if not valid.all():
                who = self.memory.where(context, context.lanes[WARP * int(np.argmin(valid))])
                fault = (
                    "hold neither 0b0100 nor 0b1110 for a pair"
                    if kind.bits == 32
                    else "name one column of a group twice"
                )
                message = f"the metadata of {who}'s warp {fault}"
                self.memory.findings.add("invalid_metadata", message, what.site.line, severity="warning")
        groups = left.shape[0]
        index = layout.moved.take(mma_sparse.indices(layout, words, what.selector))
        columns = (layout.base % what.k + index).reshape(groups, ROWS, what.stored)
        with np.errstate(invalid="ignore", over="ignore"):
            if np.isfinite(right).all():
                dense = np.zeros((groups, ROWS, what.k))
                np.put_along_axis(dense, columns, left, axis=2)
                product: Array = np.matmul(dense, right)
                return product
            out = np.empty((groups, ROWS, what.n))  # no product with a row that is not chosen: Inf and NaN stay away
            for group in range(groups):
                out[group] = np.einsum("rs,rsn->rn", left[group], right[group][columns[group]])
            return out

    # ---- operands

    def _left(
        self, context: Context, what: Multiplication, a: tuple[Value, ...], marks: tuple[Any, ...]
    ) -> tuple[Array, Array | None]:
        """A (stored values) as (warpgroups, 64, columns) float64, and rows with uninitialised elements."""
        columns, element = what.held(what.stored, what.a_type)
        if what.shared:
            values, bad = self._shared(context, what, a[0], ROWS, columns, element, k_major=not what.trans_a)
            return unpacked(what, values), None if bad is None else np.asarray(bad.any(axis=2))
        kind = mma_layout.TYPES[element]
        registers = [np.broadcast_to(r, context.n).reshape(-1, WARP) for r in a]
        values = mma_values.decoded(kind, registers, _a_index(columns, kind.bits))
        bad_rows = None
        if self.memory.track and any(m is not False for m in marks):
            rows, _ = mma_layout.a_fragment(columns, kind.bits)
            bad_rows = np.zeros((context.n // WARP, 16), dtype=bool)
            for place, mark in enumerate(marks):
                warp, lane = np.nonzero(np.broadcast_to(mark, context.n).reshape(-1, WARP))
                bad_rows[warp, rows[lane, place, 0]] = True
            bad_rows = bad_rows.reshape(-1, ROWS)
        return unpacked(what, values.reshape(-1, ROWS, columns)), bad_rows

    def _right(self, context: Context, what: Multiplication, b: Value) -> tuple[Array, Array | None]:
        """B as (warpgroups, K, N) float64, and columns with uninitialised elements."""
        columns, element = what.held(what.k, what.b_type)
        values, bad = self._shared(context, what, b, what.n, columns, element, k_major=not what.trans_b)
        return unpacked(what, values).transpose(0, 2, 1), None if bad is None else np.asarray(bad.any(axis=2))

    def _shared(
        self, context: Context, what: Multiplication, descriptor: Value, rows: int, columns: int, element: str,
        *, k_major: bool,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """An operand in shared memory, (warpgroups, rows, columns) float64, and what of it is uninitialised."""
        given = np.broadcast_to(descriptor, context.n).reshape(-1, WARPGROUP)
        if (given != given[:, :1]).any():
            message = f"threads of one warpgroup give different matrix descriptors to `{what.site.text}`"
            raise Stop("fault", finding("wgmma", message, what.site.line))
        chosen, which = np.unique(given[:, 0], return_inverse=True)
        window = self.memory.windows["shared"]
        width = mma_layout.TYPES[element].bits // 8
        base = context.slot[::WARPGROUP] * window.stride
        values = np.empty((base.size, rows, columns))
        bad: Array | None = None
        for number, bits in enumerate(chosen.tolist()):
            offsets = self._offsets(context, what, bits, (rows, columns, width), k_major=k_major)
            mine = np.flatnonzero(which == number)
            index = (base[mine, None, None] + offsets) // width
            values[mine] = _decode(element, window.views[width].take(index))
            if window.shadow is not None:
                marks = window.shadow[width].take(index) != 0
                if marks.any():
                    bad = np.zeros(values.shape, dtype=bool) if bad is None else bad
                    bad[mine] = marks
            self._seen(context, what, mine, offsets)
        return values, bad

    def _offsets(
        self, context: Context, what: Multiplication, bits: int, shape: tuple[int, int, int], *, k_major: bool
    ) -> Array:
        """Byte offsets of an operand's elements in a block's shared memory."""
        window = self.memory.windows["shared"]
        try:
            offsets = addresses(bits, *shape, k_major=k_major) - window.start
        except UnsupportedLayout as error:
            raise unsupported(f"{error} in `{what.site.text}`", what.site.line) from error
        low, high = int(offsets.min()), int(offsets.max()) + shape[2]
        if low < 0 or high > window.size:
            who = self.memory.where(context, context.lanes[0])
            message = f"{who} reads bytes {low} to {high} of shared memory, which has {window.size}, by a descriptor"
            raise Stop("fault", finding("out_of_bounds", f"{message}: `{what.site.text}`", what.site.line))
        return offsets

    def _seen(self, context: Context, what: Multiplication, groups: NDArray[np.intp], offsets: Array) -> None:
        """Tell the race detector what the first thread of each warpgroup reads, chunk by chunk."""
        races = self.machine.races
        if races is None:
            return
        chunks = np.unique(offsets >> 4) << 4
        for group in groups.tolist():
            lane = context.lanes[WARPGROUP * group : WARPGROUP * group + 1]
            one = Context(context.chunk, lane)
            if self.machine.proxies is not None:
                who = f"the wgmma of {self.memory.where(one, one.lanes[0])}"
                self.machine.proxies.read(one, int(one.slot[0]), chunks, what.site, who, WARPGROUP // WARP)
            tick = races.bulk(one, int(one.slot[0]), chunks, what.site, PRODUCT)
            if tick is not None:
                first = int(lane[0]) // WARP
                self._issued[first : first + WARPGROUP // WARP] = tick[1]

    # ---- taint

    def _codes(
        self, context: Context, what: Multiplication, old: tuple[Any, ...], kept: NDArray[np.bool_],
        bad_rows: Array | None, bad_columns: Array | None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Codes of the accumulators: in flight, and uninitialised where an operand is."""
        code = 2 * self._ticket(context)
        stale = any(c is not False and bool(np.any(np.asarray(c) & 1)) for c in old) and bool(kept.any())
        if bad_rows is None and bad_columns is None and not stale:
            return (code,) * what.registers
        groups = context.n // WARPGROUP
        bad = np.zeros((groups, ROWS, what.n), dtype=bool)
        if bad_rows is not None:
            bad |= bad_rows[:, :, None]
        if bad_columns is not None:
            bad |= bad_columns[:, None, :]
        dealt = spread(bad)
        if what.d_type == "f16":
            dealt = dealt[0::2] | dealt[1::2]
        adding = np.repeat(kept, WARPGROUP)
        return tuple(
            code + (dealt[place] | ((np.asarray(old[place]) & 1 != 0) & adding)).astype(np.int64)
            for place in range(what.registers)
        )


def _either(a: Array | None, b: Array) -> Array | None:
    if not b.any():
        return a
    return b if a is None else a | b


def _flag(value: Value, context: Context) -> NDArray[np.bool_]:
    """A predicate of each warpgroup."""
    flags: NDArray[np.bool_] = np.broadcast_to(np.asarray(value, dtype=bool), context.n).reshape(-1, WARPGROUP)[:, 0]
    return flags


def _decode(element: str, bits: Array) -> Array:
    if element == "tf32":  # the lower 13 bits are ignored
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return mma_values.decode(element, bits)
