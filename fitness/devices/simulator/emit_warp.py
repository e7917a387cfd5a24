"""Code for warp-wide instructions: shuffles, votes, matrix multiply-accumulate (mma, mma.sp, wmma)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fitness.devices.simulator import mma_layout
from fitness.devices.simulator.emit_memory import address_parts, check_address, items_of, space_of
from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.fragments import WMMA_BITS, wmma_fragment, wmma_mma
from fitness.devices.simulator.ptx import Immediate, Instruction, Operand, Pair, Register, Vector
from fitness.devices.simulator.tensorcore import Multiply
from fitness.devices.simulator.writer import Writer


def emit(writer: Writer, ins: Instruction) -> bool:
    """Write one warp-wide instruction.

    Returns:
        False if the opcode is none of these.

    Raises:
        Stop: the instruction is of this family but not modelled.
    """
    form = _FORMS.get(ins.op[0])
    if form is None:
        return False
    form(writer, ins)
    return True


def _targets(operand: Operand) -> list[Operand]:
    return [operand.first, operand.second] if isinstance(operand, Pair) else [operand]


def _registers(operands: Sequence[Operand]) -> list[Register]:
    return [o for o in operands if isinstance(o, Register)]


def _result(writer: Writer, ins: Instruction, call: str, kinds: Sequence[str]) -> None:
    """Assign the values, then the taint, that a runtime call returns as a tuple."""
    targets = _targets(ins.operands[0])
    names = [f"_t{place}" for place in range(len(kinds))]
    writer.put(f"{', '.join(names)}, _u = {call}")
    for target, name, kind in zip(targets, names, kinds, strict=False):
        if isinstance(target, Register):
            writer.assign(target, kind, name)
    writer.assign_taint(_registers(targets), "_u")


def _shfl(writer: Writer, ins: Instruction) -> None:
    if "sync" not in ins.op or len(ins.operands) != 5:
        raise unsupported(f"`{ins.text}`", ins.line)
    a, b, clamp, mask = (writer.value(o, "b32", ins.line) for o in ins.operands[1:])
    mark = writer.taint_of(_registers(ins.operands[1:2]))
    other = writer.taint_of(_registers(ins.operands[2:]))
    mode = ins.op[2]
    _result(
        writer,
        ins,
        f"_m.warps.shfl(_c, {mode!r}, {a}, {b}, {clamp}, {mask}, {mark}, {other}, {ins.line})",
        ["b32", "pred"],
    )


def _vote(writer: Writer, ins: Instruction) -> None:
    if ins.op[1] != "sync":
        raise unsupported(f"`{ins.text}`", ins.line)
    mode = ins.op[2]
    predicate = writer.value(ins.operands[1], "pred", ins.line)
    mask = writer.value(ins.operands[2], "b32", ins.line)
    mark = writer.taint_of(_registers(ins.operands[1:]))
    kind = "b32" if mode == "ballot" else "pred"
    _result(writer, ins, f"_m.warps.vote(_c, {mode!r}, {predicate}, {mask}, {mark}, {ins.line})", [kind])


def _match(writer: Writer, ins: Instruction) -> None:
    if "b32" not in ins.op and "b64" not in ins.op:
        raise unsupported(f"`{ins.text}`", ins.line)
    value = writer.value(ins.operands[1], ins.op[-1], ins.line)
    mask = writer.value(ins.operands[2], "b32", ins.line)
    mark = writer.taint_of(_registers(ins.operands[1:]))
    every = "all" in ins.op
    _result(writer, ins, f"_m.warps.match(_c, {every}, {value}, {mask}, {mark}, {ins.line})", ["b32", "pred"])


def _redux(writer: Writer, ins: Instruction) -> None:
    operation, kind = ins.op[2], ins.op[-1]
    if kind not in ("u32", "s32", "b32"):
        raise unsupported(f"`{ins.text}`", ins.line)
    value = writer.value(ins.operands[1], "b32", ins.line)
    mask = writer.value(ins.operands[2], "b32", ins.line)
    mark = writer.taint_of(_registers(ins.operands[1:]))
    _result(writer, ins, f"_m.warps.redux(_c, {operation!r}, {kind!r}, {value}, {mask}, {mark}, {ins.line})", ["b32"])


def _activemask(writer: Writer, ins: Instruction) -> None:
    _result(writer, ins, "_m.warps.activemask(_c)", ["b32"])


def _elect(writer: Writer, ins: Instruction) -> None:
    mask = writer.value(ins.operands[1], "b32", ins.line)
    _result(writer, ins, f"_m.warps.elect(_c, {mask}, {ins.line})", ["b32", "pred"])


def _movmatrix(writer: Writer, ins: Instruction) -> None:
    value = writer.value(ins.operands[1], "b32", ins.line)
    mark = writer.taint_of(_registers(ins.operands[1:]))
    _result(writer, ins, f"_m.matrices.transpose(_c, {value}, {mark}, {ins.line})", ["b32"])


# ---------------------------------------------------------------- mma

_TYPES = frozenset(["f16", "bf16", "tf32", "f32", "f64", "s32", "s8", "u8", "s4", "u4", "b1", "e4m3", "e5m2"])


def _fragment(writer: Writer, operand: Operand, kind: str, line: int) -> tuple[str, str]:
    items = list(operand.items) if isinstance(operand, Vector) else [operand]
    values = ", ".join(writer.value(i, kind, line) for i in items)
    marks = [writer.taint_of(_registers([i])) for i in items]
    return f"({values},)", "None" if all(m == "False" for m in marks) else f"({', '.join(marks)},)"


def _mma(writer: Writer, ins: Instruction) -> None:
    types = [p for p in ins.op if p in _TYPES]
    shape = next((p for p in ins.op if p[0] == "m" and p[1:2].isdigit()), "")
    if len(types) != 4 or "row" not in ins.op or "col" not in ins.op or any(p.startswith("kind") for p in ins.op):
        raise unsupported(f"`{ins.text}`", ins.line)
    d_type, a_type, b_type, c_type = types
    if {"rz", "rm", "rp"} & set(ins.op):
        raise unsupported(f"`{ins.text}`", ins.line)
    sparse = ins.op[1].startswith("sp")
    destination, a, b, c = ins.operands[:4]
    count = [len(o.items) if isinstance(o, Vector) else 1 for o in (a, b, c)]
    selector = 0
    if sparse:
        choice = ins.operands[5]
        if not isinstance(choice, Immediate):
            raise unsupported(f"`{ins.text}`", ins.line)
        selector = int(choice.text, 0)
    multiply = Multiply(
        shape, a_type, b_type, c_type, d_type, sparse, selector, "satfinite" in ins.op, "ordered_metadata" in ins.op[1],
        next((part for part in ins.op if part in ("and", "xor")), ""),
    )  # fmt: skip
    multiply.line, multiply.text = ins.line, ins.text
    try:
        multiply.rehearse(count)
    except (mma_layout.UnsupportedShape, KeyError, IndexError, ValueError) as error:
        raise unsupported(f"`{ins.text}`", ins.line) from error
    accumulator = {"f32": "f32", "f64": "f64"}
    held = "f64" if a_type == "f64" else "b32"
    parts = [_fragment(writer, a, held, ins.line), _fragment(writer, b, held, ins.line)]
    parts.append(_fragment(writer, c, accumulator.get(c_type, "b32"), ins.line))
    if sparse:
        parts.append(_fragment(writer, ins.operands[4], "b32", ins.line))
    values = ", ".join(v for v, _ in parts)
    marks = ", ".join(m for _, m in parts)
    targets = list(destination.items) if isinstance(destination, Vector) else [destination]
    names = [f"_t{place}" for place in range(len(targets))]
    marked = [f"_u{place}" for place in range(len(targets))] if writer.track else []
    call = f"{writer.function(multiply)}(_m, _c, ({values},), ({marks},))"
    writer.put(f"{', '.join(names + marked)}, = {call}" if writer.track else f"{', '.join(names)}, = {call}")
    for place, target in enumerate(targets):
        if isinstance(target, Register):
            writer.assign(target, accumulator.get(d_type, "b32"), names[place])
            writer.assign_taint([target], f"_u{place}")


# ---------------------------------------------------------------- wmma


def wmma_sites(writer: Writer, ins: Instruction, op: tuple[str, ...]) -> tuple[str, str, str, str]:
    """Expressions of a `wmma.load` or `wmma.store`: base, pitch, places of elements, site (`op`: its opcode)."""
    shape = next((p for p in op if p[0] == "m" and p[1:2].isdigit()), "")
    load, operand, kind = op[1] == "load", op[2], op[-1]
    layout = next((p for p in op if p in ("row", "col")), "")
    fragment, address = (ins.operands[0], ins.operands[1]) if load else (ins.operands[1], ins.operands[0])
    try:
        rows, columns = wmma_fragment(operand, shape, kind)
    except (mma_layout.UnsupportedShape, KeyError, ValueError) as error:
        raise unsupported(f"`{ins.text}`", ins.line) from error
    if rows.shape[1] != len(items_of(fragment)) or len(ins.operands) != 3:
        raise unsupported(f"`{ins.text}`", ins.line)
    space, bits = space_of(op), WMMA_BITS[kind]
    if bits < 8:  # whole words of a row of A or a column of B
        if layout != {"a": "row", "b": "col"}[operand]:
            raise unsupported(f"`{ins.text}`", ins.line)
        rows, columns = rows[..., :1], columns[..., :1]
    base, offset, taint = address_parts(writer, address, space, ins.line)
    dtype = {"f32": np.float32, "f64": np.float64}.get(kind) or np.dtype(f"u{bits // 8 or 4}")
    name, _ = writer.site(ins, "reads" if load else "writes", space, dtype, 1, offset)
    check_address(writer, taint, name)
    stride = f"_m.matrices.pitch({writer.value(ins.operands[2], 'b32', ins.line)}, {bits})"
    major, minor = (rows, columns) if layout == "row" else (columns, rows)
    return base, stride, writer.function((major, minor * bits // 8)), name


def _wmma(writer: Writer, ins: Instruction) -> None:
    if ins.op[1] == "mma":
        _wmma_multiply(writer, ins, next((p for p in ins.op if p[0] == "m" and p[1:2].isdigit()), ""))
        return
    load, kind = ins.op[1] == "load", ins.op[-1]
    base, pitch, places, name = wmma_sites(writer, ins, ins.op)
    items = items_of(ins.operands[0 if load else 1])
    if load:
        targets = [r.name if isinstance(r, Register) else "_" for r in items]
        if writer.track:
            targets += [f"u_{r.name}" if isinstance(r, Register) and r.name in writer.tainted else "_" for r in items]
        writer.put(f"{', '.join(targets)}, = _m.matrices.wmma_load(_c, {base}, {pitch}, {places}, {name})")
        for item in items:
            if isinstance(item, Register) and kind != "f32" and item.kind == "f32":
                writer.put(f"{item.name} = {item.name}.view(_float32)")
        return
    values, marks = _fragment(writer, ins.operands[1], kind if kind in ("f32", "f64") else "b32", ins.line)
    writer.put(f"_m.matrices.wmma_store(_c, {base}, {pitch}, {places}, {name}, {values}, {marks})")


def _wmma_multiply(writer: Writer, ins: Instruction, shape: str) -> None:
    types = [p for p in ins.op if p in _TYPES]
    if len(types) == 2:
        d_type, c_type, kind = types[0], types[1], "f16"
    elif len(types) == 4 and types[1] == types[2]:
        d_type, kind, _, c_type = types
    else:
        raise unsupported(f"`{ins.text}`", ins.line)
    if {"rz", "rm", "rp"} & set(ins.op):
        raise unsupported(f"`{ins.text}`", ins.line)
    destination, a, b, c = ins.operands[:4]
    wide, saturate = kind == "f64", "satfinite" in ins.op
    bits = next((part for part in ins.op if part in ("and", "xor")), "")
    rehearsal = [np.zeros((1, 32), dtype=np.float64 if wide else np.uint32)] * 8
    try:
        count = [len(o.items) if isinstance(o, Vector) else 1 for o in (a, b, c)]
        zero = np.zeros((1, 32), dtype={"f32": np.float32, "f64": np.float64}.get(c_type, np.uint32))
        a_zero, b_zero = rehearsal[: count[0]], rehearsal[: count[1]]
        wmma_mma(shape, kind, c_type, d_type, a_zero, b_zero, [zero] * count[2], bits=bits)
    except (mma_layout.UnsupportedShape, KeyError, ValueError, IndexError) as error:
        raise unsupported(f"`{ins.text}`", ins.line) from error
    held, floats = "f64" if wide else "b32", {"f32": "f32", "f64": "f64"}
    parts = [_fragment(writer, a, held, ins.line), _fragment(writer, b, held, ins.line)]
    parts.append(_fragment(writer, c, floats.get(c_type, "b32"), ins.line))
    targets = list(destination.items) if isinstance(destination, Vector) else [destination]
    names = [f"_t{place}" for place in range(len(targets))]
    marked = [f"_u{place}" for place in range(len(targets))] if writer.track else []
    values, marks = ", ".join(v for v, _ in parts), ", ".join(m for _, m in parts)
    call = f"_m.matrices.wmma(_c, {shape!r}, {kind!r}, {c_type!r}, {d_type!r}, ({values},), ({marks},), {ins.line}"
    writer.put(f"{', '.join(names + marked)}, = {call}, {saturate}, {bits!r})")
    for place, target in enumerate(targets):
        if isinstance(target, Register):
            writer.assign(target, floats.get(d_type, "b32"), names[place])
            writer.assign_taint([target], f"_u{place}")


_FORMS: dict[str, Callable[[Writer, Instruction], None]] = {
    "shfl": _shfl,
    "vote": _vote,
    "match": _match,
    "redux": _redux,
    "activemask": _activemask,
    "elect": _elect,
    "movmatrix": _movmatrix,
    "mma": _mma,
    "wmma": _wmma,
}
