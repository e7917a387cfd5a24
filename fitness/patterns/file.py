"""The pattern of a matrix in a file: where it has its nonzeros. Values are the task's to draw, as for every pattern."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fitness.expressions import nearest
from fitness.patterns.pattern import AnyShape, PatternError, Shape, refuse_unknown

if TYPE_CHECKING:
    from fitness.matrices import Mask

_KEPT = 4  # masks of files in memory
_ROWS_AT_ONCE = 256
_ENOUGH = 8  # nonzeros that a row of a piece has on average, if the matrix has them
_THIN = 1 / 64  # density below which columns are scaled rather than left out
_FILLED = 1 / 8  # density up to which they are
_ALIGNED = 64  # the largest block that evo knows: pieces begin at multiples of it where they are large enough


@dataclass(frozen=True)
class FilePattern(AnyShape):
    """The nonzeros of the matrix in a file, at the matrix's own shape exactly.

    At other shapes (kernels are checked and costed at small ones) it is a piece of it, beginning at random and wrapping
    around: M neighbouring rows, and K neighbouring columns where those have enough nonzeros. In thinner matrices more
    columns, up to all of them, are scaled to K, so that row lengths and bands survive; columns that meet are one.
    """

    path: str
    matrix: str
    sha256: str
    kind: ClassVar[str] = "file"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Read the file's table and the file.

        Keys `path`, of a file that `fitness.matrices` reads (relative to the working directory); `matrix`, its name
        where the file has several; and `sha256`, optional: the pattern's `digest`, so that a changed file is refused.
        """
        refuse_unknown(spec, ("path", "matrix", "sha256"), cls.kind)
        for key in ("path", "matrix", "sha256"):
            if not isinstance(spec.get(key, ""), str):
                raise PatternError(f'{key} = {spec[key]!r} is not a string; write path = "matrix.mtx"')
        if not spec.get("path"):
            raise PatternError('path is missing; write path = "matrix.mtx"')
        made = cls(spec["path"], spec.get("matrix", ""), spec.get("sha256", ""))
        if made.source.nnz == 0:
            raise PatternError(f"{made.path} has no nonzero; choose another matrix")
        if made.sha256 and made.digest != made.sha256:
            raise PatternError(
                f"{made.path} has other nonzeros than when its sha256 was noted: it is {made.digest} now; "
                f"restore the file, or change sha256"
            )
        return made

    @property
    def source(self) -> Mask:
        """All of the matrix; raises PatternError if it cannot be read (any more)."""
        return _read(self.path, self.matrix)

    @property
    def digest(self) -> str:
        """sha256 (hex) of shape and nonzero places."""
        return _digest(self.source)

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """The matrix, or a piece of it; never empty."""
        source = self.source
        if shape == source.shape:
            return source.window(slice(None), slice(None))
        chosen = _some(source.shape[0], shape[0], int(rng.integers(source.shape[0])), rng)
        if not source.row_counts[chosen].any():
            chosen = _some(source.shape[0], shape[0], int(rng.choice(np.flatnonzero(source.row_counts))), rng)
        width, first = self._width(shape[1]), 0
        if width < source.shape[1]:
            row = rng.choice(np.flatnonzero(source.row_counts[chosen]))
            first = _some(source.shape[1], width, int(rng.choice(self._nonzeros(chosen[row : row + 1])[1])), rng)[0]
        mask = np.zeros(shape, np.bool_)
        for begin in range(0, shape[0], _ROWS_AT_ONCE):
            row, column = self._nonzeros(chosen[begin : begin + _ROWS_AT_ONCE])
            column = (column - first) % source.shape[1]
            inside = column < width
            mask[begin + row[inside], column[inside] * shape[1] // width] = True
        return mask

    def _nonzeros(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Place among these rows, and column, of each of their nonzeros."""
        indptr, indices = self.source.to_csr()
        lengths = self.source.row_counts[rows]
        row = np.repeat(np.arange(len(rows)), lengths)
        within = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return row, indices[np.repeat(indptr[rows], lengths) + within].astype(np.int64)

    def _width(self, columns: int) -> int:
        """How many columns of the matrix make so many of a piece."""
        density = self.source.density
        wanted = max(_ENOUGH, columns * (density if density >= _THIN else _FILLED))
        return min(self.source.shape[1], max(columns, math.ceil(wanted / density)))

    def density(self, shape: Shape) -> float:
        """Share of nonzeros: exact at the matrix's own shape, else the mean of all the pieces there are."""
        source = self.source
        if shape[1] == source.shape[1]:
            return source.density
        width = self._width(shape[1])
        share = source.shape[0] * source.shape[1] * shape[1] / width
        return _scaled(source, shape[1], width) / share if width != shape[1] else source.density

    def index_bits(self, shape: Shape) -> float:  # noqa: ARG002
        """0: which structure a file has is not known, and with the right one a format may do without indices."""
        return 0.0


def _read(path: str, name: str) -> Mask:
    """The mask of a matrix in a file, from the cache unless the file has changed."""
    try:
        state = Path(path).stat()
    except OSError as error:
        raise PatternError(f"{path} cannot be read: {error.strerror}; check the path") from error
    return _loaded(path, name, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=_KEPT)
def _loaded(path: str, name: str, changed_ns: int, size: int) -> Mask:  # noqa: ARG001 - the file's state is the key
    from fitness.matrices import MatrixError, open_matrices

    try:
        entries = {entry.name: entry for entry in open_matrices(Path(path)).entries}
        if not name and len(entries) == 1:
            return next(iter(entries.values())).load().mask
        if name in entries:
            return entries[name].load().mask
    except MatrixError as error:
        raise PatternError(str(error)) from error
    if not name:
        raise PatternError(f"{path} has {len(entries)} matrices; write matrix = one of {sorted(entries)[:5]}")
    raise PatternError(f"{path} has no matrix {name!r}; {nearest(name, entries)}")


@functools.lru_cache(maxsize=_KEPT)
def _digest(mask: Mask) -> str:
    indptr, indices = mask.to_csr()
    content = hashlib.sha256(np.array(mask.shape, "<i8").tobytes())
    content.update(np.asarray(indptr, "<i8").tobytes())
    content.update(np.asarray(indices, "<i4").tobytes())
    return content.hexdigest()


@functools.lru_cache(maxsize=64)
def _scaled(mask: Mask, columns: int, width: int) -> int:
    """Nonzeros that are left where so many columns of every `width` are left."""
    indptr, indices = mask.to_csr()
    if not len(indices):
        return 0
    scaled = indices.astype(np.int64) * columns // width
    fresh = scaled[1:] != scaled[:-1]  # columns ascend in a row, and so do the scaled ones
    fresh[indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(indices))] - 1] = True  # a row's first
    return 1 + int(np.count_nonzero(fresh))


def _some(all_: int, count: int, one: int, rng: Generator) -> NDArray[np.int64]:
    """`count` neighbours of `all_`, `one` of them among them, wrapping around, beginning where blocks may begin."""
    step = 1 << min(_ALIGNED, max(1, min(all_, count) // 2)).bit_length() - 1
    first = max(0, one - int(rng.integers(max(1, count - step + 1)))) // step * step
    return np.arange(first, first + count) % all_
