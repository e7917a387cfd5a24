"""From a wrong result to its pattern: which mistake makes numbers wrong in just this way.

`classify` is a pure function of the case and the numbers. Each detector answers for one pattern; the first
that recognises its own wins, most specific first. A test makes each mistake in NumPy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitness.inputs import Case

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

TILES: Final = (8, 16, 32, 64, 128, 256)
_MOST: Final = 0.9  # share of elements that must agree with a hypothesis
_ROWS: Final = 96  # rows and columns looked at by the detectors that recompute
_SHIFTS: Final = (1, 2, 3, 4, 7, 8, 16, 32, 64)

SUGGESTIONS: Final[dict[str, str]] = {
    "nondeterministic": "results differ between identical runs: look for a race, a missing barrier or a missing wait",
    "stale": "nothing was written: check the grid, early returns and the address of Y",
    "zeros": "every result is 0: the accumulator never reaches Y, or the operands are read as 0",
    "nan": "NaN or Inf where the result is finite: uninitialised memory, 0 * Inf, or an overflow of 16 bits",
    "missing tile": "whole tiles are missing: check the grid and the mapping of blocks to tiles",
    "missing row": "whole rows are missing: check the mapping of threads to rows",
    "missing k-slice": "a slice of K is skipped or counted twice: check the bounds of the K loop and its last stage",
    "shifted index": "results belong to a neighbouring index: check offsets and leading dimensions",
    "transposed": "data is read or written in the other layout: check x_layout and y_layout and the ld arguments",
    "tails only": "only elements of the last, partial tile are wrong: check bounds of M, N and K there",
    "wrong tile": "whole tiles are wrong: check which operands these blocks load",
    "wrong row": "whole rows are wrong: check the mapping of threads to rows, empty and full rows",
    "low-precision accumulation": "small errors everywhere: accumulate in float32, between warps and split-K parts too",
    "unclassified": "compare the first wrong element with the reference by hand",
}
"""Pattern -> what it suggests."""


class Diagnosis(NamedTuple):
    """A pattern of `SUGGESTIONS` and one sentence on where to look."""

    pattern: str
    suggestion: str


class _Evidence(NamedTuple):
    """What detectors look at; arrays are (M, N)."""

    case: Case
    got: Floats
    ref: Floats
    wrong: Mask
    hole: Mask  # wrong, and nothing there: unwritten or 0
    written: Mask
    again: Floats | None


def classify(
    case: Case, got: Array, wrong: Mask, *, written: Mask | None = None, again: Array | None = None
) -> Diagnosis:
    """Name the pattern of a wrong result.

    Args:
        case: what was to be computed.
        got: the result, (M, N).
        wrong: (M, N) True where `got` is outside the tolerance; at least one is.
        written: (M, N) True where the kernel wrote; None if unknown.
        again: the result of a second, identical run, if there was one.
    """
    wide = got.astype(np.float64)
    was_written = np.ones(wrong.shape, np.bool_) if written is None else written
    hole = wrong & (~was_written | (wide == 0))
    repeat = None if again is None else again.astype(np.float64)
    evidence = _Evidence(case, wide, case.reference, wrong, hole, was_written, repeat)
    for detector in _DETECTORS:
        if diagnosis := detector(evidence):
            return diagnosis
    return _plain("unclassified")


def _plain(pattern: str, detail: str = "") -> Diagnosis:
    return Diagnosis(pattern, f"{detail}: {SUGGESTIONS[pattern]}" if detail else SUGGESTIONS[pattern])


# -- what is there at all ---------------------------------------------------------------------------------------------


def _nondeterministic(e: _Evidence) -> Diagnosis | None:
    if e.again is None or np.array_equal(e.got, e.again, equal_nan=True):
        return None
    return _plain("nondeterministic")


def _nothing(e: _Evidence) -> Diagnosis | None:
    if not (e.written & e.wrong).any() and not e.written.any():
        return _plain("stale")
    if (e.got[e.written] == 0).all() and _share(e.wrong, e.ref != 0) > _MOST:
        return _plain("zeros")
    return None


def _nonfinite(e: _Evidence) -> Diagnosis | None:
    unexpected = e.wrong & e.written & ~np.isfinite(e.got) & np.isfinite(e.ref)
    if 2 * unexpected.sum() <= e.wrong.sum():
        return None
    return _plain("nan", _tail_note(unexpected))


def _holes(e: _Evidence) -> Diagnosis | None:
    if e.hole.sum() < _MOST * e.wrong.sum():
        return None
    return _tails(e) or _region(e, "missing tile", "missing row")


# -- where it is ------------------------------------------------------------------------------------------------------


def _tails(e: _Evidence) -> Diagnosis | None:
    tail = _tail(e.wrong)
    return None if tail is None else _plain("tails only", tail)


def _tail_note(wrong: Mask) -> str:
    return _tail(wrong) or ""


def _tail(wrong: Mask) -> str | None:
    """In words, the smallest last partial tile that holds all wrong elements."""
    rows, columns = wrong.shape
    starts = [_partial_starts(rows), _partial_starts(columns)]
    for m0, n0 in sorted(itertools.product(*starts), key=lambda s: (rows - s[0]) * columns + (columns - s[1]) * rows):
        if (m0, n0) == (rows, columns) or wrong[:m0, :n0].any():
            continue
        parts = [f"m >= {m0}"] * (m0 < rows) + [f"n >= {n0}"] * (n0 < columns)
        return f"only {' or '.join(parts)} is wrong"
    return None


def _partial_starts(size: int) -> list[int]:
    """Where the last partial tile of each common size begins; `size` itself stands for no tail."""
    return sorted({size} | {size // tile * tile for tile in TILES if size % tile and size > tile})


def _region(e: _Evidence, tile_pattern: str, row_pattern: str) -> Diagnosis | None:
    rows: Mask = np.logical_or.reduce(e.wrong, axis=1)
    whole = e.wrong[rows].mean() > _MOST
    if whole and rows.sum() <= max(2, len(rows) // 8) and not _is_block(np.flatnonzero(rows)):
        return _plain(row_pattern, f"rows {_few(np.flatnonzero(rows))}")
    for tile_m, tile_n in _tile_sizes(e.wrong.shape):
        share = _tile_shares(e.wrong, tile_m, tile_n)
        if ((share == 0) | (share > _MOST)).all() and (share == 0).any():
            m, n = (int(i) for i in np.argwhere(share)[0])
            return _plain(tile_pattern, f"{tile_m}x{tile_n} tiles, first at m = {m * tile_m}, n = {n * tile_n}")
    return _plain(row_pattern, f"rows {_few(np.flatnonzero(rows))}") if whole and not rows.all() else None


def _is_block(indices: NDArray[np.int64]) -> bool:
    """Consecutive, at least 8, starting at a multiple of 8: rather a tile than some rows."""
    return len(indices) >= 8 and indices[0] % 8 == 0 and bool((np.diff(indices) == 1).all())


def _tile_sizes(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Largest first, so that one missing 64x64 tile is not called sixty-four 8x8 ones."""
    choices = [sorted({min(tile, size) for tile in TILES}, reverse=True) for size in shape]
    yield from sorted(itertools.product(choices[0], choices[1]), key=lambda t: -t[0] * t[1])


def _tile_shares(wrong: Mask, tile_m: int, tile_n: int) -> Floats:
    """Share of wrong elements in each tile, ragged ones included."""
    row_starts, column_starts = range(0, wrong.shape[0], tile_m), range(0, wrong.shape[1], tile_n)
    sums = np.add.reduceat(np.add.reduceat(wrong.astype(np.float64), row_starts, axis=0), column_starts, axis=1)
    heights = np.minimum(tile_m, wrong.shape[0] - np.array(row_starts))
    widths = np.minimum(tile_n, wrong.shape[1] - np.array(column_starts))
    return np.asarray(sums / np.outer(heights, widths))


def _few(indices: Array) -> str:
    text = ", ".join(str(int(i)) for i in indices[:4])
    return text + (", ..." if len(indices) > 4 else "")


# -- what it is instead -----------------------------------------------------------------------------------------------


def _share(part: Mask, of: Mask) -> float:
    return float((part & of).sum() / max(1, of.sum()))


def _agrees(e: _Evidence, other: Array, where: Mask) -> bool:
    """True if `got` is `other` at most of the elements `where`, and those are enough to mean something."""
    count = int(where.sum())
    if count < 4:
        return False
    close = np.abs(e.got[where] - other[where]) <= 4 * e.case.out.unit_roundoff * (np.abs(other[where]) + _rms(e.ref))
    return bool(close.mean() > _MOST) and bool(np.any(other[where] != 0))


def _rms(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _transposed(e: _Evidence) -> Diagnosis | None:
    other = np.ascontiguousarray(e.ref).reshape(e.ref.shape[::-1]).T  # Y written in the other layout
    if min(e.ref.shape) > 1 and _agrees(e, other, e.wrong):
        return _plain("transposed", "Y is written in the other layout")
    rows, columns = _sample(e.wrong)
    x = e.case.operands.x.astype(np.float64)
    swapped = np.ascontiguousarray(x).reshape(x.shape[::-1]).T
    if e.case.task.x_layout == "col":
        swapped = np.ascontiguousarray(x.T).reshape(x.shape)
    if min(x.shape) > 1 and _agrees_on(e, _product(e, rows, columns, swapped), rows, columns):
        return _plain("transposed", "X is read in the other layout")
    return None


def _shifted(e: _Evidence) -> Diagnosis | None:
    for axis, name in ((0, "m"), (1, "n")):
        for shift in _signed(_SHIFTS, e.ref.shape[axis]):
            if _agrees(e, np.roll(e.ref, -shift, axis), e.wrong & _inside(e.ref.shape, axis, shift)):
                return _plain("shifted index", f"results are those of {name} {shift:+d}")
    rows, columns = _sample(e.wrong)
    x = e.case.operands.x.astype(np.float64)
    for shift in _signed(_SHIFTS, x.shape[0]):
        moved = np.roll(x, -shift, axis=0)
        moved[x.shape[0] - shift if shift > 0 else 0 : None if shift > 0 else -shift] = 0
        if _agrees_on(e, _product(e, rows, columns, moved), rows, columns):
            return _plain("shifted index", f"W[m, k] meets X[k {shift:+d}, n]")
    return None


def _signed(shifts: Iterable[int], size: int) -> list[int]:
    return [signed for shift in shifts if shift < size for signed in (shift, -shift)]


def _inside(shape: tuple[int, ...], axis: int, shift: int) -> Mask:
    """Elements whose shifted partner exists."""
    index = np.arange(shape[axis]) + shift
    inside = (index >= 0) & (index < shape[axis])
    return np.broadcast_to(inside[:, None] if axis == 0 else inside, shape)


def _sample(wrong: Mask) -> tuple[Array, Array]:
    """Up to 96 rows and 96 columns with wrong elements."""
    rows, columns = np.flatnonzero(wrong.any(axis=1)), np.flatnonzero(wrong.any(axis=0))
    return rows[:: max(1, len(rows) // _ROWS)][:_ROWS], columns[:: max(1, len(columns) // _ROWS)][:_ROWS]


def _product(e: _Evidence, rows: Array, columns: Array, x: Floats, ks: slice = slice(None)) -> Floats:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(e.case.operands.w[rows, ks].astype(np.float64) @ x[ks, columns])


def _agrees_on(e: _Evidence, other: Floats, rows: Array, columns: Array) -> bool:
    whole = np.zeros_like(e.ref)
    where = np.zeros_like(e.wrong)
    grid = np.ix_(rows, columns)
    whole[grid] = other
    where[grid] = e.wrong[grid]
    return _agrees(e, whole, where)


def _k_slice(e: _Evidence) -> Diagnosis | None:
    if not e.case.operands.finite or not np.isfinite(e.got[e.wrong]).all():
        return None
    rows, columns = _sample(e.wrong)
    grid = np.ix_(rows, columns)
    residual = np.where(e.wrong[grid], e.ref[grid] - e.got[grid], 0.0)
    x = e.case.operands.x.astype(np.float64)
    for first, last, part in _slices(e, rows, columns, x):
        seen = np.where(e.wrong[grid], part, 0.0)
        energy, along = float(np.vdot(seen, seen)), float(np.vdot(seen, residual))
        if energy == 0 or along**2 < 0.95 * energy * float(np.vdot(residual, residual)):
            continue
        sign = 1.0 if along > 0 else -1.0
        rest = np.abs(residual - sign * seen)[e.wrong[grid]]
        if (rest <= 4 * e.case.out.unit_roundoff * (np.abs(e.ref[grid]) + _rms(e.ref))[e.wrong[grid]]).mean() > _MOST:
            what = "is missing" if sign > 0 else "is counted twice"
            return _plain("missing k-slice", f"k = {first} .. {last - 1} {what}")
    return None


def _slices(e: _Evidence, rows: Array, columns: Array, x: Floats) -> Iterator[tuple[int, int, Floats]]:
    """First, last and product of every aligned slice of 8 .. K/2, of the ends of K, and of every single k."""
    k_total = x.shape[0]
    edges = [*range(0, k_total, 8), k_total]
    parts = [_product(e, rows, columns, x, slice(a, b)) for a, b in itertools.pairwise(edges)]
    sums = np.concatenate([np.zeros((1, *parts[0].shape)), np.cumsum(parts, axis=0)])
    count = len(parts)
    widths = [2**i for i in range(max(1, count.bit_length()))]
    ranges = [(i, min(i + width, count)) for width in widths for i in range(0, count, width)]
    ranges += [(i, count) for i in range(1, count)] + [(0, i) for i in range(1, count)]
    for first, last in dict.fromkeys(ranges):
        yield edges[first], edges[last], sums[last] - sums[first]
    w = e.case.operands.w
    for k in range(k_total):
        yield k, k + 1, np.outer(w[rows, k].astype(np.float64), x[k, columns])


def _wrong_region(e: _Evidence) -> Diagnosis | None:
    return _region(e, "wrong tile", "wrong row")


def _low_precision(e: _Evidence) -> Diagnosis | None:
    if not np.isfinite(e.got[e.wrong]).all():
        return None
    scale = np.maximum(e.case.scale, np.abs(e.ref))[e.wrong]
    error = np.abs(e.got - e.ref)[e.wrong]
    return _plain("low-precision accumulation") if (error <= 0.05 * scale).all() else None


_DETECTORS: Final[tuple[Callable[[_Evidence], Diagnosis | None], ...]] = (
    _nondeterministic,
    _nothing,
    _nonfinite,
    _holes,
    _transposed,
    _shifted,
    _k_slice,
    _tails,
    _low_precision,
    _wrong_region,
)
