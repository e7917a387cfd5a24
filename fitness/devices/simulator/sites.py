"""Static description of a memory instruction, and what may watch the accesses it makes."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.regions import Region

Array = NDArray[Any]
_U64 = np.uint64


class Strayed(Exception):  # noqa: N818 - control flow of the engine, not an error of it
    """An access left the buffers that its address was taken to come from (slicing.py)."""


class Site:
    """One static memory instruction.

    Attributes:
        index: number among the entry's memory sites. verb: "reads", "writes", "updates" (atomics).
        space: "global", "shared", "local", "const", "param" or "generic".
        width: bytes of an element; count: elements per lane; bytes: both multiplied; shift: log2(bytes).
        offset: constant added to the address. dtype: of the elements as the register holds them.
        cluster: the address is in the shared::cluster window.
        origins: parameters and variables its address comes from, allowed: names of their buffers; None: not known.
    """

    __slots__ = (
        "allowed", "atomic", "bytes", "cluster", "count", "dtype", "index", "limit", "line", "lo", "mask", "offset",
        "origin", "origins", "region", "shift", "shift_u", "space", "text", "verb", "width",
    )  # fmt: skip

    def __init__(
        self, index: int, verb: str, space: str, dtype: Any, count: int, offset: int, line: int, text: str
    ) -> None:
        self.index, self.verb, self.space, self.offset, self.line, self.text = index, verb, space, offset, line, text
        self.dtype = np.dtype(dtype)
        self.width, self.count = self.dtype.itemsize, count
        self.bytes = self.width * count
        self.shift = self.bytes.bit_length() - 1
        self.mask = self.bytes - 1
        self.shift_u = _U64(self.shift)
        self.region: Region | None = None
        self.origin = _U64(0)
        self.limit = -1
        self.atomic = False
        self.cluster = False
        self.origins: frozenset[str] | None = None
        self.allowed: frozenset[str] | None = None

    def remember(self, region: Region) -> None:
        """The buffer this instruction touched last.

        Raises:
            Strayed: it is none of those allowed.
        """
        if self.allowed is not None and region.name not in self.allowed:
            raise Strayed(region.name)
        self.region = region
        self.origin = _U64((region.base - self.offset) % (1 << 64))
        self.limit = region.size - self.bytes


class Observer(Protocol):
    """Sees every checked access (race detector, counters). `sees_landing`: also when an async copy lands."""

    sees_landing: bool

    def shared(self, context: Context, relative: Array, site: Site, bytes_each: int) -> None:
        """Lanes touch shared memory at `relative` (n,) byte offsets into their block's."""

    def global_(self, context: Context, region: Region, relative: Array, site: Site, bytes_each: int) -> None:
        """Lanes touch a buffer at `relative` (n,) byte offsets."""


def spread(relative: Value, context: Context) -> Array:
    """One offset per lane."""
    if isinstance(relative, np.ndarray):
        return relative.view(np.int64) if relative.dtype.itemsize == 8 else relative.astype(np.int64)
    return np.full(context.n, relative, dtype=np.int64)


def first(relative: Value) -> int:
    """The first lane's offset."""
    return int(relative[0]) if isinstance(relative, np.ndarray) else int(relative)
