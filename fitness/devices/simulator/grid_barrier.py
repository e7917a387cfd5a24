"""What orders accesses to global memory: the barrier of a cooperative grid, or fences and the like of a kernel's own.

`grid.sync()` adds to a counter of the driver's with release order and polls it with acquire order; %envreg1 and
%envreg2 hold where the counter is. All accesses before it are ordered before all after it, which the race detector can
follow; orders that a kernel makes itself, by fences and flags, it cannot.
"""

from __future__ import annotations

from fitness.devices.simulator.blocks import Graph
from fitness.devices.simulator.emit_values import is_value
from fitness.devices.simulator.ptx import Address, Instruction, Register, symbols_in

_ORDERS = frozenset({"acquire", "release", "acq_rel"})
_NARROW = frozenset({"cta", "shared", "shared::cluster"})


def orders_memory(graph: Graph) -> bool:
    """Whether blocks may order accesses to global memory by instructions other than those of the grid's barrier."""
    found = [ins for block in graph.blocks for ins in block.instructions if _orders(ins)]
    if not found:
        return False
    barrier = _barrier_addresses(graph)
    return any(not _at(ins, barrier) for ins in found)


def _orders(ins: Instruction) -> bool:
    """A fence, a release or an acquire."""
    op = ins.op
    if op[0] in ("atom", "red", "ld", "st"):
        return bool(_ORDERS & set(op)) and not _NARROW & set(op)
    return op[0] == "membar" or (op[0] == "fence" and op[1] not in ("proxy", "mbarrier_init"))


def _at(ins: Instruction, registers: set[str]) -> bool:
    """Whether it accesses memory at one of these addresses."""
    places = [operand.base for operand in ins.operands if isinstance(operand, Address)]
    return bool(places) and all(isinstance(base, Register) and base.name in registers for base in places)


def _barrier_addresses(graph: Graph) -> set[str]:
    """Registers made of %envreg1 and %envreg2."""
    values = [ins for block in graph.blocks for ins in block.instructions if is_value(ins)]
    found = {r.name for ins in values if {"%envreg1", "%envreg2"} & symbols_in(ins.operands) for r in ins.destinations}
    grown = bool(found)
    while grown:
        new = {r.name for ins in values if any(s.name in found for s in ins.sources) for r in ins.destinations}
        grown = not new <= found
        found |= new
    return found
