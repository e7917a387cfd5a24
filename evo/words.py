"""Words for people."""

from __future__ import annotations


def counted(count: int, things: str) -> str:
    """So many things, "1 run" or "2,000 runs"; `things` is their plural, in s."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"
