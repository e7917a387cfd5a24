"""Resolves a kernel's launches for one case: expressions to numbers, argument names to buffers and values.

Everything that makes a launch impossible is found here, with the header line at fault, before a device
sees it: entries that are not in the cubin, arguments that do not fit the PTX signature, and the limits of
the card that NVRTC does not check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fitness.devices.device import (
    Argument,
    BufferRef,
    Compiled,
    Dim3,
    Entry,
    Parameter,
    Program,
    ResolvedLaunch,
    ResolvedTensorMap,
    ResolvedWorkspace,
    Scalar,
)
from fitness.expressions import Expression, ExpressionError
from fitness.gpu import Gpu
from fitness.header import TensorMap
from fitness.inputs import Case
from fitness.kernel import Kernel, Launch
from fitness.occupancy import OccupancyError, occupancy
from fitness.outcome import Finding, Gate
from fitness.tensormap import ELEMENT_BYTES, element_type, problem

#: Largest block dimensions of every card since compute capability 2.0 (Programming Guide, technical specifications).
BLOCK_LIMITS: Final[Dim3] = (1024, 1024, 64)
#: Static shared memory above this cannot be launched; dynamic can.
STATIC_SHARED_LIMIT: Final = 48 * 1024
#: Portable cluster size.
CLUSTER_LIMIT: Final = 8
#: Size of a parameter that holds a tensor map (CUtensorMap).
TENSOR_MAP_BYTES: Final = 128
#: All workspaces of a program together, bytes: they must fit beside the operands in a worker's memory.
WORKSPACE_LIMIT: Final = 1 << 30

_INTEGERS: Final = {"u8": (8, False), "s8": (8, True), "u16": (16, False), "s16": (16, True), "u32": (32, False),
                    "s32": (32, True), "u64": (64, False), "s64": (64, True), "b16": (16, False),
                    "b32": (32, False), "b64": (64, False)}  # fmt: skip
_FLOATS: Final = ("f32", "f64")


@dataclass(frozen=True)
class LaunchProblem:
    """Why a kernel cannot be launched on a case. `unsupported`: by this version, not by the card."""

    finding: Finding
    unsupported: bool = False


class _ImpossibleError(Exception):
    """Ends a resolution; never leaves this module."""

    def __init__(self, problem: LaunchProblem) -> None:
        super().__init__(problem.finding.message)
        self.problem = problem


def build_program(kernel: Kernel, compiled: Compiled, case: Case, gpu: Gpu) -> Program | LaunchProblem:
    """Resolve all launches of `kernel` for the shape and operands of `case`.

    Returns:
        The program, or the first reason why it cannot be launched, with its header line.
    """
    try:
        return _Builder(kernel, compiled, case, gpu).program()
    except _ImpossibleError as impossible:
        return impossible.problem


class _Builder:
    def __init__(self, kernel: Kernel, compiled: Compiled, case: Case, gpu: Gpu) -> None:
        self.kernel, self.compiled, self.case, self.gpu = kernel, compiled, case, gpu
        self.names: Mapping[str, int] = {**case.names, **kernel.params}

    def fail(
        self, kind: str, message: str, key: str = "", fix: str = "", *, unsupported: bool = False
    ) -> _ImpossibleError:
        line = self.kernel.header.line(key) if key else None
        finding = Finding(Gate.COMPILE, kind, message, line, fix, shape=dict(self.case.shape))
        return _ImpossibleError(LaunchProblem(finding, unsupported))

    def number(self, expression: Expression, key: str) -> int:
        try:
            return expression.evaluate(self.names)
        except ExpressionError as error:
            raise self.fail("bad_expression", f"{key}: {error}", key) from None

    # -- the program --------------------------------------------------------------------------------------------------

    def program(self) -> Program:
        self.entries()
        workspaces = self.workspaces()
        names = {workspace.name for workspace in workspaces}
        launches = []
        for index, launch in enumerate(self.kernel.header.launches):
            if self.number(launch.when, f"launch[{index}].when"):
                launches.append(self.launch(index, launch, names))
        if not launches:
            raise self.fail("no_launch", "no launch takes place: every `when` is 0", "launch[0].when")
        return Program(self.compiled, tuple(launches), workspaces, self.kernel.header.align)

    def entries(self) -> None:
        """The cubin holds exactly the declared entries."""
        declared = {launch.kernel for launch in self.kernel.header.launches}
        for index, launch in enumerate(self.kernel.header.launches):
            if launch.kernel not in self.compiled.entries:
                has = ", ".join(self.compiled.entries) or "none"
                message = f"no entry {launch.kernel!r}; the code defines {has}"
                raise self.fail("missing_entry", message, f"launch[{index}].kernel", 'declare it extern "C" __global__')
        extra = [name for name in self.compiled.entries if name not in declared]
        if extra:
            message = f"entry {extra[0]!r} is launched nowhere"
            raise self.fail("undeclared_entry", message, "launch[0]", "remove it or add a [[launch]]")

    def workspaces(self) -> tuple[ResolvedWorkspace, ...]:
        resolved, total = [], 0
        for index, workspace in enumerate(self.kernel.header.workspaces):
            key = f"workspace[{index}].bytes"
            size = self.number(workspace.bytes, key)
            total += max(size, 0)
            if size < 0 or total > WORKSPACE_LIMIT:
                message = f"workspace {workspace.name!r} of {size} bytes; all together at most {WORKSPACE_LIMIT}"
                raise self.fail("workspace_size", message, key, "make it smaller")
            # An unused workspace (bytes = 0 for these params) still has an address to pass.
            resolved.append(ResolvedWorkspace(workspace.name, max(size, 1), workspace.init))
        return tuple(resolved)

    def launch(self, index: int, launch: Launch, workspaces: set[str]) -> ResolvedLaunch:
        prefix = f"launch[{index}]."
        entry = self.compiled.entries[launch.kernel]
        grid, block, cluster = (
            self.dims(getattr(launch, name), prefix + name) for name in ("grid", "block", "cluster")
        )
        shared = self.number(launch.shared, prefix + "shared")
        cluster = self.cluster(entry, cluster, prefix)
        self.check_block(entry, block, prefix)
        self.check_grid(grid, cluster, prefix)
        self.check_shared(entry, block, shared, prefix)
        if launch.cooperative:
            self.check_cooperative(entry, grid, block, shared, prefix)
        return ResolvedLaunch(
            entry=launch.kernel,
            grid=grid,
            block=block,
            shared=shared,
            arguments=self.arguments(entry, launch, prefix + "args", workspaces),
            memset=self.memset(launch, prefix + "memset", workspaces),
            cluster=cluster,
            cooperative=launch.cooperative,
            pdl=launch.pdl,
            carveout=launch.carveout,
        )

    def dims(self, expressions: tuple[Expression, Expression, Expression], key: str) -> Dim3:
        x, y, z = (self.number(expression, key) for expression in expressions)
        return x, y, z

    def cluster(self, entry: Entry, cluster: Dim3, prefix: str) -> Dim3:
        """The cluster of a launch: the header's or the one that `__cluster_dims__` fixed."""
        fixed = entry.required_cluster
        if fixed is None or cluster == fixed:
            return cluster
        if cluster != (1, 1, 1):
            message = f"cluster {cluster}, but {entry.name} was compiled for exactly {fixed}"
            raise self.fail("cluster_size", message, prefix + "cluster", "make them agree")
        return fixed

    # -- limits of the card -------------------------------------------------------------------------------------------

    def check_block(self, entry: Entry, block: Dim3, prefix: str) -> None:
        threads = block[0] * block[1] * block[2]
        most = min(self.gpu.limits.threads_per_block, entry.max_threads)
        key = prefix + "block"
        if (
            min(block) < 1
            or threads > most
            or any(size > limit for size, limit in zip(block, BLOCK_LIMITS, strict=True))
        ):
            why = " by its launch bounds" if most == entry.max_threads < self.gpu.limits.threads_per_block else ""
            message = f"block {block} of {threads} threads; {entry.name} allows 1 to {most}{why}"
            raise self.fail("block_size", message, key, "change the block size")
        if entry.required_block is not None and block != entry.required_block:
            message = f"block {block}, but {entry.name} was compiled for exactly {entry.required_block}"
            raise self.fail("block_size", message, key, "make them agree")

    def check_grid(self, grid: Dim3, cluster: Dim3, prefix: str) -> None:
        if any(not 1 <= size <= limit for size, limit in zip(grid, self.gpu.limits.grid, strict=True)):
            message = f"grid {grid}; each dimension must be from 1 to {self.gpu.limits.grid}"
            raise self.fail("grid_size", message, prefix + "grid", "put the long dimension on x, or loop in the kernel")
        blocks = cluster[0] * cluster[1] * cluster[2]
        if min(cluster) < 1 or blocks > CLUSTER_LIMIT or any(g % c for g, c in zip(grid, cluster, strict=True)):
            message = f"cluster {cluster} of {blocks} blocks on grid {grid}; at most {CLUSTER_LIMIT}, dividing the grid"
            raise self.fail("cluster_size", message, prefix + "cluster", "change the cluster or round the grid up")

    def check_shared(self, entry: Entry, block: Dim3, shared: int, prefix: str) -> None:
        limits, key = self.gpu.limits, prefix + "shared"
        if entry.shared_bytes > STATIC_SHARED_LIMIT:
            message = (
                f"{entry.name} has {entry.shared_bytes} bytes of static shared memory; at most {STATIC_SHARED_LIMIT}"
            )
            raise self.fail("shared_memory", message, key, "declare it extern __shared__ and set `shared`")
        total = entry.shared_bytes + shared
        if shared < 0 or total > limits.shared_bytes_per_block:
            message = f"{total} bytes of shared memory per block; {self.gpu.name} has {limits.shared_bytes_per_block}"
            raise self.fail("shared_memory", message, key, "use smaller tiles or fewer stages")
        self.resident(entry, block, shared, prefix)

    def resident(self, entry: Entry, block: Dim3, shared: int, prefix: str) -> int:
        """Blocks that one SM holds."""
        threads, total = block[0] * block[1] * block[2], entry.shared_bytes + shared
        try:
            return occupancy(self.gpu, threads=threads, registers=entry.registers, shared_bytes=total).blocks
        except OccupancyError as error:
            message = f"a block of {entry.name} does not fit an SM of {self.gpu.name}: {error}"
            hint = "use fewer threads, or __launch_bounds__ to cap the registers"
            raise self.fail("registers", message, prefix + "block", hint) from None

    def check_cooperative(self, entry: Entry, grid: Dim3, block: Dim3, shared: int, prefix: str) -> None:
        resident = self.resident(entry, block, shared, prefix) * self.gpu.sms
        if grid[0] * grid[1] * grid[2] > resident:
            message = f"a cooperative grid of {grid} blocks, but {self.gpu.name} holds {resident} of them at once"
            raise self.fail("cooperative_grid", message, prefix + "grid", "make the grid min(..., SMS * blocks per SM)")

    # -- arguments ----------------------------------------------------------------------------------------------------

    def memset(self, launch: Launch, key: str, workspaces: set[str]) -> tuple[str, ...]:
        for name in launch.memset:
            if name not in workspaces and name not in self.case.inputs.outputs:
                can = ", ".join([*self.case.inputs.outputs, *sorted(workspaces)])
                raise self.fail("bad_memset", f"memset of {name!r}; only {can} may be cleared", key, "correct the name")
        return launch.memset

    def arguments(self, entry: Entry, launch: Launch, key: str, workspaces: set[str]) -> tuple[Argument, ...]:
        if len(launch.args) != len(entry.parameters):
            message = f"{len(launch.args)} args for the {len(entry.parameters)} parameters of {entry.name}"
            raise self.fail("argument_count", message, key, "list one name per parameter, in order")
        return tuple(
            self.argument(name, parameter, position, entry, key, workspaces)
            for position, (name, parameter) in enumerate(zip(launch.args, entry.parameters, strict=True), start=1)
        )

    def argument(
        self, name: str, parameter: Parameter, position: int, entry: Entry, key: str, workspaces: set[str]
    ) -> Argument:
        where = f"parameter {position} of {entry.name} (.{parameter.type}, {parameter.bytes} bytes)"
        for index, item in enumerate(self.kernel.header.tensormaps):
            if item.name == name:
                if parameter.bytes != TENSOR_MAP_BYTES:
                    message = f"{name!r} is a tensor map, but {where} is none"
                    fix = "declare it const __grid_constant__ evo::TensorMap"
                    raise self.fail("argument_type", message, key, fix)
                return self.tensormap(item, f"tensormap[{index}]")
        if name in workspaces or name in self.case.inputs.buffers or name in self.case.inputs.outputs:
            if parameter.type not in ("u64", "b64", "s64") or parameter.bytes != 8:
                raise self.fail(
                    "argument_type", f"{name!r} is a buffer, but {where} is no pointer", key, "reorder args"
                )
            return BufferRef(name)
        value = self.scalar(name, key)
        problem = _misfit(value, parameter)
        if problem:
            raise self.fail("argument_type", f"{name!r} = {value} does not fit {where}: {problem}", key, "reorder args")
        return Scalar(name, value)

    def tensormap(self, item: TensorMap, key: str) -> ResolvedTensorMap:
        array = {**self.case.inputs.buffers, **self.case.inputs.outputs}.get(item.tensor)
        sizes = {
            name: tuple(self.number(e, f"{key}.{name}") for e in each) for name, each in item.expressions().items()
        }
        dims, dtype = sizes["dims"], item.dtype
        if array is not None:
            dims, dtype = dims or array.shape[::-1], dtype or element_type(array.dtype)
            held = int(array.nbytes)
        else:
            space = next((w for w in self.workspaces() if w.name == item.tensor), None)
            if space is None:
                raise self.fail("tensormap", f"there is no buffer {item.tensor!r}", f"{key}.tensor", "correct the name")
            held = space.bytes
        if not dims or not dtype:
            message = f"the dimensions and element type of {item.tensor!r} are not known"
            raise self.fail("tensormap", message, f"{key}.tensor", "give dims and dtype")
        packed = [dims[0] * ELEMENT_BYTES[dtype]]
        for size in dims[1:-1]:
            packed.append(packed[-1] * size)
        resolved = ResolvedTensorMap(
            name=item.name,
            buffer=item.tensor,
            dtype=dtype,
            dims=tuple(dims),
            strides=sizes["strides"] or tuple(packed[: len(dims) - 1]),
            box=sizes["box"],
            element_strides=sizes["element_strides"] or (1,) * len(dims),
            swizzle=item.swizzle,
            l2promotion=item.l2promotion,
            oob=item.oob,
        )
        where, wrong = problem(resolved, held, self.kernel.header.align)
        if wrong:
            raise self.fail("tensormap", f"tensor map {item.name!r}: {wrong}", f"{key}.{where}", "see the kernel file")
        return resolved

    def scalar(self, name: str, key: str) -> int | float:
        for source in (self.case.scalars, self.kernel.params):
            if name in source:
                return source[name]
        try:
            return int(name, 0)
        except ValueError:
            pass
        try:
            return float(name)
        except ValueError:
            known = [*self.case.inputs.buffers, *self.case.inputs.outputs, *self.case.scalars, *self.kernel.params]
            message = f"unknown argument {name!r}; there are {', '.join(known)}, workspaces and numbers"
            raise self.fail("unknown_argument", message, key, "correct the name") from None


def _misfit(value: int | float, parameter: Parameter) -> str:
    """Why a value cannot be passed as that parameter; empty if it can."""
    if parameter.pointer:
        return "it wants a pointer"
    if parameter.type in _FLOATS:
        return ""
    if parameter.type not in _INTEGERS or parameter.bytes * 8 != _INTEGERS[parameter.type][0]:
        return "structures cannot be passed"
    if isinstance(value, float) and not value.is_integer():
        return "it wants an integer"
    bits = _INTEGERS[parameter.type][0]
    # PTX does not tell signed from unsigned parameters: either reading of the bits is accepted.
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        return f"it has {bits} bits"
    return ""
