"""Sparsity patterns of W: which elements may be nonzero. Found by `kind`, made from a task's table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fitness.expressions import Expression, nearest
from fitness.registry import find

PATTERNS: dict[str, str] = {
    "block": "fitness.patterns:BlockPattern",
    "dense": "fitness.patterns:DensePattern",
    "nm": "fitness.patterns:NmPattern",
    "power_law": "fitness.patterns:PowerLawPattern",
    "random": "fitness.patterns:RandomPattern",
    "rows": "fitness.patterns:RowsPattern",
}

Shape = tuple[int, int]


class PatternError(ValueError):
    """A pattern table with an unknown key or an impossible value."""


class Pattern(Protocol):
    """Where the nonzeros of W (M x K) may lie."""

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Make one from the task's table without `kind`; raises PatternError."""

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """A random (M, K) mask, True where W is nonzero."""

    def density(self, shape: Shape) -> float:
        """Expected share of nonzeros, 0..1."""

    def index_bits(self, shape: Shape) -> float:
        """Bits of index for each nonzero that no format can do without: enters the floor."""

    def mandatory(self) -> tuple[Expression, ...]:
        """Conditions without which the pattern means nothing at a shape."""

    def default_domain(self) -> tuple[Expression, ...]:
        """Conditions every shape obeys unless the task says otherwise."""


def make_pattern(spec: Mapping[str, Any]) -> Pattern:
    """The pattern a task's `pattern` table describes.

    Raises:
        PatternError: the table is wrong.
        UnknownNameError: no such kind.
    """
    kind = spec.get("kind")
    if not isinstance(kind, str):
        raise PatternError(f"kind = {kind!r} names no pattern; write one of {sorted(PATTERNS)}")
    cls = cast(type[Pattern], find(PATTERNS, kind, "pattern"))
    return cls.from_spec({key: value for key, value in spec.items() if key != "kind"})


def refuse_unknown(spec: Mapping[str, Any], known: tuple[str, ...], kind: str) -> None:
    """Raise PatternError for a key that the kind does not have."""
    for key in spec:
        if key not in known:
            raise PatternError(f"unknown key {key!r} of pattern kind {kind!r}; {nearest(key, known)}")


@dataclass(frozen=True)
class DensePattern:
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

    def mandatory(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()

    def default_domain(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()


@dataclass(frozen=True)
class NmPattern:
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

    def mandatory(self) -> tuple[Expression, ...]:
        """Whole groups."""
        return (Expression(f"K % {self.m} == 0"),)

    def default_domain(self) -> tuple[Expression, ...]:
        """2:4: whole metadata words of the sparse tensor cores (64 along K); else whole groups."""
        return (Expression(f"K % {64 if (self.n, self.m) == (2, 4) else self.m} == 0"),)


@dataclass(frozen=True)
class RandomPattern:
    """Unstructured: every element is nonzero with probability `density`, each by itself."""

    share: float
    kind: ClassVar[str] = "random"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Key `density`, above 0 and at most 1."""
        refuse_unknown(spec, ("density",), cls.kind)
        return cls(_share(spec))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """Bernoulli draws."""
        return _drawn(np.full(shape[0], self.share), shape, rng)

    def density(self, shape: Shape) -> float:  # noqa: ARG002
        """As given."""
        return self.share

    def index_bits(self, shape: Shape) -> float:  # noqa: ARG002
        """Entropy of the mask, per nonzero."""
        return _entropy_bits(self.share) / self.share

    def mandatory(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()

    def default_domain(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()


@dataclass(frozen=True)
class BlockPattern:
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
        size = spec.get("shape")
        if (
            not isinstance(size, list | tuple)
            or len(size) != 2
            or any(type(edge) is not int or not 1 <= edge <= 256 for edge in size)
        ):
            raise PatternError(f"shape = {size!r} is not two sizes from 1 to 256; write shape = [32, 32]")
        return cls(size[0], size[1], _share(spec))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """Chosen blocks repeated over their elements."""
        blocks = np.zeros(self._blocks(shape), np.bool_)
        blocks.flat[rng.permutation(blocks.size)[: _count(self.share, blocks.size)]] = True
        mask: NDArray[np.bool_] = blocks.repeat(self.rows, axis=0).repeat(self.columns, axis=1)
        return np.ascontiguousarray(mask[: shape[0], : shape[1]])

    def density(self, shape: Shape) -> float:
        """Share of the blocks that is nonzero."""
        down, across = self._blocks(shape)
        return _count(self.share, down * across) / (down * across)

    def index_bits(self, shape: Shape) -> float:
        """Entropy of the choice of blocks, per nonzero."""
        share = self.density(shape)
        return _entropy_bits(share) / share / (self.rows * self.columns)

    def mandatory(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()

    def default_domain(self) -> tuple[Expression, ...]:
        """Whole blocks."""
        return tuple(
            Expression(f"{name} % {size} == 0") for name, size in (("M", self.rows), ("K", self.columns)) if size > 1
        )

    def _blocks(self, shape: Shape) -> Shape:
        return -(-shape[0] // self.rows), -(-shape[1] // self.columns)


@dataclass(frozen=True)
class RowsPattern:
    """Whole rows (output features) pruned: exactly round(density * M) rows stay, at least one, and are full."""

    share: float
    kind: ClassVar[str] = "rows"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Key `density`, above 0 and at most 1."""
        refuse_unknown(spec, ("density",), cls.kind)
        return cls(_share(spec))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """Full rows at random places."""
        mask = np.zeros(shape, np.bool_)
        mask[rng.permutation(shape[0])[: _count(self.share, shape[0])]] = True
        return mask

    def density(self, shape: Shape) -> float:
        """Share of the rows that stays."""
        return _count(self.share, shape[0]) / shape[0]

    def index_bits(self, shape: Shape) -> float:
        """Entropy of the choice of rows, per nonzero."""
        share = self.density(shape)
        return _entropy_bits(share) / share / shape[1]

    def mandatory(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()

    def default_domain(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()


@dataclass(frozen=True)
class PowerLawPattern:
    """Rows of very unequal length, as in graphs: the i-th longest has a length in proportion to i ** -exponent.

    No row is longer than K; the mean is `density`. Which row has which length is drawn, and so is every element
    with its row's probability.
    """

    share: float
    exponent: float
    kind: ClassVar[str] = "power_law"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Keys `density`, above 0 and at most 1, and `exponent`, 0 to 3, 1 by default."""
        refuse_unknown(spec, ("density", "exponent"), cls.kind)
        exponent = spec.get("exponent", 1.0)
        if isinstance(exponent, bool) or not isinstance(exponent, int | float) or not 0 <= exponent <= 3:
            raise PatternError(f"exponent = {exponent!r} is not a number from 0 to 3; write exponent = 1.0")
        return cls(_share(spec), float(exponent))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """Bernoulli draws with a probability for each row."""
        return _drawn(rng.permutation(self.probabilities(shape[0])), shape, rng)

    def probabilities(self, rows: int) -> NDArray[np.float64]:
        """(rows,) shares of nonzeros, longest row first: min(1, c * i ** -exponent), c such that the mean is right."""
        weights = np.arange(1, rows + 1, dtype=np.float64) ** -self.exponent
        low, high = 0.0, 1.0 / float(weights[-1])
        for _ in range(64):  # bisection: the mean grows with c
            middle = (low + high) / 2
            if np.minimum(1.0, middle * weights).mean() < self.share:
                low = middle
            else:
                high = middle
        return np.minimum(1.0, high * weights)

    def density(self, shape: Shape) -> float:  # noqa: ARG002
        """As given."""
        return self.share

    def index_bits(self, shape: Shape) -> float:
        """Entropy of the mask with known row lengths, per nonzero."""
        bits = np.array([_entropy_bits(float(share)) for share in self.probabilities(shape[0])])
        return float(bits.mean()) / self.share

    def mandatory(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()

    def default_domain(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()


def _share(spec: Mapping[str, Any]) -> float:
    """The `density` of a table; raises PatternError."""
    value = spec.get("density")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise PatternError(f"density = {value!r} is not a share above 0 and at most 1; write density = 0.1")
    return float(value)


def _count(share: float, items: int) -> int:
    return max(1, round(share * items))


def _drawn(probabilities: NDArray[np.float64], shape: Shape, rng: Generator) -> NDArray[np.bool_]:
    """(M, K) draws with a probability for each row; one element is set where none was drawn: W is not empty."""
    mask: NDArray[np.bool_] = rng.random(shape, dtype=np.float32) < probabilities[:, None]
    if not mask.any():
        mask[int(rng.integers(shape[0])), int(rng.integers(shape[1]))] = True
    return mask


def _entropy_bits(share: float) -> float:
    """Entropy of one yes-or-no draw, bits."""
    if not 0 < share < 1:
        return 0.0
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)
