"""Sparsity patterns of W: which elements may be nonzero. Found by `kind`, made from a task's table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fitness.patterns.file import FilePattern
from fitness.patterns.pattern import Pattern, PatternError, Shape
from fitness.patterns.structured import (
    BandedPattern,
    BlockPattern,
    ChannelsPattern,
    DensePattern,
    NmPattern,
    PeriodicPattern,
    RowsPattern,
)
from fitness.patterns.unstructured import PowerLawPattern, RandomPattern
from fitness.registry import find

__all__ = [
    "PATTERNS",
    "BandedPattern",
    "BlockPattern",
    "ChannelsPattern",
    "DensePattern",
    "FilePattern",
    "NmPattern",
    "Pattern",
    "PatternError",
    "PeriodicPattern",
    "PowerLawPattern",
    "RandomPattern",
    "RowsPattern",
    "Shape",
    "make_pattern",
]

PATTERNS: dict[str, str] = {
    "banded": "fitness.patterns:BandedPattern",
    "block": "fitness.patterns:BlockPattern",
    "channels": "fitness.patterns:ChannelsPattern",
    "dense": "fitness.patterns:DensePattern",
    "file": "fitness.patterns:FilePattern",
    "nm": "fitness.patterns:NmPattern",
    "periodic": "fitness.patterns:PeriodicPattern",
    "power_law": "fitness.patterns:PowerLawPattern",
    "random": "fitness.patterns:RandomPattern",
    "rows": "fitness.patterns:RowsPattern",
}


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
