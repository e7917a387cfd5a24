"""A PTX module as data: functions, instructions with source lines, module variables, and what instructions touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from fitness.devices.simulator.variables import Variable

#: Instructions without a destination: all their operands are sources.
NO_DESTINATION = frozenset(
    {
        "st", "bra", "brx", "ret", "exit", "trap", "bar", "barrier",
        "membar", "fence", "red", "cp", "prefetch", "prefetchu", "discard", "applypriority",
        "stmatrix", "brkpt", "nanosleep", "pmevent", "griddepcontrol", "mbarrier", "wgmma", "setmaxnreg",
        "stackrestore", "call", "tensormap", "fabric", "touch",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register: unique name within its function and storage class ("b32", "f32", "pred", ...)."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal as written ("16", "-1", "0f3F800000", "0x10")."""

    text: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, label, function or special register ("%tid.x") named as an operand."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; base is None for an absolute address."""

    base: Register | Symbol | None
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ...}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two destinations (setp, shfl). Either may be the sink `_`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """`!p` or `-x` as a source operand."""

    operand: Register


@dataclass(frozen=True, slots=True)
class Sink:
    """The operand `_`."""


Operand = Register | Immediate | Symbol | Address | Vector | Pair | Negated | Sink


@dataclass(frozen=True)
class Instruction:
    """One instruction: `op` is the opcode split at dots, `guard` the predicate (register, wanted value)."""

    op: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Register, bool] | None
    line: int
    text: str

    @cached_property
    def name(self) -> str:
        """The opcode in full, as PTX writes it."""
        return ".".join(self.op)

    @cached_property
    def destinations(self) -> tuple[Register, ...]:
        """Registers it writes."""
        if not self.operands or (self.op[0] in NO_DESTINATION and not _returns(self.op)):
            return ()
        return tuple(_written(self.operands[0]))

    @cached_property
    def sources(self) -> tuple[Register, ...]:
        """Registers it reads, its guard not included."""
        if self.op[0] == "touch":
            return tuple(_touched(self.op[1:], self.operands))
        if self.op[0] == "wgmma":  # accumulators are read and written
            return tuple(registers_in(self.operands))
        if self.destinations or (self.operands and isinstance(self.operands[0], Sink)):
            return tuple(registers_in(self.operands[1:]))
        return tuple(registers_in(self.operands))


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target."""

    name: str


@dataclass
class Function:
    """An entry (or device function): parameters, registers, body and its own variables."""

    name: str
    entry: bool
    parameters: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    body: list[Instruction | Label] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)


@dataclass
class Module:
    """A PTX module: functions by name and module-level variables."""

    functions: dict[str, Function]
    variables: list[Variable]


def _returns(op: tuple[str, ...]) -> bool:
    """Forms of destination-less families that do write a register."""
    if op[0] in ("bar", "barrier"):
        return "red" in op
    if op[0] == "wgmma":
        return op[1] == "mma_async"
    return op[0] == "mbarrier" and op[1] in ("arrive", "test_wait", "try_wait", "arrive_drop", "pending_count")


def _written(operand: Operand) -> list[Register]:
    if isinstance(operand, Register):
        return [operand]
    if isinstance(operand, Vector):
        return [r for item in operand.items for r in _written(item)]
    if isinstance(operand, Pair):
        return [*_written(operand.first), *_written(operand.second)]
    return []


def _touched(op: tuple[str, ...], operands: Sequence[Operand]) -> list[Register]:
    """What must be known to tell who accesses what (slicing.py): addresses, member masks, sizes of copies, strides."""
    rest: Sequence[Operand] = ()
    if op[0] in ("shfl", "vote", "match", "redux", "elect"):
        rest = operands[-1:]
    elif op[0] == "cp":
        rest = operands[3:]
    elif op[:2] in (("wmma", "load"), ("wmma", "store")):
        rest = operands[2:]
    return registers_in([*(operand for operand in operands if isinstance(operand, Address)), *rest])


def registers_in(operands: Sequence[Operand]) -> list[Register]:
    """All registers named by operands, addresses and vectors included."""
    found: list[Register] = []
    for operand in operands:
        if isinstance(operand, Register):
            found.append(operand)
        elif isinstance(operand, Negated):
            found.append(operand.operand)
        elif isinstance(operand, Address) and isinstance(operand.base, Register):
            found.append(operand.base)
        elif isinstance(operand, Vector):
            found += registers_in(operand.items)
        elif isinstance(operand, Pair):
            found += registers_in((operand.first, operand.second))
    return found


def symbols_in(operands: Sequence[Operand]) -> set[str]:
    """All symbols named by operands, addresses and vectors included."""
    found: set[str] = set()
    for operand in operands:
        if isinstance(operand, Symbol):
            found.add(operand.name)
        elif isinstance(operand, Address) and isinstance(operand.base, Symbol):
            found.add(operand.base.name)
        elif isinstance(operand, Vector):
            found |= symbols_in(operand.items)
    return found
