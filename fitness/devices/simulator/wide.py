"""Registers of 128 bits, as two of 64: what the compiler writes around 16-byte atomics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fitness.devices.simulator.ptx import Function, Instruction, Operand, Register, Vector


def halved(function: Function) -> Function:
    """The function with every 128-bit register replaced.

    Moves, loads and stores become ones of 64-bit registers. Atomics keep their type (`.b128`), with `{low, high}` for
    each value. What else has such a register is refused by name when code is generated.
    """
    if "b128" not in function.registers.values():
        return function
    registers: dict[str, str] = {}
    for name, kind in function.registers.items():
        registers |= {half.name: half.kind for half in _halves(name)} if kind == "b128" else {name: kind}
    body = [new for item in function.body for new in (_parts(item) if isinstance(item, Instruction) else [item])]
    return replace(function, registers=registers, body=body)


def _halves(name: str) -> tuple[Register, Register]:
    return Register(f"{name}__low", "b64"), Register(f"{name}__high", "b64")


def _both(operand: Operand) -> Operand:
    return Vector(_halves(operand.name)) if isinstance(operand, Register) and operand.kind == "b128" else operand


def _parts(ins: Instruction) -> Iterator[Instruction]:
    operands = tuple(_both(operand) for operand in ins.operands)
    if operands == ins.operands or ins.op[-1] != "b128":
        yield ins
    elif ins.op[0] == "mov":
        pairs = [operand.items if isinstance(operand, Vector) else () for operand in operands]
        if any(len(pair) != 2 for pair in pairs):
            yield ins
            return
        for half in zip(*pairs, strict=True):
            yield replace(ins, op=("mov", "b64"), operands=half)
    elif ins.op[0] in ("ld", "st"):
        yield replace(ins, op=(*ins.op[:-1], "v2", "b64"), operands=operands)
    else:
        yield replace(ins, operands=operands)
