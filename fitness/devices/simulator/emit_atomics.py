"""Code for atomics and reductions: atom, red."""

from __future__ import annotations

import numpy as np

from fitness.devices.simulator.emit_memory import address_parts, check_address, items_of, space_of
from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.ptx import Instruction, Register
from fitness.devices.simulator.writer import Writer, register_dtype

_ATOMIC_TYPES = {
    "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2", "b16", "u16"
}  # fmt: skip


def emit(writer: Writer, ins: Instruction) -> bool:
    """Write one atomic instruction.

    Returns:
        False if the opcode is none.

    Raises:
        Stop: the instruction is of this family but not modelled.
    """
    if ins.op[0] not in ("atom", "red"):
        return False
    _atomic(writer, ins)
    return True


def _atomic(writer: Writer, ins: Instruction) -> None:
    operation = next((p for p in ins.op[1:] if p in _OPERATIONS), None)
    kind = ins.op[-1]
    if kind == "b128" and operation in ("cas", "exch"):
        _atomic_wide(writer, ins, operation)
        return
    reduction = ins.op[0] == "red"
    operands = list(ins.operands)
    destination = None if reduction else operands.pop(0)
    items = items_of(operands[1])
    if operation is None or "async" in ins.op or kind not in _ATOMIC_TYPES or (len(items) > 1 and operation != "add"):
        raise unsupported(f"`{ins.text}`", ins.line)
    space = space_of(ins.op)
    base, offset, taint = address_parts(writer, operands[0], space, ins.line)
    dtype = register_dtype(kind)
    results = [] if destination is None else items_of(destination)
    needed = any(isinstance(r, Register) and r.name not in writer.defined_unused for r in results)
    sources = operands[1 : 3 if operation == "cas" else 2]
    for place, item in enumerate(items):
        step = place * dtype.itemsize
        name, site = writer.site(ins, "updates", space, dtype, 1, offset + step)
        site.atomic = True
        check_address(writer, taint, name)
        chosen = [item] if len(items) > 1 else sources
        values = ", ".join(writer.value(s, kind, ins.line) for s in chosen)
        mark = writer.taint_of([s for s in chosen if isinstance(s, Register)])
        call = f"_m.atomics.update(_c, {base}, {name}, {operation!r}, {kind!r}, ({values},), {mark}, {needed})"
        result = results[place] if results else None
        if isinstance(result, Register) and needed:
            writer.put(f"_t, _u = {call}")
            writer.assign(result, kind, "_t")
            writer.assign_taint([result], "_u")
        else:
            writer.put(call)
            if isinstance(result, Register):
                writer.put(f"{result.name} = {writer.constant(register_dtype(result.kind).type(0))}")
                writer.assign_taint([result], "False")


def _atomic_wide(writer: Writer, ins: Instruction, operation: str) -> None:
    """`atom.{cas,exch}.b128`, whose values are pairs of 64-bit registers (see wide.py)."""
    destination, address, *sources = (items_of(operand) for operand in ins.operands)
    if any(len(pair) != 2 for pair in (destination, *sources)):
        raise unsupported(f"`{ins.text}`", ins.line)
    space = space_of(ins.op)
    base, offset, taint = address_parts(writer, address[0], space, ins.line)
    name, site = writer.site(ins, "updates", space, np.uint64, 2, offset)
    site.atomic = True
    check_address(writer, taint, name)
    given = [item for pair in sources for item in pair]
    values = ", ".join(writer.value(item, "b64", ins.line) for item in given)
    mark = writer.taint_of([item for item in given if isinstance(item, Register)])
    writer.put(f"_t, _v, _u = _m.atomics.update_wide(_c, {base}, {name}, {operation!r}, ({values},), {mark})")
    for item, half in zip(destination, ("_t", "_v"), strict=True):
        if isinstance(item, Register):
            writer.assign(item, "b64", half)
            writer.assign_taint([item], "_u")


_OPERATIONS = frozenset(["add", "and", "or", "xor", "cas", "exch", "min", "max", "inc", "dec"])
