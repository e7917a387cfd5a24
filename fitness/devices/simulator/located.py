"""Which buffer the lanes of an instruction touch, and where in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.reports import Reports
from fitness.devices.simulator.sites import Site

Array = NDArray[Any]
_U64 = np.uint64


class Located(Reports):
    """Finds buffers by address, one comparison for all lanes where an instruction stays in the buffer it was in."""

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
