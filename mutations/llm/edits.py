"""Edits against a parent's text: find what is to be replaced, tolerating drift of blanks, never guessing.

A search text must occur exactly once. It is looked for as it is, then with trailing blanks ignored, then with
the indentation ignored too (the replacement is shifted to the indentation found).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """Replace `search`, a passage of whole lines, by `replace`."""

    search: str
    replace: str


class EditError(ValueError):
    """An edit that cannot be applied; the message is for the model."""


def apply_edits(source: str, edits: Sequence[Edit]) -> str:
    """The source with all edits applied in order, each to the result of those before.

    Raises:
        EditError: a search text that is empty, missing, or found more than once.
    """
    for number, edit in enumerate(edits, 1):
        source = _applied(source, edit, f"edit {number} of {len(edits)}")
    return source


def _applied(source: str, edit: Edit, which: str) -> str:
    if not edit.search.strip():
        raise EditError(f"{which}: the text to search is empty")
    if source.count(edit.search) == 1:
        return source.replace(edit.search, edit.replace, 1)
    if source.count(edit.search) > 1:
        raise EditError(f"{which}: the text occurs {source.count(edit.search)} times; include more lines around it")
    lines, wanted = source.splitlines(), edit.search.strip("\n").splitlines()
    for same in (str.rstrip, str.strip):
        places = _places(lines, wanted, same)
        if len(places) > 1:
            raise EditError(f"{which}: the text occurs {len(places)} times; include more lines around it")
        if places:
            return _spliced(source, lines, places[0], wanted, edit.replace.strip("\n").splitlines())
    raise EditError(f"{which}: the text does not occur in the kernel{_nearest(lines, wanted)}")


def _places(lines: Sequence[str], wanted: Sequence[str], same: Callable[[str], str]) -> list[int]:
    goal = [same(line) for line in wanted]
    seen = [same(line) for line in lines]
    return [i for i in range(len(seen) - len(goal) + 1) if seen[i : i + len(goal)] == goal]


def _spliced(source: str, lines: list[str], at: int, wanted: Sequence[str], new: Sequence[str]) -> str:
    shift = _indent(lines[at]) - _indent(wanted[0])
    shifted = [_shifted(line, shift) for line in new]
    end = "\n" if source.endswith("\n") else ""
    return "\n".join([*lines[:at], *shifted, *lines[at + len(wanted) :]]) + end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _shifted(line: str, by: int) -> str:
    if not line.strip() or by == 0:
        return line
    return " " * by + line if by > 0 else line[min(-by, _indent(line)) :]


def _nearest(lines: Sequence[str], wanted: Sequence[str]) -> str:
    import difflib

    first = next((line.strip() for line in wanted if line.strip()), "")
    close = difflib.get_close_matches(first, [line.strip() for line in lines], n=1, cutoff=0.6)
    return f"; did you mean the line `{close[0]}`?" if close else "; copy it exactly, from the kernel as given"
