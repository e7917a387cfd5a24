"""What one thread does at one source line, instruction by instruction: values before and after, and addresses.

Generated code calls `before` and `after` around every instruction of the line (only where a trace was asked for, in
code of its own); everybody else's run is unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fitness.devices.device import Dim3
from fitness.devices.simulator.emit_memory import SPACES, space_of
from fitness.devices.simulator.lanes import Chunk, Context
from fitness.devices.simulator.layout import Layout
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.ptx import Address, Instruction, Label, Operand, Register, Symbol, Vector
from fitness.devices.simulator.ptx_parser import parse
from fitness.devices.simulator.regions import LOCAL_WINDOW, SHARED_START, SHARED_WINDOW, SPACE_SHIFT

MOST = 1000
"""Steps kept; what comes after is counted."""


@dataclass(frozen=True)
class Point:
    """Where to look: a source line, a thread and a block (x, y, z)."""

    line: int
    thread: Dim3 = (0, 0, 0)
    block: Dim3 = (0, 0, 0)


@dataclass(frozen=True)
class Named:
    """The value of a register, as text; `known` is False for one that nothing has initialised."""

    name: str
    value: str
    known: bool = True


@dataclass(frozen=True)
class Step:
    """One executed PTX instruction of the thread.

    Attributes:
        entry: of the launch. text: the instruction. reads, writes: registers. places: memory it names, in words.
    """

    entry: str
    text: str
    reads: tuple[Named, ...]
    writes: tuple[Named, ...]
    places: tuple[str, ...]


@dataclass(frozen=True)
class Watched:
    """An instruction of the line; reads and writes are the registers whose values the generated code hands over."""

    instruction: Instruction
    reads: tuple[Register, ...]
    writes: tuple[Register, ...]


def watched(instruction: Instruction, unused: frozenset[str], *, ends: bool = False) -> Watched:
    """What to hand over of an instruction.

    Args:
        instruction: of the line.
        unused: registers that are written but never read, of which the engine may not know the value.
        ends: it ends a basic block, so nothing follows it in the same function.
    """
    read = list(instruction.sources)
    if instruction.guard is not None:
        read.append(instruction.guard[0])
    written = [] if ends else [r for r in instruction.destinations if r.name not in unused]
    return Watched(instruction, tuple(dict.fromkeys(read)), tuple(dict.fromkeys(written)))


@dataclass
class Tracer:
    """Collects the steps of one thread at one line, over all launches of a run."""

    point: Point
    steps: list[Step] = field(default_factory=list)
    left_out: int = 0
    reached: bool = False  # the block exists in some launch
    _memory: Memory | None = None
    _layout: Layout | None = None
    _entry: str = ""
    _lane: int = -1
    _open: tuple[tuple[Named, ...], tuple[str, ...]] = ((), ())

    def launch(self, entry: str, memory: Memory, layout: Layout) -> None:
        """A launch begins."""
        self._entry, self._memory, self._layout = entry, memory, layout

    def begin(self, chunk: Chunk) -> None:
        """A chunk of blocks begins: find the thread's lane in it."""
        self._lane = -1
        (x, y, z), (tx, ty, tz) = self.point.block, self.point.thread
        sizes = (*chunk.grid, *chunk.block)
        if any(a >= size for a, size in zip((x, y, z, tx, ty, tz), sizes, strict=True)):
            return
        linear = x + chunk.grid[0] * (y + chunk.grid[1] * z)
        places = np.flatnonzero(chunk.blocks == linear)
        if places.size:
            self.reached = True
            self._lane = int(places[0]) * chunk.stride + tx + chunk.block[0] * (ty + chunk.block[1] * tz)

    # ---- what generated code calls

    def before(self, context: Context, what: Watched, values: tuple[Any, ...], marks: tuple[Any, ...]) -> None:
        """The registers an instruction is about to read."""
        place = self._place(context)
        if place < 0:
            return
        held = {r.name: _at(v, place) for r, v in zip(what.reads, values, strict=True)}
        places = tuple(self._where(address, space, held) for address, space in _addresses(what.instruction))
        self._open = _named(what.reads, values, marks, place), places

    def after(self, context: Context, what: Watched, values: tuple[Any, ...], marks: tuple[Any, ...]) -> None:
        """The registers it has written."""
        place = self._place(context)
        if place < 0:
            return
        if len(self.steps) == MOST:
            self.left_out += 1
            return
        reads, places = self._open
        writes = _named(what.writes, values, marks, place)
        self.steps.append(Step(self._entry, what.instruction.text, reads, writes, places))

    def _place(self, context: Context) -> int:
        """Place of the thread among the lanes of a group, -1 where it is not one of them."""
        if self._lane < 0:
            return -1
        place = int(np.searchsorted(context.lanes, self._lane))
        return place if place < context.n and int(context.lanes[place]) == self._lane else -1

    def _where(self, address: Address, space: str, held: dict[str, Any]) -> str:
        """An address in words."""
        assert self._memory is not None
        assert self._layout is not None
        if isinstance(address.base, Symbol):
            if address.base.name not in self._layout.symbols:
                return f"{address.base.name}+{address.offset}"
            space, base = self._layout.symbols[address.base.name]
        else:
            base = int(held[address.base.name]) if address.base is not None else 0
        where = base + address.offset
        if space == "generic" and where >> SPACE_SHIFT in (1, 2):
            space = {1: "shared", 2: "local"}[where >> SPACE_SHIFT]
            where -= {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}[space]
        if space == "shared":
            return self._shared(where)
        if space in ("local", "param"):
            return f"{space} memory, byte {where % (1 << SPACE_SHIFT)}"
        region = self._memory.find(where)
        if region is None or where >= region.end:
            return f"address {where:#x}, in no buffer"
        first = (where - region.base) // region.dtype.itemsize
        element = region.data[first * region.dtype.itemsize :][: region.dtype.itemsize].view(region.dtype)
        value = f" holding {element[0]!s}" if region.dtype.kind in "fiu" and element.size else ""
        return f"{self._memory.element(region, where - region.base)}{value} ({where:#x})"

    def _shared(self, where: int) -> str:
        assert self._layout is not None
        rank, local = where >> 24, where & ((1 << 24) - 1)
        starts = [(at, name) for name, (space, at) in self._layout.symbols.items() if space == "shared" and at <= local]
        of = f" of block {rank - 1} of the cluster" if rank else ""
        variable = ""
        if starts:
            at, name = max(starts)
            variable = f" ({_demangled(name)}+{local - at})"
        return f"shared memory{of}, byte {local - SHARED_START}{variable}"


def _demangled(name: str) -> str:
    """The variable in the mangled name of a function's static variable ("_ZZ3fooE4tile" is tile), else the name."""
    for found in re.finditer(r"\d+", name):
        if int(found[0]) == len(name) - found.end():
            return name[found.end() :]
    return name


def _addresses(instruction: Instruction) -> list[tuple[Address, str]]:
    """Memory operands of an instruction and their state space; a copy names its destination's first."""
    spaces = [space for part in instruction.op if (space := part.split("::")[0]) in SPACES]
    found: list[Address] = []

    def look(operand: Operand) -> None:
        if isinstance(operand, Address):
            found.append(operand)
        elif isinstance(operand, Vector):
            for item in operand.items:
                look(item)

    for operand in instruction.operands:
        look(operand)
    copies = instruction.op[0] == "cp" and len(spaces) > 1
    chosen = []
    for number, address in enumerate(found):
        space = spaces[number] if copies and number < 2 else "shared" if copies else space_of(instruction.op)
        chosen.append((address, space))
    return chosen


def _named(
    registers: Sequence[Register], values: tuple[Any, ...], marks: tuple[Any, ...], place: int
) -> tuple[Named, ...]:
    named = []
    for register, value, mark in zip(registers, values, marks, strict=True):
        known = not bool(_at(mark, place))
        named.append(Named(f"%{register.name}", shown(_at(value, place)), known))
    return tuple(named)


def _at(value: Any, place: int) -> Any:
    return value[place] if isinstance(value, np.ndarray) and value.ndim else value


def shown(value: Any) -> str:
    """A register's value: floats in full, large integers in hexadecimal with their signed value."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating):
        bits = np.asarray(value).view(f"u{np.asarray(value).itemsize}")[()]
        return f"{value!s} ({int(bits):#x})"
    number = int(value)
    if number < 1 << 16:
        return str(number)
    size = 8 * np.asarray(value).itemsize
    signed = number - (1 << size) if number >> (size - 1) else number
    return f"{number:#x} ({signed})"


def code_lines(ptx: str, entries: set[str]) -> set[int]:
    """Source lines of the candidate that instructions of these entries come from."""
    functions = parse(ptx).functions
    found = {
        item.line
        for name in entries
        if name in functions
        for item in functions[name].body
        if not isinstance(item, Label)
    }
    return found - {0}
