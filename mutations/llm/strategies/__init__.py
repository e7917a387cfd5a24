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
}
"""Format -> card; a format without one gets the general card."""


def card(format_name: str) -> str:
    """The card of a format."""
    name = _CARDS.get(format_name, "general")
    return resources.files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8").strip()
