"""Loads and stores of a simulated launch: bounds and alignment always, initialisation and races where asked.

Every access goes through `load`, `store` or `locate` with a `Site`, the static description of its
instruction. Lanes of one instruction nearly always touch one buffer: that buffer is remembered per site, and
one comparison checks all lanes. Anything else takes the slow path, which finds the culprit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.faults import Findings, Stop, finding
from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.places import Place, Places
from fitness.devices.simulator.regions import (
    LOCAL_WINDOW,
    SHARED_WINDOW,
    SPACE_SHIFT,
    Region,
    Window,
)
from fitness.devices.simulator.reports import Reports
from fitness.devices.simulator.sites import Observer, Site, first, spread

Array = NDArray[Any]
_U64 = np.uint64
_WINDOWS = {1: ("shared", SHARED_WINDOW), 2: ("local", LOCAL_WINDOW)}


class Memory(Reports):
    """All memory a launch sees.

    Args:
        regions: buffers. track: follow uninitialised values. findings: where non-fatal ones go.
    """

    def __init__(self, regions: Sequence[Region], findings: Findings, *, track: bool) -> None:
        super().__init__(regions)
        self.findings, self.track = findings, track
        self.windows: dict[str, Window] = {}
        self.observers: list[Observer] = []
        self.places = Places()
        self.races: Any = None
        self.clusters: Any = None
        self.counting: Any = None  # the observer, where it is the only one
        #: While observers see a store: tells the lanes whose value differs from what memory holds before it.
        self.changes: Callable[[], NDArray[np.bool_]] | None = None

    # ------------------------------------------------------------ public

    def load(self, context: Context, address: Value, site: Site) -> tuple[Value, ...]:
        """Values of a load, one per element (and when tracking, as many taints after them)."""
        space = site.space
        if space in ("shared", "local"):
            if site.cluster:
                context, address = self.clusters.within(context, address, site)
            return self._load_window(context, address, site, self.windows[space])
        if space == "generic":
            number = self._space_of(address, site)
            if number is None:
                return self._load_parts(context, address, site)
            if number in _WINDOWS:
                name, base = _WINDOWS[number]
                context, address = self._owner(context, address - _U64(base), site, name)
                return self._load_window(context, address, site, self.windows[name])
        return self._load_region(context, address, site)

    def store(
        self, context: Context, address: Value, values: tuple[Value, ...], taints: tuple[Value, ...] | None, site: Site
    ) -> None:
        """Store one or more elements per lane. `taints` is None where all values are initialised."""
        space = site.space
        if taints is not None and all(t is False for t in taints):
            taints = None
        if space in ("shared", "local"):
            if site.cluster:
                context, address = self.clusters.within(context, address, site)
            self._store_window(context, address, values, taints, site, self.windows[space])
            return
        if space == "generic":
            number = self._space_of(address, site)
            if number is None:
                self._store_parts(context, address, values, taints, site)
                return
            if number in _WINDOWS:
                name, base = _WINDOWS[number]
                context, address = self._owner(context, address - _U64(base), site, name)
                self._store_window(context, address, values, taints, site, self.windows[name])
                return
        self._store_region(context, address, values, taints, site)

    def touch(self, context: Context, address: Value, site: Site) -> None:
        """An access whose values do not matter: what a load or a store checks and observers see."""
        name = site.space
        if name == "generic":
            number = self._space_of(address, site)
            if number is None:
                self._touch_parts(context, address, site)
                return
            if number in _WINDOWS:
                name, base = _WINDOWS[number]
                context, address = self._owner(context, address - _U64(base), site, name)
        if name not in self.windows:
            self._touch_region(context, address, site)
            return
        if name == "shared" and self.counting is not None and isinstance(address, np.ndarray):
            window, place = self.windows[name], self.places.of(address, context)
            inside = place.fits(site.offset, site.bytes, site.mask, window.start, window.start + window.size)
            if inside and self.counting.shared_at(context, place, site, window.start):
                return
        relative, _, _ = self._window_place(context, address, site, self.windows[name])
        if relative is not None:
            for observer in self.observers:
                observer.shared(context, spread(relative, context), site, site.bytes)

    def _touch_region(self, context: Context, address: Value, site: Site) -> None:
        if self._counted(context, address, site) is not None:
            return
        found = self.locate(context, address, site)
        if found is None:
            self._touch_parts(context, address, site)
            return
        region, relative = found
        if site.verb != "reads":
            self.check_writable(context, region, relative, site)
        for observer in self.observers:
            observer.global_(context, region, spread(relative, context), site, site.bytes)

    def _counted(self, context: Context, address: Value, site: Site) -> Place | None:
        """Count an access to one buffer, where counting is all that is asked for and nothing is odd; its addresses."""
        if self.counting is None or not isinstance(address, np.ndarray):
            return None
        place = self.places.of(address, context)
        region = site.region
        if region is None or not region.base <= place.low + site.offset < region.end:
            region = self.find(place.low + site.offset)
        if region is None or (site.verb != "reads" and not region.writable):
            return None
        if not place.fits(site.offset, site.bytes, site.mask, region.base, region.end):
            return None
        site.remember(region)
        return place if self.counting.global_at(context, region, place, site) else None

    def _touch_parts(self, context: Context, address: Array, site: Site) -> None:
        for part, where in self.parts(context, address, site):
            self.touch(part, address[where], site)

    def _owner(self, context: Context, address: Value, site: Site, space: str) -> tuple[Context, Value]:
        """Lanes and address as the memory of the block sees them that a generic address (less its window) names."""
        if space == "shared" and context.chunk.cluster_size > 1:
            found: tuple[Context, Value] = self.clusters.within(context, address, site)
            return found
        return context, address

    def tainted_address(self, context: Context, taint: Value, site: Site) -> None:
        """An address depends on an uninitialised value."""
        self._tainted(context, taint, site.line, f"the address of `{site.text}`")

    def tainted_branch(self, context: Context, taint: Value, line: int) -> None:
        """A branch depends on an uninitialised value."""
        self._tainted(context, taint, line, "a branch condition")

    def _tainted(self, context: Context, taint: Value, line: int, what: str) -> None:
        if self.findings.knows("uninitialised", line, what) or not np.any(taint):
            return
        lane = context.lanes[int(np.argmax(taint)) if isinstance(taint, np.ndarray) else 0]
        self.findings.add(
            "uninitialised", f"{what} depends on an uninitialised value in {self.where(context, lane)}", line, what
        )

    # ------------------------------------------------------------ global, const, param

    def locate(self, context: Context, address: Value, site: Site) -> tuple[Region, Value] | None:
        """The buffer all lanes touch and their byte offsets into it (uint64 array or int).

        Returns:
            None where lanes touch several buffers.

        Raises:
            Stop: out of bounds or misaligned.
        """
        region = site.region
        if not isinstance(address, np.ndarray):
            where = (int(address) + site.offset) % (1 << 64)
            region = self.find(where)
            if region is None or where > region.end - site.bytes:
                raise self.outside(context, context.lanes[0], where, site)
            if where & site.mask:
                raise self.misaligned(context, context.lanes[0], where, site, region)
            site.remember(region)
            return region, where - region.base
        if region is not None:
            relative = address - site.origin
            if relative.max() > site.limit:
                region = None
        if region is None:
            region = self._search(context, address, site)
            if region is None:
                return None
            relative = address - site.origin
        if site.mask and (int(np.bitwise_or.reduce(relative)) | region.base) & site.mask:
            self._check_alignment(context, address, site, region)
        return region, relative

    def _search(self, context: Context, address: Array, site: Site) -> Region | None:
        absolute = address + _U64(site.offset % (1 << 64))
        bases = np.array(self.bases, dtype=np.uint64)
        ends = np.array([r.end for r in self.regions], dtype=np.uint64)
        number = np.searchsorted(bases, absolute, side="right") - 1
        bad = (number < 0) | (absolute > ends[number] - _U64(min(site.bytes, 1 << 62)))
        bad |= absolute + _U64(site.bytes) > ends[number]
        if bad.any():
            first = int(np.argmax(bad))
            raise self.outside(context, context.lanes[first], int(absolute[first]), site)
        if (number != number[0]).any():
            return None
        region = self.regions[int(number[0])]
        site.remember(region)
        return region

    def _check_alignment(self, context: Context, address: Array, site: Site, region: Region) -> None:
        absolute = address + _U64(site.offset % (1 << 64))
        bad = (absolute & _U64(site.mask)) != 0
        if bad.any():
            first = int(np.argmax(bad))
            raise self.misaligned(context, context.lanes[first], int(absolute[first]), site, region)

    def _quick(self, context: Context, address: Value, site: Site) -> tuple[Region, Array] | None:
        """Buffer and element indices less the offset's where nothing is odd and no observer asks for byte offsets."""
        if self.observers or not isinstance(address, np.ndarray):
            return None
        place = self.places.of(address, context)
        region = site.region
        if region is None or not region.base <= place.low + site.offset < region.end:
            region = self.find(place.low + site.offset)
            if region is None:
                return None
        if not place.fits(site.offset, site.bytes, site.mask, region.base, region.end):
            return None
        site.remember(region)
        return region, place.in_region(region, site.shift)

    def _load_region(self, context: Context, address: Value, site: Site) -> tuple[Value, ...]:
        quick = self._quick(context, address, site)
        if quick is not None:
            return self._fetch(quick[0].views, quick[0].shadow, quick[1], site, site.offset >> site.shift)
        place = self._counted(context, address, site)
        if place is not None and site.region is not None:
            index = place.in_region(site.region, site.shift)
            return self._fetch(site.region.views, site.region.shadow, index, site, site.offset >> site.shift)
        found = self.locate(context, address, site)
        if found is None:
            return self._load_parts(context, address, site)
        region, relative = found
        for observer in self.observers:
            observer.global_(context, region, spread(relative, context), site, site.bytes)
        if isinstance(relative, np.ndarray):
            index = (relative >> site.shift_u).view(np.int64)
        else:
            index = relative >> site.shift
        return self._fetch(region.views, region.shadow, index, site)

    def _store_region(
        self, context: Context, address: Value, values: tuple[Value, ...], taints: tuple[Value, ...] | None, site: Site
    ) -> None:
        found = self.locate(context, address, site)
        if found is None:
            self._store_parts(context, address, values, taints, site)
            return
        region, relative = found
        self.check_writable(context, region, relative, site)
        if isinstance(relative, np.ndarray):
            index: Any = (relative >> site.shift_u).view(np.int64)
        else:
            index = relative >> site.shift
        if self.observers:
            self.changes = lambda: self._differs(region.views, index, values, site, context.n)
            for observer in self.observers:
                observer.global_(context, region, spread(relative, context), site, site.bytes)
            self.changes = None
        if taints is not None and region.role == "output":
            self.tainted_output(context, taints, site, region, relative)
            taints = None
        self._deposit(region.views, region.shadow, index, values, taints, site)
        if self.races is not None and self.races.collided is not None:
            self.races.settle(context, self._differs(region.views, index, values, site, context.n), site)

    def check_writable(self, context: Context, region: Region, relative: Value, site: Site) -> None:
        """Inputs and constants must not be written.

        Raises:
            Stop: the buffer is an input.
        """
        if not region.writable:
            message = f"{self.element(region, first(relative))} is an input and is written in "
            raise Stop("fault", finding("input_written", message + self.where(context, context.lanes[0]), site.line))

    def tainted_output(
        self, context: Context, taints: tuple[Value, ...], site: Site, region: Region, relative: Value
    ) -> None:
        """An uninitialised value reaches an output."""
        if self.findings.knows("uninitialised", site.line, region.name):
            return
        for taint in taints:
            if np.any(taint):
                place = int(np.argmax(taint)) if isinstance(taint, np.ndarray) else 0
                offset = int(relative[place]) if isinstance(relative, np.ndarray) else relative
                element = self.element(region, offset)
                where = self.where(context, context.lanes[place])
                self.findings.add(
                    "uninitialised",
                    f"an uninitialised value is written to {element} in {where}",
                    site.line,
                    region.name,
                )
                return

    # ------------------------------------------------------------ shared, local

    def offsets(self, context: Context, address: Value, site: Site, window: Window) -> Value:
        """Byte offsets into each owner's part of a window (unsigned array or int).

        Raises:
            Stop: out of bounds or misaligned.
        """
        low = window.start - site.offset
        if isinstance(address, np.ndarray):
            bits = 8 * address.dtype.itemsize
            relative = address - address.dtype.type(low % (1 << bits))
            if relative.max() > window.size - site.bytes or window.size < site.bytes:
                place = int(np.argmax(relative > window.size - site.bytes)) if window.size >= site.bytes else 0
                raise self.outside_window(context, context.lanes[place], int(address[place]), site, window)
            if site.mask and int(np.bitwise_or.reduce(relative)) & site.mask:
                place = int(np.argmax((relative & address.dtype.type(site.mask)) != 0))
                raise self.misaligned(context, context.lanes[place], int(address[place]) + site.offset, site, window)
            return relative
        one = int(address) - low
        if not 0 <= one <= window.size - site.bytes:
            raise self.outside_window(context, context.lanes[0], int(address), site, window)
        if one & site.mask:
            raise self.misaligned(context, context.lanes[0], int(address) + site.offset, site, window)
        return one

    def _index(self, context: Context, relative: Value, site: Site, window: Window) -> Array:
        base = context.window(window.space, site.shift)
        if not isinstance(relative, np.ndarray):
            return np.asarray(base + (relative >> site.shift))
        if relative.dtype.itemsize == 8:
            return np.asarray((relative >> site.shift_u).view(np.int64) + base)
        return np.asarray((relative >> np.uint32(site.shift)) + base)

    def _load_window(self, context: Context, address: Value, site: Site, window: Window) -> tuple[Value, ...]:
        relative, index, further = self._window_place(context, address, site, window)
        if relative is not None:
            for observer in self.observers:
                observer.shared(context, spread(relative, context), site, site.bytes)
        return self._fetch(window.views, window.shadow, index, site, further)

    def _window_place(
        self, context: Context, address: Value, site: Site, window: Window
    ) -> tuple[Value | None, Any, int]:
        """Byte offsets into the window (None where nobody asks for them), element indices, and what to add to these."""
        watched = bool(self.observers) and window.space == "shared"
        if isinstance(address, np.ndarray):
            place = self.places.of(address, context)
            if place.fits(site.offset, site.bytes, site.mask, window.start, window.start + window.size):
                index, further = place.in_window(window, site.shift), site.offset >> site.shift
                if not watched:
                    return None, index, further
                low = (window.start - site.offset) % (1 << (8 * address.dtype.itemsize))
                return address - address.dtype.type(low), index, further
        relative = self.offsets(context, address, site, window)
        return relative if watched else None, self._index(context, relative, site, window), 0

    def _store_window(
        self,
        context: Context,
        address: Value,
        values: tuple[Value, ...],
        taints: tuple[Value, ...] | None,
        site: Site,
        window: Window,
    ) -> None:
        relative, index, further = self._window_place(context, address, site, window)
        index = index + further if further else index
        if relative is not None:
            self.changes = lambda: self._differs(window.views, index, values, site, context.n)
            for observer in self.observers:
                observer.shared(context, spread(relative, context), site, site.bytes)
            self.changes = None
        self._deposit(window.views, window.shadow, index, values, taints, site)
        if self.races is not None and self.races.collided is not None and window.space == "shared":
            self.races.settle(context, self._differs(window.views, index, values, site, context.n), site)

    def _differs(
        self, views: dict[int, Array], index: Any, values: tuple[Value, ...], site: Site, lanes: int
    ) -> NDArray[np.bool_]:
        """Lanes whose stored value is not what memory holds now."""
        places = np.broadcast_to(index, lanes)
        differs = np.zeros(lanes, dtype=bool)
        flat = views[site.width]
        for place, value in enumerate(values):
            held = flat.take(places * site.count + place)
            given = np.broadcast_to(value, lanes)
            differs |= held != np.ascontiguousarray(given).view(held.dtype)
        return differs

    # ------------------------------------------------------------ elements

    def _fetch(
        self, views: dict[int, Array], shadow: dict[int, Array] | None, index: Any, site: Site, further: int = 0
    ) -> tuple[Value, ...]:
        """What lies at the indices, plus `further`: a view that begins there costs less than a sum per lane."""
        count = site.count
        if further < 0:
            index, further = index + further, 0
        elements = views[site.width]
        if further:
            elements = elements[further * count :]
        if elements.dtype != site.dtype:
            elements = elements.view(site.dtype)
        if count == 1:
            values: tuple[Value, ...] = (elements.take(index) if isinstance(index, np.ndarray) else elements[index],)
        else:
            rows = elements[: elements.size // count * count].reshape(-1, count)
            if isinstance(index, np.ndarray):
                values = tuple(np.ascontiguousarray(rows.take(index, axis=0).T))
            else:
                values = tuple(rows[index])
        if not self.track:
            return values
        return values + self._taints(shadow, index, site, further)

    def _taints(self, shadow: dict[int, Array] | None, index: Any, site: Site, further: int) -> tuple[Value, ...]:
        clean = (False,) * site.count
        if shadow is None:
            return clean
        flat = shadow[site.width]
        if further:
            flat = flat[further * site.count :]
        if site.count == 1:
            marks = flat.take(index)
            return (marks != 0,) if marks.any() else clean
        marks = flat[: flat.size // site.count * site.count].reshape(-1, site.count).take(index, axis=0)
        if not marks.any():
            return clean
        return tuple(np.ascontiguousarray((marks != 0).T)) if marks.ndim == 2 else tuple(m != 0 for m in marks)

    def _deposit(
        self,
        views: dict[int, Array],
        shadow: dict[int, Array] | None,
        index: Any,
        values: tuple[Value, ...],
        taints: tuple[Value, ...] | None,
        site: Site,
    ) -> None:
        count = site.count
        elements = views[site.width]
        if elements.dtype != site.dtype:
            elements = elements.view(site.dtype)
        if not isinstance(index, np.ndarray):  # all lanes write one place: the last one stays
            values = tuple(v[-1] if isinstance(v, np.ndarray) else v for v in values)
            taints = taints and tuple(t[-1] if isinstance(t, np.ndarray) else t for t in taints)
        if count == 1:
            elements[index] = values[0]
        else:
            rows = elements[: elements.size // count * count].reshape(-1, count)
            if isinstance(index, np.ndarray):
                block = np.empty((index.size, count), dtype=site.dtype)
                for place, value in enumerate(values):
                    block[:, place] = value
                rows[index] = block
            else:
                rows[index] = values
        if shadow is not None:
            self._mark(shadow, index, taints, site)

    def _mark(self, shadow: dict[int, Array], index: Any, taints: tuple[Value, ...] | None, site: Site) -> None:
        flat = shadow[site.width]
        full = flat.dtype.type((1 << (8 * site.width)) // 255)
        if site.count == 1:
            flat[index] = 0 if taints is None else np.asarray(taints[0]) * full
            return
        rows = flat[: flat.size // site.count * site.count].reshape(-1, site.count)
        if taints is None:
            rows[index] = 0
            return
        shape = (index.size,) if isinstance(index, np.ndarray) else ()
        marks = [np.broadcast_to(np.asarray(taint) * full, shape) for taint in taints]
        rows[index] = np.stack(marks, axis=-1)

    # ------------------------------------------------------------ several spaces or buffers at once

    def _space_of(self, address: Value, site: Site) -> int | None:
        if not isinstance(address, np.ndarray):
            return (int(address) + site.offset) >> SPACE_SHIFT
        low = (int(address.min()) + site.offset) >> SPACE_SHIFT
        high = (int(address.max()) + site.offset) >> SPACE_SHIFT
        if low == high or (low >= 0x7F and high >= 0x7F) or high > 0x80:
            return high
        return None

    def parts(self, context: Context, address: Array, site: Site) -> list[tuple[Context, NDArray[np.intp]]]:
        """Sub-groups of lanes that touch one buffer or space each."""
        absolute = address + _U64(site.offset % (1 << 64))
        number = np.searchsorted(np.array(self.bases, dtype=np.uint64), absolute, side="right")
        key = (absolute >> _U64(SPACE_SHIFT)).astype(np.int64) * (len(self.regions) + 1) + number
        found = []
        for one in np.unique(key):
            where = np.flatnonzero(key == one)
            found.append((Context(context.chunk, context.lanes[where]), where))
        return found

    def _load_parts(self, context: Context, address: Array, site: Site) -> tuple[Value, ...]:
        width = site.count * (2 if self.track else 1)
        out = [np.zeros(context.n, dtype=site.dtype if place < site.count else np.bool_) for place in range(width)]
        for part, where in self.parts(context, address, site):
            for target, value in zip(out, self.load(part, address[where], site), strict=True):
                target[where] = value
        return tuple(out)

    def _store_parts(
        self, context: Context, address: Array, values: tuple[Value, ...], taints: tuple[Value, ...] | None, site: Site
    ) -> None:
        def chosen(items: tuple[Value, ...], where: NDArray[np.intp]) -> tuple[Value, ...]:
            return tuple(v[where] if isinstance(v, np.ndarray) else v for v in items)

        for part, where in self.parts(context, address, site):
            some = chosen(taints, where) if taints is not None else None
            self.store(part, address[where], chosen(values, where), some, site)
