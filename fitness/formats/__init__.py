"""Storage formats of W: one module each, NumPy only, found by name."""

from __future__ import annotations

from typing import cast

from fitness.formats.format import Format, FormatError
from fitness.registry import find

__all__ = ["FORMATS", "Format", "FormatError", "get_format"]

FORMATS: dict[str, str] = {
    "bitmap": "fitness.formats.bitmap:Bitmap",
    "blocked_ell": "fitness.formats.blocked_ell:BlockedEll",
    "bsr": "fitness.formats.bsr:Bsr",
    "channels": "fitness.formats.channels:Channels",
    "coo": "fitness.formats.coo:Coo",
    "csc": "fitness.formats.csc:Csc",
    "csr": "fitness.formats.csr:Csr",
    "dense": "fitness.formats.dense:Dense",
    "dia": "fitness.formats.dia:Dia",
    "ell": "fitness.formats.ell:Ell",
    "nm": "fitness.formats.nm:Nm",
    "nm24": "fitness.formats.nm24:Nm24",
    "periodic": "fitness.formats.periodic:Periodic",
    "rows": "fitness.formats.rows:Rows",
    "sell": "fitness.formats.sell:Sell",
}
"""Kernel headers name these only; a format of one's own is added here, by name."""


def get_format(name: str) -> Format:
    """The format of that name (or dotted path "module:Class").

    Raises:
        UnknownNameError: there is none; the message has the nearest spelling.
    """
    return cast(Format, find(FORMATS, name, "format")())
