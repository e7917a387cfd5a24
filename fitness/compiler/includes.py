"""The include allow-list: which files a candidate may name, checked before NVRTC opens anything.

NVRTC opens any path an `#include` names, so `#include "/etc/passwd"` would put a file of this machine
into a diagnostic. The check errs on the strict side: every directive whose operand is not literally on the
list is an error, whatever hides it (line splices, digraphs, comments inside the directive, macros as
operand). Only a directive that certainly lies in a comment is forgiven.
"""

from __future__ import annotations

import re

from fitness.outcome import Finding, Gate

#: Names a candidate may include, as patterns over the text between <> or "".
ALLOWED = re.compile(
    r"evo\.cuh|cuda_fp16\.h|cuda_bf16\.h|cuda_fp8\.h|mma\.h|cuda_pipeline\.h|cooperative_groups\.h"
    r"|cooperative_groups/(memcpy_async|reduce|scan)\.h"
    r"|cuda/(barrier|pipeline|atomic|ptx)|cuda/std/[a-z_0-9]+|cub/(block|warp)/[a-z_0-9]+\.cuh"
)

ALLOWED_TEXT = (
    "evo.cuh, cuda_fp16.h, cuda_bf16.h, cuda_fp8.h, mma.h, cuda_pipeline.h, cooperative_groups.h and its parts, "
    "cuda/barrier, cuda/pipeline, cuda/atomic, cuda/ptx, cuda/std/*, cub/block/*, cub/warp/*"
)

_GAP = r"(?:\s|/\*.*?\*/)*"
_DIRECTIVE = re.compile(
    rf"(?:#|%:|\?\?=){_GAP}(?:include_next|include|import|embed)\b{_GAP}(?P<operand>[^\n]*)"
    rf"|\b__has_(?:include|embed|include_next)\b{_GAP}\(?{_GAP}(?P<probe>[^\n]*)",
    re.DOTALL,
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
    """One error per include directive (or `__has_include`) that names nothing on the allow-list."""
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
        if any(start <= match.start() < end for start, end in comments):
            continue
        operand = match["operand"] if match["operand"] is not None else match["probe"]
        name = _name(operand)
        if name is None or not ALLOWED.fullmatch(name):
            what = f"includes {name!r}" if name is not None else f"includes by {operand.strip()[:40]!r}"
            message = f"{what}, which is not on the include allow-list"
            line = _line_of(lines, match.start())
            findings.append(Finding(gate, "include_not_allowed", message, line, f"Allowed: {ALLOWED_TEXT}."))
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
    return sum(1 for start in starts if start <= offset)


def _comments(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _TOKEN.finditer(text) if match["comment"] is not None]
