"""Large matrices from seeds, 1 to 50 million nonzeros: the real ones at hand are small, and launches hide cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.matrices import Mask

Indices = NDArray[np.int64]


def from_places(shape: tuple[int, int], rows: Indices, columns: Indices) -> Mask:
    """The mask of coordinates in any order, duplicates once."""
    keys = np.unique(rows * shape[1] + columns)
    rows, columns = np.divmod(keys, shape[1])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
    return Mask.from_csr(shape, indptr, columns, bits=False)


def stencil(side: int) -> Mask:
    """The 7-point stencil of a cube of `side`^3 points."""
    points = np.arange(side**3)
    z, rest = np.divmod(points, side * side)
    y, x = np.divmod(rest, side)
    rows, columns = [points], [points]
    for place, step in ((x, 1), (y, side), (z, side * side)):
        inside = np.flatnonzero(place < side - 1)
        rows += [inside, inside + step]
        columns += [inside + step, inside]
    return from_places((side**3, side**3), np.concatenate(rows), np.concatenate(columns))


def rmat(scale: int, degree: int, seed: int = 0) -> Mask:
    """R-MAT graph of 2^scale vertices and about `degree` edges each, a, b, c, d = 0.57, 0.19, 0.19, 0.05 (Graph500)."""
    rng = np.random.default_rng(seed)
    edges = degree << scale
    rows, columns = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    for _ in range(scale):
        draw = rng.random(edges, dtype=np.float32)
        down = draw >= 0.76  # c and d
        right = ((draw >= 0.57) & (draw < 0.76)) | (draw >= 0.95)  # b and d
        rows, columns = rows << 1 | down, columns << 1 | right
    shuffled = rng.permutation(1 << scale)
    return from_places((1 << scale, 1 << scale), shuffled[rows], shuffled[columns])


def banded(rows: int, half: int, share: float = 0.5, seed: int = 0) -> Mask:
    """A band of 2 * half + 1 diagonals, of whose places a share is filled."""
    rng = np.random.default_rng(seed)
    row = np.repeat(np.arange(rows), 2 * half + 1)
    column = row + np.tile(np.arange(-half, half + 1), rows)
    kept = (column >= 0) & (column < rows) & (rng.random(len(row), dtype=np.float32) < share)
    return from_places((rows, rows), row[kept], column[kept])


def geometric(points: int, degree: float, seed: int = 0) -> Mask:
    """Random geometric graph: points of the unit square, joined where nearer than gives `degree` neighbours each."""
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(seed)
    places = rng.random((points, 2))
    pairs = cKDTree(places).query_pairs(float(np.sqrt(degree / (np.pi * points))), output_type="ndarray")
    return from_places((points, points), np.concatenate(pairs.T), np.concatenate(pairs[:, ::-1].T))


def block_diagonal(blocks: int, size: int) -> Mask:
    """Full blocks of `size` x `size` along the diagonal."""
    row = np.repeat(np.arange(blocks * size), size)
    column = row // size * size + np.tile(np.arange(size), blocks * size)
    return from_places((blocks * size, blocks * size), row, column)


GENERATED: Final[dict[str, tuple[Callable[..., Mask], tuple[Any, ...]]]] = {
    "stencil_1m": (stencil, (56,)),
    "rmat_1m": (rmat, (16, 16)),
    "banded_3m": (banded, (200_000, 16)),
    "block_diagonal_4m": (block_diagonal, (4096, 32)),
    "stencil_7m": (stencil, (100,)),
    "geometric_8m": (geometric, (500_000, 16.0)),
    "rmat_16m": (rmat, (20, 16)),
    "banded_33m": (banded, (1_000_000, 33)),
    "block_diagonal_33m": (block_diagonal, (8192, 64)),
    "stencil_49m": (stencil, (192,)),
}
"""Name, with about how many nonzeros -> (maker, arguments); the small ones first, as they take the least time."""
