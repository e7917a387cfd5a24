"""Reads the sections of a cubin (ELF64, little endian) to tell whether two builds hold the same code."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOBITS = 8
# Machine code and its relocations, module-level variables, user constants and kernel parameter space, static
# shared memory. Not symbol tables, debug lines, notes or compiler versions: a comment changes some of those.
_CODE = (".text", ".rel.text", ".rela.text", ".nv.global", ".nv.constant", ".nv.shared")


class CubinError(ValueError):
    """Not a cubin this reader understands."""


@dataclass(frozen=True)
class Section:
    """One ELF section. `data` is empty for NOBITS sections, whose `size` still counts."""

    name: str
    size: int
    data: bytes


def sections(cubin: bytes) -> Iterator[Section]:
    """The sections in file order.

    Raises:
        CubinError: truncated, or not a 64-bit little-endian ELF file.
    """
    if len(cubin) < _HEADER.size or cubin[:6] != b"\x7fELF\x02\x01":
        raise CubinError("not a 64-bit little-endian ELF file")
    fields = _HEADER.unpack_from(cubin)
    table, entry_size, count, names_index = fields[6], fields[11], fields[12], fields[13]
    if entry_size != _SECTION.size or table + count * entry_size > len(cubin) or names_index >= count:
        raise CubinError("the section table is damaged")
    raw = [_SECTION.unpack_from(cubin, table + index * entry_size) for index in range(count)]
    names = _bytes(cubin, raw[names_index])
    for section in raw:
        end = names.find(b"\0", section[0])
        name = names[section[0] : end].decode("ascii", errors="replace")
        yield Section(name, section[5], _bytes(cubin, section))


def _bytes(cubin: bytes, section: tuple[int, ...]) -> bytes:
    kind, offset, size = section[1], section[4], section[5]
    if kind == _NOBITS:
        return b""
    if offset + size > len(cubin):
        raise CubinError("a section reaches past the end of the file")
    return cubin[offset : offset + size]


def code_hash(cubin: bytes) -> str:
    """sha256 over name, size and content of the code and data sections: equal for builds that run the same."""
    digest = hashlib.sha256()
    for section in sorted(sections(cubin), key=lambda item: item.name):
        if section.name.startswith(_CODE):
            digest.update(f"{section.name}\0{section.size}\0{len(section.data)}\0".encode())
            digest.update(section.data)
    return digest.hexdigest()


def module_bytes(cubin: bytes) -> int:
    """Bytes of module-level `__device__` and `__constant__` variables (uninitialised ones included)."""
    names = (".nv.global", ".nv.constant3")
    return sum(section.size for section in sections(cubin) if section.name.startswith(names))
