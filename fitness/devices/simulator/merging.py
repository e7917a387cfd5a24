"""Adjacent scalar loads of shared memory that ptxas merges into one of 64 or 128 bits.

`ld.shared.f32 [p]`, `[p+4]`, `[p+8]`, `[p+12]` become one LDS.128 where ptxas can prove the alignment. What it can
prove is not visible in PTX; here it is taken to be so if the address was aligned whenever it was executed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fitness.devices.simulator.blocks import Block, Graph
from fitness.devices.simulator.counters import Op
from fitness.devices.simulator.kinds import classify
from fitness.devices.simulator.ptx import Address, Instruction, Register

_WORD = 4
_WIDTHS = (4, 2)  # words of a merged load
_ENDS = frozenset(
    {
        "store_shared",
        "stmatrix",
        "atomic_shared",
        "barrier",
        "fence",
        "cp_async",
        "cp_async_wait",
        "bulk",
        "mbarrier_wait",
    }
)

Group = tuple[int, ...]


@dataclass(frozen=True)
class _Load:
    offset: int
    site: int


def mergeable(graph: Graph, site_of: Mapping[int, int]) -> list[Group]:
    """Groups of 2 or 4 sites that read consecutive words, lowest address first.

    Args:
        graph: the entry's basic blocks.
        site_of: id of an instruction -> its memory site.
    """
    return [group for block in graph.blocks for loads in _streams(block, site_of) for group in _groups(loads)]


def _streams(block: Block, site_of: Mapping[int, int]) -> list[list[_Load]]:
    """Word loads by base register, apart where the register or shared memory may have changed in between."""
    found: dict[tuple[str, int, int], list[_Load]] = {}
    versions: dict[str, int] = {}
    epoch = 0
    for instruction in block.instructions:
        address = _word_address(instruction)
        if address is not None and id(instruction) in site_of and isinstance(address.base, Register):
            key = (address.base.name, versions.get(address.base.name, 0), epoch)
            found.setdefault(key, []).append(_Load(address.offset, site_of[id(instruction)]))
        for register in instruction.destinations:
            versions[register.name] = versions.get(register.name, 0) + 1
        epoch += classify(instruction.name) in _ENDS
    return list(found.values())


def _word_address(instruction: Instruction) -> Address | None:
    """Address of an unconditional scalar 32-bit load from shared memory."""
    if classify(instruction.name) != "load_shared" or instruction.guard is not None:
        return None
    if instruction.op[-1] not in ("f32", "u32", "s32", "b32") or {"v2", "v4", "volatile"} & set(instruction.op):
        return None
    return next((operand for operand in instruction.operands if isinstance(operand, Address)), None)


def _groups(loads: Sequence[_Load]) -> list[Group]:
    at = {load.offset: load.site for load in loads}
    found: list[Group] = []
    taken: set[int] = set()
    for words in _WIDTHS:
        for offset in sorted(at):
            members = range(offset, offset + words * _WORD, _WORD)
            if offset % (words * _WORD) == 0 and all(m in at and m not in taken for m in members):
                taken.update(members)
                found.append(tuple(at[m] for m in members))
    return found


def merged_code(code: tuple[tuple[Op, ...], ...], groups: Collection[Group]) -> tuple[tuple[Op, ...], ...]:
    """The code with each group's first load in program order standing for all of them."""
    leader = {site: group[0] for group in groups for site in group}
    return tuple(_merged_block(block, leader) for block in code)


def _merged_block(block: tuple[Op, ...], leader: Mapping[int, int]) -> tuple[Op, ...]:
    ops: list[Op] = []
    place: dict[int, int] = {}
    for op in block:
        group = leader.get(op.site)
        if group is None:
            ops.append(op)
        elif group in place:
            first = ops[place[group]]
            ops[place[group]] = replace(first, defs=first.defs + op.defs)
        else:
            place[group] = len(ops)
            ops.append(replace(op, site=group))
    return tuple(ops)
