"""Words for people."""

from __future__ import annotations


def counted(count: int, things: str) -> str:
    """So many things, "1 run" or "2,000 runs"; `things` is their plural, in s."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"


def plain(text: str) -> str:
    """Text of an archive for a terminal: control characters are shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in text)
