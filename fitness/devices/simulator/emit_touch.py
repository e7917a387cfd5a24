"""Code for what a cost run leaves of instructions whose values do not matter (see slicing.py): who accesses what.

Memory sites are made as for the whole instruction, so that they have the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fitness.devices.simulator.emit_memory import address_parts, copy_sites, element, items_of, matrix_count, space_of
from fitness.devices.simulator.emit_warp import wmma_sites
from fitness.devices.simulator.ptx import Instruction
from fitness.devices.simulator.writer import Writer, register_dtype


def emit(writer: Writer, ins: Instruction) -> bool:
    """Write a touch.

    Returns:
        False if the instruction is none.
    """
    if ins.op[0] != "touch":
        return False
    _FORMS[ins.op[1]](writer, ins)
    return True


def _load(writer: Writer, ins: Instruction) -> None:
    _access(writer, ins, 0, 1, "reads")


def _store(writer: Writer, ins: Instruction) -> None:
    _access(writer, ins, 1, 0, "writes")


def _access(writer: Writer, ins: Instruction, values: int, address: int, verb: str) -> None:
    items, space = items_of(ins.operands[values]), space_of(ins.op)
    base, offset, _ = address_parts(writer, ins.operands[address], space, ins.line)
    dtype = np.dtype(element(ins.op[-1], items))
    name, _ = writer.site(ins, verb, space, dtype, len(items), offset)
    writer.put(f"_m.memory.touch(_c, {base}, {name})")


def _atomic(writer: Writer, ins: Instruction) -> None:
    operands = list(ins.operands[1:] if ins.op[1] == "atom" else ins.operands)
    space, kind = space_of(ins.op), ins.op[-1]
    base, offset, _ = address_parts(writer, operands[0], space, ins.line)
    wide = kind == "b128"
    dtype = np.dtype(np.uint64) if wide else register_dtype(kind)
    for place in range(1 if wide else len(items_of(operands[1]))):
        name, site = writer.site(ins, "updates", space, dtype, 2 if wide else 1, offset + place * dtype.itemsize)
        site.atomic = True
        writer.put(f"_m.atomics.touch(_c, {base}, {name})")


def _copy(writer: Writer, ins: Instruction) -> None:
    writer.put(f"_m.copies.touch(_c, {', '.join(copy_sites(writer, ins))})")


def _matrix(writer: Writer, ins: Instruction) -> None:
    load = ins.op[1] == "ldmatrix"
    space = space_of(ins.op)
    base, offset, _ = address_parts(writer, ins.operands[1 if load else 0], space, ins.line)
    name, _ = writer.site(ins, "reads" if load else "writes", space, np.uint32, 4, offset)
    writer.put(f"_m.matrices.touch(_c, {base}, {name}, {matrix_count(ins)})")


def _wmma(writer: Writer, ins: Instruction) -> None:
    if ins.op[2] == "mma":
        shape = next(part for part in ins.op if part[0] == "m" and part[1:2].isdigit())
        writer.put(f"_m.warps.need_whole(_c, {ins.line}, {f'wmma.mma {shape}'!r})")
        return
    base, pitch, places, name = wmma_sites(writer, ins, ins.op[1:])
    writer.put(f"_m.matrices.wmma_touch(_c, {base}, {pitch}, {places}, {name})")


def _product(writer: Writer, ins: Instruction) -> None:
    text = "movmatrix" if ins.op[1] == "movmatrix" else ins.text
    writer.put(f"_m.warps.need_whole(_c, {ins.line}, {text!r})")


def _warpgroup(writer: Writer, ins: Instruction) -> None:
    writer.site(ins, "reads", "shared", np.uint64, 2)
    writer.put(f"_m.wgmma.need(_c, {ins.line}, {ins.text!r})")


def _shuffle(writer: Writer, ins: Instruction) -> None:
    writer.put(f"_m.warps.members(_c, {writer.value(ins.operands[-1], 'b32', ins.line)}, {ins.line})")


def _named(writer: Writer, ins: Instruction) -> None:
    writer.put(f"_m.warps.named(_c, {writer.value(ins.operands[-1], 'b32', ins.line)}, {ins.line})")


_FORMS: dict[str, Callable[[Writer, Instruction], None]] = {
    "ld": _load, "st": _store, "atom": _atomic, "red": _atomic, "cp": _copy, "ldmatrix": _matrix, "stmatrix": _matrix,
    "wmma": _wmma, "wgmma": _warpgroup, "mma": _product, "movmatrix": _product, "shfl": _shuffle, "vote": _named,
    "match": _named, "redux": _named, "elect": _named,
}  # fmt: skip
