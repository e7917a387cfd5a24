"""Code for memory instructions: ld, st, cp.async, ldmatrix, stmatrix, fences and prefetches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.ptx import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Symbol,
    Vector,
)
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.writer import Writer, register_dtype

SPACES = ("global", "shared", "local", "const", "param")
_SIGNED = {"s8": np.int8, "s16": np.int16}
_SMALL = {"u8": np.uint8, "b8": np.uint8, "u16": np.uint16, "b16": np.uint16, **_SIGNED}
_NOTHING = frozenset(
    ["membar", "fence", "prefetch", "prefetchu", "discard", "applypriority", "nanosleep", "griddepcontrol", "pmevent"]
)


def emit(writer: Writer, ins: Instruction) -> bool:
    """Write one memory instruction.

    Returns:
        False if the opcode is none of these.

    Raises:
        Stop: the instruction is of this family but not modelled.
    """
    if ins.op[0] in _NOTHING:
        _fence(writer, ins.op)
        return True
    form = _FORMS.get(ins.op[0])
    if form is None:
        return False
    form(writer, ins)
    return True


def _fence(writer: Writer, op: tuple[str, ...]) -> None:
    """What the race detector learns of fences: who sees plain stores and initialised mbarriers from now on."""
    if op[0] not in ("fence", "membar") or op[1:3] == ("proxy", "tensormap::generic"):
        return
    if op[1:3] == ("proxy", "async"):
        writer.put("if _m.proxies is not None: _m.proxies.fence(_c)")
        writer.put("_m.mbarriers.fence(_c, proxy=True, cluster=False)")
    elif op[1] == "mbarrier_init":
        writer.put("_m.mbarriers.fence(_c, proxy=True, cluster=True)")
    elif {"cluster", "gpu", "sys", "gl"} & set(op):
        writer.put("_m.mbarriers.fence(_c, proxy=False, cluster=True)")


def space_of(op: tuple[str, ...]) -> str:
    """State space of an opcode, "generic" where it names none."""
    for part in op[1:]:
        name = part.split("::")[0]
        if name in SPACES:
            if part == "shared::cluster":
                return "shared"
            return name
    return "generic"


def address_parts(writer: Writer, operand: Operand, space: str, line: int) -> tuple[str, int, str]:
    """(expression of the base, constant offset, taint) of an address operand."""
    if not isinstance(operand, Address):
        raise unsupported("an address that is no [register + constant]", line)
    if isinstance(operand.base, Register):
        taint = writer.taint_of([operand.base])
        kind = operand.base.kind
        name = writer.value(
            operand.base, "u64" if space not in ("shared", "local") else f"b{8 * register_dtype(kind).itemsize}", line
        )
        return name, operand.offset, taint
    if isinstance(operand.base, Symbol):
        placed = writer.layout.symbols.get(operand.base.name)
        if placed is None:
            raise unsupported(f"the variable {operand.base.name}", line)
        address = placed[1] + operand.offset
        if space == "generic" and placed[0] in ("shared", "local"):
            raise unsupported(f"a generic access to {operand.base.name}", line)
    else:
        address = operand.offset
    narrow = space in ("shared", "local")
    return writer.constant(np.uint32(address) if narrow else np.uint64(address)), 0, "False"


def check_address(writer: Writer, taint: str, site: str) -> None:
    """Report addresses that depend on uninitialised values."""
    if taint != "False":
        writer.put(f"if ({taint}) is not False: _m.memory.tainted_address(_c, {taint}, {site})")


def element(kind: str, registers: list[Operand]) -> Any:
    """NumPy type of a memory element: as its register holds it where the sizes agree."""
    if kind in _SMALL:
        return _SMALL[kind]
    dtype = register_dtype(kind)
    register = next((r for r in registers if isinstance(r, Register)), None)
    if register is not None and register_dtype(register.kind).itemsize == dtype.itemsize:
        return register_dtype(register.kind)
    return dtype


def _strong(ins: Instruction) -> bool:
    """Volatile and atomic loads and stores synchronise; they race with plain accesses only."""
    return any(part in ("volatile", "relaxed", "acquire", "release", "mmio") for part in ins.op[1:4])


def items_of(operand: Operand) -> list[Operand]:
    """The elements of a vector operand, or the operand alone."""
    return list(operand.items) if isinstance(operand, Vector) else [operand]


def _load(writer: Writer, ins: Instruction) -> None:
    registers = items_of(ins.operands[0])
    kind = ins.op[-1]
    space = space_of(ins.op)
    address = ins.operands[1]
    if kind == "b128" or (
        space == "param" and isinstance(address, Address) and _parameter(writer, ins, registers, address)
    ):
        if kind == "b128":
            raise unsupported(f"`{ins.text}`", ins.line)
        return
    base, offset, taint = address_parts(writer, address, space, ins.line)
    dtype = np.dtype(element(kind, registers))
    name, site = writer.site(ins, "reads", space, dtype, len(registers), offset)
    site.atomic = _strong(ins)
    check_address(writer, taint, name)
    targets = [r.name if isinstance(r, Register) else "_" for r in registers]
    if writer.track:
        targets += [f"u_{r.name}" if isinstance(r, Register) and r.name in writer.tainted else "_" for r in registers]
    writer.put(f"{', '.join(targets)}, = _m.memory.load(_c, {base}, {name})")
    for register in registers:
        if isinstance(register, Register):
            _extend(writer, register, dtype)


def _extend(writer: Writer, register: Register, dtype: np.dtype[Any]) -> None:
    """Sign- or zero-extend a loaded element to a wider register."""
    held = register_dtype(register.kind)
    if held == dtype:
        return
    if held.itemsize == dtype.itemsize:
        writer.put(f"{register.name} = {register.name}.view(_{held.name})")
    elif dtype.kind == "i":
        writer.put(f"{register.name} = {register.name}.astype(_int{8 * held.itemsize}).view(_{held.name})")
    else:
        writer.put(f"{register.name} = {register.name}.astype(_{held.name})")


def _parameter(writer: Writer, ins: Instruction, registers: list[Operand], address: Address) -> bool:
    """`ld.param [name+constant]`: a value of the launch. False where the address is computed."""
    if not isinstance(address.base, Symbol) or address.base.name not in writer.layout.parameters:
        return False
    start = writer.layout.parameters[address.base.name][0] + address.offset
    dtype = np.dtype(element(ins.op[-1], registers))
    for place, register in enumerate(registers):
        if isinstance(register, Register):
            writer.put(f"{register.name} = _m.parameter({start + place * dtype.itemsize}, _np.dtype('{dtype.str}'))")
            _extend(writer, register, dtype)
            writer.assign_taint([register], "False")
    return True


def _store(writer: Writer, ins: Instruction) -> None:
    kind = ins.op[-1]
    space = space_of(ins.op)
    items = items_of(ins.operands[1])
    if kind == "b128" or "async" in ins.op:
        raise unsupported(f"`{ins.text}`", ins.line)
    base, offset, taint = address_parts(writer, ins.operands[0], space, ins.line)
    dtype = np.dtype(element(kind, items))
    if dtype.kind == "i":
        dtype = np.dtype(f"u{dtype.itemsize}")
    name, site = writer.site(ins, "writes", space, dtype, len(items), offset)
    site.atomic = _strong(ins)
    check_address(writer, taint, name)
    values = [stored(writer, item, kind, dtype, ins.line) for item in items]
    taints = [writer.taint_of([i] if isinstance(i, Register) else []) for i in items]
    marks = "None" if all(t == "False" for t in taints) else f"({', '.join(taints)},)"
    writer.put(f"_m.memory.store(_c, {base}, ({', '.join(values)},), {marks}, {name})")


def stored(writer: Writer, item: Operand, kind: str, dtype: np.dtype[Any], line: int) -> str:
    """Expression of a register or immediate as the element of memory it is stored to."""
    if isinstance(item, Register):
        held = register_dtype(item.kind)
        if held == dtype:
            return item.name
        if held.itemsize == dtype.itemsize:
            return f"{item.name}.view(_{dtype.name})"
        return f"{item.name}.astype(_{dtype.name})"
    value = writer.value(item, kind if kind not in ("u8", "s8", "b8") else "b16", line)
    return f"{value}.astype(_{dtype.name})" if kind in ("u8", "s8", "b8") else value


# ---------------------------------------------------------------- asynchronous copies


def _copy(writer: Writer, ins: Instruction) -> None:
    name = ins.name
    if name.startswith("cp.async.commit_group"):
        writer.put("_m.copies.commit(_c)")
    elif name.startswith("cp.async.wait_all"):
        writer.put(f"_m.copies.wait(_c, 0, True, {ins.line})")
    elif name.startswith("cp.async.wait_group"):
        count = ins.operands[0]
        if not isinstance(count, Immediate):
            raise unsupported(f"`{ins.text}`", ins.line)
        writer.put(f"_m.copies.wait(_c, {int(count.text, 0)}, False, {ins.line})")
    elif ins.op[1] == "async" and ins.op[2] in ("ca", "cg") and space_of(ins.op) == "shared":
        _copy_async(writer, ins)
    else:
        raise unsupported(f"`{ins.text}`", ins.line)


def _copy_async(writer: Writer, ins: Instruction) -> None:
    writer.put(f"_m.copies.issue(_c, {', '.join(copy_sites(writer, ins))})")


def copy_sites(writer: Writer, ins: Instruction) -> tuple[str, str, str, str, str]:
    """Expressions of a `cp.async`: destination, source, bytes where not all, and its two sites."""
    size = ins.operands[2]
    if not isinstance(size, Immediate):
        raise unsupported(f"`{ins.text}`", ins.line)
    count = int(size.text, 0)
    to, to_offset, to_taint = address_parts(writer, ins.operands[0], "shared", ins.line)
    source_space = "global" if "global" in ins.op else "generic"
    of, of_offset, of_taint = address_parts(writer, ins.operands[1], source_space, ins.line)
    dtype = {4: np.uint32, 8: np.uint64, 16: np.uint64}[count]
    read, _ = writer.site(ins, "reads", source_space, dtype, count // np.dtype(dtype).itemsize, of_offset)
    write, _ = writer.site(ins, "writes", "shared", dtype, count // np.dtype(dtype).itemsize, to_offset)
    check_address(writer, to_taint, write)
    check_address(writer, of_taint, read)
    amount = "None"
    policy = any("cache_hint" in part for part in ins.op)
    rest = ins.operands[3 : len(ins.operands) - (1 if policy else 0)]
    if rest:
        extra = rest[0]
        inner = extra.operand if isinstance(extra, Negated) else extra
        if isinstance(inner, Register) and inner.kind == "pred":  # ignore-src: zeros where it holds
            nothing, everything = writer.constant(np.uint32(0)), writer.constant(np.uint32(count))
            amount = f"_pick({writer.value(extra, 'pred', ins.line)}, {nothing}, {everything})"
        else:
            amount = writer.value(extra, "u32", ins.line)
        mark = writer.taint_of([inner] if isinstance(inner, Register) else [])
        check_address(writer, mark, write)
    return to, of, amount, write, read


# ---------------------------------------------------------------- ldmatrix, stmatrix


def matrix_count(ins: Instruction) -> int:
    """Matrices that `ldmatrix` or `stmatrix` moves, 0 where that is not said."""
    return next((int(p[1:]) for p in ins.op if p in ("x1", "x2", "x4")), 0)


def _matrix(writer: Writer, ins: Instruction) -> None:
    count = matrix_count(ins)
    if not count or "m8n8" not in ins.op or ins.op[-1] != "b16":
        raise unsupported(f"`{ins.text}`", ins.line)
    load = ins.op[0] == "ldmatrix"
    registers, address = (ins.operands[0], ins.operands[1]) if load else (ins.operands[1], ins.operands[0])
    space = space_of(ins.op)
    base, offset, taint = address_parts(writer, address, space, ins.line)
    name, _ = writer.site(ins, "reads" if load else "writes", space, np.uint32, 4, offset)
    check_address(writer, taint, name)
    items = items_of(registers)
    transposed = "trans" in ins.op
    if not load:
        values = ", ".join(writer.value(i, "b32", ins.line) for i in items)
        marks = ", ".join(writer.taint_of([i] if isinstance(i, Register) else []) for i in items)
        writer.put(f"_m.matrices.store(_c, {base}, {name}, ({values},), ({marks},), {transposed})")
        return
    targets = [r.name if isinstance(r, Register) else "_" for r in items]
    if writer.track:
        targets += [f"u_{r.name}" if isinstance(r, Register) and r.name in writer.tainted else "_" for r in items]
    writer.put(f"{', '.join(targets)}, = _m.matrices.load(_c, {base}, {name}, {count}, {transposed})")
    for item in items:
        if isinstance(item, Register):
            _extend(writer, item, np.dtype(np.uint32))


def _policy(writer: Writer, ins: Instruction) -> None:
    """`createpolicy`: a cache hint changes no result."""
    register = ins.operands[0]
    if not isinstance(register, Register):
        raise unsupported(f"`{ins.text}`", ins.line)
    writer.put(f"{register.name} = {writer.constant(np.uint64(0))}")
    writer.assign_taint([register], "False")


def _isspacep(writer: Writer, ins: Instruction) -> None:
    register, source = ins.operands
    windows = {"shared": 1, "local": 2, "param": 3}
    space = space_of(ins.op)
    if not isinstance(register, Register) or space == "generic":
        raise unsupported(f"`{ins.text}`", ins.line)
    own = space == "shared" and "shared::cluster" not in ins.op  # of the own block: no rank in the address
    shift = np.uint64(24 if own else 40)
    top = f"({writer.value(source, 'u64', ins.line)} >> {writer.constant(shift)})"
    number = 1 << 16 if own else windows.get(space)
    test = (
        f"{top} == {writer.constant(np.uint64(number))}" if number else f"{top} >= {writer.constant(np.uint64(0x7F))}"
    )
    writer.put(f"{register.name} = {test}")
    writer.assign_taint([register], writer.taint_of([source] if isinstance(source, Register) else []))


def _printf(writer: Writer, ins: Instruction) -> None:
    register, layout, buffer = ins.operands
    values = ", ".join(writer.value(o, "u64", ins.line) for o in (layout, buffer))
    writer.put(f"_m.printer.print(_c, {values})")
    if isinstance(register, Register):
        writer.put(f"{register.name} = {writer.constant(np.uint32(0))}")
        writer.assign_taint([register], "False")


def _arrive(writer: Writer, ins: Instruction) -> None:
    """`bar.arrive`, `barrier.arrive`: count without waiting (the waiting forms end blocks)."""
    if "arrive" not in ins.op or "cluster" in ins.op:
        raise unsupported(f"`{ins.text}`", ins.line)
    number = writer.value(ins.operands[0], "u32", ins.line)
    writer.put(f"_m.barriers.arrive_only(_c, {number})")


_FORMS: dict[str, Callable[[Writer, Instruction], None]] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "cp": _copy,
    "ldmatrix": _matrix,
    "stmatrix": _matrix,
    "createpolicy": _policy,
    "isspacep": _isspacep,
    "vprintf": _printf,
    "bar": _arrive,
    "barrier": _arrive,
}
__all__ = ["Sink", "Site", "address_parts", "check_address", "element", "emit", "items_of", "space_of", "stored"]
