"""The include allow-list: which files a candidate may name, asked by gate 2 and again before NVRTC opens anything.

NVRTC opens any path an `#include` names, so `#include "/etc/passwd"` would put a file of this machine
into a diagnostic. The check errs on the strict side: every directive that is not `#include` of a name literally
on the list is an error, whatever hides it (line splices, digraphs, comments inside the directive, macros as
operand); so are long or many comments right behind a #, whatever they hide. Only a directive that certainly lies
in a comment is forgiven.
"""

from __future__ import annotations

import bisect
import re
from importlib import resources

from fitness.expressions import nearest
from fitness.outcome import Finding, Gate

PRELUDES = tuple(
    sorted(file.name for file in resources.files("fitness").joinpath("include").iterdir() if file.name.endswith(".cuh"))
)
"""Our own headers, in `fitness/include`."""

HEADERS = (
    *PRELUDES, "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "mma.h", "cuda_pipeline.h",
    "cooperative_groups.h", "cooperative_groups/memcpy_async.h", "cooperative_groups/reduce.h",
    "cooperative_groups/scan.h", "cuda/barrier", "cuda/pipeline", "cuda/atomic", "cuda/ptx",
)  # fmt: skip
"""Headers a candidate may include, besides those in `FAMILIES`."""

FAMILIES = {"cuda/std/*": r"cuda/std/[a-z_0-9]+", "cub/block/*": r"cub/block/[a-z_0-9]+\.cuh",
            "cub/warp/*": r"cub/warp/[a-z_0-9]+\.cuh"}  # fmt: skip
"""Folders of headers a candidate may include: as people write them, and as a pattern."""

_ALLOWED = re.compile("|".join((*map(re.escape, HEADERS), *FAMILIES.values())))

MAXIMUM_FINDINGS = 10
"""Of one kind in one source: a source may hold thousands, and nobody reads them."""

# Bounded, or a row of comments would be tried in every division (2^n), an unclosed one from every # (n^2).
_GAP = r"\s*+(?:/\*(?:[^*]|\*(?!/)){0,200}+\*/\s*+){0,8}+"
_DIRECTIVE = re.compile(
    rf"(?:#|%:|\?\?=){_GAP}(?:(?P<word>include_next|include|import|embed)\b{_GAP}(?P<operand>[^\n]*)|(?P<hidden>/\*))"
    rf"|\b__has_(?:include|embed|include_next)\b{_GAP}\(?{_GAP}(?P<probe>[^\n]*)"
)
_OPERAND = re.compile(r'<(?P<angle>[^<>"\n]*)>|"(?P<quote>[^"\n]*)"')
_SPLICE = re.compile(r"\\\r?\n")
# Lexical tokens that decide whether a position lies in a comment. A pp-number comes first so that the digit
# separators of 1'000 open no character literal.
_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|\.?\d(?:'?[A-Za-z0-9_]|[eEpP][+-]|\.)*"
    r"|[A-Za-z_]\w*"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'(?:\\.|[^'\\\n])*'?",
    re.DOTALL,
)
# Where our lexer and NVRTC's might disagree (raw strings undo splices; blanks after a splice; lone carriage
# returns), nothing counts as a comment.
_DOUBTFUL = re.compile(r'R"|\\[ \t\f\v]+\r?\n|\r(?!\n)')


def include_findings(source: str, gate: Gate = Gate.SCREEN) -> tuple[Finding, ...]:
    """One error per include directive (or `__has_include`) that names nothing on the allow-list; the first ten."""
    if "\0" in source:
        line = source[: source.index("\0")].count("\n") + 1
        return (Finding(gate, "bad_source", "the source contains a NUL character", line, "remove it"),)
    try:
        source.encode()
    except UnicodeEncodeError as error:
        line = source[: error.start].count("\n") + 1
        return (Finding(gate, "bad_source", "the source is not valid Unicode text", line, "save it as UTF-8"),)
    lines, text = _splice(source)
    comments = [] if _DOUBTFUL.search(source) else _comments(text)
    findings = []
    for match in _DIRECTIVE.finditer(text):
        before = bisect.bisect_right(comments, match.start(), key=lambda span: span[0])
        if before and match.start() < comments[before - 1][1]:
            continue
        operand = next(part for part in match.group("operand", "hidden", "probe") if part is not None)
        name = _name(operand)
        word = match["word"] or "include"
        if word != "include" or name is None or not _ALLOWED.fullmatch(name):
            what = f"#{word} of {operand.strip()[:80] if name is None else name[:80]!r}"
            message = f"{what}, which is not on the include allow-list"
            line = _line_of(lines, match.start())
            hint = nearest(name or "", (*HEADERS, *FAMILIES))
            findings.append(Finding(gate, "forbidden_include", message, line, f"allowed headers: {hint}"))
            if len(findings) == MAXIMUM_FINDINGS:
                break
    return tuple(findings)


def _name(operand: str) -> str | None:
    match = _OPERAND.match(operand)
    if match is None:
        return None
    return match["angle"] if match["angle"] is not None else match["quote"]


def _splice(source: str) -> tuple[list[int], str]:
    """Join spliced lines; also gives the offset (in the joined text) at which each source line starts."""
    starts, pieces, length, position = [0], [], 0, 0
    for match in re.finditer(r"\\?\r?\n", source):
        spliced = _SPLICE.fullmatch(match[0]) is not None
        piece = source[position : match.start()] + ("" if spliced else "\n")
        pieces.append(piece)
        length += len(piece)
        starts.append(length)
        position = match.end()
    pieces.append(source[position:])
    return starts, "".join(pieces)


def _line_of(starts: list[int], offset: int) -> int:
    return bisect.bisect_right(starts, offset)


def _comments(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _TOKEN.finditer(text) if match["comment"] is not None]
