"""What can be seen of `wgmma` before a kernel runs: registers in flight, and missing `wgmma.fence`s.

`wgmma.fence` orders accesses to registers before the `wgmma.mma_async`s after it: it must come before the first
one, and again after other instructions have written accumulators or registers of A (PTX ISA, "wgmma.fence").
Copies of registers and constants are not looked at: the compiler makes them and removes them again.
"""

from __future__ import annotations

from fitness.devices.simulator.blocks import Graph
from fitness.devices.simulator.ptx import Instruction, Register, Vector, registers_in

_START = "no wgmma.fence"


def asynchronous(graph: Graph) -> frozenset[str]:
    """Registers that may hold the result of a `wgmma.mma_async` that has not been waited for, copies included."""
    found = {r.name for b in graph.blocks for i in b.instructions if _multiplies(i) for r in i.destinations}
    if not found:
        return frozenset()
    copies = [(s, d) for b in graph.blocks for i in b.instructions for s, d in _copied(i)]
    grown = True
    while grown:
        added = {target for source, target in copies if source in found} - found
        found |= added
        grown = bool(added)
    return frozenset(found)


def unfenced(graph: Graph) -> dict[int, str]:
    """What is wrong with the fences of each `wgmma.mma_async`, by the `id` of the instruction.

    A forward dataflow over the basic blocks: registers written since the last fence on some way there.
    """
    if not any(_multiplies(i) for b in graph.blocks for i in b.instructions):
        return {}
    written: list[frozenset[str] | None] = [None] * len(graph.blocks)
    written[graph.entry] = frozenset({_START})
    work = [graph.entry]
    while work:
        number = work.pop()
        before = written[number]
        assert before is not None
        after = before
        for instruction in graph.blocks[number].instructions:
            after = _step(instruction, after)
        for target in graph.blocks[number].terminator.targets:
            known = written[target]
            joined = after if known is None else known | after
            if joined != known:
                written[target] = joined
                work.append(target)
    found: dict[int, str] = {}
    for block, start in zip(graph.blocks, written, strict=True):
        state = start if start is not None else frozenset()
        for instruction in block.instructions:
            if _multiplies(instruction) and (said := _complaint(instruction, state)):
                found[id(instruction)] = said
            state = _step(instruction, state)
    return found


def _multiplies(instruction: Instruction) -> bool:
    return instruction.op[:2] == ("wgmma", "mma_async")


def _copied(instruction: Instruction) -> list[tuple[str, str]]:
    """(source, destination) of a plain move between registers."""
    if instruction.op[0] != "mov" or len(instruction.operands) != 2:
        return []
    target, source = instruction.operands
    return [(source.name, target.name)] if isinstance(target, Register) and isinstance(source, Register) else []


def _step(instruction: Instruction, written: frozenset[str]) -> frozenset[str]:
    if instruction.op[:2] == ("wgmma", "fence"):
        return frozenset()
    targets = {r.name for r in instruction.destinations}
    if not targets or _multiplies(instruction):
        return written - targets
    if instruction.op[0] == "mov":
        moved = {target for source, target in _copied(instruction) if source in written}
        return (written - targets) | moved
    return written | targets


def _complaint(instruction: Instruction, written: frozenset[str]) -> str:
    if _START in written:
        return "no wgmma.fence comes before it on some way there"
    fragments = [operand for operand in instruction.operands[:2] if isinstance(operand, Vector)]  # no descriptor
    names = {r.name for r in registers_in(fragments)}
    if names & written:
        return "its accumulators or registers of A were written after the last wgmma.fence"
    return ""
