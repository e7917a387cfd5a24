"""Which registers are live at the start of each basic block, and which may hold uninitialised values."""

from __future__ import annotations

from fitness.devices.simulator.blocks import Block, Terminator
from fitness.devices.simulator.ptx import Instruction


def find_live(blocks: list[Block]) -> None:
    """Fill in what each block uses, defines and has live at its start."""
    for block in blocks:
        for instruction in block.instructions:
            read = {r.name for r in instruction.sources}
            written = {r.name for r in instruction.destinations}
            if instruction.guard:
                read |= {instruction.guard[0].name} | written
            block.uses |= read - block.defs
            block.defs |= written
        block.uses |= terminator_reads(block.terminator) - block.defs
        if block.terminator.instruction is not None and block.terminator.kind in ("barrier", "wait"):
            block.defs |= {r.name for r in block.terminator.instruction.destinations}
    live: list[set[str]] = [set(b.uses) for b in blocks]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            block = blocks[number]
            out: set[str] = set()
            for target in block.terminator.targets:
                out |= live[target]
            new = block.uses | (out - block.defs)
            if new != live[number]:
                live[number] = new
                changed = True
    for block, names in zip(blocks, live, strict=True):
        block.live_in = tuple(sorted(names))


def terminator_reads(terminator: Terminator) -> set[str]:
    """Registers the end of a block reads."""
    read: set[str] = set()
    if terminator.condition:
        read.add(terminator.condition[0].name)
    if terminator.instruction is not None and terminator.kind in ("switch", "barrier", "warp_barrier", "wait"):
        read |= {r.name for r in terminator.instruction.sources}
    return read


def _brings_taint(instruction: Instruction) -> bool:
    """Could its result be uninitialised although its register sources are not?"""
    op = instruction.op
    if op[0] in ("ld", "ldu"):
        return not any(part in ("param", "const") for part in op[1:3])
    return op[0] in ("atom", "ldmatrix") or op[:2] in (("wmma", "load"), ("wgmma", "mma_async"))


def find_tainted(blocks: list[Block], entry: int) -> frozenset[str]:
    """Registers that may hold an uninitialised value (flow-insensitive, so an upper bound)."""
    tainted = set(blocks[entry].live_in)
    flows: list[tuple[set[str], set[str]]] = []
    for block in blocks:
        instructions = list(block.instructions)
        for instruction in instructions:
            written = {r.name for r in instruction.destinations}
            if _brings_taint(instruction):
                tainted |= written
            elif written:
                flows.append(({r.name for r in instruction.sources}, written))
    changed = True
    while changed:
        changed = False
        for read, written in flows:
            if read & tainted and not written <= tainted:
                tainted |= written
                changed = True
    return frozenset(tainted)
