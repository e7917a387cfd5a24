"""Atomic and reduction instructions on buffers and shared memory, right for lanes that collide on one address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.arithmetic import instruction
from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.regions import LOCAL_WINDOW, SHARED_WINDOW, Region
from fitness.devices.simulator.rounding import flush_f32
from fitness.devices.simulator.sites import Site, spread

Array = NDArray[Any]
_UFUNCS = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
}


class Atomics:
    """Read-modify-write operations of one launch."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def update(
        self,
        context: Context,
        address: Value,
        site: Site,
        operation: str,
        kind: str,
        operands: tuple[Value, ...],
        mark: Any,
        needed: bool,
    ) -> tuple[Array, Any]:
        """Perform `operation` for every lane, colliding lanes in lane order.

        Returns:
            (old value, its taint); meaningless unless `needed`.
        """
        memory, n = self.memory, context.n
        space = site.space
        if space == "generic":
            number = memory._space_of(address, site)
            if number is None:
                return self._parts(context, address, site, operation, kind, operands, mark, needed)
            if number in (1, 2):
                space = "shared" if number == 1 else "local"
                address = address - np.uint64(SHARED_WINDOW if number == 1 else LOCAL_WINDOW)
        if space == "shared" and (site.cluster or context.chunk.cluster_size > 1):
            context, address = memory.clusters.within(context, address, site)
        region: Region | None = None
        if space in ("shared", "local"):
            window = memory.windows[space]
            relative = memory.offsets(context, address, site, window)
            views, shadow = window.views, window.shadow
            index = np.broadcast_to(memory._index(context, relative, site, window), n)
            for observer in memory.observers:
                observer.shared(context, spread(relative, context), site, site.bytes)
        else:
            found = memory.locate(context, address, site)
            if found is None:
                return self._parts(context, address, site, operation, kind, operands, mark, needed)
            region, relative = found
            memory.check_writable(context, region, relative, site)
            offsets = spread(relative, context)
            for observer in memory.observers:
                observer.global_(context, region, offsets, site, site.bytes)
            views, shadow = region.views, region.shadow
            index = offsets >> site.shift
        cells = _rows(views[site.width], site.count)
        sources = [np.ascontiguousarray(np.broadcast_to(v, n)).view(cells.dtype) for v in operands]
        if site.count == 2:
            sources = [np.stack(pair, axis=-1) for pair in zip(sources[::2], sources[1::2], strict=True)]
        taint = self._taint(context, region, shadow, index, mark, site)
        flush = region is not None and (operation, kind) == ("add", "f32")
        old = apply(cells, index, operation, kind, sources, needed, flush=flush)
        return (old.view(site.dtype) if needed else old), taint

    def touch(self, context: Context, address: Value, site: Site) -> None:
        """An update whose values do not matter."""
        if site.space == "shared" and context.chunk.cluster_size > 1:
            context, address = self.memory.clusters.within(context, address, site)
        self.memory.touch(context, address, site)

    def update_wide(
        self, context: Context, address: Value, site: Site, operation: str, operands: tuple[Value, ...], mark: Any
    ) -> tuple[Array, Array, Any]:
        """`cas` or `exch` of 16 bytes: `operands` are low and high halves in turn.

        Returns:
            (low half, high half, taint) of the old value.
        """
        old, taint = self.update(context, address, site, operation, "b128", operands, mark, needed=True)
        return old[:, 0].copy(), old[:, 1].copy(), taint

    def _taint(
        self,
        context: Context,
        region: Region | None,
        shadow: dict[int, Array] | None,
        index: Array,
        mark: Any,
        site: Site,
    ) -> Any:
        """Taint of the old values; the cells become tainted where old value or operand is."""
        if shadow is None:
            return False
        marks = _rows(shadow[site.width], site.count)
        old = marks.take(index, axis=0) != 0
        if site.count > 1:
            old = old.any(axis=-1)
        tainted = old | mark
        if not self.memory.track or not np.any(tainted):
            marks[index] = 0
            return False
        if region is not None and region.role == "output":
            self.memory.tainted_output(
                context, (np.broadcast_to(tainted, context.n),), site, region, index << site.shift
            )
            marks[index] = 0
            return False
        full = marks.dtype.type((1 << (8 * site.width)) // 255)
        marks[index] = tainted * full if site.count == 1 else (tainted * full)[:, None]
        return old

    def _parts(
        self,
        context: Context,
        address: Array,
        site: Site,
        operation: str,
        kind: str,
        operands: tuple[Value, ...],
        mark: Any,
        needed: bool,
    ) -> tuple[Array, Any]:
        out = np.zeros((context.n, 2) if site.count == 2 else context.n, dtype=site.dtype)
        taint = np.zeros(context.n, dtype=bool)
        for part, where in self.memory.parts(context, address, site):
            chosen = tuple(v[where] if isinstance(v, np.ndarray) else v for v in operands)
            some = mark[where] if isinstance(mark, np.ndarray) else mark
            old, marks = self.update(part, address[where], site, operation, kind, chosen, some, needed)
            if needed:
                out[where], taint[where] = old, marks
        return out, taint if taint.any() else False


def _rows(flat: Array, count: int) -> Array:
    """Elements, or vectors of `count` elements in rows."""
    return flat if count == 1 else flat[: flat.size // count * count].reshape(-1, count)


def apply(
    cells: Array, index: Array, operation: str, kind: str, sources: list[Array], needed: bool, *, flush: bool = False
) -> Array:
    """Update cells[index] in lane order; the old values if needed.

    `flush`: for f32 sums in global memory, where subnormal operands and results are zeros of their sign (PTX ISA,
    "atom").
    """
    dtype = _value_type(kind)
    typed = cells.view(dtype)
    ufunc = _UFUNCS.get(operation)
    plain = kind not in ("f16", "f16x2", "bf16", "bf16x2")
    if flush and _never_subnormal(typed[index], sources[0].view(dtype)):
        flush = False
    if not needed and ufunc is not None and plain and not flush:
        ufunc.at(typed, index, sources[0].view(dtype))
        return cells[:0]
    function = _add_flushed if flush else bits_function(operation, kind)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(starts, ordered.size))
    old = np.empty((index.size, *cells.shape[1:]), dtype=cells.dtype)
    most = int(lengths.max())
    if most > 64 and operation == "add" and plain and dtype.kind in "iu":
        return _counted(cells, index, sources[0], order, starts, lengths)
    for turn in range(most):
        lanes = order[starts[lengths > turn] + turn]
        where = index[lanes]
        before = cells[where]
        old[lanes] = before
        cells[where] = function(before, *(s[lanes] for s in sources))
    return old


def _never_subnormal(*operands: Array) -> bool:
    """Whether no sum of some of these f32 numbers can be subnormal: all are zeros or multiples of 2^-125."""
    sizes = [np.abs(x[x != 0]) for x in operands]
    return all(size.size == 0 or not (size.min() < np.float32(2.0**-102)) for size in sizes)


def _add_flushed(old: Array, value: Array) -> Array:
    """`add.ftz.f32` on bit patterns."""
    total = flush_f32(old.view(np.float32)) + flush_f32(value.view(np.float32))
    return np.asarray(flush_f32(total)).view(old.dtype)


def _counted(cells: Array, index: Array, values: Array, order: Array, starts: Array, lengths: Array) -> Array:
    """Integer add with many collisions: old values are running sums."""
    ordered = values[order]
    running = np.cumsum(ordered, dtype=cells.dtype) - ordered
    base = np.repeat(running[starts], lengths)
    first = cells[index[order]]
    old = np.empty(index.size, dtype=cells.dtype)
    old[order] = first + (running - base).astype(cells.dtype)
    np.add.at(cells, index, values)
    return old


def _value_type(kind: str) -> np.dtype[Any]:
    names = {"f32": "f4", "f64": "f8", "s32": "i4", "s64": "i8", "b64": "u8", "u64": "u8", "b128": "u8"}
    small = {"f16": "u2", "bf16": "u2", "b16": "u2", "u16": "u2"}
    return np.dtype(names.get(kind) or small.get(kind) or "u4")


def _compare_and_swap(old: Array, compare: Array, new: Array) -> Array:
    swapped: Array = np.where(old == compare, new, old)
    return swapped


def _compare_and_swap_rows(old: Array, compare: Array, new: Array) -> Array:
    swapped: Array = np.where((old == compare).all(axis=-1, keepdims=True), new, old)
    return swapped


def bits_function(operation: str, kind: str) -> Callable[..., Array]:
    """The operation on bit patterns as memory holds them (first the old value)."""
    dtype = _value_type(kind)
    if operation == "exch":
        return lambda _old, new: new
    if operation == "cas":
        return _compare_and_swap_rows if kind == "b128" else _compare_and_swap
    if operation == "inc":
        return lambda old, limit: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))
    if operation == "dec":
        return lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))
    if kind in ("f16", "f16x2", "bf16", "bf16x2"):
        rounding = ".rn" if operation == "add" else ""
        return instruction(f"{operation}{rounding}.{kind}")
    ufunc = _UFUNCS[operation]

    def run(old: Array, value: Array) -> Array:
        result: Array = ufunc(old.view(dtype), value.view(dtype)).view(old.dtype)
        return result

    return run
