"""One execution of a program: memory laid out, launches in order, chunks of blocks, what came of it."""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fitness.devices.device import (
    Argument,
    BufferRef,
    Checks,
    Execution,
    Inputs,
    Program,
    ResolvedLaunch,
    ResolvedTensorMap,
    Scalar,
)
from fitness.devices.simulator import ptx, ptx_parser, tensormap
from fitness.devices.simulator.atomics import Atomics
from fitness.devices.simulator.codegen import Kernel, generate
from fitness.devices.simulator.copies import Copies
from fitness.devices.simulator.counting import Counting, StaticView, static_view
from fitness.devices.simulator.faults import Ended, Findings, Stop, unsupported
from fitness.devices.simulator.lanes import Chunk
from fitness.devices.simulator.layout import Layout, module_variables
from fitness.devices.simulator.machine import Budget, Machine
from fitness.devices.simulator.matrices import Matrices
from fitness.devices.simulator.memory import Memory
from fitness.devices.simulator.printing import LONGEST, Printer
from fitness.devices.simulator.proxies import Proxies
from fitness.devices.simulator.races import Races
from fitness.devices.simulator.regions import (
    GRID_BARRIER,
    GRID_BARRIER_BYTES,
    LOCAL_START,
    PARAM_WINDOW,
    SHARED_START,
    AddressMap,
    Region,
    Window,
)
from fitness.devices.simulator.sampling import clustered
from fitness.devices.simulator.tracing import Tracer
from fitness.outcome import Finding

#: About so many lanes are simulated at once: enough to hide NumPy's cost per call, few enough to stay in the cache.
CHUNK_LANES = 8192


# A candidate takes up to eight of these (entries, with and without tracking), some of 10 MB; the next takes others.
@functools.lru_cache(maxsize=8)
def _module(digest: str, text: str, entries: frozenset[str]) -> ptx.Module:
    del digest
    return ptx_parser.parse(text, entries)


@functools.lru_cache(maxsize=16)
def _kernel(
    text: str, entries: frozenset[str], entry: str, track: bool, trace: int, kept: frozenset[str] | None
) -> Kernel:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return generate(_module(digest, text, entries), entry, track=track, trace=trace, kept=kept)


@functools.lru_cache(maxsize=16)
def _static(text: str, entries: frozenset[str], entry: str, track: bool, kept: frozenset[str] | None) -> StaticView:
    kernel = _kernel(text, entries, entry, track, 0, kept)
    return static_view(kernel.graph, kernel.sites)


@dataclass
class _Services:
    """What a machine needs beside memory."""

    copies: Copies
    atomics: Atomics
    matrices: Matrices
    printer: Printer
    races: Races | None
    proxies: Proxies | None
    counting: Counting | None


def _buffer_of(argument: Argument) -> tuple[str, ...]:
    """The buffer that an argument of a launch gives access to, if any."""
    if isinstance(argument, BufferRef):
        return (argument.name,)
    return (argument.buffer,) if isinstance(argument, ResolvedTensorMap) else ()


def _buffers_of(launch: ResolvedLaunch) -> list[str]:
    return [name for argument in launch.arguments for name in _buffer_of(argument)]


class Run:
    """One execution of a program."""

    def __init__(
        self, program: Program, inputs: Inputs, checks: Checks, tracer: Tracer | None = None, *, whole: bool = True
    ) -> None:
        """`whole`: compute all values; else those that counters can tell (slicing.py), where that is possible."""
        self.program, self.inputs, self.checks, self.tracer = program, inputs, checks, tracer
        self.findings = Findings()
        self.budget = Budget(checks.steps)
        text = program.compiled.ptx
        self.entries = frozenset(launch.entry for launch in program.launches)
        self.module = _module(hashlib.sha256(text.encode()).hexdigest(), text, self.entries)
        self.buffers = self._place()
        self.kept: Sequence[frozenset[str] | None] = (None,) * len(program.launches)
        self._whole = whole
        self.ended: Literal["finished"] | Ended = "finished"
        self.fatal: list[Finding] = []
        self.counters: list[Any] = []
        self.printed = ""

    def buffers_are_apart(self) -> bool:
        """Whether no launch is given a buffer twice."""
        return all(len(set(names)) == len(names) for names in map(_buffers_of, self.program.launches))

    def _kept(self) -> list[frozenset[str] | None]:
        """For each launch the parameters whose buffers' contents matter to a later one."""
        needed: set[str] = set()
        found: list[frozenset[str] | None] = []
        for launch in reversed(self.program.launches):
            names = self._bound(launch)
            kept = frozenset(name for name, buffer in names.items() if buffer in needed)
            reads = _kernel(self.program.compiled.ptx, self.entries, launch.entry, False, 0, kept).reads
            needed |= {buffer for name, buffer in names.items() if reads is None or name in reads}
            found.insert(0, kept)
        return found

    def _bound(self, launch: ResolvedLaunch) -> dict[str, str]:
        """Buffers of a launch by the entry's parameters."""
        parameters = self.module.functions[launch.entry].parameters if launch.entry in self.module.functions else []
        given = zip(parameters, launch.arguments, strict=False)
        return {p.name: buffer for p, argument in given for buffer in _buffer_of(argument)}

    def _place(self) -> dict[str, Region]:
        places = AddressMap(self.program.align)
        found: dict[str, Region] = {}
        for name, array in sorted(self.inputs.buffers.items()):
            data = np.ascontiguousarray(array).reshape(-1)
            raw = data.view(np.uint8) if data.size else np.empty(0, np.uint8)
            found[name] = Region(name, places.place(raw.size), raw, "input", data.dtype)
        for name, array in sorted(self.inputs.outputs.items()):
            found[name] = self._fresh(name, places, int(array.nbytes), "output", array.dtype)
        for workspace in self.program.workspaces:
            region = self._fresh(workspace.name, places, workspace.bytes, "workspace", np.dtype(np.float32))
            if workspace.init != "poison":
                region.fill(0)
            found[workspace.name] = region
        return found

    @staticmethod
    def _fresh(
        name: str, places: AddressMap, size: int, role: Literal["output", "workspace"], dtype: np.dtype[Any]
    ) -> Region:
        region = Region(name, places.place(size), np.empty(size, np.uint8), role, dtype, np.ones(size, dtype=np.uint8))
        region.spoil()
        return region

    def execute(self) -> Execution:
        """All launches in order."""
        try:
            if not self._whole and self.buffers_are_apart():
                self.kept = self._kept()
            with np.errstate(all="ignore"):
                for number, launch in enumerate(self.program.launches):
                    for name in launch.memset:
                        self.buffers[name].fill(0)
                    blocks = self.checks.blocks[number] if self.checks.blocks is not None else None
                    self._launch(launch, blocks, self.kept[number])
            if self.checks.blocks is None:
                self._check_zeroed()
        except Stop as stop:
            self.ended, self.fatal = stop.ended, [stop.finding]
        return self._execution()

    def _check_zeroed(self) -> None:
        """A `zero_once` workspace is zero again after the last launch, or the next run would start wrong."""
        for workspace in self.program.workspaces:
            if workspace.init != "zero_once":
                continue
            left = np.flatnonzero(self.buffers[workspace.name].data)
            if left.size:
                message = f"{workspace.name} is not zero after the run: {left.size} bytes, the first at {left[0]}"
                self.findings.add("workspace_not_zero", message, 0, workspace.name)

    def _execution(self) -> Execution:
        outputs: dict[str, NDArray[Any]] = {}
        written: dict[str, NDArray[np.bool_]] = {}
        for name, like in self.inputs.outputs.items():
            region = self.buffers[name]
            outputs[name] = np.asarray(region.data.view(like.dtype)).reshape(like.shape)
            assert region.shadow is not None
            written[name] = (region.shadow[like.dtype.itemsize] == 0).reshape(like.shape)  # no byte is poisoned
        # Errors first, and of these a barrier that part of a warp misses before the races that makes.
        kept = sorted(self.findings.items, key=lambda f: (f.severity != "error", f.kind != "barrier_divergence"))
        return Execution(
            outputs=outputs,
            written=written,
            findings=tuple(self.fatal + kept),
            ended=self.ended,
            steps=self.budget.steps,
            counters=tuple(self.counters) if self.checks.counters else None,
            printed=self.printed,
        )

    def _module_regions(self) -> list[Region]:
        """Module variables with their initial image (fresh for every launch)."""
        placed = module_variables(self.module)
        regions = []
        for name, place in placed.items():
            variable = place.variable
            image = bytearray(variable.initial or bytes(variable.bytes))
            for offset, symbol, addend, size in variable.references:
                if symbol not in placed:
                    raise unsupported(f"the address of {symbol} in the initialiser of {name}", 0)
                image[offset : offset + size] = (placed[symbol].address + addend).to_bytes(8, "little")[:size]
            role: Literal["const", "module"] = "const" if variable.space == "const" else "module"
            dtype = np.dtype(f"V{variable.align}" if variable.bytes % variable.align == 0 else np.uint8)
            regions.append(Region(name, place.address, np.frombuffer(image, np.uint8), role, dtype))
        return regions

    def _parameters(self, launch: ResolvedLaunch, layout: Layout) -> bytes:
        """The parameter block of a launch."""
        block = bytearray(layout.parameter_bytes)
        for argument, (offset, size, kind) in zip(launch.arguments, layout.parameters.values(), strict=True):
            if isinstance(argument, BufferRef):
                packed = self.buffers[argument.name].base.to_bytes(8, "little")
            elif isinstance(argument, ResolvedTensorMap):
                packed = tensormap.encode(argument, self.buffers[argument.buffer].base)
            elif isinstance(argument, Scalar) and kind in ("f32", "f64"):
                packed = struct.pack("<f" if kind == "f32" else "<d", argument.value)
            else:
                packed = (int(argument.value) % (1 << (8 * size))).to_bytes(size, "little")
            block[offset : offset + len(packed)] = packed
        return bytes(block)

    def _launch(self, launch: ResolvedLaunch, chosen: tuple[int, ...] | None, kept: frozenset[str] | None) -> None:
        checks = self.checks
        line = self.tracer.point.line if self.tracer is not None else 0
        kernel = _kernel(self.program.compiled.ptx, self.entries, launch.entry, checks.uninitialised, line, kept)
        parameters = self._parameters(launch, kernel.layout)
        image = np.frombuffer(parameters, np.uint8)
        regions = [*self.buffers.values(), *self._module_regions()]
        regions.append(Region("parameters", PARAM_WINDOW, image, "param", np.dtype(np.uint8)))
        if launch.cooperative:
            barrier = np.zeros(GRID_BARRIER_BYTES, np.uint8)
            regions.append(Region("the grid barrier", GRID_BARRIER, barrier, "module", np.dtype(np.uint32)))
        memory = Memory(regions, self.findings, track=checks.uninitialised)
        memory.launch = launch.entry
        names = self._bound(launch)
        for site in kernel.sites:
            site.region, site.limit = None, -1
            site.allowed = site.origins and frozenset(names.get(name, name) for name in site.origins)
        total = launch.grid[0] * launch.grid[1] * launch.grid[2]
        blocks = clustered(launch, range(total) if chosen is None else chosen)
        shared = kernel.layout.dynamic_start + launch.shared
        services = self._services(kernel, launch, memory, total, blocks, kept)
        machine = Machine(
            kernel, memory, self.budget, self.findings, parameters, (launch.grid, launch.block),
            (launch.shared, shared), services, launch.cluster,
        )  # fmt: skip
        services.matrices.warps = machine.warps
        if launch.cooperative:
            machine.workspace[:] = GRID_BARRIER & 0xFFFFFFFF, GRID_BARRIER >> 32
        if self.tracer is not None:
            machine.tracer = self.tracer
            self.tracer.launch(launch.entry, memory, kernel.layout)
        try:
            self._chunks(machine, launch, blocks, shared)
        finally:
            self.printed = (self.printed + services.printer.text)[:LONGEST]
        if services.counting is not None:
            self.counters.append(services.counting.tally.finish())

    def _services(
        self,
        kernel: Kernel,
        launch: ResolvedLaunch,
        memory: Memory,
        total: int,
        blocks: list[int],
        kept: frozenset[str] | None,
    ) -> _Services:
        deferred = self.checks.uninitialised or self.checks.races
        races = proxies = None
        if self.checks.races:
            vector = kernel.phased or launch.cluster != (1, 1, 1)
            races = Races(kernel.sites, self.findings, memory, fenced=kernel.fenced, vector=vector)
            memory.races = races
            memory.observers.append(races)
            if kernel.phased:
                proxies = Proxies(self.findings)
                memory.observers.append(proxies)
        counting = None
        if self.checks.counters:
            threads = launch.block[0] * launch.block[1] * launch.block[2]
            counting = Counting(
                launch.entry,
                kernel.graph,
                kernel.sites,
                blocks_total=total,
                blocks_simulated=len(blocks),
                warps_per_block=-(-threads // 32),
                buffers={name: region.size for name, region in self.buffers.items()},
                static=_static(self.program.compiled.ptx, self.entries, launch.entry, kernel.track, kept),
            )
            memory.observers.append(counting)
            memory.counting = counting if len(memory.observers) == 1 else None
        return _Services(
            Copies(memory, deferred=deferred),
            Atomics(memory),
            Matrices(memory),
            Printer(memory),
            races,
            proxies,
            counting,
        )

    def _chunks(self, machine: Machine, launch: ResolvedLaunch, blocks: list[int], shared: int) -> None:
        """Run the blocks, as many at once as suits; cooperative launches all together."""
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        stride = -(-threads // 32) * 32
        together = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        parts = 1 if launch.cooperative else max(1, round(len(blocks) * stride / CHUNK_LANES))
        at_once = -(-len(blocks) // (parts * together)) * together
        memory, local = machine.memory, machine.kernel.layout.local_bytes
        track = self.checks.uninitialised
        machine.only_chunk = len(blocks) <= at_once
        for first in range(0, len(blocks), at_once):
            some = blocks[first : first + at_once]
            memory.windows = {
                "shared": Window("shared", len(some), shared, SHARED_START, track=track),
                "local": Window("local", len(some) * stride, local, LOCAL_START, track=track),
            }
            chunk = Chunk(
                launch.grid, launch.block, some, memory.windows["shared"].stride, memory.windows["local"].stride,
                launch.cluster,
            )  # fmt: skip
            machine.warp_base = first * chunk.warps_per_block
            if machine.counting is not None:
                machine.counting.lane_base = machine.warp_base * 32
            machine.run(chunk)
