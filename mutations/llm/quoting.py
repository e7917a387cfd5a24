"""Text of others (sources, findings, archives, references) as data in a prompt: bounded, inert, without paths."""

from __future__ import annotations

import re
from typing import Final

_PATH = re.compile(r"(?<![\w./<:\"])(?:~|/[\w.@+-]+)(?:/[\w.@+-]+)+")
_LONGEST: Final = 400
# Control and format characters (terminal escapes, bidirectional overrides, zero widths) and lone surrogates.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def quoted(text: str) -> str:
    """A block of text that cannot end the fence it stands in; tabs and line breaks stay, other controls go."""
    kept = _CONTROL.sub("?", text.replace("\r\n", "\n"))
    return kept.replace("```", "'''").replace("~~~", "'''").rstrip()


def phrase(text: str, length: int = _LONGEST) -> str:
    """One bounded line; absolute paths are reduced to their last part (a compiler names folders of this machine)."""
    line = " ".join(quoted(without_paths(text)).split())
    return line if len(line) <= length else line[: length - 3] + "..."


def without_paths(text: str) -> str:
    """Absolute paths reduced to their last part."""
    return _PATH.sub(lambda match: match[0].rsplit("/", 1)[-1], text)


def numbered(source: str, line: int | None, around: int = 1) -> str:
    """The lines around a 1-based line, each with its number; empty where there is no such line."""
    lines = source.splitlines()
    if line is None or not 0 < line <= len(lines):
        return ""
    first, last = max(1, line - around), min(len(lines), line + around)
    return quoted("\n".join(f"{number:4d} | {lines[number - 1]}" for number in range(first, last + 1)))
