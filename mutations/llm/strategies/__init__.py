"""Strategy cards: what usually wins for a pattern and format, pitfalls, one short example."""

from __future__ import annotations

from importlib import resources
from typing import Final

_CARDS: Final = {
    "nm24": "nm24",
    "dense": "dense",
    "csr": "rows",
    "csc": "rows",
    "coo": "rows",
    "ell": "rows",
    "sell": "rows",
    "bsr": "blocks",
    "blocked_ell": "blocks",
    "bitmap": "bitmap",
    "nm": "nm",
    "dia": "diagonals",
    "periodic": "diagonals",
    "rows": "compact",
    "channels": "compact",
}
"""Format -> card; a format without one gets the general card."""


def card(format_name: str) -> str:
    """The card of a format."""
    name = _CARDS.get(format_name, "general")
    return resources.files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8").strip()


_PATTERNS: Final = {
    "random": "nonzeros anywhere: rows are about equally long, X is met without order, so only wider tiles reuse it",
    "power_law": "a few rows hold most nonzeros: share nonzeros, not rows, or rows by bins of length",
    "block": "nonzeros come in blocks: formats with one index a block, and tensor cores where blocks are 16 wide",
    "banded": "nonzeros near the diagonal: neighbouring rows meet the same rows of X, so tiles along M reuse them",
    "rows": "whole rows are there or not: a smaller dense product",
    "channels": "whole columns are there or not: a smaller dense product on some rows of X",
    "periodic": "one pattern repeated: its indices may be read once, or be constants of unrolled code",
}


def pattern_hint(kind: str) -> str:
    """What a pattern asks for whatever the format, in one line; empty where the card of the format says it all."""
    said = _PATTERNS.get(kind, "")
    return f"The pattern ({kind}): {said}." if said else ""
