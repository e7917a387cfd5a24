"""Which shapes a task is checked at: small ones with every kind of tail, and hidden full-size ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from numpy.random import Generator

from fitness.expressions import Expression

Shape = Mapping[str, int]

_SEARCH_WIDTH: Final = 256  # how far from a target a value in the domain is looked for
_COMBINATIONS: Final = 16_384  # how many shapes are tried where conditions tie several dimensions together


class EmptyDomainError(ValueError):
    """No shape near the wanted one obeys the domain."""


def _targets(*sizes: tuple[int, int, int]) -> tuple[Shape, ...]:
    return tuple({"M": m, "N": n, "K": k} for m, n, k in sizes)


SMALL_TARGETS: Final = _targets(
    (128, 16, 256),  # aligned to common tiles
    (83, 37, 199),  # every tail
    (97, 1, 128),  # a single column
    (71, 19, 323),  # tails; an odd number of 64-blocks where the domain asks for whole ones
    (40, 9, 648),  # long K: pipelines wrap around several times
    (144, 8, 64),  # shortest K: pipelines longer than the loop; M spans two tiles of 128
)
"""M, N, K of gate 4, moved into the domain by `fit`: 199 becomes 192 where K % 64 == 0.

Each is simulated with all checks for every child, so they stay small."""

FULL_TARGETS: Final = _targets(
    *((64, n, 128) for n in (1, 3, 7, 8, 16, 33, 128)),
    *((m, 24, 192) for m in (1, 15, 17, 63, 65, 127, 129)),
    *((48, 17, k) for k in (64, 97, 192, 255, 320, 448, 1024)),
    (1, 1, 64),
    (1, 1, 1),
    (80, 65, 256),
    (256, 40, 512),
)
"""M, N, K of the full lists: +-1 around tiles, M or N = 1, K = odd multiples of the block."""


def fit(target: Shape, domain: Iterable[Expression]) -> dict[str, int]:
    """The shape of the domain nearest to the target.

    Raises:
        EmptyDomainError: none within reach.
    """
    conditions = tuple(domain)
    if all(condition.evaluate(target) for condition in conditions):
        return dict(target)
    joint = [condition for condition in conditions if len(condition.names) != 1]
    tied = frozenset().union(*(condition.names for condition in joint)) & target.keys()
    width = int(_COMBINATIONS ** (1 / len(tied))) if tied else 1
    choices = []
    for name, size in target.items():
        own = [condition for condition in conditions if condition.names == {name}]
        values = (v for v in _around(size) if all(condition.evaluate({name: v}) for condition in own))
        choices.append(list(itertools.islice(values, width if name in tied else 1)))
    sizes = list(target.values())
    for combination in sorted(itertools.product(*choices), key=lambda c: _distance(c, sizes)):
        shape = dict(zip(target, combination, strict=True))
        if all(condition.evaluate(shape) for condition in joint):
            return shape
    raise EmptyDomainError(f"no shape near {dict(target)} obeys {[condition.text for condition in conditions]}")


def _around(value: int) -> Iterator[int]:
    """Sizes from the nearest outwards, the larger of two equally near ones first."""
    yield value
    for distance in range(1, _SEARCH_WIDTH + 1):
        yield value + distance
        if value > distance:
            yield value - distance


def _distance(shape: Sequence[int], target: Sequence[int]) -> float:
    return sum(abs(math.log((a + 1) / (b + 1))) for a, b in zip(shape, target, strict=True))


def hidden_target(shapes: Sequence[Shape], free: Iterable[str], rng: Generator, *, beyond: bool) -> dict[str, int]:
    """A listed shape with its free dimensions drawn anew.

    Args:
        shapes: the listed ones.
        free: names of the dimensions to draw.
        rng: where chance comes from.
        beyond: draw from (largest, 2x largest], to catch what is right only up to the listed sizes; else log-uniform
            from 1 .. 2x the largest.
    """
    target = dict(shapes[int(rng.integers(len(shapes)))])
    for name in free:
        largest = max(shape[name] for shape in shapes)
        if beyond:
            target[name] = int(rng.integers(largest + 1, 2 * largest + 1))
        else:
            target[name] = round(math.exp(rng.uniform(0.0, math.log(2 * largest))))
    return target
