"""Calls of device functions replaced by their bodies, so that the engine knows one flat function per entry.

Parameters pass through `.param` variables (`st.param` before the call, `ld.param` in the callee and for the result);
each (variable, offset) becomes a register. `vprintf` and `__assertfail` become instructions of their own.
Recursion, calls through pointers and anything that takes the address of a parameter stay unsupported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.ptx import (
    Address,
    Function,
    Instruction,
    Label,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Vector,
)
from fitness.devices.simulator.variables import type_bytes

_DEEPEST = 16
_TRAPS = frozenset({"__assertfail", "abort"})


def inline_calls(module: Module, function: Function) -> Function:
    """The function with all calls inlined; itself if it calls nothing.

    Raises:
        Stop: a call cannot be inlined.
    """
    if not any(isinstance(item, Instruction) and item.op[0] == "call" for item in function.body):
        return function
    flat = Function(function.name, function.entry, function.parameters, [], [], [], {}, dict(function.registers))
    _Inliner(module, flat).add(function, _Instance("", {}, frozenset(p.name for p in function.parameters), 0))
    return flat


@dataclass
class _Instance:
    """One inlined occurrence: prefix of its names, formal parameter -> slot, parameters of the entry.

    NVRTC uses the names `param0`, `retval0` again for every call: `call` numbers the calls made from here, and
    the first `st.param` after a call (`called`) belongs to the next one.
    """

    prefix: str
    bound: Mapping[str, str]
    own: frozenset[str]
    depth: int
    call: int = 0
    called: bool = False

    def slot(self, name: str) -> str:
        """Slot of a `.param` variable: the caller's for a formal parameter, else one of its own."""
        return self.bound.get(name, f"{self.prefix}{name}_{self.call}")

    def writes(self, name: str) -> None:
        """A `st.param` to one of its variables."""
        if name not in self.bound:
            self.calls(begins=False)

    def calls(self, *, begins: bool) -> None:
        """A call, or the first argument of one."""
        if self.called:
            self.call += 1
        self.called = begins


class _Inliner:
    def __init__(self, module: Module, flat: Function) -> None:
        self.module, self.flat = module, flat
        self.calls = 0
        self.shared: set[str] = set()

    def add(self, function: Function, instance: _Instance) -> None:
        """Append a function's body under an instance's names."""
        prefix = instance.prefix
        for variable in function.variables:
            if variable.space == "local":
                self.flat.variables.append(replace(variable, name=prefix + variable.name))
            elif variable.space != "param" and variable.name not in self.shared:
                self.shared.add(variable.name)
                self.flat.variables.append(variable)
        for name, kind in function.registers.items():
            self.flat.registers[prefix + name] = kind
        for name, labels in function.targets.items():
            self.flat.targets[prefix + name] = tuple(prefix + label for label in labels)
        local = {v.name for v in function.variables if v.space == "local"} | set(function.targets)
        local |= {item.name for item in function.body if isinstance(item, Label)}
        for item in function.body:
            if isinstance(item, Label):
                self.flat.body.append(Label(prefix + item.name))
            else:
                self._instruction(item, instance, local)

    def _instruction(self, ins: Instruction, instance: _Instance, local: set[str]) -> None:
        renamed = _renamed(ins, instance.prefix, local)
        if ins.op[0] == "call":
            self._call(renamed, instance)
        elif ins.op[0] == "ret" and instance.prefix:
            jump = replace(renamed, op=("bra",), operands=(Symbol(instance.prefix + "return"),))
            self.flat.body.append(jump)
        elif (
            ins.op[0] in ("ld", "st") and "param" in "".join(ins.op[1:2]) and (moves := self._moves(renamed, instance))
        ):
            self.flat.body += moves
        else:
            self.flat.body.append(renamed)

    def _register(self, slot: str, offset: int, kind: str) -> Register:
        name = f"slot_{slot}_{offset}"
        bits = f"b{8 * type_bytes(kind)}"
        if self.flat.registers.setdefault(name, bits) != bits:
            raise unsupported("a function parameter that is read in another width than it was written", 0)
        return Register(name, bits)

    def _moves(self, ins: Instruction, instance: _Instance) -> list[Instruction]:
        """`ld.param` / `st.param` of a call's variables as moves; nothing for the entry's own parameters."""
        load = ins.op[0] == "ld"
        address, value = (ins.operands[1], ins.operands[0]) if load else (ins.operands[0], ins.operands[1])
        if not isinstance(address, Address) or not isinstance(address.base, Symbol):
            raise unsupported(f"`{ins.text}`", ins.line)
        if address.base.name in instance.own:
            return []
        kind = ins.op[-1]
        if not load:
            instance.writes(address.base.name)
        items = value.items if isinstance(value, Vector) else (value,)
        moves = []
        for place, item in enumerate(items):
            slot = self._register(instance.slot(address.base.name), address.offset + place * type_bytes(kind), kind)
            operands: tuple[Operand, ...] = (item, slot) if load else (slot, item)
            moves.append(replace(ins, op=("mov", f"b{8 * type_bytes(kind)}"), operands=operands))
        return moves

    def _call(self, ins: Instruction, instance: _Instance) -> None:
        instance.calls(begins=True)
        operands = list(ins.operands)
        results = operands.pop(0) if isinstance(operands[0], Vector) else Vector(())
        assert isinstance(results, Vector)
        target = operands[0]
        arguments = operands[1] if len(operands) > 1 and isinstance(operands[1], Vector) else Vector(())
        if not isinstance(target, Symbol) or len(operands) > 2:
            raise unsupported(f"a call through a pointer, `{ins.text}`", ins.line)
        names = [o.name for o in arguments.items if isinstance(o, Symbol)]
        if target.name == "vprintf":
            slots = [self._register(instance.slot(n), 0, "b64") for n in names]
            result = self._register(instance.slot(_names(results)[0]), 0, "b32")
            self.flat.body.append(replace(ins, op=("vprintf",), operands=(result, *slots)))
        elif target.name in _TRAPS:
            self.flat.body.append(replace(ins, op=("trap",), operands=()))
        else:
            self._inline(ins, target.name, names, _names(results), instance)

    def _inline(
        self, ins: Instruction, name: str, arguments: list[str], results: list[str], instance: _Instance
    ) -> None:
        callee = self.module.functions.get(name)
        if callee is None or not callee.body:
            raise unsupported(f"a call of {name}", ins.line)
        if instance.depth >= _DEEPEST:
            raise unsupported(f"recursion in {name}", ins.line)
        self.calls += 1
        prefix = f"i{self.calls}_"
        bound = {p.name: instance.slot(a) for p, a in zip(callee.parameters, arguments, strict=True)}
        bound |= {p.name: instance.slot(r) for p, r in zip(callee.results, results, strict=True)}
        if ins.guard is not None:
            register, wanted = ins.guard
            skip = replace(ins, op=("bra",), operands=(Symbol(prefix + "return"),), guard=(register, not wanted))
            self.flat.body.append(skip)
        self.add(callee, _Instance(prefix, bound, instance.own, instance.depth + 1))
        self.flat.body.append(Label(prefix + "return"))


def _names(operand: Vector) -> list[str]:
    return [item.name for item in operand.items if isinstance(item, Symbol)]


def _renamed(ins: Instruction, prefix: str, local: set[str]) -> Instruction:
    if not prefix:
        return ins
    guard = (Register(prefix + ins.guard[0].name, ins.guard[0].kind), ins.guard[1]) if ins.guard else None
    return replace(ins, operands=tuple(_operand(o, prefix, local) for o in ins.operands), guard=guard)


def _operand(operand: Operand, prefix: str, local: set[str]) -> Operand:
    if isinstance(operand, Register):
        return Register(prefix + operand.name, operand.kind)
    if isinstance(operand, Negated):
        return Negated(Register(prefix + operand.operand.name, operand.operand.kind))
    if isinstance(operand, Vector):
        return Vector(tuple(_operand(item, prefix, local) for item in operand.items))
    if isinstance(operand, Pair):
        return Pair(_operand(operand.first, prefix, local), _operand(operand.second, prefix, local))
    if isinstance(operand, Symbol) and operand.name in local:
        return Symbol(prefix + operand.name)
    if isinstance(operand, Address) and operand.base is not None:
        base = _operand(operand.base, prefix, local)
        assert isinstance(base, Register | Symbol)
        return Address(base, operand.offset)
    return operand
