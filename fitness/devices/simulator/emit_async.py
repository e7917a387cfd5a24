"""Code for what Hopper adds beside tensor cores: mbarriers, bulk copies, clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fitness.devices.simulator.emit_memory import address_parts, check_address, space_of
from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.ptx import Instruction, Operand, Register
from fitness.devices.simulator.writer import Writer, register_dtype


def emit(writer: Writer, ins: Instruction) -> bool:
    """Write one asynchronous or cluster instruction.

    Returns:
        False if the opcode is none of these.

    Raises:
        Stop: the instruction is of this family but not modelled.
    """
    form = _FORMS.get(ins.op[0])
    if form is None:
        return False
    return form(writer, ins)


def mark_of(writer: Writer, operands: list[Operand]) -> str:
    """Taint of the registers among operands."""
    return writer.taint_of([o for o in operands if isinstance(o, Register)])


# ---------------------------------------------------------------- mbarrier


def _barrier_place(writer: Writer, ins: Instruction, operand: Operand) -> tuple[str, str]:
    """(expression of the address, name of the site) of the mbarrier an instruction names."""
    space = space_of(ins.op)
    base, offset, taint = address_parts(writer, operand, space, ins.line)
    name, _ = writer.site(ins, "updates", space, np.uint64, 1, offset)
    check_address(writer, taint, name)
    return base, name


def _mbarrier(writer: Writer, ins: Instruction) -> bool:
    form = ins.op[1]
    if form == "init":
        base, site = _barrier_place(writer, ins, ins.operands[0])
        check_address(writer, mark_of(writer, [ins.operands[1]]), site)
        writer.put(f"_m.mbarriers.init(_c, {base}, {writer.value(ins.operands[1], 'u32', ins.line)}, {site})")
    elif form == "inval":
        base, site = _barrier_place(writer, ins, ins.operands[0])
        writer.put(f"_m.mbarriers.invalidate(_c, {base}, {site})")
    elif form in ("expect_tx", "complete_tx"):
        base, site = _barrier_place(writer, ins, ins.operands[0])
        check_address(writer, mark_of(writer, [ins.operands[1]]), site)
        count = writer.value(ins.operands[1], "u32", ins.line)
        writer.put(f"_m.mbarriers.expect(_c, {base}, {count}, {site}, complete={form == 'complete_tx'})")
    elif form in ("arrive", "arrive_drop"):
        _arrive(writer, ins)
    elif form == "pending_count":
        register = ins.operands[0]
        if not isinstance(register, Register):
            raise unsupported(f"`{ins.text}`", ins.line)
        state = writer.value(ins.operands[1], "b64", ins.line)
        low = writer.constant(np.uint64(0xFFFFFFFF))
        writer.assign(register, "u32", f"({state} & {low}).astype(_uint32)")
        writer.assign_taint([register], mark_of(writer, [ins.operands[1]]))
    else:
        raise unsupported(f"`{ins.text}`", ins.line)
    return True


def _arrive(writer: Writer, ins: Instruction) -> None:
    state, address, *rest = ins.operands
    base, site = _barrier_place(writer, ins, address)
    arguments = [f"drop={ins.op[1] == 'arrive_drop'}", f"incomplete={'noComplete' in ins.op}"]
    if rest:
        check_address(writer, mark_of(writer, rest), site)
        number = writer.value(rest[0], "u32", ins.line)
        arguments.append(f"expect={number}" if "expect_tx" in ins.op else f"count={number}")
    wanted = isinstance(state, Register) and state.name not in writer.defined_unused
    call = f"_m.mbarriers.arrive(_c, {base}, {site}, {', '.join(arguments)}, wanted={wanted})"
    if not isinstance(state, Register):
        writer.put(call)
        return
    writer.put(f"_t, _u = {call}")
    writer.assign(state, "b64", "_t")
    writer.assign_taint([state], "False")


def wait(writer: Writer, ins: Instruction, following: int, live: list[str]) -> None:
    """`mbarrier.test_wait` and `try_wait`, which end a basic block.

    Args:
        writer: of the entry.
        ins: the instruction.
        following: basic block after it.
        live: variables that block takes.
    """
    result, address, number = ins.operands[:3]
    base, site = _barrier_place(writer, ins, address)
    parity = "parity" in ins.op
    check_address(writer, mark_of(writer, [number]), site)
    value = writer.value(number, "u32" if parity else "b64", ins.line)
    place = -1
    if isinstance(result, Register) and result.name in live:
        place = live.index(result.name)
        writer.put(f"{result.name} = {writer.constant(np.bool_(False))}")
        writer.assign_taint([result], "False")
    values = f"({''.join(name + ', ' for name in live)})"
    writer.put(f"return _m.mbarriers.wait(_c, {base}, {value}, {parity}, {site}, {place}, {following}, {values})")


# ---------------------------------------------------------------- clusters


def _mapa(writer: Writer, ins: Instruction) -> bool:
    register, address, rank = ins.operands
    if not isinstance(register, Register) or ins.op[-1] not in ("u32", "u64"):
        raise unsupported(f"`{ins.text}`", ins.line)
    kind = ins.op[-1]
    where, block = writer.value(address, kind, ins.line), writer.value(rank, "u32", ins.line)
    writer.assign(register, kind, f"_m.clusters.map_address(_c, {where}, {block}, {ins.line})")
    writer.assign_taint([register], mark_of(writer, [address, rank]))
    return True


def _getctarank(writer: Writer, ins: Instruction) -> bool:
    register, address = ins.operands
    if not isinstance(register, Register):
        raise unsupported(f"`{ins.text}`", ins.line)
    where = writer.value(address, ins.op[-1], ins.line)
    writer.assign(register, "u32", f"_m.clusters.rank_of(_c, {where})")
    writer.assign_taint([register], mark_of(writer, [address]))
    return True


def _cluster_barrier(writer: Writer, ins: Instruction) -> bool:
    """`barrier.cluster.arrive`; the waiting form ends a basic block."""
    if ins.op[1:3] != ("cluster", "arrive"):
        return False
    writer.put(f"_m.clusters.arrive(_c, {ins.line})")
    return True


_FORMS: dict[str, Callable[[Writer, Instruction], bool]] = {
    "mbarrier": _mbarrier,
    "mapa": _mapa,
    "getctarank": _getctarank,
    "barrier": _cluster_barrier,
}
__all__ = ["emit", "mark_of", "register_dtype", "wait"]
