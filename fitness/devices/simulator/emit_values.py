"""Code for instructions that compute registers from registers: arithmetic, logic, moves, conversions, comparisons.

The commonest forms become a NumPy expression in place; everything else calls the function that
`arithmetic.instruction` gives for the opcode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fitness.devices.simulator import arithmetic
from fitness.devices.simulator.arithmetic import Opcode, UnsupportedInstruction, instruction
from fitness.devices.simulator.emit_moves import INTEGERS, SPECIAL_FORMS, carry_taint
from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.ptx import Immediate, Instruction, Operand, Register, Sink, registers_in
from fitness.devices.simulator.variables import type_bytes
from fitness.devices.simulator.writer import Writer, register_dtype

_INFIX = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}


def emit(writer: Writer, ins: Instruction) -> bool:
    """Write one value instruction (its guard is the caller's business).

    Returns:
        False if the opcode is none of these.

    Raises:
        Stop: the instruction is of this family but not modelled.
    """
    special = SPECIAL_FORMS.get(ins.op[0])
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
        carry_taint(writer, ins, [destination])
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
        integer = kind in INTEGERS and middle in ((), ("lo",))
        real = kind in ("f32", "f64") and middle in ((), ("rn",))
        if integer or real or (kind == "pred" and head in ("and", "or", "xor")):
            return f"{values[0]()} {_INFIX[head]} {values[1]()}", kind
    if head == "mad" and middle == ("lo",) and kind in INTEGERS:
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
    if not isinstance(amount, Immediate) or kind not in INTEGERS:
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


def is_value(ins: Instruction) -> bool:
    """Whether the instruction only computes registers (then a guard may select its result afterwards)."""
    if ins.op[0] in _CARRIES and ("cc" in ins.op or ins.op[0].endswith("c")):
        return False
    return ins.op[0] in SPECIAL_FORMS or ins.op[0] in _PLAIN
