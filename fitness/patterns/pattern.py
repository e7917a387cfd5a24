"""The `Pattern` protocol, and what patterns have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fitness.expressions import Expression, nearest

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

    def keeps(self, n: int, m: int) -> bool:
        """Whether every group of m neighbours along K has at most n nonzeros, always and at every shape."""

    def mandatory(self) -> tuple[Expression, ...]:
        """Conditions without which the pattern means nothing at a shape."""

    def default_domain(self) -> tuple[Expression, ...]:
        """Conditions every shape obeys unless the task says otherwise."""


class AnyShape:
    """Base of patterns that mean something at every shape and promise nothing of groups along K."""

    def keeps(self, n: int, m: int) -> bool:
        """Only what every group must keep to; most patterns promise nothing."""
        return n >= m

    def mandatory(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()

    def default_domain(self) -> tuple[Expression, ...]:
        """Any shape."""
        return ()


def refuse_unknown(spec: Mapping[str, Any], known: tuple[str, ...], kind: str) -> None:
    """Raise PatternError for a key that the kind does not have."""
    for key in spec:
        if key not in known:
            raise PatternError(f"unknown key {key!r} of pattern kind {kind!r}; {nearest(key, known)}")


def density_of(spec: Mapping[str, Any]) -> float:
    """The `density` of a table; raises PatternError."""
    value = spec.get("density")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise PatternError(f"density = {value!r} is not a share above 0 and at most 1; write density = 0.1")
    return float(value)


def count_of(share: float, items: int) -> int:
    """That share of them, at least one."""
    return max(1, round(share * items))


def drawn(probabilities: NDArray[np.float64], shape: Shape, rng: Generator) -> NDArray[np.bool_]:
    """(M, K) draws with a probability for each row; one element is set where none was drawn: W is not empty."""
    mask: NDArray[np.bool_] = rng.random(shape, dtype=np.float32) < probabilities[:, None]
    if not mask.any():
        mask[int(rng.integers(shape[0])), int(rng.integers(shape[1]))] = True
    return mask


def entropy_bits(share: float) -> float:
    """Entropy of one yes-or-no draw, bits."""
    if not 0 < share < 1:
        return 0.0
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)


def block_shape(spec: Mapping[str, Any], example: str) -> Shape:
    """The `shape` of a table, two sizes from 1 to 256; raises PatternError."""
    size = spec.get("shape")
    if (
        not isinstance(size, list | tuple)
        or len(size) != 2
        or any(type(edge) is not int or not 1 <= edge <= 256 for edge in size)
    ):
        raise PatternError(f"shape = {size!r} is not two sizes from 1 to 256; write {example}")
    return size[0], size[1]
