"""Groups of lanes that meet: one group of several, their registers put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fitness.devices.simulator.lanes import Context, Value


def merge(groups: Sequence[tuple[Context, tuple[Value, ...]]]) -> tuple[Context, tuple[Value, ...]]:
    """One group of several at the same block."""
    first = groups[0][0]
    if len(groups) == 2 and first.parent is not None and first.parent is groups[1][0].parent:
        second = groups[1][0]
        if first.n + second.n == first.parent.n:
            return first.parent, _rejoined(groups[0], groups[1], first.parent.n)
    for context, _ in groups:
        context.forget()
    lanes = np.concatenate([context.lanes for context, _ in groups])
    order = np.argsort(lanes, kind="stable")
    chunk = first.chunk
    n = int(lanes.size)
    rank = np.empty(n, dtype=np.intp)
    rank[order] = np.arange(n)
    places = np.split(rank, np.cumsum([context.n for context, _ in groups])[:-1])
    whole = chunk.all
    context = whole if n == whole.n else Context(chunk, lanes[order])
    return context, _joined([values for _, values in groups], places, n)


def _rejoined(
    first: tuple[Context, tuple[Value, ...]], second: tuple[Context, tuple[Value, ...]], n: int
) -> tuple[Value, ...]:
    """Values of the parent of two parts; what neither part has changed is the parent's as it was."""
    ours, theirs = first[0].drawn, second[0].drawn
    places = (first[0].where, second[0].where)
    joined = []
    for a, b in zip(first[1], second[1], strict=True):
        source = ours.get(id(a))
        if source is not None and theirs.get(id(b)) is source:
            joined.append(source)
        elif a is b and type(a) is not np.ndarray:
            joined.append(a)
        else:
            joined.append(_column((a, b), places, n))
    first[0].forget()
    second[0].forget()
    return tuple(joined)


def _joined(values: Sequence[tuple[Value, ...]], places: Sequence[Any], n: int) -> tuple[Value, ...]:
    return tuple([_column(column, places, n) for column in zip(*values, strict=True)])


def _column(column: tuple[Value, ...], places: Sequence[Any], n: int) -> Value:
    """One register of several groups."""
    first = column[0]
    if not isinstance(first, np.ndarray) and all(
        v is first or (not isinstance(v, np.ndarray) and _same(v, first)) for v in column[1:]
    ):
        return first
    out = np.empty(n, dtype=_dtype(column))
    for value, place in zip(column, places, strict=True):
        out[place] = value
    return out


def _dtype(column: Sequence[Value]) -> np.dtype[Any]:
    """Type that holds all values of a register; taints may differ in type (a bool and a code of wgmma.py)."""
    first = np.asarray(column[0]).dtype
    others = [dtype for value in column[1:] if (dtype := np.asarray(value).dtype) != first]
    return np.result_type(first, *others) if others else first


def _same(a: Value, b: Value) -> bool:
    if a is b:
        return True
    return bool(a.tobytes() == b.tobytes()) if isinstance(a, np.floating) else bool(a == b)
