"""Code for moves, selections, comparisons, conversions and `lop3`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fitness.devices.simulator import arithmetic
from fitness.devices.simulator.arithmetic import Opcode, UnsupportedInstruction, instruction
from fitness.devices.simulator.convert import UnsupportedConversion, conversion
from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.ptx import Immediate, Instruction, Operand, Pair, Register, Sink, Vector
from fitness.devices.simulator.variables import type_bytes
from fitness.devices.simulator.writer import Writer, register_dtype

_COMPARE = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
INTEGERS = {"b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64"}
_FLOAT_COMPARE = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neu": "!="}


def pick(condition: Any, yes: Any, no: Any) -> Any:
    """Yes where the condition holds, else no; scalars stay scalars."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def carry_taint(writer: Writer, ins: Instruction, destinations: Sequence[Register]) -> None:
    """Results are uninitialised where a source is."""
    writer.assign_taint(destinations, writer.taint_of(ins.sources))


def _mov(writer: Writer, ins: Instruction) -> None:
    destination, source = ins.operands
    kind = ins.op[-1]
    if isinstance(destination, Vector):
        _unpack(writer, ins, destination, source)
        return
    if isinstance(destination, Sink):
        return
    assert isinstance(destination, Register)
    if isinstance(source, Vector):
        writer.assign(destination, kind, _packed(writer, source, kind, ins.line))
    else:
        writer.assign(destination, kind, writer.value(source, kind, ins.line))
    if isinstance(source, Register):
        writer.assign_taint([destination], writer.copied_taint(source))
    else:
        carry_taint(writer, ins, [destination])


def _packed(writer: Writer, source: Vector, kind: str, line: int) -> str:
    whole = register_dtype(kind)
    part = 8 * type_bytes(kind) // len(source.items)
    terms = []
    for place, item in enumerate(source.items):
        value = writer.value(item, f"b{part}" if part > 8 else "b8", line)
        widened = f"{value}.astype(_{whole.name})"
        terms.append(f"({widened} << {writer.constant(whole.type(place * part))})" if place else widened)
    return " | ".join(terms)


def _unpack(writer: Writer, ins: Instruction, destination: Vector, source: Operand) -> None:
    kind = ins.op[-1]
    whole = register_dtype("b" + str(8 * type_bytes(kind)))
    part = 8 * type_bytes(kind) // len(destination.items)
    value = writer.value(source, "b" + str(8 * type_bytes(kind)), ins.line)
    writer.put(f"_t = {value}")
    narrow = register_dtype(f"b{part}")
    written = []
    for place, item in enumerate(destination.items):
        if isinstance(item, Sink):
            continue
        assert isinstance(item, Register)
        shifted = f"(_t >> {writer.constant(whole.type(place * part))})" if place else "_t"
        writer.assign(item, f"b{part}", f"{shifted}.astype(_{narrow.name})")
        written.append(item)
    carry_taint(writer, ins, written)


_WINDOW = {"shared": 1 << 40, "local": 2 << 40, "param": 3 << 40}


def _cvta(writer: Writer, ins: Instruction) -> None:
    """`cvta{.to}.space.u64`: addresses of buffers and constants are generic already, windows are added."""
    destination, source = ins.operands
    assert isinstance(destination, Register)
    space = next((p.split("::")[0] for p in ins.op[1:] if p.split("::")[0] in (*_WINDOW, "global", "const")), "")
    value = writer.value(source, ins.op[-1], ins.line)
    if space in ("shared", "local"):
        sign = "-" if "to" in ins.op else "+"
        if ins.op[-1] != "u64":
            raise unsupported(f"`{ins.text}`", ins.line)
        value = f"{value} {sign} {writer.constant(np.uint64(_WINDOW[space]))}"
    writer.assign(destination, ins.op[-1], value)
    carry_taint(writer, ins, [destination])


def _selp(writer: Writer, ins: Instruction) -> None:
    destination, a, b, condition = ins.operands
    assert isinstance(destination, Register)
    kind = ins.op[-1]
    choose = writer.function(pick)
    guard = writer.value(condition, "pred", ins.line)
    writer.assign(
        destination, kind, f"{choose}({guard}, {writer.value(a, kind, ins.line)}, {writer.value(b, kind, ins.line)})"
    )
    if destination.name in writer.tainted:
        sides = [writer.taint_of([s] if isinstance(s, Register) else []) for s in (a, b)]
        own = writer.taint_of([condition] if isinstance(condition, Register) else [])
        chosen = "False" if sides == ["False", "False"] else f"{choose}({guard}, {sides[0]}, {sides[1]})"
        writer.assign_taint([destination], chosen if own == "False" else f"{chosen} | {own}")


def _setp(writer: Writer, ins: Instruction) -> None:
    destinations = ins.operands[0]
    pair = isinstance(destinations, Pair)
    first = destinations.first if isinstance(destinations, Pair) else destinations
    second = destinations.second if isinstance(destinations, Pair) else None
    op = Opcode(ins.name)
    sources = ins.operands[1:]
    kind = op.type
    a, b = (writer.value(s, kind, ins.line) for s in sources[:2])
    compare = ins.op[1]
    if kind.endswith("x2"):
        _setp_packed(writer, ins, op, a, b)
        return
    if len(sources) == 2 and not pair and (fast := _comparison(kind, compare, ins.op, a, b)):
        expression = fast
    else:
        test = writer.function(arithmetic.comparison(compare, kind, ftz="ftz" in op.flags))
        expression = f"{test}({a}, {b})"
    writer.put(f"_t = {expression}")
    combine = next((f for f in ins.op[2:] if f in ("and", "or", "xor")), None)
    extra = writer.value(sources[2], "pred", ins.line) if len(sources) > 2 else ""
    symbol = {"and": "&", "or": "|", "xor": "^"}.get(combine or "", "")
    written = []
    for target, base in ((first, "_t"), (second, "(~_t)")):
        if isinstance(target, Register):
            writer.put(f"{target.name} = {base} {symbol} {extra}" if combine else f"{target.name} = {base}")
            written.append(target)
    carry_taint(writer, ins, written)


def _comparison(kind: str, compare: str, op: tuple[str, ...], a: str, b: str) -> str | None:
    if kind in ("f32", "f64"):
        return f"{a} {_FLOAT_COMPARE[compare]} {b}" if compare in _FLOAT_COMPARE and "ftz" not in op else None
    if kind not in INTEGERS or compare not in _COMPARE:
        return None
    if kind.startswith("s") and compare not in ("eq", "ne"):
        signed = f"_int{kind[1:]}"
        return f"{a}.view({signed}) {_COMPARE[compare]} {b}.view({signed})"
    return f"{a} {_COMPARE[compare]} {b}"


def _setp_packed(writer: Writer, ins: Instruction, op: Opcode, a: str, b: str) -> None:
    destinations = ins.operands[0]
    if len(ins.operands) != 3 or not isinstance(destinations, Pair):
        raise unsupported(f"`{ins.text}`", ins.line)
    test = writer.function(arithmetic.comparison(ins.op[1], op.type, ftz="ftz" in op.flags))
    writer.put(f"_t = {test}({a}, {b})")
    written = []
    for place, target in enumerate((destinations.first, destinations.second)):
        if isinstance(target, Register):
            writer.put(f"{target.name} = _t[{place}]")
            written.append(target)
    carry_taint(writer, ins, written)


def _set(writer: Writer, ins: Instruction) -> None:
    destination = ins.operands[0]
    assert isinstance(destination, Register)
    op = Opcode(ins.name)
    try:
        function = instruction(ins.name)
    except UnsupportedInstruction as error:
        raise unsupported(f"`{ins.text}`", ins.line) from error
    kinds = [op.type, op.type, "pred"]
    arguments = ", ".join(writer.value(s, k, ins.line) for s, k in zip(ins.operands[1:], kinds, strict=False))
    writer.assign(
        destination, "b32" if op.type.endswith("x2") else op.types[0], f"{writer.function(function)}({arguments})"
    )
    carry_taint(writer, ins, [destination])


def _cvt(writer: Writer, ins: Instruction) -> None:
    destination = ins.operands[0]
    if not isinstance(destination, Register):
        raise unsupported(f"`{ins.text}`", ins.line)
    op = Opcode(ins.name)
    if len(op.types) < 2 or "pack" in op.flags:
        raise unsupported(f"`{ins.text}`", ins.line)
    to, of = op.types[0], op.types[1]
    held = register_dtype(destination.kind)
    sources = ins.operands[1:]
    simple = _widening(op, sources[0], held)
    if simple is not None:
        writer.put(f"{destination.name} = {simple}")
        carry_taint(writer, ins, [destination])
        return
    integer = to[0] in "us" and not to.endswith("x2")
    try:
        function = conversion(to, of, op.flags, register_bits=8 * held.itemsize if integer else None)
    except (UnsupportedConversion, KeyError) as error:
        raise unsupported(f"`{ins.text}`", ins.line) from error
    kinds = [of] * len(sources)
    arguments = ", ".join(_register_or_value(writer, s, k, ins.line) for s, k in zip(sources, kinds, strict=True))
    expression = f"_plain({writer.function(function)}({arguments}))"
    if integer:
        writer.put(f"{destination.name} = {expression}")
    else:
        writer.assign(
            destination, {"tf32": "b32"}.get(to, f"b{8 * type_bytes(to)}" if to.endswith("x2") else to), expression
        )
    carry_taint(writer, ins, [destination])


def _register_or_value(writer: Writer, source: Operand, kind: str, line: int) -> str:
    """Integer sources keep their register (the low bits count); others take their type."""
    if isinstance(source, Register) and kind[0] in "us" and source.kind[0] not in "f":
        return source.name
    return writer.value(source, kind if kind not in ("u8", "s8") else "b16", line)


def _widening(op: Opcode, source: Operand, held: np.dtype[Any]) -> str | None:
    """Integer to wider or equal integer register: one cast."""
    to, of = op.types[0], op.types[1]
    if not isinstance(source, Register) or op.flags or to[0] not in "us" or of[0] not in "us":
        return None
    source_dtype = register_dtype(source.kind)
    if source_dtype.itemsize != type_bytes(of) or held.itemsize != type_bytes(to) or held.kind not in "u":
        return None
    if source_dtype.kind != "u":
        return None
    if held.itemsize > source_dtype.itemsize and of[0] == "s":
        return f"{source.name}.view(_int{8 * source_dtype.itemsize}).astype(_int{8 * held.itemsize}).view(_{held.name})"
    return source.name if held == source_dtype else f"{source.name}.astype(_{held.name})"


def _lop3(writer: Writer, ins: Instruction) -> None:
    destination = ins.operands[0]
    if not isinstance(destination, Register) or len(ins.operands) != 5:
        raise unsupported(f"`{ins.text}`", ins.line)
    table = ins.operands[4]
    if not isinstance(table, Immediate):
        raise unsupported(f"`{ins.text}`", ins.line)
    function = instruction("lop3.b32", table=int(table.text, 0))
    arguments = ", ".join(writer.value(s, "b32", ins.line) for s in ins.operands[1:4])
    writer.assign(destination, "b32", f"_plain({writer.function(function)}({arguments}))")
    carry_taint(writer, ins, [destination])


SPECIAL_FORMS: dict[str, Callable[[Writer, Instruction], None]] = {
    "mov": _mov,
    "cvta": _cvta,
    "selp": _selp,
    "setp": _setp,
    "set": _set,
    "cvt": _cvt,
    "lop3": _lop3,
}
