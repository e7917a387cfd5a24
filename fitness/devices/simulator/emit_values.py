"""Code for instructions that compute registers from registers: arithmetic, logic, moves, conversions, comparisons.

The commonest forms become a NumPy expression in place; everything else calls the function that
`arithmetic.instruction` gives for the opcode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fitness.devices.simulator import arithmetic
from fitness.devices.simulator.arithmetic import Opcode, UnsupportedInstruction, instruction
from fitness.devices.simulator.convert import UnsupportedConversion, conversion
from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.ptx import Immediate, Instruction, Operand, Pair, Register, Sink, Vector, registers_in
from fitness.devices.simulator.variables import type_bytes
from fitness.devices.simulator.writer import Writer, register_dtype

_INFIX = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
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
_FLOAT_COMPARE = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neu": "!="}
_INTEGERS = {"b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64"}


def pick(condition: Any, yes: Any, no: Any) -> Any:
    """Yes where the condition holds, else no; scalars stay scalars."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def emit(writer: Writer, ins: Instruction) -> bool:
    """Write one value instruction (its guard is the caller's business).

    Returns:
        False if the opcode is none of these.

    Raises:
        Stop: the instruction is of this family but not modelled.
    """
    special = _SPECIAL_FORMS.get(ins.op[0])
    if special is not None:
        special(writer, ins)
        return True
    if ins.op[0] in _CARRIES and ("cc" in ins.op or ins.op[0].endswith("c")):
        _carry(writer, ins)
        return True
    if ins.op[0] not in _PLAIN:
        return False
    destination = ins.operands[0]
    if not isinstance(destination, Register):
        if isinstance(destination, Sink):
            return True
        raise unsupported(f"`{ins.text}`", ins.line)
    sources = ins.operands[1:]
    expression, kind = _inline(writer, ins, sources) or _called(writer, ins, sources)
    precise = _logic_taint(writer, ins, sources) if kind == "pred" and destination.name in writer.tainted else None
    if precise is not None:
        writer.put(f"_u = {precise}")
    writer.assign(destination, kind, expression)
    if precise is not None:
        writer.assign_taint([destination], "_u")
    else:
        _carry_taint(writer, ins, [destination])
    return True


_CARRIES = frozenset({"add", "addc", "sub", "subc", "mad", "madc"})


def _carry(writer: Writer, ins: Instruction) -> None:
    """Extended-precision integers: the carry flag lives in `_cc` within a basic block (its taint in `_cu`)."""
    destination, sources, op = ins.operands[0], ins.operands[1:], Opcode(ins.name)
    takes = ins.op[0] in ("addc", "subc", "madc")
    if not isinstance(destination, Register) or ins.guard is not None or (takes and not writer.carry):
        raise unsupported(f"`{ins.text}`", ins.line)
    function = writer.function(arithmetic.with_carry(op))
    values = ", ".join(writer.value(source, op.type, ins.line) for source in sources)
    mark = writer.taint_of(registers_in(sources))
    writer.put(f"_t, _cn = {function}({values}, {'_cc' if takes else '_np.bool_(False)'})")
    writer.put(f"_u = {mark} | _cu" if takes else f"_u = {mark}")
    if "cc" in ins.op:
        writer.put("_cc, _cu = _cn, _u")
        writer.carry = True
    writer.assign(destination, op.type, "_t")
    writer.assign_taint([destination], "_u")


def and_taint(a: Any, mark_a: Any, b: Any, mark_b: Any) -> Any:
    """Taint of `a and b`: a side that is false and initialised decides."""
    if mark_a is False and mark_b is False:
        return False
    return (mark_a & mark_b) | (mark_a & b) | (mark_b & a)


def or_taint(a: Any, mark_a: Any, b: Any, mark_b: Any) -> Any:
    """Taint of `a or b`: a side that is true and initialised decides."""
    if mark_a is False and mark_b is False:
        return False
    return (mark_a & mark_b) | (mark_a & ~b) | (mark_b & ~a)


def _logic_taint(writer: Writer, ins: Instruction, sources: Sequence[Operand]) -> str | None:
    """Precise taint of `and.pred` and `or.pred`, as short-circuit conditions compile to."""
    function = {"and": and_taint, "or": or_taint}.get(ins.op[0])
    if function is None or len(sources) != 2:
        return None
    parts = []
    for source in sources:
        parts.append(writer.value(source, "pred", ins.line))
        parts.append(writer.taint_of(registers_in([source])))
    return f"{writer.function(function)}({', '.join(parts)})"


def _carry_taint(writer: Writer, ins: Instruction, destinations: Sequence[Register]) -> None:
    writer.assign_taint(destinations, writer.taint_of(ins.sources))


_PLAIN = frozenset({*arithmetic._FLOATING, *arithmetic._LOGIC, *arithmetic._INTEGER}) - {"selp"}


def _result_kind(op: Opcode) -> str:
    if op.base in ("popc", "clz", "bfind"):
        return "u32"
    if op.base == "testp":
        return "pred"
    if "wide" in op.flags:
        return {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[op.type]
    if op.base in ("dp4a", "dp2a", "fns", "vabsdiff2", "vabsdiff4"):
        return "u32"
    return op.type


def _source_kinds(op: Opcode, count: int) -> list[str]:
    """Register type of every source, in order."""
    kinds = [op.type] * count
    if op.base in ("mad", "mad24") and "wide" in op.flags:
        kinds[2] = _result_kind(op)
    if op.base in ("shl", "shr"):
        kinds[1] = "u32"
    if op.base in ("bfe", "bfi"):
        kinds[-2:] = ["u32", "u32"]
    if op.base == "slct":
        kinds = [op.types[0], op.types[0], op.types[-1]]
    if op.base in ("dp4a", "dp2a", "fns", "szext", "vabsdiff2", "vabsdiff4"):
        kinds = ["u32"] * count
    return kinds


def _called(writer: Writer, ins: Instruction, sources: Sequence[Operand]) -> tuple[str, str]:
    """A call of the function that `arithmetic.instruction` gives for the opcode."""
    op = Opcode(ins.name)
    try:
        function = instruction(ins.name)
        kinds = _source_kinds(op, len(sources))
        result = op.types[0] if op.base == "slct" else _result_kind(op)
    except (UnsupportedInstruction, KeyError, IndexError, ValueError) as error:
        raise unsupported(f"`{ins.text}`", ins.line) from error
    arguments = ", ".join(writer.value(s, k, ins.line) for s, k in zip(sources, kinds, strict=True))
    return f"{writer.function(function)}({arguments})", result


def _inline(writer: Writer, ins: Instruction, sources: Sequence[Operand]) -> tuple[str, str] | None:
    """A NumPy expression for the commonest forms, None for others."""
    op, kind = ins.op, ins.op[-1]
    values = [lambda s=s, k=kind: writer.value(s, k, ins.line) for s in sources]
    head, middle = op[0], op[1:-1]
    if head in _INFIX and len(op) <= 3:
        integer = kind in _INTEGERS and middle in ((), ("lo",))
        real = kind in ("f32", "f64") and middle in ((), ("rn",))
        if integer or real or (kind == "pred" and head in ("and", "or", "xor")):
            return f"{values[0]()} {_INFIX[head]} {values[1]()}", kind
    if head == "mad" and middle == ("lo",) and kind in _INTEGERS:
        return f"{values[0]()} * {values[1]()} + {values[2]()}", kind
    if head == "not":
        return f"~{values[0]()}", kind
    if head == "neg" and len(op) == 2 and kind in ("f32", "f64", "s32", "s64"):
        return f"-{values[0]()}", kind
    if head in ("shl", "shr"):
        return _shift(writer, ins, sources)
    if head == "mul" and middle == ("wide",) and kind in ("u32", "s32"):
        return _wide(writer, ins, sources)
    return None


def _shift(writer: Writer, ins: Instruction, sources: Sequence[Operand]) -> tuple[str, str] | None:
    """Shifts by a constant below the width."""
    kind = ins.op[-1]
    amount = sources[1]
    if not isinstance(amount, Immediate) or kind not in _INTEGERS:
        return None
    count = int(amount.text, 0)
    if not 0 <= count < 8 * type_bytes(kind):
        return None
    dtype = register_dtype(kind)
    value = writer.value(sources[0], kind, ins.line)
    if ins.op[0] == "shl":
        return f"{value} << {writer.constant(dtype.type(count))}", kind
    if kind.startswith("s"):
        signed = np.dtype(f"i{dtype.itemsize}")
        return f"({value}.view(_{signed.name}) >> {writer.constant(signed.type(count))}).view(_{dtype.name})", kind
    return f"{value} >> {writer.constant(dtype.type(count))}", kind


def _wide(writer: Writer, ins: Instruction, sources: Sequence[Operand]) -> tuple[str, str]:
    signed = ins.op[-1] == "s32"
    parts = []
    for source in sources:
        if isinstance(source, Immediate):
            number = int(source.text, 0)
            if signed and number >= 1 << 31:
                number -= 1 << 32
            parts.append(writer.constant(np.int64(number) if signed else np.uint64(number % (1 << 32))))
        else:
            value = writer.value(source, "u32", ins.line)
            parts.append(f"{value}.view(_int32).astype(_int64)" if signed else f"{value}.astype(_uint64)")
    product = " * ".join(parts)
    return (f"({product}).view(_uint64)", "u64") if signed else (product, "u64")


# ---------------------------------------------------------------- mov, cvta, selp, setp, cvt, lop3


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
        _carry_taint(writer, ins, [destination])


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
    _carry_taint(writer, ins, written)


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
    _carry_taint(writer, ins, [destination])


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
    _carry_taint(writer, ins, written)


def _comparison(kind: str, compare: str, op: tuple[str, ...], a: str, b: str) -> str | None:
    if kind in ("f32", "f64"):
        return f"{a} {_FLOAT_COMPARE[compare]} {b}" if compare in _FLOAT_COMPARE and "ftz" not in op else None
    if kind not in _INTEGERS or compare not in _COMPARE:
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
    _carry_taint(writer, ins, written)


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
    _carry_taint(writer, ins, [destination])


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
        _carry_taint(writer, ins, [destination])
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
    _carry_taint(writer, ins, [destination])


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
    _carry_taint(writer, ins, [destination])


_SPECIAL_FORMS: dict[str, Callable[[Writer, Instruction], None]] = {
    "mov": _mov,
    "cvta": _cvta,
    "selp": _selp,
    "setp": _setp,
    "set": _set,
    "cvt": _cvt,
    "lop3": _lop3,
}


def is_value(ins: Instruction) -> bool:
    """Whether the instruction only computes registers (then a guard may select its result afterwards)."""
    if ins.op[0] in _CARRIES and ("cc" in ins.op or ins.op[0].endswith("c")):
        return False
    return ins.op[0] in _SPECIAL_FORMS or ins.op[0] in _PLAIN
