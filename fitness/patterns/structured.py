"""Patterns with a structure: dense, n of m, blocks, whole rows and columns, bands, and one that repeats."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fitness.expressions import Expression
from fitness.patterns.pattern import (
    AnyShape,
    PatternError,
    Shape,
    block_shape,
    count_of,
    density_of,
    entropy_bits,
    refuse_unknown,
)


@dataclass(frozen=True)
class DensePattern(AnyShape):
    """Every element nonzero."""

    kind: ClassVar[str] = "dense"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """No keys."""
        refuse_unknown(spec, (), cls.kind)
        return cls()

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:  # noqa: ARG002
        """All True."""
        return np.ones(shape, dtype=np.bool_)

    def density(self, shape: Shape) -> float:  # noqa: ARG002
        """1."""
        return 1.0

    def index_bits(self, shape: Shape) -> float:  # noqa: ARG002
        """No index."""
        return 0.0


@dataclass(frozen=True)
class NmPattern(AnyShape):
    """Exactly `n` nonzeros in every `m` neighbours along K, uniformly at random."""

    n: int
    m: int
    kind: ClassVar[str] = "nm"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Keys `n` and `m`, 1 <= n < m <= 64."""
        refuse_unknown(spec, ("n", "m"), cls.kind)
        n, m = spec.get("n"), spec.get("m")
        if type(n) is not int or type(m) is not int or not 1 <= n < m <= 64:
            raise PatternError(f"n = {n!r}, m = {m!r} must be integers with 1 <= n < m <= 64, for example n = 2, m = 4")
        return cls(n, m)

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """K must be a multiple of m."""
        rows, columns = shape
        groups = rows * (columns // self.m)
        if math.comb(self.m, self.n) <= 256:
            table = np.zeros((math.comb(self.m, self.n), self.m), np.bool_)
            for row, chosen in zip(table, itertools.combinations(range(self.m), self.n), strict=True):
                row[list(chosen)] = True
            mask = np.take(table, rng.integers(0, len(table), groups, dtype=np.uint8), axis=0)
        else:
            keys = rng.random((groups, self.m), dtype=np.float32)
            mask = np.zeros((groups, self.m), np.bool_)
            np.put_along_axis(mask, np.argpartition(keys, self.n, axis=1)[:, : self.n], True, axis=1)
        return mask.reshape(rows, columns)

    def density(self, shape: Shape) -> float:  # noqa: ARG002
        """The ratio n / m."""
        return self.n / self.m

    def index_bits(self, shape: Shape) -> float:  # noqa: ARG002
        """An index within the group: 2 bits for 2:4."""
        return float(math.ceil(math.log2(self.m)))

    def keeps(self, n: int, m: int) -> bool:
        """True where groups of one divide those of the other and hold no more."""
        if m % self.m == 0:
            return self.n * (m // self.m) <= n
        return self.m % m == 0 and min(self.n, m) <= n

    def mandatory(self) -> tuple[Expression, ...]:
        """Whole groups."""
        return (Expression(f"K % {self.m} == 0"),)

    def default_domain(self) -> tuple[Expression, ...]:
        """2:4: whole metadata words of the sparse tensor cores (64 along K); else whole groups."""
        return (Expression(f"K % {64 if (self.n, self.m) == (2, 4) else self.m} == 0"),)


@dataclass(frozen=True)
class BlockPattern(AnyShape):
    """Blocks of `rows` x `columns` that are nonzero throughout; which, is drawn uniformly.

    Exactly round(density * blocks) blocks of a shape are nonzero, at least one. The last ones may be cut.
    """

    rows: int
    columns: int
    share: float
    kind: ClassVar[str] = "block"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Keys `shape`, two sizes from 1 to 256, and `density`, above 0 and at most 1."""
        refuse_unknown(spec, ("shape", "density"), cls.kind)
        rows, columns = block_shape(spec, "shape = [32, 32]")
        return cls(rows, columns, density_of(spec))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """Chosen blocks repeated over their elements."""
        blocks = np.zeros(self._blocks(shape), np.bool_)
        blocks.flat[rng.permutation(blocks.size)[: count_of(self.share, blocks.size)]] = True
        mask: NDArray[np.bool_] = blocks.repeat(self.rows, axis=0).repeat(self.columns, axis=1)
        return np.ascontiguousarray(mask[: shape[0], : shape[1]])

    def density(self, shape: Shape) -> float:
        """Share of the blocks that is nonzero."""
        down, across = self._blocks(shape)
        return count_of(self.share, down * across) / (down * across)

    def index_bits(self, shape: Shape) -> float:
        """Entropy of the choice of blocks, per nonzero."""
        share = self.density(shape)
        return entropy_bits(share) / share / (self.rows * self.columns)

    def default_domain(self) -> tuple[Expression, ...]:
        """Whole blocks."""
        return tuple(
            Expression(f"{name} % {size} == 0") for name, size in (("M", self.rows), ("K", self.columns)) if size > 1
        )

    def _blocks(self, shape: Shape) -> Shape:
        return -(-shape[0] // self.rows), -(-shape[1] // self.columns)


@dataclass(frozen=True)
class RowsPattern(AnyShape):
    """Whole rows (output features) pruned: exactly round(density * M) rows stay, at least one, and are full."""

    share: float
    kind: ClassVar[str] = "rows"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Key `density`, above 0 and at most 1."""
        refuse_unknown(spec, ("density",), cls.kind)
        return cls(density_of(spec))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """Full rows at random places."""
        mask = np.zeros(shape, np.bool_)
        mask[rng.permutation(shape[0])[: count_of(self.share, shape[0])]] = True
        return mask

    def density(self, shape: Shape) -> float:
        """Share of the rows that stays."""
        return count_of(self.share, shape[0]) / shape[0]

    def index_bits(self, shape: Shape) -> float:
        """Entropy of the choice of rows, per nonzero."""
        share = self.density(shape)
        return entropy_bits(share) / share / shape[1]


@dataclass(frozen=True)
class ChannelsPattern(AnyShape):
    """Whole columns (input features) pruned: exactly round(density * K) columns stay, at least one, and are full."""

    share: float
    kind: ClassVar[str] = "channels"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Key `density`, above 0 and at most 1."""
        refuse_unknown(spec, ("density",), cls.kind)
        return cls(density_of(spec))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """Full columns at random places."""
        mask = np.zeros(shape, np.bool_)
        mask[:, rng.permutation(shape[1])[: count_of(self.share, shape[1])]] = True
        return mask

    def density(self, shape: Shape) -> float:
        """Share of the columns that stays."""
        return count_of(self.share, shape[1]) / shape[1]

    def index_bits(self, shape: Shape) -> float:
        """Entropy of the choice of columns, per nonzero."""
        share = self.density(shape)
        return entropy_bits(share) / share / shape[0]


@dataclass(frozen=True)
class BandedPattern(AnyShape):
    """A band around the diagonal: |column - row| <= bandwidth, of which every element stays with chance `density`.

    Rows of a tall matrix that the band does not reach are empty, and so are columns of a wide one.
    """

    bandwidth: int
    share: float
    kind: ClassVar[str] = "banded"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Keys `bandwidth`, an integer from 0, and `density` within the band, above 0 and at most 1, 1 by default."""
        refuse_unknown(spec, ("bandwidth", "density"), cls.kind)
        width = spec.get("bandwidth")
        if type(width) is not int or not 0 <= width < 2**31:
            raise PatternError(f"bandwidth = {width!r} is not an integer from 0; write bandwidth = 8")
        return cls(width, density_of({"density": spec.get("density", 1.0)}))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """The band, thinned at random."""
        offsets = np.arange(shape[1])[None, :] - np.arange(shape[0])[:, None]
        band: NDArray[np.bool_] = np.abs(offsets) <= self.bandwidth
        if self.share < 1:
            band &= rng.random(shape, dtype=np.float32) < self.share
            band[0, 0] |= not band.any()
        return band

    def density(self, shape: Shape) -> float:
        """Share of W that lies in the band, times that of the band that stays."""
        rows = np.arange(shape[0])
        first, last = np.maximum(rows - self.bandwidth, 0), np.minimum(rows + self.bandwidth, shape[1] - 1)
        return int(np.maximum(last - first + 1, 0).sum()) * self.share / (shape[0] * shape[1])

    def index_bits(self, shape: Shape) -> float:  # noqa: ARG002
        """Entropy of what stays in the band, per nonzero; none where all of it does."""
        return entropy_bits(self.share) / self.share


@dataclass(frozen=True)
class PeriodicPattern(AnyShape):
    """A random pattern of `rows` x `columns` elements that repeats all over W; its last repetitions may be cut.

    Exactly round(density * rows * columns) elements of it are nonzero, at least one, and one within W.
    """

    rows: int
    columns: int
    share: float
    kind: ClassVar[str] = "periodic"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Keys `shape`, two sizes from 1 to 256, and `density`, above 0 and at most 1."""
        refuse_unknown(spec, ("shape", "density"), cls.kind)
        rows, columns = block_shape(spec, "shape = [8, 32]")
        return cls(rows, columns, density_of(spec))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """One period, repeated."""
        period = np.zeros((self.rows, self.columns), np.bool_)
        inside = np.zeros(period.shape, np.bool_)
        inside[: shape[0], : shape[1]] = True
        first = int(rng.choice(np.flatnonzero(inside)))
        others = rng.permutation(period.size)
        period.flat[[first, *others[others != first][: self._count - 1]]] = True
        repeats = -(-shape[0] // self.rows), -(-shape[1] // self.columns)
        return np.ascontiguousarray(np.tile(period, repeats)[: shape[0], : shape[1]])

    @property
    def _count(self) -> int:
        return count_of(self.share, self.rows * self.columns)

    def density(self, shape: Shape) -> float:  # noqa: ARG002
        """Share of the period that is nonzero; exact where W holds whole periods."""
        return self._count / (self.rows * self.columns)

    def index_bits(self, shape: Shape) -> float:
        """Entropy of one period, per nonzero of W."""
        share = self.density(shape)
        return self.rows * self.columns * entropy_bits(share) / (share * shape[0] * shape[1])
