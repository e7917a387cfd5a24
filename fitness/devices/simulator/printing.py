"""Device `printf`: formats what `vprintf` is handed, bounded."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fitness.devices.simulator.lanes import Context, Value
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.writer import register_dtype

LONGEST = 4096
_LANES = 64
_SPEC = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(hh|h|ll|l|z)?([diouxXcsfFeEgGaAp%])")


class Printer:
    """Collects the text of a run. `text` stops at `LONGEST` characters."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.text = ""

    def print(self, context: Context, layout: Value, buffer: Value) -> None:
        """`vprintf(layout, buffer)` for every lane, in lane order."""
        layouts, buffers = np.broadcast_to(layout, context.n), np.broadcast_to(buffer, context.n)
        for place in range(min(context.n, _LANES)):
            if len(self.text) >= LONGEST:
                return
            one = Context(context.chunk, context.lanes[place : place + 1])
            self.text += self._format(one, self._string(one, layouts[place]), buffers[place])
            self.text = self.text[:LONGEST]

    def _read(self, one: Context, address: int, kind: str) -> Any:
        site = Site(0, "reads", "generic", register_dtype(kind), 1, 0, 0, "printf")
        return self.memory.load(one, np.array([address], dtype=np.uint64), site)[0][0]

    def _string(self, one: Context, address: Any) -> str:
        text = ""
        while len(text) < LONGEST and (byte := int(self._read(one, int(address) + len(text), "b8"))):
            text += chr(byte)
        return text

    def _format(self, one: Context, layout: str, buffer: Any) -> str:
        at = 0

        def argument(match: re.Match[str]) -> str:
            nonlocal at
            length, conversion = match.groups()
            if conversion == "%":
                return "%"
            wide = conversion in "fFeEgGaAsp" or length in ("l", "ll", "z")
            size = 8 if wide else 4
            at = -(-at // size) * size
            bits = self._read(one, int(buffer) + at, f"b{8 * size}")
            at += size
            return self._one(one, match[0].replace(length or "", "", 1), conversion, bits, size)

        return _SPEC.sub(argument, layout)

    def _one(self, one: Context, spec: str, conversion: str, bits: Any, size: int) -> str:
        if conversion in "fFeEgG":
            return spec % float(bits.view(np.float64))
        if conversion in "aA":
            return float(bits.view(np.float64)).hex()
        if conversion == "s":
            return spec % self._string(one, bits)
        if conversion == "p":
            return f"{int(bits):#x}"
        if conversion == "c":
            return chr(int(bits) & 0xFF)
        signed = conversion in "di"
        return spec.replace("u", "d") % int(bits.view(f"i{size}") if signed else bits)
