"""A PTX entry -> `Kernel`: one Python function of NumPy operations per basic block.

A block's function takes the machine, the group's context and the registers live at its start, and returns
(next block, registers live there), or None when the machine has taken the group over (split, barrier, exit).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fitness.devices.simulator import (
    cfg,
    emit_async,
    emit_atomics,
    emit_memory,
    emit_touch,
    emit_values,
    emit_warp,
    emit_wgmma,
    wgmma_flow,
)
from fitness.devices.simulator.blocks import Block, Graph
from fitness.devices.simulator.emit_moves import pick
from fitness.devices.simulator.faults import Stop, unsupported
from fitness.devices.simulator.grid_barrier import orders_memory
from fitness.devices.simulator.inline import inline_calls
from fitness.devices.simulator.layout import Layout, layout
from fitness.devices.simulator.liveness import terminator_reads
from fitness.devices.simulator.ptx import Function, Instruction, Module, Register
from fitness.devices.simulator.registers import plain
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.slicing import sliced
from fitness.devices.simulator.tracing import Watched, watched
from fitness.devices.simulator.wide import halved
from fitness.devices.simulator.writer import Writer, register_dtype

BlockFunction = Callable[..., Any]
_NAMES = re.compile(r"\w+")
_LIVE = re.compile(r"@(\d+)@")


@dataclass
class Kernel:
    """Executable form of one entry.

    Attributes:
        functions: per block, each compiled when it is first run. lengths: instructions per block (terminator included).
        whole: warps each block needs together: 0, 1 (whole warps) or 4 (whole warpgroups).
        masks: lanes the first warp-wide instruction of each block names: a number, (place among the live variables,),
            or None where that is not known at its start.
        live: variables each block takes (values, then taints). sites: memory instructions.
        sources: the generated code of each block, for the curious; space: its global names.
        reads: parameters and variables whose contents matter where some values are left out (slicing.py), None: any.
        fenced: it has fences of its own. phased: its warps wait for mbarriers, bulk stores or wgmma.
    """

    name: str
    graph: Graph
    layout: Layout
    functions: list[BlockFunction]
    lengths: list[int]
    whole: list[int]
    masks: list[int | tuple[int] | None]
    live: list[list[str]]
    entry_values: tuple[Any, ...]
    sites: list[Site]
    sources: list[str]
    space: dict[str, Any]
    track: bool
    fenced: bool
    phased: bool
    reads: frozenset[str] | None

    @property
    def source(self) -> str:
        """The generated code."""
        return "\n".join(self.sources)


class _Block:
    """A basic block that has not run yet: its first call compiles it and puts the function into its place."""

    __slots__ = ("_functions", "_name", "_number", "_source", "_space")

    def __init__(
        self, functions: list[BlockFunction], number: int, source: str, space: dict[str, Any], name: str
    ) -> None:
        self._functions, self._number, self._source = functions, number, source
        self._space, self._name = space, name

    def __call__(self, *given: Any) -> Any:
        exec(compile(self._source, f"<simulated {self._name}>", "exec"), self._space)
        function = self._functions[self._number] = self._space[f"_b{self._number}"]
        return function(*given)


class _Generator:
    def __init__(
        self, module: Module, function: Function, whole: Graph, *, track: bool, trace: int, kept: frozenset[str] | None
    ) -> None:
        part = None if kept is None else sliced(whole, function, kept)
        self.graph = graph = whole if part is None else part.graph
        self.reads = None if part is None else part.reads
        self.trace, self.whole = trace, whole
        self.layout = layout(module, function)
        self.writer = Writer(self.layout, graph.tainted, graph.kinds, track=track)
        self.writer.space.update(_plain=plain, _pick=pick)
        self.writer.defined_unused = _never_read(graph)
        self.writer.asynchronous, self.writer.unfenced = wgmma_flow.asynchronous(whole), wgmma_flow.unfenced(whole)
        self.writer.origins = {} if part is None else part.origins
        self.helpers = 0

    def kernel(self) -> Kernel:
        """Generate everything; a basic block is compiled when it is first run, for many never are."""
        sources = [self._block(block) for block in self.graph.blocks]
        space = self.writer.space
        functions: list[BlockFunction] = []
        functions += [
            _Block(functions, number, source, space, self.graph.name) for number, source in enumerate(sources)
        ]
        blocks = self.whole.blocks
        live = [self.writer.variables(b.live_in) for b in self.graph.blocks]
        return Kernel(
            name=self.graph.name,
            graph=self.whole,
            layout=self.layout,
            functions=functions,
            lengths=[len(b.instructions) + (b.terminator.instruction is not None) for b in blocks],
            whole=[cfg.width(b) for b in blocks],
            masks=[_mask(b, left.live_in) for b, left in zip(blocks, self.graph.blocks, strict=True)],
            live=live,
            entry_values=tuple(self._undefined(name) for name in live[self.graph.entry]),
            sites=self.writer.sites,
            sources=sources,
            space=space,
            track=self.writer.track,
            phased=any(
                i.op[0] in ("mbarrier", "wgmma") or "bulk_group" in i.op for b in blocks for i in b.instructions
            ),
            fenced=orders_memory(self.whole),
            reads=self.reads,
        )

    def _undefined(self, variable: str) -> Any:
        """Value of a register that is read before it is written on some path."""
        kind = self.graph.kinds.get(variable)
        return True if kind is None else register_dtype(kind).type(0)

    def _block(self, block: Block) -> str:
        writer = self.writer
        before: list[str] = []
        writer.lines, writer.carry = [], False
        try:
            for instruction in block.instructions:
                if instruction.line == self.trace > 0:
                    self._traced(instruction, before)
                else:
                    self._instruction(instruction, before)
            self._trace_end(block)
            self._terminator(block)
        except Stop as stop:
            name = writer.function(stop)
            writer.put(f"raise {name}")
        held = writer.variables(block.live_in)
        taken = set(_NAMES.findall("\n".join(writer.lines)))
        assert "_held" not in taken  # no emitter may use that name
        unpacked = [f"    {name} = _held[{place}]" for place, name in enumerate(held) if name in taken]
        places = {name: place for place, name in enumerate(held) if name not in taken}
        lines = [_LIVE.sub(lambda found: self._values(int(found[1]), places), line) for line in writer.lines]
        return "\n".join([*before, f"def _b{block.index}(_m, _c, *_held):", *unpacked, *(lines or ["    pass"]), ""])

    def _values(self, target: int, places: dict[str, int]) -> str:
        """The registers live at a block as a tuple: those in `places` pass through, out of `_held`; the rest by name.

        Of a kernel with many accumulators most blocks name few, and the others need no compiling.
        """
        parts: list[str] = []
        first = last = -1
        for name in (*self.writer.variables(self.graph.blocks[target].live_in), ""):
            place = places.get(name, -1)
            if place >= 0 and place == last:
                last += 1
                continue
            if last > first:
                parts.append(f"*_held[{first}:{last}]")
            first, last = (place, place + 1) if place >= 0 else (-1, -1)
            if place < 0 and name:
                parts.append(name)
        return f"({''.join(part + ', ' for part in parts)})"

    def _traced(self, instruction: Instruction, before: list[str]) -> None:
        """An instruction of the line that is traced."""
        what = watched(instruction, self.writer.defined_unused)
        self._report("before", what)
        self._instruction(instruction, before)
        self._report("after", what)

    def _trace_end(self, block: Block) -> None:
        """The instruction that ends a block, if it is of the line that is traced."""
        instruction = block.terminator.instruction
        if instruction is not None and instruction.line == self.trace > 0 and block.terminator.kind != "jump":
            what = watched(instruction, self.writer.defined_unused, ends=True)
            self._report("before", what)
            self._report("after", what)

    def _report(self, when: str, what: Watched) -> None:
        registers = what.reads if when == "before" else what.writes
        values = "".join(f"{r.name}, " for r in registers)
        marks = "".join(f"u_{r.name}, " if r.name in self.writer.tainted else "False, " for r in registers)
        self.writer.put(f"_m.tracer.{when}(_c, {self.writer.function(what)}, ({values}), ({marks}))")

    def _instruction(self, instruction: Instruction, before: list[str]) -> None:
        if instruction.guard is None:
            self._plain(instruction)
            return
        register, wanted = instruction.guard
        guard = register.name if wanted else f"(~{register.name})"
        written = instruction.destinations
        if emit_values.is_value(instruction) and register.name not in self.writer.tainted:
            self._selected(instruction, guard, written)
            return
        self._guarded(instruction, guard, written, before)

    def _plain(self, instruction: Instruction) -> None:
        self.writer.line = instruction.line
        try:
            for family in (emit_values, emit_async, emit_atomics, emit_memory, emit_warp, emit_wgmma, emit_touch):
                if family.emit(self.writer, instruction):
                    return
        except (KeyError, IndexError, ValueError, AssertionError) as error:  # a type or form the tables do not have
            raise unsupported(f"`{instruction.text}`", instruction.line) from error
        raise unsupported(f"`{instruction.text}`", instruction.line)

    def _selected(self, instruction: Instruction, guard: str, written: Sequence[Register]) -> None:
        """A guarded value instruction: compute for all lanes, keep the old value where the guard fails."""
        writer = self.writer
        names = writer.variables(r.name for r in written)
        if not names:
            return
        kept = [f"_old{place}" for place in range(len(names))]
        writer.put(f"{', '.join(kept)}, = {', '.join(names)},")
        self._plain(instruction)
        for name, old in zip(names, kept, strict=True):
            writer.put(f"{name} = _pick({guard}, {name}, {old})")

    def _guarded(self, instruction: Instruction, guard: str, written: Sequence[Register], before: list[str]) -> None:
        """Any other guarded instruction runs as a function on the lanes where the guard holds."""
        writer = self.writer
        outer = writer.lines
        writer.lines = []
        self._plain(instruction)
        body, writer.lines = writer.lines, outer
        inputs = writer.variables(sorted({r.name for r in [*instruction.sources, *written]}))
        outputs = writer.variables([r.name for r in written])
        name = f"_g{self.helpers}"
        self.helpers += 1
        before.append(f"def {name}({', '.join(['_m', '_c', *inputs])}):")
        before += [*body, f"    return ({''.join(o + ', ' for o in outputs)})"]
        register = instruction.guard[0] if instruction.guard else None
        if register is not None and register.name in writer.tainted:
            mark = f"u_{register.name}"
            writer.put(f"if {mark} is not False: _m.memory.tainted_branch(_c, {mark}, {instruction.line})")
        values = "".join(f"{i}, " for i in inputs)
        old = "".join(f"{o}, " for o in outputs)
        call = f"_m.guarded(_c, {guard}, {name}, ({values}), ({old}))"
        writer.put(f"{old}= {call}" if outputs else call)

    # ---- terminators

    @staticmethod
    def _live(target: int) -> str:
        """What stands for the registers live at a block until it is known which of them pass through (`_values`)."""
        return f"@{target}@"

    def _terminator(self, block: Block) -> None:
        writer, end = self.writer, block.terminator
        instruction = end.instruction
        line = instruction.line if instruction is not None else 0
        if end.kind == "jump":
            writer.put(f"return {end.targets[0]}, {self._live(end.targets[0])}")
        elif end.kind == "branch":
            self._branch(block)
        elif end.kind == "exit":
            writer.put("return _m.exit(_c)")
        elif end.kind == "trap":
            writer.put(f"return _m.trap(_c, {line})")
        elif end.kind == "switch":
            assert instruction is not None
            index = writer.value(instruction.operands[0], "u32", line)
            ways = ", ".join(f"({t}, {self._live(t)})" for t in end.targets)
            writer.put(f"return _m.switch(_c, {index}, ({ways},), {line})")
        elif end.kind == "warp_barrier":
            assert instruction is not None
            mask = writer.value(instruction.operands[0], "u32", line)
            following = end.targets[0]
            writer.put(f"return _m.warp_barrier(_c, {mask}, {line}, {following}, {self._live(following)})")
        elif end.kind == "wait":
            assert instruction is not None
            live = writer.variables(self.graph.blocks[end.targets[0]].live_in)
            emit_async.wait(writer, instruction, end.targets[0], live)
        elif end.kind == "cluster_wait":
            writer.put(f"return _m.clusters.wait(_c, {line}, {end.targets[0]}, {self._live(end.targets[0])})")
        else:
            self._barrier(block)

    def _branch(self, block: Block) -> None:
        writer, end = self.writer, block.terminator
        assert end.condition is not None
        register, wanted = end.condition
        taken, other = end.targets if wanted else end.targets[::-1]
        line = end.instruction.line if end.instruction is not None else 0
        if register.name in writer.tainted:
            mark = f"u_{register.name}"
            writer.put(f"if {mark} is not False: _m.memory.tainted_branch(_c, {mark}, {line})")
        writer.put(f"_yes, _no = {self._live(taken)}, {self._live(other)}")
        writer.put(f"if type({register.name}) is _A: return _m.split(_c, {register.name}, {taken}, _yes, {other}, _no)")
        writer.put(f"return ({taken}, _yes) if {register.name} else ({other}, _no)")

    def _barrier(self, block: Block) -> None:
        writer, end = self.writer, block.terminator
        instruction = end.instruction
        assert instruction is not None
        following = end.targets[0]
        operands = list(instruction.operands)
        if "red" in instruction.op or ("cta" in instruction.op and "red" in instruction.op):
            self._barrier_reduction(block, operands)
            return
        number = writer.value(operands[0], "u32", instruction.line) if operands else "0"
        count = writer.value(operands[1], "u32", instruction.line) if len(operands) > 1 else "None"
        aligned = instruction.op[0] == "bar" or "aligned" in instruction.op
        where = f"{instruction.line}, {following}, {self._live(following)}"
        writer.put(f"return _m.barrier(_c, {number}, {count}, {aligned}, {where})")

    def _barrier_reduction(self, block: Block, operands: list[Any]) -> None:
        writer, end = self.writer, block.terminator
        instruction = end.instruction
        assert instruction is not None
        following = end.targets[0]
        destination = operands[0]
        operation = next((p for p in instruction.op if p in ("popc", "and", "or")), "")
        if not isinstance(destination, Register) or not operation:
            raise unsupported(f"`{instruction.text}`", instruction.line)
        number = writer.value(operands[1], "u32", instruction.line)
        if len(operands) > 3:
            raise unsupported(f"`{instruction.text}`", instruction.line)
        predicate = writer.value(operands[-1], "pred", instruction.line)
        live = self.writer.variables(self.graph.blocks[following].live_in)
        if destination.name in live:
            writer.put(f"{destination.name} = {writer.constant(register_dtype(destination.kind).type(0))}")
            writer.assign_taint([destination], "False")
        place = live.index(destination.name) if destination.name in live else -1
        writer.put(
            f"return _m.barrier_reduction(_c, {number}, {operation!r}, {predicate}, {place}, {instruction.line}, "
            f"{following}, {self._live(following)})"
        )


def _mask(block: Block, live: tuple[str, ...]) -> int | tuple[int] | None:
    found = cfg.member_mask(block)
    return (live.index(found.name),) if isinstance(found, Register) else found


def _never_read(graph: Graph) -> frozenset[str]:
    """Registers that are written but read nowhere (atomics need not give their old values then)."""
    read: set[str] = set()
    for block in graph.blocks:
        for instruction in block.instructions:
            read |= {r.name for r in instruction.sources}
            if instruction.guard:
                read.add(instruction.guard[0].name)
        read |= terminator_reads(block.terminator)
    return frozenset(set(graph.kinds) - read)


def generate(module: Module, name: str, *, track: bool, trace: int = 0, kept: frozenset[str] | None = None) -> Kernel:
    """Compile one entry of a module.

    Args:
        module: of the entry.
        name: of the entry.
        track: follow uninitialised values.
        trace: source line whose instructions tell the machine's tracer their values; 0: none.
        kept: leave out values that matter to nothing but results, save what goes to the buffers of these parameters;
            None: leave out nothing.

    Raises:
        PtxError: the entry's control flow is malformed.
        Stop: the entry does not exist or uses device functions the engine cannot inline.
    """
    function = module.functions.get(name)
    if function is None:
        raise unsupported(f"an entry named {name}", 0)
    function = halved(inline_calls(module, function))
    graph = cfg.build(function)
    return _Generator(module, function, graph, track=track, trace=trace, kept=kept).kernel()
