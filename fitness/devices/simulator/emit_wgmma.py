"""Code for `wgmma`: shapes and operands checked when code is generated, the product at run time."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from fitness.devices.simulator.faults import Stop, unsupported
from fitness.devices.simulator.ptx import Immediate, Instruction, Operand, Register, Vector
from fitness.devices.simulator.wgmma_form import Multiplication
from fitness.devices.simulator.writer import Writer

_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
#: K of the dense forms by element type of A; sparse forms have twice that.
_K: Final = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_RESULTS: Final = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "e4m3": ("f16", "f32"), "e5m2": ("f16", "f32"),
    "s8": ("s32",), "u8": ("s32",), "b1": ("s32",),
}  # fmt: skip
_TYPES: Final = frozenset({*_K, "f32", "s32"})


def emit(writer: Writer, ins: Instruction) -> bool:
    """Write one `wgmma` instruction or `setmaxnreg`.

    Returns:
        False if the opcode is none of these.

    Raises:
        Stop: the instruction is of this family but not modelled.
    """
    if ins.op[0] == "setmaxnreg":
        _registers(writer, ins)
    elif ins.op[0] != "wgmma":
        return False
    elif ins.op[1] == "mma_async":
        _multiply(writer, ins)
    elif ins.op[1] == "fence":
        writer.put(f"_m.wgmma.need(_c, {ins.line}, {ins.text!r})")
    elif ins.op[1] == "commit_group":
        writer.put("_m.wgmma.commit(_c)")
    elif ins.op[1] == "wait_group" and isinstance(ins.operands[0], Immediate):
        writer.put(f"_m.wgmma.wait(_c, {int(ins.operands[0].text, 0)})")
    else:
        raise _refused(ins)
    return True


def _refused(ins: Instruction, why: str = "") -> Stop:
    return unsupported(f"`{ins.text}`" + (f" ({why})" if why else ""), ins.line)


def _registers(writer: Writer, ins: Instruction) -> None:
    """`setmaxnreg`: changes no value; the count must be possible and whole warpgroups must execute it."""
    count = ins.operands[0]
    if not isinstance(count, Immediate) or ins.op[1] not in ("inc", "dec"):
        raise _refused(ins)
    number = int(count.text, 0)
    if number % 8 or not 24 <= number <= 256:
        raise _refused(ins, "the count must be a multiple of 8 from 24 to 256")
    writer.put(f"_m.wgmma.need(_c, {ins.line}, {ins.text!r})")


def _flags(ins: Instruction, operands: list[Operand]) -> list[int]:
    flags = []
    for operand in operands:
        if not isinstance(operand, Immediate):
            raise _refused(ins)
        flags.append(int(operand.text, 0))
    return flags


def _multiply(writer: Writer, ins: Instruction) -> None:
    d, a, b, *rest = ins.operands
    sparse = "sp" in ins.op[2:4]
    metadata: Operand | None = None
    selector = 0
    if sparse:
        metadata, chosen, *rest = rest
        (selector,) = _flags(ins, [chosen])
    if not rest or not isinstance(d, Vector):
        raise _refused(ins)
    scale_d, *more = rest
    what = _what(writer, ins, a, _flags(ins, more), sparse, selector)
    if len(d.items) != what.registers:
        raise _refused(ins, f"{what.registers} accumulator registers belong to this shape")
    d_kind = "f32" if what.d_type == "f32" else "b32"
    items = list(a.items) if isinstance(a, Vector) else [a]
    if isinstance(a, Vector) and len(items) != 4:
        raise _refused(ins, "A takes 4 registers")
    a_kind = "b64" if what.shared else "b32"
    accumulators = "".join(writer.value(r, d_kind, ins.line) + ", " for r in d.items)
    left = "".join(writer.value(r, a_kind, ins.line) + ", " for r in items)
    right = writer.value(b, "b64", ins.line)
    words = writer.value(metadata, "b32", ins.line) if metadata is not None else "None"
    adding = writer.value(scale_d, "pred", ins.line)
    old = "".join((writer.copied_taint(r) if isinstance(r, Register) else "False") + ", " for r in d.items)
    marks = "".join(_mark(writer, r) + ", " for r in items)
    meta_mark = _mark(writer, metadata) if metadata is not None else "False"
    _descriptor_marks(writer, [b, scale_d, *([a] if what.shared else [])])
    call = (
        f"_m.wgmma.multiply(_c, {writer.function(what)}, ({accumulators}), ({left}), {right}, {words}, {adding}, "
        f"(({old}), ({marks}), {meta_mark}))"
    )
    names = [f"_t{place}" for place in range(what.registers)]
    codes = [f"_u{place}" for place in range(what.registers)] if writer.track else []
    writer.put(f"{', '.join(names + codes)}, = {call}")
    for place, register in enumerate(d.items):
        if isinstance(register, Register):
            writer.assign(register, d_kind, names[place])
            writer.assign_taint([register], f"_u{place}")


def _mark(writer: Writer, operand: Operand) -> str:
    return writer.taint_of([operand]) if isinstance(operand, Register) else "False"


def _descriptor_marks(writer: Writer, operands: list[Operand]) -> None:
    """Descriptors and predicates that depend on uninitialised values are reported like addresses."""
    site = writer.function(writer.sites[-1])
    for operand in operands:
        mark = _mark(writer, operand)
        if mark != "False":
            writer.put(f"if ({mark}) is not False: _m.memory.tainted_address(_c, {mark}, {site})")


def _what(
    writer: Writer, ins: Instruction, a: Operand, flags: list[int], sparse: bool, selector: int
) -> Multiplication:
    """The instruction's shape, types and flags.

    Raises:
        Stop: there is no such form, or it is not modelled.
    """
    shape = next((found for part in ins.op if (found := _SHAPE.fullmatch(part))), None)
    types = [part for part in ins.op if part in _TYPES]
    if shape is None or len(types) != 3 or "aligned" not in ins.op:
        raise _refused(ins)
    n, k = int(shape[1]), int(shape[2])
    d_type, a_type, b_type = types
    _check(ins, n, k, types, sparse)
    narrow = 2 if a_type in ("f16", "bf16", "tf32", "e4m3", "e5m2") else 0
    transposes = (1 if isinstance(a, Vector) else 2) if a_type in ("f16", "bf16") else 0
    if len(flags) != narrow + transposes or any(f not in (0, 1) for f in flags[narrow:]):
        raise _refused(ins)
    scales = flags[:narrow]
    if any(scale not in (-1, 1) for scale in scales):
        raise _refused(ins)
    trans = [bool(f) for f in flags[narrow:]]
    if selector not in ((0, 1) if a_type in ("f16", "bf16", "tf32") else (0,)):
        raise _refused(ins, "the sparsity selector is out of its range")
    _, site = writer.site(ins, "reads", "shared", np.uint64, 2)
    return Multiplication(
        n=n, k=k, a_type=a_type, b_type=b_type, d_type=d_type, sparse=sparse, selector=selector,
        shared=not isinstance(a, Vector), negate=scales.count(-1) == 1,
        trans_a=len(trans) == 2 and trans[0], trans_b=bool(trans) and trans[-1],
        saturate="satfinite" in ins.op, site=site, unfenced=writer.unfenced.get(id(ins), ""),
    )  # fmt: skip


def _check(ins: Instruction, n: int, k: int, types: list[str], sparse: bool) -> None:
    d_type, a_type, b_type = types
    integer = a_type in ("s8", "u8", "b1")
    mixed = {a_type, b_type} <= {"e4m3", "e5m2"} or {a_type, b_type} <= {"s8", "u8"}
    sizes = {8, 24, *range(16, 257, 16)} if integer else set(range(8, 257, 8))
    if a_type not in _K or (a_type != b_type and not mixed) or d_type not in _RESULTS[a_type] or n not in sizes:
        raise _refused(ins)
    bits = a_type == "b1"
    if k != _K[a_type] * (2 if sparse else 1) or (bits and sparse) or bits != (ins.op[-2:] == ("and", "popc")):
        raise _refused(ins)
