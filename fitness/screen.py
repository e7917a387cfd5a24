"""Gate 2: includes by allow-list, no allocation or launches on the device, and flags worth a second look.

Comments and string literals do not count. Nothing else is judged by its text: the rest is behaviour.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator
from typing import Final

from fitness.compiler.includes import MAXIMUM_FINDINGS, include_findings
from fitness.kernel import Kernel
from fitness.outcome import Finding, Gate

FLAGS: Final = {
    "evict_last": "may pin data in L2 between launches",
    "createpolicy": "may pin data in L2 between launches",
    "clock": "reads the clock",
    "clock64": "reads the clock",
    "globaltimer": "reads the clock",
    "nanosleep": "sleeps",
    "__nanosleep": "sleeps",
    "printf": "prints; printed text is ignored",
    "trap": "may end the kernel abnormally",
    "__trap": "may end the kernel abnormally",
}
"""Words that are recorded as notes on the outcome."""

_FORBIDDEN: Final = (
    (r"\b(malloc|calloc|realloc|free|alloca|__builtin_alloca)\s*\(", "device_allocation", "allocates memory"),
    (r"\b(?:new|delete)\b(?!\s*\()", "device_allocation", "allocates memory"),
    (r"\bnew\s*\(\s*(?:std::)?nothrow", "device_allocation", "allocates memory"),
    (r"<<<", "dynamic_parallelism", "launches a kernel from the device"),
    (r"\bcuda(?:Launch\w*|Malloc\w*|Free\w*|GetParameterBuffer\w*)\s*\(", "dynamic_parallelism", "calls the runtime"),
)
_SUGGESTIONS: Final = {
    "device_allocation": "declare a [[workspace]] in the header or use shared memory",
    "dynamic_parallelism": "declare a second [[launch]] in the header",
}
_NOISE = (
    re.compile(  # comments and literals; digit separators (1'000) open none, raw strings end at their own delimiter
        r"//[^\n]*|/\*.*?(?:\*/|\Z)"  # unclosed: to the end of the text, or searching would take quadratic time
        r"|(?<!\w)(?:u8|[uUL])?R\"(?P<raw>[^ ()\\\t\v\f\n]{0,16})\(.*?(?:\)(?P=raw)\"|\Z)"
        r"|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)(?:u8|[uUL])?'(?:\\.|[^'\\\n])*'",
        re.DOTALL,
    )
)


def screen(kernel: Kernel) -> tuple[Finding, ...]:
    """Findings of gate 2, errors first; notes do not reject."""
    text = _Text(kernel.source)
    return (*include_findings(kernel.source), *_forbidden(text), *_flags(text))


class _Text:
    """A source with continued lines joined as the compiler joins them.

    Attributes:
        code: comments blanked; bare: literals blanked too. Both keep the length of the joined text.
    """

    def __init__(self, source: str) -> None:
        pieces = re.split(r"\\\r?\n", source)
        joined = "".join(pieces)
        self._seams = list(itertools.accumulate(len(piece) for piece in pieces[:-1]))
        self._newlines = [match.start() for match in re.finditer("\n", joined)]
        self.code = _NOISE.sub(lambda match: _blank(match) if match[0].startswith("/") else match[0], joined)
        self.bare = _NOISE.sub(_blank, joined)

    def line(self, at: int) -> int:
        """Line of the source at an offset of the joined text."""
        return 1 + bisect.bisect_left(self._newlines, at) + bisect.bisect_right(self._seams, at)


def _blank(match: re.Match[str]) -> str:
    """Spaces instead of the text, so that lines and columns stay."""
    return re.sub(r"[^\n]", " ", match[0])


def _forbidden(text: _Text) -> Iterator[Finding]:
    for pattern, kind, what in _FORBIDDEN:
        for match in itertools.islice(re.finditer(pattern, text.bare), MAXIMUM_FINDINGS):
            message = f"{match[0].strip()!r} {what}"
            yield Finding(Gate.SCREEN, kind, message, text.line(match.start()), _SUGGESTIONS[kind])


def _flags(text: _Text) -> Iterator[Finding]:
    """Flags are looked for in strings too: inline PTX lives there."""
    for word, meaning in FLAGS.items():
        if match := re.search(rf"(?<![A-Za-z0-9_]){word}(?![A-Za-z0-9])", text.code):
            yield Finding(Gate.SCREEN, "flag", f"{word}: {meaning}", text.line(match.start()), severity="note")
