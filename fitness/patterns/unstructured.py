"""Patterns of single elements: each by itself, in rows of equal or very unequal expected length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fitness.patterns.pattern import AnyShape, PatternError, Shape, density_of, drawn, entropy_bits, refuse_unknown


@dataclass(frozen=True)
class RandomPattern(AnyShape):
    """Unstructured: every element is nonzero with probability `density`, each by itself."""

    share: float
    kind: ClassVar[str] = "random"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Key `density`, above 0 and at most 1."""
        refuse_unknown(spec, ("density",), cls.kind)
        return cls(density_of(spec))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """Bernoulli draws."""
        return drawn(np.full(shape[0], self.share), shape, rng)

    def density(self, shape: Shape) -> float:  # noqa: ARG002
        """As given."""
        return self.share

    def index_bits(self, shape: Shape) -> float:  # noqa: ARG002
        """Entropy of the mask, per nonzero."""
        return entropy_bits(self.share) / self.share


@dataclass(frozen=True)
class PowerLawPattern(AnyShape):
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
        return cls(density_of(spec), float(exponent))

    def mask(self, shape: Shape, rng: Generator) -> NDArray[np.bool_]:
        """Bernoulli draws with a probability for each row."""
        return drawn(rng.permutation(self.probabilities(shape[0])), shape, rng)

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
        bits = np.array([entropy_bits(float(share)) for share in self.probabilities(shape[0])])
        return float(bits.mean()) / self.share
