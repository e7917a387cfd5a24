"""From a wrong result to its pattern: which mistake makes numbers wrong in just this way.

`classify` is a pure function of the case and the numbers. Each detector answers for one pattern; the first
that recognises its own wins, most specific first. A test makes each mistake in NumPy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fitness.inputs import Case

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

TILES: Final = (8, 16, 32, 64, 128, 256)
_MOST: Final = 0.9  # share of elements that must agree with a hypothesis
_LINES: Final = 48  # rows and columns looked at by the detectors that recompute
_POINTS: Final = 4096  # elements looked at by those that compare
_SLICES: Final = 512  # slices of K looked at
_FINEST: Final = 8  # smallest tile
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


class _Evidence:
    """What detectors look at; full arrays are (M, N), samples keep a diagnosis at full size below a second.

    Attributes:
        hole: wrong, and nothing there: unwritten or 0.
        points: rows and columns (P,) of up to 4096 wrong elements, evenly spread.
        rows, columns: up to 48 of each with wrong elements, for the detectors that recompute.
    """

    def __init__(self, case: Case, got: Floats, wrong: Mask, written: Mask, again: Floats | None) -> None:
        self.case, self.got, self.wrong, self.written, self.again = case, got, wrong, written, again
        self.ref = case.reference
        self.hole = wrong & (~written | (got == 0))

    @cached_property
    def points(self) -> tuple[Indices, Indices]:
        flat = np.flatnonzero(self.wrong)
        spread = flat[np.linspace(0, len(flat) - 1, min(len(flat), _POINTS)).astype(np.int64)]
        rows, columns = np.divmod(spread, self.wrong.shape[1])
        return rows, columns

    @cached_property
    def rows(self) -> Indices:
        return _thinned(np.flatnonzero(np.logical_or.reduce(self.wrong, axis=1)))

    @cached_property
    def columns(self) -> Indices:
        return _thinned(np.flatnonzero(np.logical_or.reduce(self.wrong, axis=0)))

    @cached_property
    def grid(self) -> tuple[Array, ...]:
        return np.ix_(self.rows, self.columns)

    @cached_property
    def w(self) -> Floats:
        """The sampled rows of W, (R, K)."""
        return self.case.operands.w[self.rows].astype(np.float64)

    @cached_property
    def x(self) -> Floats:
        """X at the sampled columns, (K, C)."""
        return self.case.operands.x[:, self.columns].astype(np.float64)

    @cached_property
    def slack(self) -> float:
        """Absolute difference below which a hypothesis is as good as the numbers can show."""
        finite = self.ref[np.isfinite(self.ref)]
        rms = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
        return 4 * self.case.out.unit_roundoff * rms

    def agrees(self, got: Floats, other: Floats) -> bool:
        """True if the results `got` are mostly those of `other`, and there are enough to mean something."""
        if got.size < 4 or not np.any(other != 0):
            return False
        allowed = 4 * self.case.out.unit_roundoff * np.abs(other) + self.slack
        with np.errstate(invalid="ignore"):
            return bool((np.abs(got - other) <= allowed).mean() > _MOST)

    def agrees_on_grid(self, other: Floats) -> bool:
        """The same for recomputed results at the sampled rows and columns, (R, C)."""
        where = self.wrong[self.grid]
        return self.agrees(self.got[self.grid][where], other[where])


def _thinned(indices: Indices) -> Indices:
    return indices[:: -(-len(indices) // _LINES)]


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
    evidence = _Evidence(case, wide, wrong, was_written, None if again is None else again.astype(np.float64))
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
    counts = _tile_sums(e.wrong.astype(np.float64), _FINEST, _FINEST)
    for tile_m, tile_n in _tile_sizes(e.wrong.shape):
        sums = _tile_sums(counts, -(-tile_m // _FINEST), -(-tile_n // _FINEST))
        share = sums / _tile_areas(e.wrong.shape, tile_m, tile_n)
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


def _tile_sums(values: Floats, height: int, width: int) -> Floats:
    """Sums over tiles of that many elements, ragged ones included."""
    by_rows = np.add.reduceat(values, range(0, values.shape[0], height), axis=0)
    return np.asarray(np.add.reduceat(by_rows, range(0, values.shape[1], width), axis=1))


def _tile_areas(shape: tuple[int, ...], height: int, width: int) -> Floats:
    heights = np.minimum(height, shape[0] - np.arange(0, shape[0], height))
    widths = np.minimum(width, shape[1] - np.arange(0, shape[1], width))
    return np.outer(heights, widths).astype(np.float64)


def _few(indices: Array) -> str:
    text = ", ".join(str(int(i)) for i in indices[:4])
    return text + (", ..." if len(indices) > 4 else "")


# -- what it is instead -----------------------------------------------------------------------------------------------


def _share(part: Mask, of: Mask) -> float:
    return float((part & of).sum() / max(1, of.sum()))


def _transposed(e: _Evidence) -> Diagnosis | None:
    m, n = e.points
    rows, columns = e.ref.shape
    # (m, n) of the one layout lies where (m', n') of the other does
    other_m, other_n = np.divmod(n * rows + m, columns)
    if min(e.ref.shape) > 1 and e.agrees(e.got[m, n], e.ref[other_m, other_n]):
        return _plain("transposed", "Y is written in the other layout")
    x = e.case.operands.x
    if e.case.task.x_layout == "col":
        swapped = np.ascontiguousarray(x.T).reshape(x.shape)
    else:
        swapped = np.ascontiguousarray(x).reshape(x.shape[::-1]).T
    if min(x.shape) > 1 and e.agrees_on_grid(_product(e.w, swapped[:, e.columns].astype(np.float64))):
        return _plain("transposed", "X is read in the other layout")
    return None


def _shifted(e: _Evidence) -> Diagnosis | None:
    rows, columns = e.ref.shape
    m, n = e.points
    for name, step_m, step_n in (("m", 1, 0), ("n", 0, 1)):
        for shift in _signed(_SHIFTS, rows * step_m + columns * step_n):
            other_m, other_n = m + shift * step_m, n + shift * step_n
            inside = (other_m >= 0) & (other_m < rows) & (other_n >= 0) & (other_n < columns)
            if e.agrees(e.got[m, n][inside], e.ref[other_m[inside], other_n[inside]]):
                return _plain("shifted index", f"results are those of {name} {shift:+d}")
    depth = e.x.shape[0]
    for shift in _signed(_SHIFTS, depth):
        first, last = max(0, -shift), min(depth, depth - shift)
        if e.agrees_on_grid(_product(e.w[:, first:last], e.x[first + shift : last + shift])):
            return _plain("shifted index", f"W[m, k] meets X[k {shift:+d}, n]")
    return None


def _signed(shifts: Iterable[int], size: int) -> list[int]:
    return [signed for shift in shifts if shift < size for signed in (shift, -shift)]


def _product(w: Floats, x: Floats) -> Floats:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(w @ x)


def _k_slice(e: _Evidence) -> Diagnosis | None:
    if not e.case.operands.finite or not np.isfinite(e.got[e.wrong]).all():
        return None
    where = e.wrong[e.grid]
    residual = np.where(where, e.ref[e.grid] - e.got[e.grid], 0.0)
    energy = float(np.vdot(residual, residual))
    for first, last, part in _slices(e):
        seen = np.where(where, part, 0.0)
        seen_energy, along = float(np.vdot(seen, seen)), float(np.vdot(seen, residual))
        if seen_energy == 0 or along**2 < 0.95 * seen_energy * energy:
            continue
        sign = 1.0 if along > 0 else -1.0
        if e.agrees(e.got[e.grid][where], (e.ref[e.grid] - sign * seen)[where]):
            what = "is missing" if sign > 0 else "is counted twice"
            return _plain("missing k-slice", f"k = {first} .. {last - 1} {what}")
    return None


def _slices(e: _Evidence) -> Iterator[tuple[int, int, Floats]]:
    """First, last and product of every aligned slice of 8 .. K/2, of the ends of K, and of every single k."""
    depth = e.x.shape[0]
    step = max(8, -(-depth // (_SLICES * 8)) * 8)
    edges = [*range(0, depth, step), depth]
    parts = [_product(e.w[:, a:b], e.x[a:b]) for a, b in itertools.pairwise(edges)]
    sums = np.concatenate([np.zeros((1, *parts[0].shape)), np.cumsum(parts, axis=0)])
    count = len(parts)
    widths = [2**i for i in range(max(1, count.bit_length()))]
    ranges = [(i, min(i + width, count)) for width in widths for i in range(0, count, width)]
    ranges += [(i, count) for i in range(1, count)] + [(0, i) for i in range(1, count)]
    for first, last in dict.fromkeys(ranges):
        yield edges[first], edges[last], sums[last] - sums[first]
    for k in range(depth):
        yield k, k + 1, np.outer(e.w[:, k], e.x[k])


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
