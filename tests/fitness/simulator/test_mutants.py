"""Each barrier and each wait of the seeds, deleted in turn, must be missed; with all of them nothing is found.

Lockstep execution hides most races from the results, so these mutants are the proof of the race detector and
of the tracking of values that are not there yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import seeds
from fitness import gpu
from fitness.compile import compile_source
from fitness.correctness import check
from fitness.devices.device import FULL_CHECKS, Compiled, Program
from fitness.devices.simulator.simulator import Simulator
from fitness.inputs import make_case
from fitness.kernel import Kernel, KernelError, parse_kernel
from fitness.program import build_program
from fitness.task import Task

_SYNC = re.compile(
    r"__syncthreads\(\);|__syncwarp\(\);|evo::cp_async_wait<[^;]*>\(\);|evo::mbarrier_wait\([^;]*\);|evo::wgmma_fence\(\);"
    r"|evo::wgmma_wait<[^;]*>\(\);|evo::cluster_arrive\(\);\s*evo::cluster_wait\(\);|evo::named_barrier\([^;]*\);"
)
_CAUGHT_BY = {"race", "uninitialised", "async_copy_overlap", "wgmma", "mbarrier"}

# Sets of params, as far as a seed has them. The first two between them exercise every barrier: warps that share
# a tile along K, and weights streamed through shared memory.
_MUTANT_VARIANTS: tuple[Mapping[str, int], ...] = (
    {"SMALL_N": 0, "WK": 2, "BK": 128, "STAGES": 3, "SPLITK": 2},
    {"SMALL_N": 128, "S_ASYNC": 1, "S_DEPTH": 2, "S_WARPS": 2, "S_SPLITK": 2},
    {"SMALL_N": 0, "WG": 2, "KB": 1, "STAGES": 2, "SPLITK": 1},
    {"SMALL_N": 0, "WG": 1, "BN": 32, "KB": 1, "STAGES": 2, "SPLITK": 1, "CLUSTER_M": 2},
    {"SMALL_N": 128, "S_WGMMA": 0, "S_SPLITK": 1},
)
_HONEST_VARIANTS: tuple[Mapping[str, int], ...] = (
    *_MUTANT_VARIANTS,
    {},
    {"SMALL_N": 128, "S_WK": 2, "S_BK": 128, "S_STAGES": 3},
)

# Pipelines that wrap around; a single step (so that the last stage read is the first in memory); lines that do not
# start at multiples of 16 bytes, where a format has them.
_SHAPES = ({"M": 33, "N": 9, "K": 128}, {"M": 40, "N": 9, "K": 640}, {"M": 40, "N": 9, "K": 131})

# Not found by design. After the loop every group in flight is empty: the wait there only guards against a later
# edit. A barrier between a fence and the atomic that announces a block's results orders them for other blocks; the
# detector takes kernels with fences at their word there. The lanes of a warp are one to vector clocks: what its first
# lane announces, all have done.
_REDUNDANT = re.compile(
    r"evo::cp_async_wait<0>\(\);|(?<=__threadfence\(\);\n        )__syncthreads\(\);"
    r"|__syncwarp\(\);(?=\s*(?:if \(lane == 0\) evo::mbarrier_arrive|release\())"
)


def _shared_memory_seeds() -> list[Path]:
    paths = sorted({*seeds.seed_paths("spmm/*"), *seeds.seed_paths("gemm/*")})
    return [path for path in paths if _SYNC.search(path.read_text())]


SEEDS = {path.stem: path for path in _shared_memory_seeds()}
SOURCES = {stem: path.read_text() for stem, path in SEEDS.items()}
# Between them they have every kind of barrier and wait; the others are run by hand (`-m slow`).
_ALWAYS = {"nm24_shared", "nm24_mma_sp_fragment"}


def _marks(stem: str) -> list[pytest.MarkDecorator]:
    return [] if stem in _ALWAYS else [pytest.mark.slow]


MUTANTS = [
    pytest.param(
        stem,
        match.start(),
        match.end(),
        id=f"{stem}:{source.count(chr(10), 0, match.start()) + 1}",
        marks=_marks(stem),
    )
    for stem, source in SOURCES.items()
    for match in _SYNC.finditer(source)
    if not _REDUNDANT.match(source, match.start())
]


@cache
def task(format_name: str, dtype: str) -> Task:
    spec = {"op": "spmm", "pattern": {"kind": "nm", "n": 2, "m": 4}} if format_name == "nm24" else {"op": "gemm"}
    return Task.from_spec({**spec, "dtype": dtype, "shapes": [{"M": 256, "K": 512, "N": 64}], "free": ["N"]})


def found(kernel: Kernel) -> set[str]:
    """Kinds of what a run with all checks finds, stopping at the first shape that shows something."""
    device = Simulator(gpu.load("H200"))
    wanted = task(kernel.header.format.name, (kernel.header.dtypes or ("float16",))[0])
    defines = (*wanted.defines, *kernel.defines)
    compiled = compile_source(kernel.source, defines=defines, flags=kernel.header.options, arch=device.gpu.arch)
    assert isinstance(compiled, Compiled), compiled
    for shape in _SHAPES if kernel.header.format.name == "dense" else _SHAPES[:2]:
        case = make_case(wanted, shape, kernel.format, seed=1, data="normal", gpu=device.gpu)
        program = build_program(kernel, compiled, case, device.gpu)
        assert isinstance(program, Program), program
        execution = device.run(program, case.inputs, FULL_CHECKS)
        kinds = {finding.kind for finding in execution.findings if finding.severity == "error"}
        if kinds:
            return kinds
        assert check(case, execution.outputs, execution.written, sampled=False) is None
    return set()


def variants(source: str, path: Path, sets: Iterable[Mapping[str, int]]) -> Iterator[Kernel]:
    """The kernel with those sets of params that concern it."""
    original = parse_kernel(source, path=str(path))
    seen = set()
    for overrides in sets:
        params = dict(original.params) | {k: v for k, v in overrides.items() if k in original.params}
        key = tuple(sorted(params.items()))
        if key in seen:
            continue
        seen.add(key)
        try:
            yield parse_kernel(source, path=str(path), params=params)
        except KernelError:  # not a feasible set for this seed
            continue


@pytest.mark.parametrize("stem", [pytest.param(stem, marks=_marks(stem)) for stem in SEEDS])
def test_nothing_is_found_in_an_honest_seed(stem: str) -> None:
    kernels = list(variants(SOURCES[stem], SEEDS[stem], _HONEST_VARIANTS))
    assert kernels
    for kernel in kernels:
        assert not found(kernel), kernel.params


@pytest.mark.parametrize(("stem", "start", "end"), MUTANTS)
def test_a_missing_barrier_is_found(stem: str, start: int, end: int) -> None:
    source = SOURCES[stem]
    mutant = source[:start] + ";" + source[end:]
    assert any(found(kernel) & _CAUGHT_BY for kernel in variants(mutant, SEEDS[stem], _MUTANT_VARIANTS))
