"""What a cost run leaves out: values that decide neither the way, nor an address, nor who takes part.

Counters see basic blocks, addresses and lanes, never data. So instructions whose results reach no branch, address,
guard or member mask are dropped; loads, stores, atomics and warp-wide instructions among them only tell their addresses
("touch", see emit_touch.py). Control flow, addresses and with them all counters stay the same to the bit.

Which values matter is followed backwards through registers (from a use to what may have written it last) and memory:
where a load matters, so do stores that may have written what it reads. Shared and local memory count as one place each;
global memory is told apart by the pointer parameter or module variable that an address comes from. That an access does
stay in those buffers is checked when it is made (`Site.remember`); if it does not, the run is done over with nothing
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fitness.devices.simulator.blocks import Block, Graph
from fitness.devices.simulator.emit_memory import space_of
from fitness.devices.simulator.emit_values import is_value
from fitness.devices.simulator.liveness import find_live, terminator_reads
from fitness.devices.simulator.ptx import Address, Function, Instruction, Register, Symbol, Vector, symbols_in

_WARP = frozenset({"shfl", "vote", "match", "redux", "elect"})
_OPAQUE = frozenset({"cp", "st", "red", "ld", "atom", "wgmma", "tensormap"})
_ORDERING = frozenset({"commit_group", "wait_group", "wait_all", "fence", "prefetch"})
_SIDES = frozenset({"global", "shared::cta", "shared::cluster"})
_POINTERS = frozenset({"u64", "b64", "s64"})

Place = tuple[int, int]
"""A block, and before which of its instructions (their number: at its end)."""
_Use = tuple[str, Place]

Origins = frozenset[str] | None
"""Parameters and variables that an address may come from; None: anything."""


@dataclass(frozen=True)
class Sliced:
    """An entry less what does not matter.

    Attributes:
        graph: its blocks with what is left of their instructions, and registers live there.
        reads: whose contents matter: parameters and variables of global memory.
        origins: by id of an instruction that is left, where its address may point.
    """

    graph: Graph
    reads: Origins
    origins: dict[int, Origins]


def sliced(graph: Graph, function: Function, kept: frozenset[str]) -> Sliced:
    """Leave out what does not matter.

    Args:
        graph: of the entry.
        function: the entry, device functions inlined.
        kept: parameters whose buffers' contents matter to a later launch.
    """
    analysis = _Analysis(graph, function, kept)
    analysis.run()
    blocks: list[Block] = []
    origins: dict[int, Origins] = {}
    for block in graph.blocks:
        left = [new for ins in block.instructions for new in analysis.left(ins)]
        origins |= {id(new): analysis.place(new)[1] for new in left}
        if block.terminator.instruction is not None:
            origins[id(block.terminator.instruction)] = None
        blocks.append(replace(block, instructions=left, live_in=(), uses=set(), defs=set()))
    find_live(blocks)
    reads = None if analysis.anything else frozenset(analysis.names)
    return Sliced(replace(graph, blocks=blocks), reads, origins)


def form_of(ins: Instruction) -> str:
    """How an instruction can be left out; "root": not at all."""
    head = ins.op[0]
    if head in _WARP:
        return "warp"
    if head in ("mma", "movmatrix") or ins.op[:2] in (("wmma", "mma"), ("wgmma", "mma_async")):
        return "product"
    if head == "activemask" or is_value(ins):
        return "value"
    if "shared::cluster" in ins.op or ("async" in ins.op[1:2] and head != "cp"):
        return "root"
    if head == "ld":
        return "value" if _is_parameter(ins) else "load"
    if head == "ldmatrix" or ins.op[:2] == ("wmma", "load"):
        return "load"
    if head in ("st", "stmatrix") or ins.op[:2] == ("wmma", "store"):
        return "store"
    if head in ("atom", "red"):
        return "atomic"
    return "copy" if ins.op[:2] == ("cp", "async") and ins.op[2] in ("ca", "cg") else "root"


def _is_parameter(ins: Instruction) -> bool:
    """`ld.param` of a named parameter: a value of the launch."""
    address = ins.operands[1]
    return "param" in ins.op[1:3] and isinstance(address, Address) and isinstance(address.base, Symbol)


class Writers:
    """Which instructions may have written a register last, of a graph whose blocks are numbered in order."""

    def __init__(self, graph: Graph) -> None:
        self._places: dict[int, Place] = {}
        self._written: dict[str, dict[int, list[tuple[int, Instruction]]]] = {}  # by register and block
        self._before: list[list[int]] = [[] for _ in graph.blocks]
        for block in graph.blocks:
            for target in set(block.terminator.targets):
                self._before[target].append(block.index)
            for at, ins in enumerate(block.instructions):
                self._places[id(ins)] = (block.index, at)
                for name in {register.name for register in ins.destinations}:
                    self._written.setdefault(name, {}).setdefault(block.index, []).append((at, ins))

    def place(self, ins: Instruction) -> Place:
        """Where an instruction is."""
        return self._places[id(ins)]

    def before(self, name: str, place: Place) -> Iterator[Instruction]:
        """Instructions whose value of a register may be there just before a place.

        One with a guard leaves what was there before where the guard is false. What ends a block may write too, and
        always stays; what is found before it is more than need be.
        """
        written = self._written.get(name, {})
        seen: set[int] = set()
        queue = [place] if written else []
        while queue:
            block, end = queue.pop()
            for at, ins in reversed(written.get(block, ())):
                if at < end:
                    yield ins
                    if ins.guard is None:
                        break
            else:
                queue += [(one, len(self._places)) for one in self._before[block] if one not in seen]
                seen.update(self._before[block])


class _Analysis:
    """The instructions that matter, `kept` by id; everything else is dropped or touched."""

    def __init__(self, graph: Graph, function: Function, kept: frozenset[str]) -> None:
        self.graph = graph
        self.kept: set[int] = set()
        self.names: set[str] = set(kept)  # of global memory whose contents matter
        self.anything = False
        self.spaces: set[str] = set()
        self._wanted: set[_Use] = set()
        self._queue: list[_Use] = []
        self._writers = Writers(graph)
        self._stores: list[Instruction] = []
        self._forms: dict[int, str] = {}
        self._sources = _pointers(graph, function)
        self._bulk: dict[str, list[Origins]] = {"load": [], "store": []}  # of bulk copies, which are made in any case
        self._opaque = False
        for ins in self._instructions():
            form = self._forms[id(ins)] = form_of(ins)
            if form in ("store", "atomic", "copy"):
                self._stores.append(ins)
            way = bulk_way(ins)
            if way is not None:
                self._bulk[way].append(self.place(ins)[1])
            else:
                self._opaque |= self._is_opaque(ins)

    def _instructions(self) -> Iterator[Instruction]:
        return (ins for block in self.graph.blocks for ins in block.instructions)

    def _is_opaque(self, ins: Instruction) -> bool:
        """Whether it moves data in ways that are not followed here."""
        moves = self._forms[id(ins)] == "root" and ins.op[0] in _OPAQUE
        return moves and not _ORDERING & set(ins.op)

    def run(self) -> None:
        """Find all that matters."""
        for block in self.graph.blocks:
            end = (block.index, len(block.instructions))
            self._want(terminator_reads(block.terminator), end)
            if block.terminator.instruction is not None:
                self._want(_guard(block.terminator.instruction), end)
        for ins in self._instructions():
            form = self._forms[id(ins)]
            if form == "root":
                self._keep(ins)
            elif form != "value":
                touched = touch(ins)
                self._want({register.name for register in touched.sources} | _guard(ins), self._writers.place(ins))
        while self._queue or self._more_stores():
            while self._queue:
                for ins in self._writers.before(*self._queue.pop()):
                    self._keep(ins)

    def _want(self, registers: set[str], place: Place) -> None:
        """What registers hold at a place matters."""
        new = {(name, place) for name in registers} - self._wanted
        self._wanted |= new
        self._queue += sorted(new)

    def _keep(self, ins: Instruction) -> None:
        if id(ins) in self.kept:
            return
        self.kept.add(id(ins))
        self._want({register.name for register in ins.sources} | _guard(ins), self._writers.place(ins))
        form = self._forms[id(ins)]
        if form in ("load", "copy", "atomic"):
            self._matters(*self.place(ins))
        elif ins.op[:2] == ("wgmma", "mma_async"):  # by descriptors
            self._matters("shared", None)

    def _more_stores(self) -> bool:
        """Keep stores to places whose contents matter; whether there were any."""
        if "shared" not in self.spaces and any(self._may_change(far) for far in self._bulk["store"]):
            self._matters("shared", None)
        found = [ins for ins in self._stores if id(ins) not in self.kept and self._may_matter(ins)]
        for ins in found:
            self._keep(ins)
        return bool(found)

    def _matters(self, space: str, origins: Origins) -> None:
        """Contents of memory matter."""
        if space in ("const", "param"):
            return
        if self._opaque or space == "generic":
            self.spaces |= {"shared", "local"}
        if space in ("shared", "local") and not self._opaque:
            self.spaces.add(space)
            if space == "shared":
                for far in self._bulk["load"]:
                    self._matters("global", far)
        elif origins is None or self._opaque:
            self.anything = True
        else:
            self.names |= origins

    def _may_matter(self, ins: Instruction) -> bool:
        """Whether it writes what matters."""
        form = self._forms[id(ins)]
        space, origins = ("shared", None) if form == "copy" else self.place(ins)
        if space in ("shared", "local"):
            return space in self.spaces
        return self._may_change(origins) or (space == "generic" and bool(self.spaces))

    def _may_change(self, origins: Origins) -> bool:
        """Whether a store to global memory may change what matters."""
        return self.anything or (bool(self.names) if origins is None else bool(self.names & origins))

    def place(self, ins: Instruction) -> tuple[str, Origins]:
        """(space, origins) of the memory an instruction accesses; of a copy those of its side in global memory."""
        way = bulk_way(ins)
        if way is not None:
            operand = ins.operands[1 if way == "load" else 0]
            far = operand.items[0] if isinstance(operand, Vector) else operand  # [map, {coordinates}]
            if isinstance(far, Register | Symbol):
                far = Address(far, 0)
            return "global", self._origins(far) if isinstance(far, Address) else None
        op = ins.op[1:] if ins.op[0] == "touch" else ins.op
        addresses = [operand for operand in ins.operands if isinstance(operand, Address)]
        if not addresses:
            return "none", None
        if op[:2] == ("cp", "async"):
            return ("global" if "global" in op else "generic"), self._origins(addresses[-1])
        return space_of(op), self._origins(addresses[0])

    def _origins(self, address: Address) -> Origins:
        if isinstance(address.base, Symbol):
            return frozenset({address.base.name})
        found = self._sources.get(address.base.name) if address.base is not None else None
        return frozenset(found) if found and "?" not in found else None

    def left(self, ins: Instruction) -> list[Instruction]:
        """What is left of an instruction."""
        if id(ins) in self.kept:
            return [ins]
        return [] if self._forms[id(ins)] == "value" else [touch(ins)]


def bulk_way(ins: Instruction) -> str | None:
    """Which way a bulk copy goes between global and shared memory: "load" or "store"; None of anything else."""
    sides = [part for part in ins.op[3:] if part in _SIDES] if ins.op[:3] == ("cp", "async", "bulk") else []
    if len(sides) != 2 or "global" not in sides:
        return None
    return "load" if sides[1] == "global" else "store"


def touch(ins: Instruction) -> Instruction:
    """An instruction that only tells who accesses what (the registers it reads are those of addresses and masks)."""
    return replace(ins, op=("touch", *ins.op))


def _guard(ins: Instruction) -> set[str]:
    return {ins.guard[0].name} if ins.guard is not None else set()


def _pointers(graph: Graph, function: Function) -> dict[str, set[str]]:
    """Registers -> parameters and variables whose address may have gone into them; "?": an address from memory."""
    parameters = {p.name for p in function.parameters if p.type in _POINTERS}
    readers: dict[str, list[Instruction]] = {}
    found: dict[str, set[str]] = {}
    queue: list[tuple[str, str]] = []
    for block in graph.blocks:
        for ins in block.instructions:
            for name in _made(ins, parameters):
                queue += [(target.name, name) for target in ins.destinations]
            if is_value(ins) or ins.op[0] in _WARP:
                for source in ins.sources:
                    readers.setdefault(source.name, []).append(ins)
    while queue:
        register, name = queue.pop()
        if name in found.setdefault(register, set()):
            continue
        found[register].add(name)
        queue += [(target.name, name) for ins in readers.get(register, ()) for target in ins.destinations]
    return found


def _made(ins: Instruction, parameters: set[str]) -> Sequence[str]:
    """Names of the addresses that an instruction brings into registers."""
    if ins.op[0] in ("ld", "atom"):
        if not any(register.kind in ("b64", "u64", "s64") for register in ins.destinations):
            return ()
        if ins.op[0] == "ld" and _is_parameter(ins):
            address = ins.operands[1]
            assert isinstance(address, Address)
            assert isinstance(address.base, Symbol)
            whole = address.base.name in parameters and address.offset == 0
            return (address.base.name,) if whole else ("?",)
        return ("?",)
    return sorted(name for name in symbols_in(ins.operands[1:]) if not name.startswith("%")) if is_value(ins) else ()
