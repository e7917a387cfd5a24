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

from fitness.devices.simulator.elements import deposit, differs, fetch
from fitness.devices.simulator.faults import Findings, Stop, finding
from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.located import Located
from fitness.devices.simulator.places import Place, Places
from fitness.devices.simulator.regions import (
    LOCAL_WINDOW,
    SHARED_WINDOW,
    SPACE_SHIFT,
    Region,
    Window,
)
from fitness.devices.simulator.sites import Observer, Site, first, spread

Array = NDArray[Any]
_U64 = np.uint64
_WINDOWS = {1: ("shared", SHARED_WINDOW), 2: ("local", LOCAL_WINDOW)}


class Memory(Located):
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
            return fetch(quick[0].views, quick[0].shadow, quick[1], site, site.offset >> site.shift, track=self.track)
        place = self._counted(context, address, site)
        if place is not None and site.region is not None:
            index = place.in_region(site.region, site.shift)
            return fetch(
                site.region.views, site.region.shadow, index, site, site.offset >> site.shift, track=self.track
            )
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
        return fetch(region.views, region.shadow, index, site, track=self.track)

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
            self.changes = lambda: differs(region.views, index, values, site, context.n)
            for observer in self.observers:
                observer.global_(context, region, spread(relative, context), site, site.bytes)
            self.changes = None
        if taints is not None and region.role == "output":
            self.tainted_output(context, taints, site, region, relative)
            taints = None
        deposit(region.views, region.shadow, index, values, taints, site)
        if self.races is not None and self.races.collided is not None:
            self.races.settle(context, differs(region.views, index, values, site, context.n), site, index, region)

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
        return fetch(window.views, window.shadow, index, site, further, track=self.track)

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
            self.changes = lambda: differs(window.views, index, values, site, context.n)
            for observer in self.observers:
                observer.shared(context, spread(relative, context), site, site.bytes)
            self.changes = None
        deposit(window.views, window.shadow, index, values, taints, site)
        if self.races is not None and self.races.collided is not None and window.space == "shared":
            self.races.settle(context, differs(window.views, index, values, site, context.n), site, index, None)

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
