"""Control flow of one PTX function: basic blocks in execution order, live registers, possibly-undefined values.

Blocks are numbered by priority: a weak topological order (Bourdoncle 1993), in which a loop's blocks come
before whatever follows the loop and both arms of a branch before their join. The scheduler runs the lowest
block first, so groups of lanes that took different ways meet again where the ways do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fitness.devices.simulator.blocks import Block, Graph, Terminator
from fitness.devices.simulator.liveness import find_live, find_tainted
from fitness.devices.simulator.ptx import Function, Immediate, Instruction, Label, Operand, Register, Sink, Symbol
from fitness.devices.simulator.variables import PtxError


def _ends_block(instruction: Instruction) -> str | None:
    op = instruction.op
    if op[0] in ("bra", "brx"):
        return "branch" if op[0] == "bra" else "switch"
    if op[0] in ("ret", "exit"):
        return "exit"
    if op[0] == "trap":
        return "trap"
    if op[0] == "bar" and op[1] == "warp":
        return "warp_barrier"
    if op[0] in ("bar", "barrier") and "arrive" not in op:
        return "cluster_wait" if "cluster" in op else "barrier"
    if op[0] == "mbarrier" and op[1] in ("test_wait", "try_wait"):
        return "wait"
    return None


class _Builder:
    """Cuts a body into blocks; positions in the body become block numbers."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.blocks: list[Block] = []
        self.labels: dict[str, int] = {}
        self.pending: list[tuple[Block, str, Instruction | None]] = []

    def build(self) -> list[Block]:
        current: list[Instruction] = []
        for item in self.function.body:
            if isinstance(item, Label):
                if current or self._label_taken():
                    self._close(current, "fall", None)
                    current = []
                self.labels[item.name] = len(self.blocks)
                continue
            kind = _ends_block(item)
            if kind is None:
                current.append(item)
                continue
            if item.guard and kind != "branch":
                self._close(current, "guard", item)
                self._close([], kind, replace(item, guard=None))
            else:
                self._close(current, kind, item)
            current = []
        self._close(current, "exit", None)
        return self._resolve()

    def _label_taken(self) -> bool:
        return False

    def _close(self, instructions: list[Instruction], kind: str, last: Instruction | None) -> None:
        block = Block(instructions, Terminator("exit"))
        self.blocks.append(block)
        self.pending.append((block, kind, last))

    def _target(self, name: str) -> int:
        if name not in self.labels:
            raise PtxError(f"branch to unknown label {name}")
        return self.labels[name]

    def _resolve(self) -> list[Block]:
        for number, (block, kind, last) in enumerate(self.pending):
            block.terminator = self._terminator(number, kind, last)
        return self.blocks

    def _terminator(self, number: int, kind: str, last: Instruction | None) -> Terminator:
        following = number + 1
        if kind == "fall":
            return Terminator("jump", (following,), last)
        if last is None:
            return Terminator("exit")
        if kind == "guard":
            assert last.guard is not None
            return Terminator("branch", (following, following + 1), last, last.guard)
        if kind == "branch":
            operand = last.operands[0]
            if not isinstance(operand, Symbol):
                raise PtxError(f"branch {last.text}")
            taken = self._target(operand.name)
            if last.guard is None:
                return Terminator("jump", (taken,), last)
            return Terminator("branch", (taken, following), last, last.guard)
        if kind == "switch":
            table = last.operands[1]
            if not isinstance(table, Symbol) or table.name not in self.function.targets:
                raise PtxError(f"branch table {last.text}")
            return Terminator("switch", tuple(self._target(t) for t in self.function.targets[table.name]), last)
        return Terminator(kind, () if kind in ("exit", "trap") else (following,), last)


def _components(nodes: list[int], successors: dict[int, list[int]]) -> list[list[int]]:
    """Strongly connected components in topological order (Tarjan, iterative)."""
    inside = set(nodes)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in nodes:
        if root in index:
            continue
        work: list[tuple[int, Iterable[int]]] = [(root, iter(successors[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            following = next((s for s in rest if s in inside and (s not in index or s in on_stack)), None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    found.append(component)
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(successors[following])))
            else:
                low[node] = min(low[node], index[following])
    return found[::-1]


def _ordered(nodes: list[int], entry: int, successors: dict[int, list[int]]) -> list[int]:
    """Weak topological order of `nodes`, of which `entry` is entered first."""
    order: list[int] = []
    start = [entry, *[n for n in nodes if n != entry]]
    for component in _components(start, successors):
        if len(component) == 1:
            order += component
            continue
        members = set(component)
        heads = [n for n in component if n == entry] or [
            n for n in component if any(n in successors[p] for p in nodes if p not in members)
        ]
        head = min(heads or component)
        inner = {n: [s for s in successors[n] if s in members and s != head] for n in component}
        rest = sorted(members - {head})
        order.append(head)
        if rest:
            first = next((s for s in successors[head] if s in rest), rest[0])
            order += _ordered(rest, first, inner)
    return order


def build(function: Function) -> Graph:
    """Blocks of a function in priority order, with liveness and taint.

    Raises:
        PtxError: a branch goes nowhere.
    """
    blocks = _Builder(function).build()
    successors = {n: list(b.terminator.targets) for n, b in enumerate(blocks)}
    reachable, work = {0}, [0]
    while work:
        for target in successors[work.pop()]:
            if target not in reachable:
                reachable.add(target)
                work.append(target)
    order = _ordered(sorted(reachable), 0, {n: successors[n] for n in reachable})
    number = {old: new for new, old in enumerate(order)}
    chosen = []
    for new, old in enumerate(order):
        block = blocks[old]
        block.index = new
        block.terminator = replace(block.terminator, targets=tuple(number[t] for t in block.terminator.targets))
        chosen.append(block)
    find_live(chosen)
    return Graph(function.name, chosen, number[0], dict(function.registers), find_tainted(chosen, number[0]))


def width(block: Block) -> int:
    """Warps that must come together for the block: 4 (wgmma), 1 (mma, ldmatrix, shuffles, votes) or 0."""
    if any(i.op[0] == "wgmma" or i.op[0] == "setmaxnreg" for i in block.instructions):
        return 4
    return int(any(i.op[0] in _WARP_OPERATIONS for i in block.instructions))


def member_mask(block: Block) -> int | Register | None:
    """Lanes that the block's first warp-wide instruction names: a number, or a register live at the block's start.

    None where there is no such instruction or the mask is computed within the block.
    """
    made: dict[str, Operand] = {}  # registers written in the block: what they were moved from, else a sink
    for instruction in block.instructions:
        if instruction.op[0] in _WARP_OPERATIONS:
            place = _MASK_PLACES.get(instruction.op[0])
            if place is None:
                return 0xFFFFFFFF  # .aligned: whole warps
            mask: Operand = instruction.operands[place] if place < len(instruction.operands) else Sink()
            if isinstance(mask, Register):
                mask = made.get(mask.name, mask)
            if isinstance(mask, Immediate):
                return int(mask.text, 0) & 0xFFFFFFFF
            return mask if isinstance(mask, Register) and mask.name in block.live_in else None
        plain = (
            instruction.op[0] == "mov" and instruction.guard is None and isinstance(instruction.operands[0], Register)
        )
        source = instruction.operands[1] if plain else Sink()
        for register in instruction.destinations:
            if isinstance(source, Register):
                source = made.get(source.name, source)
            made[register.name] = source if isinstance(source, Immediate | Register) else Sink()
    return None


_MASK_PLACES = {"shfl": 4, "vote": 2, "match": 2, "redux": 2, "elect": 1}
_WARP_OPERATIONS = frozenset(
    {"mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "shfl", "vote", "match", "redux", "elect"}
)
