"""Named regions of a kernel's source: exchangeable parts with a declared interface.

    // region: epilogue(acc, y, m0, n0, M, N, ldy)
    ...
    // endregion

Two regions may stand for each other if name and interface text are equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_BEGIN: Final = re.compile(r"[ \t]*// region: (?P<name>\w+)\((?P<interface>.*)\)[ \t]*")
_END: Final = "// endregion"


@dataclass(frozen=True)
class Region:
    """One region: `text` is everything between its two comment lines, line ends included."""

    name: str
    interface: str
    text: str


def regions(source: str) -> Mapping[str, Region]:
    """The regions of a source by name, in order of appearance.

    A region that is not closed, is nested in another, or whose name occurs twice is none.
    """
    found: dict[str, Region] = {}
    repeated: set[str] = set()
    begin: tuple[str, str] | None = None
    body: list[str] = []
    for line in source.splitlines(keepends=True):
        match = _BEGIN.fullmatch(line.rstrip("\r\n"))
        if match:
            begin, body = (match["name"], match["interface"]), []
        elif line.strip() == _END and begin is not None:
            (repeated if begin[0] in found else set()).add(begin[0])
            found[begin[0]] = Region(*begin, "".join(body))
            begin = None
        elif begin is not None:
            body.append(line)
    return {name: region for name, region in found.items() if name not in repeated}


def replace_region(source: str, name: str, text: str) -> str:
    """The source with the body of one of its regions replaced.

    Raises:
        KeyError: the source has no such region.
    """
    old = regions(source)[name]
    marker = f"// region: {old.name}({old.interface})"
    lines = source.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.strip() == marker)
    last = next(i for i in range(first, len(lines)) if lines[i].strip() == _END)
    return "".join(lines[: first + 1]) + text + "".join(lines[last:])
