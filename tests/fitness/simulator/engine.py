"""Small kernels through NVRTC and the simulator, for tests."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.compile import compile_source
from fitness.devices.device import (
    Argument,
    BufferRef,
    Checks,
    Compiled,
    Dim3,
    Execution,
    Inputs,
    Program,
    ResolvedLaunch,
    ResolvedTensorMap,
    ResolvedWorkspace,
    Scalar,
)
from fitness.devices.simulator.simulator import Simulator
from fitness.gpu import load

Array = NDArray[Any]


@functools.cache
def compiled(source: str, arch: str = "sm_90a", options: tuple[str, ...] = ()) -> Compiled:
    """A source through NVRTC."""
    result = compile_source(source, arch=arch, flags=options)
    assert isinstance(result, Compiled), result
    return result


def dim3(sizes: int | Sequence[int]) -> Dim3:
    """1 to 3 sizes as x, y, z."""
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def launch(
    entry: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    *arguments: str | float | ResolvedTensorMap,
    shared: int = 0,
    memset: tuple[str, ...] = (),
    cluster: int | Sequence[int] = 1,
) -> ResolvedLaunch:
    """A launch whose arguments are buffer names, numbers and tensor maps."""
    resolved = tuple(_argument(a) for a in arguments)
    return ResolvedLaunch(entry, dim3(grid), dim3(block), shared, resolved, memset, dim3(cluster))


def _argument(given: str | float | ResolvedTensorMap) -> Argument:
    if isinstance(given, ResolvedTensorMap):
        return given
    return BufferRef(given) if isinstance(given, str) else Scalar("n", given)


def run(
    source: str,
    launches: ResolvedLaunch | Sequence[ResolvedLaunch],
    buffers: dict[str, Array],
    outputs: dict[str, Array],
    *,
    workspaces: Sequence[ResolvedWorkspace] = (),
    align: int = 16,
    arch: str = "sm_90a",
    options: tuple[str, ...] = (),
    **checks: Any,
) -> Execution:
    """Run launches on the simulated H200 with all checks, unless told otherwise."""
    listed = (launches,) if isinstance(launches, ResolvedLaunch) else tuple(launches)
    program = Program(compiled(source, arch, options), listed, tuple(workspaces), align)
    return Simulator(load("H200")).run(program, Inputs(buffers, outputs), Checks(**checks))


def kinds(execution: Execution) -> set[str]:
    """Kinds of its error findings."""
    return {finding.kind for finding in execution.findings if finding.severity == "error"}


def clean(execution: Execution) -> Execution:
    """The execution, which must have finished without findings."""
    assert (execution.ended, execution.findings) == ("finished", ()), execution.findings
    return execution


def floats(n: int, seed: int = 0) -> NDArray[np.float32]:
    """Standard normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)
