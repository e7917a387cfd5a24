"""Elements of memory at indices: taken, put, compared, and their marks of what is uninitialised."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.lanes import Value
from fitness.devices.simulator.sites import Site

Array = NDArray[Any]


def fetch(
    views: dict[int, Array], shadow: dict[int, Array] | None, index: Any, site: Site, further: int = 0, *, track: bool
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
    if not track:
        return values
    return values + taints_at(shadow, index, site, further)


def taints_at(shadow: dict[int, Array] | None, index: Any, site: Site, further: int) -> tuple[Value, ...]:
    """Which elements at the indices are uninitialised; `False` where none is."""
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


def deposit(
    views: dict[int, Array],
    shadow: dict[int, Array] | None,
    index: Any,
    values: tuple[Value, ...],
    taints: tuple[Value, ...] | None,
    site: Site,
) -> None:
    """Put values at the indices; where all lanes write one place, the last one stays."""
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
        mark(shadow, index, taints, site)


def mark(shadow: dict[int, Array], index: Any, taints: tuple[Value, ...] | None, site: Site) -> None:
    """Note which elements at the indices are uninitialised now."""
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


def differs(
    views: dict[int, Array], index: Any, values: tuple[Value, ...], site: Site, lanes: int
) -> NDArray[np.bool_]:
    """Lanes whose stored value is not what memory holds now."""
    places = np.broadcast_to(index, lanes)
    found = np.zeros(lanes, dtype=bool)
    flat = views[site.width]
    for place, value in enumerate(values):
        held = flat.take(places * site.count + place)
        given = np.broadcast_to(value, lanes)
        found |= held != np.ascontiguousarray(given).view(held.dtype)
    return found
