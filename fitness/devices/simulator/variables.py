"""Variables of PTX state spaces (`.shared`, `.global`, `.const`, `.local`, `.param`) with their initial images."""

from __future__ import annotations

import functools
import re
import struct
from dataclasses import dataclass


class PtxError(ValueError):
    """PTX this parser does not understand (a fault of the engine or of exotic code, not of the candidate)."""


@dataclass(frozen=True)
class Variable:
    """A declared variable.

    Attributes:
        space: "shared", "global", "const", "local", "param" or "reg".
        bytes: size in all; 0 for `extern` arrays of unknown length. `align`: bytes.
        initial: little-endian image, None where the declaration has no initialiser.
        references: (offset, symbol, addend, bytes) of addresses in the initialiser, filled in at load.
    """

    name: str
    space: str
    type: str
    bytes: int
    align: int
    external: bool = False
    initial: bytearray | None = None
    references: tuple[tuple[int, str, int, int], ...] = ()
    dimensions: tuple[int, ...] = ()


_DECLARATION = re.compile(
    r"(?P<link>(?:\.(?:extern|visible|weak|common)\s+)*)"
    r"\.(?P<space>shared|global|const|local|param|reg)\s+"
    r"(?P<rest>.*)",
    re.S,
)
_PIECES = re.compile(
    r"(?P<attributes>(?:\.(?:ptr|attribute\s*\([^)]*\)|align\s+\d+|volatile|global|shared|const|local)\s*|\.v[248]\s+|"
    r"\.(?:[busf]\d+(?:x2)?|bf16(?:x2)?|pred|texref|samplerref|surfref)\s+(?:\.ptr\s*)?)+)"
    r"(?P<name>[\w$%]+)\s*(?P<dims>(?:\[\s*\d*\s*\])*)\s*(?:=\s*(?P<init>.*))?",
    re.S,
)
_TYPE = re.compile(r"\.([busf]\d+(?:x2)?|bf16(?:x2)?|pred)\b")


@functools.cache
def type_bytes(name: str) -> int:
    """Bytes of a PTX fundamental type ("f32" -> 4, "f16x2" -> 4, "pred" -> 1)."""
    if name == "pred":
        return 1
    if name.endswith("x2"):
        return 4
    digits = re.sub(r"\D", "", name.replace("bf16", "b16"))
    return int(digits) // 8


def parse_variable(statement: str) -> Variable:
    """Parse one declaration without its semicolon.

    Raises:
        PtxError: not a variable declaration.
    """
    match = _DECLARATION.match(statement.strip())
    pieces = _PIECES.match(match["rest"].strip()) if match else None
    if match is None or pieces is None:
        raise PtxError(f"declaration {statement[:80]!r}")
    attributes = pieces["attributes"]
    kind = _TYPE.search(attributes)
    if kind is None:
        raise PtxError(f"declaration without a known type {statement[:80]!r}")
    vector = re.search(r"\.v([248])\s", attributes)
    dimensions = tuple(int(d) if d.strip() else 0 for d in re.findall(r"\[\s*(\d*)\s*\]", pieces["dims"]))
    element = type_bytes(kind[1])
    count = int(vector[1]) if vector else 1
    for dimension in dimensions:
        count *= dimension
    align = re.search(r"\.align\s+(\d+)", attributes)
    initial, references = _initial(pieces["init"], kind[1], element, count) if pieces["init"] else (None, ())
    return Variable(
        name=pieces["name"],
        space=match["space"],
        type=kind[1],
        bytes=element * count,
        align=int(align[1]) if align else element,
        external=".extern" in match["link"],
        initial=initial,
        references=references,
        dimensions=dimensions,
    )


def _number(text: str, kind: str, size: int) -> bytes:
    if text.startswith(("0f", "0F")):
        return struct.pack("<I", int(text[2:], 16))[:size]
    if text.startswith(("0d", "0D")):
        return struct.pack("<Q", int(text[2:], 16))[:size]
    if kind.startswith("f"):
        return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], float(text))
    return (int(text.rstrip("U"), 0) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _initial(text: str, kind: str, size: int, count: int) -> tuple[bytearray, tuple[tuple[int, str, int, int], ...]]:
    """Image and address references of an initialiser."""
    image = bytearray()
    references = []
    for part in (piece.strip() for piece in text.replace("{", " ").replace("}", " ").split(",")):
        if not part:
            continue
        if part[0].isdigit() or part[0] in "+-":
            image += _number(part, kind, size)
            continue
        match = re.fullmatch(r"(?:generic\(\s*)?([\w$]+)\s*\)?\s*(?:\+\s*(\d+))?", part)
        if match is None or size < 4:
            raise PtxError(f"initialiser {part!r}")
        references.append((len(image), match[1], int(match[2] or 0), size))
        image += bytes(size)
    image += bytes(max(0, size * count - len(image)))
    return image, tuple(references)
