"""Connects the execution engine to a `Tally`: its instructions as `Op`, its memory accesses as they happen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.blocks import Block, Graph
from fitness.devices.simulator.counters import Op
from fitness.devices.simulator.kinds import classify, make_op
from fitness.devices.simulator.lanes import Chunk, Context
from fitness.devices.simulator.merging import Group, mergeable
from fitness.devices.simulator.places import Place
from fitness.devices.simulator.ptx import Immediate, Instruction, Vector
from fitness.devices.simulator.regions import Region
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.tally import Tally

_MATRIX_ROW_BYTES = 16
#: Roles of regions that are a candidate's global buffers; parameters, constants and module variables are not.
_BUFFERS = frozenset({"input", "output", "workspace"})


#: Basic blocks; (kind, line, bytes per lane, cached in L1) of every site; loads that ptxas may merge.
StaticView = tuple[tuple[tuple[Op, ...], ...], list[tuple[str, int, int, bool]], list[Group]]


class Counting:
    """Observer that fills a tally for one launch.

    Args:
        name: of the entry.
        graph: its basic blocks, in the order the engine numbers them.
        sites: the engine's memory sites, in the order code generation made them.
        blocks_total: blocks of the grid.
        blocks_simulated: of those, run.
        warps_per_block: ceil(threads / 32).
        buffers: name -> bytes of the global buffers.
        static: `static_view` of graph and sites, where it is at hand.
    """

    sees_landing = False  # a `cp.async` counts where it is issued, not again where it lands

    def __init__(
        self,
        name: str,
        graph: Graph,
        sites: Sequence[Site],
        *,
        blocks_total: int,
        blocks_simulated: int,
        warps_per_block: int,
        buffers: Mapping[str, int],
        static: StaticView | None = None,
    ) -> None:
        code, described, merges = static or static_view(graph, sites)
        self._atomic = {index for index, site in enumerate(described) if site[0].startswith("atomic")}
        #: Lane number of the first lane of the chunk now running.
        self.lane_base = 0
        self.tally = Tally(
            name,
            code,
            described,
            blocks_total=blocks_total,
            blocks_simulated=blocks_simulated,
            warps_per_block=warps_per_block,
            buffers=buffers,
            merges=merges,
        )

    def shared(self, context: Context, relative: NDArray[Any], site: Site, bytes_each: int) -> None:
        """Lanes touch shared memory at byte offsets into their block's."""
        del bytes_each
        lanes = context.lanes + self.lane_base
        offsets = relative.astype(np.int64, copy=False)
        if site.index in self._atomic:
            self.tally.atomic(site.index, "", offsets, lanes)
        else:
            self.tally.shared_access(site.index, offsets, lanes)

    def shared_at(self, context: Context, place: Place, site: Site, start: int) -> bool:
        """The same of lanes whose addresses have been looked at; `start`: where the window begins. False: it is not."""
        if site.index in self._atomic:
            return False
        self.tally.shared_at(site.index, place, site.offset - start, context.lanes, self.lane_base)
        return True

    def global_at(self, context: Context, region: Region, place: Place, site: Site) -> bool:
        """The same of a buffer."""
        if site.index in self._atomic:
            return False
        if region.role in _BUFFERS:
            write, offset = site.verb == "writes", site.offset - region.base
            self.tally.global_at(
                site.index, region.name, place, offset, site.bytes, context.lanes, self.lane_base, write=write
            )
        return True

    def global_(self, context: Context, region: Region, relative: NDArray[Any], site: Site, bytes_each: int) -> None:
        """Lanes touch a buffer at byte offsets."""
        if region.role not in _BUFFERS:
            return
        lanes = context.lanes + self.lane_base
        offsets = relative.astype(np.int64, copy=False)
        if site.index in self._atomic:
            self.tally.atomic(site.index, region.name, offsets, lanes)
        else:
            write = site.verb == "writes"
            self.tally.global_access(site.index, region.name, offsets, lanes, write=write, bytes_per_lane=bytes_each)

    def bulk(self, one: Context, region: Region, rows: NDArray[np.int64], size: int, site: Site) -> None:
        """A bulk copy of one lane touches rows of `size` bytes of a buffer."""
        if region.role not in _BUFFERS:
            return
        block = int(one.lanes[0] + self.lane_base) // (32 * self.tally.warps_per_block)
        self.tally.bulk_access(site.index, region.name, rows, size, block, write=site.verb != "reads")

    def bulk_copies(
        self, context: Context, region: Region, rows: NDArray[np.int64], size: int, site: Site
    ) -> None:  # fmt: skip
        """Every lane's bulk copy touches rows, (lanes, rows), of `size` bytes of a buffer."""
        if region.role not in _BUFFERS:
            return
        blocks = (context.lanes + self.lane_base) // (32 * self.tally.warps_per_block)
        self.tally.bulk_accesses(site.index, region.name, rows, size, blocks, write=site.verb != "reads")

    def landed(self, chunk: Chunk, slot: int, start: int, size: int, barrier: int, phase: int) -> None:
        """A bulk load goes to the shared memory of the block at `slot`."""
        block = (slot * chunk.stride + self.lane_base) // (32 * self.tally.warps_per_block)
        self.tally.landed(block, start, size, barrier, phase)


def static_view(graph: Graph, sites: Sequence[Site]) -> StaticView:
    """The entry's basic blocks and memory sites as the tally wants them; the same for every launch."""
    first_site = {id(instruction): mine[0].index for instruction, mine in _walk(graph, sites)}
    return static_code(graph, sites), _described(graph, sites), mergeable(graph, first_site)


def static_code(graph: Graph, sites: Sequence[Site]) -> tuple[tuple[Op, ...], ...]:
    """The entry's basic blocks as the cost model sees them."""
    numbers: dict[str, int] = {}
    first_site = {id(instruction): mine[0].index for instruction, mine in _walk(graph, sites)}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    def op(instruction: Instruction) -> Op:
        read = [register.name for register in instruction.sources]
        if instruction.guard is not None:
            read.append(instruction.guard[0].name)
            read += [register.name for register in instruction.destinations]  # kept where the guard is false
        return make_op(
            instruction.name,
            line=instruction.line,
            defs=tuple(number(register.name) for register in instruction.destinations),
            uses=tuple(number(name) for name in read),
            site=first_site.get(id(instruction), -1),
            argument=_argument(instruction),
            kind=_kind(instruction),
        )

    return tuple(tuple(op(instruction) for instruction in _instructions(block)) for block in graph.blocks)


def _kind(instruction: Instruction) -> str | None:
    """Where an operand and not the opcode tells: A of wgmma in shared memory."""
    if instruction.op[:2] == ("wgmma", "mma_async") and not isinstance(instruction.operands[1], Vector):
        return classify(instruction.name) + ":shared"
    return None


def _instructions(block: Block) -> list[Instruction]:
    ending = block.terminator.instruction
    if ending is None or (block.instructions and block.instructions[-1] is ending):
        return block.instructions
    return [*block.instructions, ending]


def _argument(instruction: Instruction) -> int:
    """Groups that `cp.async.wait_group N` leaves in flight."""
    if "wait_group" in instruction.op and instruction.operands and isinstance(instruction.operands[0], Immediate):
        return int(instruction.operands[0].text, 0)
    return 0


def _walk(graph: Graph, sites: Sequence[Site]) -> Iterator[tuple[Instruction, list[Site]]]:
    """Every memory instruction with its sites, which code generation made in program order."""
    at = 0
    for block in graph.blocks:
        for instruction in _instructions(block):
            mine: list[Site] = []
            while at < len(sites) and len(mine) < _site_count(instruction) and _belongs(sites[at], instruction):
                mine.append(sites[at])
                at += 1
            if mine:
                yield instruction, mine


def _belongs(site: Site, instruction: Instruction) -> bool:
    return site.line == instruction.line and site.text == instruction.text


def _site_count(instruction: Instruction) -> int:
    """Sites of one instruction: `cp.async` reads and writes, vector atomics have one per element."""
    kind = classify(instruction.name)
    if instruction.op[:2] in (("st", "async"), ("red", "async"), ("tensormap", "cp_fenceproxy")):
        return 2  # the destination, and the mbarrier or the source
    if kind.startswith("atomic"):
        return next((int(part[1:]) for part in instruction.op if part in ("v2", "v4", "v8")), 1)
    if kind == "bulk":
        return 3  # the buffer's side, the shared side, the mbarrier
    return 2 if kind in ("cp_async", "bulk_store") else 1


def _described(graph: Graph, sites: Sequence[Site]) -> list[tuple[str, int, int, bool]]:
    """(kind, line, bytes per lane, cached in L1) of every site, as `Tally` wants it."""
    found = [("other", site.line, site.bytes, False) for site in sites]
    for instruction, mine in _walk(graph, sites):
        kind = classify(instruction.name)
        for site in mine:
            # The shared side of a cp.async is a store.
            role = "store_shared" if kind == "cp_async" and site.verb == "writes" else kind
            size = _MATRIX_ROW_BYTES if kind in ("ldmatrix", "stmatrix") else site.bytes
            found[site.index] = (role, site.line, size, _cached(kind, instruction))
    return found


def _cached(kind: str, instruction: Instruction) -> bool:
    """Whether L1 may serve the access: loads unless told otherwise, `cp.async` only as `.ca`."""
    if kind == "cp_async":
        return "ca" in instruction.op
    return kind == "load_global" and not {"cg", "cv", "volatile", "relaxed", "acquire"} & set(instruction.op)
