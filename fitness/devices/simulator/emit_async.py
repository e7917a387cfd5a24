"""Code for what Hopper adds beside tensor cores: mbarriers, bulk copies, clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fitness.devices.simulator.bulk import Sites
from fitness.devices.simulator.emit_memory import address_parts, check_address, element, items_of, space_of, stored
from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.ptx import Immediate, Instruction, Operand, Register, Vector, registers_in
from fitness.devices.simulator.reductions import OPERATIONS, reduction
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


def mark_of(writer: Writer, operands: Sequence[Operand]) -> str:
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


# ---------------------------------------------------------------- bulk copies

_UNKNOWN_BULK = frozenset({"cp_mask", "im2col", "im2col_no_offs", "im2col::w", "tile::gather4", "tile::scatter4"})


def _copy(writer: Writer, ins: Instruction) -> bool:
    op = ins.op
    if op[:4] == ("cp", "async", "mbarrier", "arrive"):
        base, site = _barrier_place(writer, ins, ins.operands[0])
        writer.put(f"_m.copies.arrive(_c, {base}, {site}, _m.mbarriers, counted={'noinc' in op})")
        return True
    if "bulk" not in op:
        return False
    if _UNKNOWN_BULK & set(op) or any(part.startswith("cta_group") for part in op):
        raise unsupported(f"`{ins.text}`", ins.line)
    if "commit_group" in op or "wait_group" in op:
        _bulk_group(writer, ins)
    elif "prefetch" in op:
        if "tensor" in op:
            of, where = _tensor(writer, ins, ins.operands[0])
            name, _ = writer.site(ins, "reads", "global", np.uint64, 2)
            writer.put(f"_m.bulk.prefetch(_c, {of}, {where}, {name})")
    elif op[1] == "reduce" and "tensor" not in op:
        _bulk_reduce(writer, ins)
    elif space_of(op) == "global":
        _bulk_store(writer, ins)
    else:
        _bulk_load(writer, ins)
    return True


def _bulk_group(writer: Writer, ins: Instruction) -> None:
    """`cp.async.bulk.commit_group` and `cp.async.bulk.wait_group`."""
    if "commit_group" in ins.op:
        writer.put("_m.bulk.commit(_c)")
        return
    count = ins.operands[0]
    if not isinstance(count, Immediate):
        raise unsupported(f"`{ins.text}`", ins.line)
    writer.put(f"_m.bulk.wait(_c, {int(count.text, 0)}, {ins.line})")


def _tensor(writer: Writer, ins: Instruction, operand: Operand) -> tuple[str, str]:
    """(address of the map, coordinates) of `[map, {c0, c1, ...}]`."""
    if not isinstance(operand, Vector) or len(operand.items) != 2 or not isinstance(operand.items[1], Vector):
        raise unsupported(f"`{ins.text}`", ins.line)
    address, where = operand.items
    if not isinstance(address, Register):
        raise unsupported(f"`{ins.text}`", ins.line)
    assert isinstance(where, Vector)
    coordinates = "".join(writer.value(item, "u32", ins.line) + ", " for item in where.items)
    return writer.value(address, "u64", ins.line), f"({coordinates})"


def _bulk_sites(
    writer: Writer, ins: Instruction, far: tuple[str, str, int], near: Operand, barrier: Operand | None
) -> tuple[str, str, str]:
    """(shared address, mbarrier address, name of the sites) of a copy; `far`: verb, space, offset of the other side."""
    load = barrier is not None
    _, far_site = writer.site(ins, far[0], far[1], np.uint64, 2, far[2])
    far_site.atomic = far[0] == "updates"
    to, offset, mark = address_parts(writer, near, "shared", ins.line)
    reduces = load and ins.op[1] == "reduce"
    verb = "updates" if reduces else "writes" if load else "reads"
    _, near_site = writer.site(ins, verb, "shared", np.uint64, 2, offset)
    near_site.atomic = reduces
    bar, bar_site = "", None
    if barrier is not None:
        bar, bar_offset, bar_mark = address_parts(writer, barrier, "shared", ins.line)
        _, bar_site = writer.site(ins, "updates", "shared", np.uint64, 1, bar_offset)
        check_address(writer, bar_mark, writer.function(bar_site))
    check_address(writer, mark, writer.function(near_site))
    for operand in ins.operands:
        check_address(writer, mark_of(writer, registers_in([operand])), writer.function(far_site))
    return to, bar, writer.function(Sites(far_site, near_site, bar_site))


def _bulk_load(writer: Writer, ins: Instruction) -> None:
    """To shared memory, from a tensor map, from global or from shared memory, counted by an mbarrier."""
    tensor = "tensor" in ins.op
    target, source, *rest = ins.operands
    size = None if tensor else rest.pop(0)
    if not rest or not any(part.startswith("mbarrier::complete_tx") for part in ins.op):
        raise unsupported(f"`{ins.text}`", ins.line)
    barrier = rest.pop(0)
    multicast = "multicast::cluster" in ins.op
    ctas = writer.value(rest[0], "u16", ins.line) if multicast else "None"
    if tensor:
        of, where = _tensor(writer, ins, source)
        to, bar, sites = _bulk_sites(writer, ins, ("reads", "global", 0), target, barrier)
        writer.put(f"_m.bulk.tensor_load(_c, {to}, {of}, {where}, {bar}, {ctas}, {sites})")
        return
    assert size is not None
    space = "global" if "global" in ins.op else "shared"
    of, offset, _ = address_parts(writer, source, space, ins.line)
    to, bar, sites = _bulk_sites(writer, ins, ("reads", space, offset), target, barrier)
    count = writer.value(size, "u32", ins.line)
    writer.put(f"_m.bulk.load(_c, {to}, {of}, {count}, {bar}, {ctas}, {sites})")


def _bulk_store(writer: Writer, ins: Instruction) -> None:
    """From shared to global memory or a tensor map, in a bulk group."""
    if "bulk_group" not in ins.op:
        raise unsupported(f"`{ins.text}`", ins.line)
    target, source = ins.operands[:2]
    if "tensor" in ins.op:
        operation = next((part for part in ins.op if part in OPERATIONS), "") if ins.op[1] == "reduce" else ""
        to, where = _tensor(writer, ins, target)
        verb = "updates" if operation else "writes"
        of, _, sites = _bulk_sites(writer, ins, (verb, "global", 0), source, None)
        writer.put(f"_m.bulk.tensor_store(_c, {to}, {where}, {of}, {sites}, {operation!r})")
        return
    to, offset, _ = address_parts(writer, target, "global", ins.line)
    of, _, sites = _bulk_sites(writer, ins, ("writes", "global", offset), source, None)
    count = writer.value(ins.operands[2], "u32", ins.line)
    writer.put(f"_m.bulk.store(_c, {to}, {of}, {count}, {sites})")


def _bulk_reduce(writer: Writer, ins: Instruction) -> None:
    """`cp.reduce.async.bulk` from shared memory to that of the cluster or to global memory."""
    shared = space_of(ins.op) == "shared"
    operation = next((part for part in ins.op if part in OPERATIONS), "")
    found = reduction(operation, ins.op[-1], shared=shared) if operation else None
    if found is None or len(ins.operands) < 3 or (ins.op[-1] in ("f16", "bf16") and _flushes(ins, operation)):
        raise unsupported(f"`{ins.text}`", ins.line)
    target, source, size, *rest = ins.operands
    count, combined = writer.value(size, "u32", ins.line), writer.function(found)
    if shared:
        of, offset, _ = address_parts(writer, source, "shared", ins.line)
        to, bar, sites = _bulk_sites(writer, ins, ("reads", "shared", offset), target, rest[0])
        writer.put(f"_m.bulk.load(_c, {to}, {of}, {count}, {bar}, None, {sites}, {combined})")
        return
    to, offset, _ = address_parts(writer, target, "global", ins.line)
    of, _, sites = _bulk_sites(writer, ins, ("updates", "global", offset), source, None)
    writer.put(f"_m.bulk.store(_c, {to}, {of}, {count}, {sites}, {combined})")


def _flushes(ins: Instruction, operation: str) -> bool:
    """Sums of halves exist as `.noftz` only."""
    return operation == "add" and "noftz" not in ins.op


# ---------------------------------------------------------------- asynchronous stores and reductions

_REMOTE_REDUCTIONS = {
    "inc": ("u32",), "dec": ("u32",), "min": ("u32", "s32"), "max": ("u32", "s32"), "add": ("u32", "s32", "u64", "s64"),
    "and": ("b32",), "or": ("b32",), "xor": ("b32",),
}  # fmt: skip


def _remote_sites(writer: Writer, ins: Instruction, verb: str, dtype: Any, count: int) -> tuple[str, str, str]:
    """(destination, mbarrier, names of their sites) of `st.async [a], b, [mbar]` and `red.async`."""
    if len(ins.operands) != 3 or "mbarrier::complete_tx::bytes" not in ins.op:
        raise unsupported(f"`{ins.text}`", ins.line)
    space = space_of(ins.op)
    if space not in ("shared", "generic"):
        raise unsupported(f"`{ins.text}`", ins.line)
    to, offset, mark = address_parts(writer, ins.operands[0], space, ins.line)
    name, site = writer.site(ins, verb, space, dtype, count, offset)
    site.atomic = verb == "updates"
    check_address(writer, mark, name)
    barrier, far, barrier_mark = address_parts(writer, ins.operands[2], space, ins.line)
    barrier_name, _ = writer.site(ins, "updates", space, np.uint64, 1, far)
    check_address(writer, barrier_mark, barrier_name)
    return to, barrier, f"{name}, {barrier_name}"


def _store(writer: Writer, ins: Instruction) -> bool:
    """`st.async`; other stores are elsewhere."""
    if "async" not in ins.op:
        return False
    items, kind = items_of(ins.operands[1]), ins.op[-1]
    if kind not in ("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64"):
        raise unsupported(f"`{ins.text}`", ins.line)
    dtype = np.dtype(element(kind, items))
    to, barrier, sites = _remote_sites(writer, ins, "writes", dtype, len(items))
    values = "".join(stored(writer, item, kind, dtype, ins.line) + ", " for item in items)
    taints = [writer.taint_of([i] if isinstance(i, Register) else []) for i in items]
    marks = "None" if all(t == "False" for t in taints) else f"({', '.join(taints)},)"
    writer.put(f"_m.remote.store(_c, {to}, ({values}), {marks}, {barrier}, {sites})")
    return True


def _reduce(writer: Writer, ins: Instruction) -> bool:
    """`red.async`; other reductions are elsewhere."""
    if "async" not in ins.op:
        return False
    kind = ins.op[-1]
    operation = next((part for part in ins.op if part in _REMOTE_REDUCTIONS), "")
    if kind not in _REMOTE_REDUCTIONS.get(operation, ()):
        raise unsupported(f"`{ins.text}`", ins.line)
    to, barrier, sites = _remote_sites(writer, ins, "updates", register_dtype(kind), 1)
    value, mark = writer.value(ins.operands[1], kind, ins.line), mark_of(writer, [ins.operands[1]])
    writer.put(f"_m.remote.reduce(_c, {to}, {value}, {mark}, {operation!r}, {kind!r}, {barrier}, {sites})")
    return True


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
    writer.put(f"_m.clusters.arrive(_c, {ins.line}, relaxed={'relaxed' in ins.op})")
    return True


def _tensormap(writer: Writer, ins: Instruction) -> bool:
    """`tensormap.replace` and `tensormap.cp_fenceproxy`."""
    if ins.op[1] == "cp_fenceproxy":
        to, far, mark = address_parts(writer, ins.operands[0], "global", ins.line)
        target, _ = writer.site(ins, "writes", "global", np.uint64, 2, far)
        of, near, other = address_parts(writer, ins.operands[1], "shared", ins.line)
        source, _ = writer.site(ins, "reads", "shared", np.uint64, 2, near)
        check_address(writer, mark, target)
        check_address(writer, other, source)
        writer.put(f"_m.maps.publish(_c, {to}, {of}, {target}, {source})")
        return True
    if ins.op[1:3] != ("replace", "tile") or "b1024" not in ins.op:
        raise unsupported(f"`{ins.text}`", ins.line)
    field, (address, *rest) = ins.op[3], ins.operands
    ordinal = rest.pop(0) if len(rest) > 1 else Immediate("0")
    if not isinstance(ordinal, Immediate):
        raise unsupported(f"`{ins.text}`", ins.line)
    base, offset, mark = address_parts(writer, address, space_of(ins.op), ins.line)
    name, _ = writer.site(ins, "updates", space_of(ins.op), np.uint64, 2, offset)
    check_address(writer, mark, name)
    check_address(writer, mark_of(writer, rest), name)
    value = writer.value(rest[0], ins.op[-1], ins.line)
    writer.put(f"_m.maps.replace(_c, {base}, {field!r}, {int(ordinal.text, 0)}, {value}, {name})")
    return True


_FORMS: dict[str, Callable[[Writer, Instruction], bool]] = {
    "mbarrier": _mbarrier,
    "cp": _copy,
    "mapa": _mapa,
    "getctarank": _getctarank,
    "barrier": _cluster_barrier,
    "st": _store,
    "red": _reduce,
    "tensormap": _tensormap,
}
