"""Matrix loads and stores of warps: ldmatrix, stmatrix, movmatrix, wmma.load / store / mma."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.fragments import wmma_mma
from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.regions import SHARED_WINDOW
from fitness.devices.simulator.sites import Site, spread
from fitness.devices.simulator.warps import Warps

Array = NDArray[Any]
_LANE = np.arange(32)


class Matrices:
    """Warp-wide matrix moves of one launch. `warps` is set by the machine."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.warps: Warps | None = None

    def _rows(self, context: Context, address: Value, site: Site, count: int) -> tuple[Array, Any]:
        """Word index (G, 8 * count) of every row of 16 bytes."""
        assert self.warps is not None
        self.warps.need_whole(context, site.line, site.text)
        window = self.memory.windows["shared"]
        givers = context.octets(count)
        full = np.ascontiguousarray(context.as_warps(address)[:, : 8 * count]).reshape(-1)
        if site.space == "generic":
            full = full - np.uint64(SHARED_WINDOW)
        relative = self.memory.offsets(givers, full, site, window)
        for observer in self.memory.observers:
            observer.shared(givers, spread(relative, givers), site, site.bytes)
        words = (spread(relative, givers) >> 2) + givers.window("shared", 2)
        return words.reshape(-1, 8 * count), window

    def touch(self, context: Context, address: Value, site: Site, count: int) -> None:
        """`ldmatrix` or `stmatrix` of values that do not matter."""
        self._rows(context, address, site, count)

    @staticmethod
    def _halves(words: Array, matrix: int, half: int) -> Array:
        """Half-word index (G, 32) of element `half` of every lane of a transposed matrix."""
        return np.asarray(words[:, 8 * matrix + 2 * (_LANE % 4) + half] * 2 + _LANE // 4)

    def load(self, context: Context, address: Value, site: Site, count: int, transposed: bool) -> tuple[Value, ...]:
        """`ldmatrix.xN{.trans}`: registers (and taints when tracking)."""
        words, window = self._rows(context, address, site, count)
        values, taints = [], []
        places: tuple[Array, ...]
        for matrix in range(count):
            if transposed:
                low, high = (self._halves(words, matrix, half) for half in (0, 1))
                data = window.views[2]
                value = data.take(low).astype(np.uint32) | (data.take(high).astype(np.uint32) << np.uint32(16))
                places, width = (low, high), 2
            else:
                index = words[:, 8 * matrix + _LANE // 4] + _LANE % 4
                value = window.views[4].take(index)
                places, width = (index,), 4
            values.append(context.from_warps(value))
            if self.memory.track:
                marks = [window.shadow[width].take(place) != 0 for place in places]
                together = np.logical_or.reduce(marks)
                taints.append(context.from_warps(together) if together.any() else False)
        return (*values, *taints)

    def store(
        self,
        context: Context,
        address: Value,
        site: Site,
        values: tuple[Value, ...],
        taints: tuple[Any, ...],
        transposed: bool,
    ) -> None:
        """`stmatrix.xN{.trans}`."""
        words, window = self._rows(context, address, site, len(values))
        for matrix, (value, taint) in enumerate(zip(values, taints, strict=True)):
            whole = np.ascontiguousarray(context.as_warps(value))
            mark = np.broadcast_to(taint, context.n).reshape(-1, 32)
            if transposed:
                for half in (0, 1):
                    index = self._halves(words, matrix, half)
                    window.views[2][index] = (whole >> np.uint32(16 * half)).astype(np.uint16)
                    if window.shadow is not None:
                        window.shadow[2][index] = mark * np.uint16(0x0101)
            else:
                index = words[:, 8 * matrix + _LANE // 4] + _LANE % 4
                window.views[4][index] = whole
                if window.shadow is not None:
                    window.shadow[4][index] = mark * np.uint32(0x01010101)

    def transpose(self, context: Context, value: Value, mark: Any, line: int) -> tuple[Value, Any]:
        """`movmatrix.trans`: an 8 x 8 matrix of 16-bit elements spread over the warp, transposed."""
        assert self.warps is not None
        self.warps.need_whole(context, line, "movmatrix")
        matrix = np.ascontiguousarray(context.as_warps(value)).view(np.uint16).reshape(-1, 8, 8)
        moved = np.ascontiguousarray(matrix.transpose(0, 2, 1)).reshape(-1, 64).view(np.uint32)
        return context.from_warps(moved), self.warps._together(context, mark)

    # ---- wmma

    def wmma_load(
        self, context: Context, base: Value, pitch: Value, places: tuple[Array, Array], site: Site
    ) -> tuple[Value, ...]:
        """`wmma.load`: registers (and taints when tracking), element by element.

        An element lies `places[0]` times the pitch and `places[1]` bytes behind the base.
        """
        assert self.warps is not None
        self.warps.need_whole(context, site.line, site.text)
        values, taints = [], []
        registers, elements = places[0].shape[1:]
        for register in range(registers):
            parts, marks = [], []
            for element in range(elements):
                address = self._element(context, base, pitch, places, register, element)
                loaded = self.memory.load(context, address, site)
                parts.append(loaded[0])
                marks.append(loaded[1] if self.memory.track else False)
            if elements == 1:
                values.append(parts[0])
            else:
                step = 8 * site.width
                words = [part.astype(np.uint32) << np.uint32(place * step) for place, part in enumerate(parts)]
                values.append(functools.reduce(np.bitwise_or, words))
            taints.append(functools.reduce(operator.or_, marks))
        return (*values, *taints) if self.memory.track else tuple(values)

    def wmma_store(
        self,
        context: Context,
        base: Value,
        pitch: Value,
        places: tuple[Array, Array],
        site: Site,
        values: tuple[Value, ...],
        taints: tuple[Any, ...] | None,
    ) -> None:
        """`wmma.store`."""
        assert self.warps is not None
        self.warps.need_whole(context, site.line, site.text)
        registers, elements = places[0].shape[1:]
        for register in range(registers):
            for element in range(elements):
                address = self._element(context, base, pitch, places, register, element)
                value = values[register]
                if elements > 1:
                    value = (value >> np.uint32(8 * site.width * element)).astype(site.dtype)
                mark = None if taints is None else (taints[register],)
                self.memory.store(context, address, (value,), mark, site)

    def wmma_touch(self, context: Context, base: Value, pitch: Value, places: tuple[Array, Array], site: Site) -> None:
        """`wmma.load` or `wmma.store` of values that do not matter."""
        assert self.warps is not None
        self.warps.need_whole(context, site.line, site.text)
        registers, elements = places[0].shape[1:]
        for register in range(registers):
            for element in range(elements):
                self.memory.touch(context, self._element(context, base, pitch, places, register, element), site)

    @staticmethod
    def pitch(stride: Value, bits: int) -> Value:
        """Bytes (uint64) from one row or column to the next, for a stride in elements of so many bits.

        Rounded up: a stride that is no whole number of bytes gives misaligned rows, and is found as that.
        """
        wide = stride.astype(np.uint64) if hasattr(stride, "astype") else np.uint64(stride)
        return (wide * np.uint64(bits) + np.uint64(7)) >> np.uint64(3)

    @staticmethod
    def _element(
        context: Context,
        base: Value,
        pitch: Value,
        places: tuple[Array, Array],
        register: int,
        element: int,
    ) -> Array:
        """Address of one element of every lane's fragment."""
        major = np.tile(places[0][:, register, element].astype(np.uint64), context.n // 32)
        minor = np.tile(places[1][:, register, element].astype(np.uint64), context.n // 32)
        offset = major * pitch + minor
        return np.asarray(base + offset if base.dtype.itemsize == 8 else base + offset.astype(np.uint32))

    def wmma(
        self,
        context: Context,
        shape: str,
        kind: str,
        c_type: str,
        d_type: str,
        values: tuple[tuple[Value, ...], ...],
        marks: tuple[Any, ...],
        line: int,
        saturate: bool = False,
        bits: str = "",
    ) -> tuple[Value, ...]:
        """`wmma.mma`: registers of d; a tainted operand taints the warp's whole tile."""
        assert self.warps is not None
        self.warps.need_whole(context, line, f"wmma.mma {shape}")
        a, b, c = ([context.as_warps(v) for v in part] for part in values)
        product = wmma_mma(shape, kind, c_type, d_type, a, b, c, saturate=saturate, bits=bits)
        result = tuple(context.from_warps(d) for d in product)
        if not self.memory.track:
            return result
        taint: Any = False
        for part in marks:
            for mark in part or ():
                taint = taint | mark
        return result + (self.warps._together(context, taint),) * len(result)
