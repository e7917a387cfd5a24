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
    "dense": "fitness.patterns:DensePattern",
    "nm": "fitness.patterns:NmPattern",
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
        """Bits of index the best format needs for each nonzero."""

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
