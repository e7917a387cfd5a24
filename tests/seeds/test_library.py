"""Every seed of the library: what its header says, that it compiles for every card, and which tasks refuse it."""

from __future__ import annotations

import itertools

import pytest

import fitness.gpu
import seeds
from fitness.compile import CompileError, compile_source
from fitness.formats import FORMATS
from fitness.kernel import Kernel, load_kernel
from fitness.kernel_fit import arch_violation
from fitness.task import Task

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100")
KERNELS = {f"{path.parent.name}/{path.stem}": load_kernel(path) for path in seeds.seed_paths("*/*")}
FLEXIBLE = [name for name in KERNELS if not name.startswith(("gemm/dense_", "spmm/nm24_"))]
DTYPES = ("float16", "bfloat16", "float32")


def task(name: str, dtype: str, **changes: object) -> Task:
    op = name.partition("/")[0]
    size = {"M": 64, "K": 64} if op == "spmv" else {"M": 64, "N": 16, "K": 64}
    spec: dict[str, object] = {"op": op, "dtype": dtype, "shapes": [size]}
    if op != "gemm":
        nm = name.startswith("spmm/nm_")
        spec["pattern"] = {"kind": "nm", "n": 2, "m": 4} if nm else {"kind": "block", "shape": [16, 16], "density": 0.5}
    return Task.from_spec({**spec, **changes})


def test_every_format_has_a_seed_for_spmm() -> None:
    formats = {seed.header.format.name for name, seed in KERNELS.items() if name.startswith("spmm/")}
    assert formats == set(FORMATS) - {"dense"}  # dense W is what the seeds of gemm are for
    assert {name.partition("/")[2] for name in KERNELS if name.startswith("spmv/")} >= {
        "csr_binned",
        "csr_merge",
        "csr_scalar",
        "csr_vector",
    }


def test_kernels_for_a_vector_are_rejected_where_x_has_columns() -> None:
    for name in (name for name in KERNELS if name.startswith("spmv/")):
        findings = task("spmm/csr_rows", "float32").domain_violations(KERNELS[name])
        assert {finding.kind for finding in findings} == {"require_too_narrow"}, name


def test_names_begin_with_the_format() -> None:
    for name, seed in KERNELS.items():
        if not name.startswith("gemm/fused_"):
            expected = "nm24" if name == "spmm/nm24_dense_mma" else seed.header.format.name
            assert name.partition("/")[2].startswith(f"{expected}_"), name


@pytest.mark.parametrize("name", FLEXIBLE)
def test_headers_say_what_the_seed_is_and_what_can_be_tuned(name: str) -> None:
    seed = KERNELS[name]
    assert seed.header.about
    assert seed.feasible(seed.params)
    assert all(len(param.values) > 1 for param in seed.header.params.values())
    assert max(len(line) for line in seed.source.splitlines()) <= 120


def compiles(seed: Kernel, arch: str, defines: tuple[str, ...]) -> None:
    """For that architecture, without warnings, and with no more spilled than ptxas gives for a step of occupancy.

    It puts a value or two that only the epilogue needs on the stack (4 to 12 bytes were seen) rather than go from 40
    to 48 registers; a loop that does not fit spills hundreds.
    """
    compiled = compile_source(seed.source, defines=(*defines, *seed.defines), flags=seed.header.options, arch=arch)
    assert not isinstance(compiled, CompileError), compiled
    assert not compiled.warnings
    assert set(compiled.entries) == {launch.kernel for launch in seed.header.launches}
    assert all(entry.spill_store_bytes <= 16 for entry in compiled.entries.values())


def archs(name: str) -> tuple[str, ...]:
    """Those a seed is written for."""
    return KERNELS[name].header.archs or ARCHS


def two_each() -> list[tuple[str, str]]:
    """Two architectures of every seed, another pair for each; a slow test takes all of them in all types."""
    chosen = ((name, archs(name)[(n + step) % len(archs(name))]) for n, name in enumerate(FLEXIBLE) for step in (0, 2))
    return list(dict.fromkeys(chosen))


@pytest.mark.parametrize(("name", "arch"), two_each())
def test_seeds_compile_for_two_architectures_each(name: str, arch: str) -> None:
    seed = KERNELS[name]
    # another type for each, so that all meet every architecture in some seed
    dtypes = seed.header.dtypes or DTYPES
    dtype = dtypes[(ARCHS.index(arch) + FLEXIBLE.index(name)) % len(dtypes)]
    compiles(seed, arch, task(name, dtype, epilogue=["bias", "gelu", "residual"]).defines)


@pytest.mark.parametrize("card", ["A100", "L40S"])
def test_seeds_of_one_architecture_say_so_on_others(card: str) -> None:
    arch = fitness.gpu.load(card).arch
    for name in (name for name in KERNELS if arch not in archs(name)):
        finding = arch_violation(KERNELS[name], arch)
        assert finding is not None, name
        assert finding.kind == "unsupported_arch"
        assert arch in finding.message


def test_every_architecture_meets_every_type() -> None:
    met = {
        (arch, dtypes[(ARCHS.index(arch) + FLEXIBLE.index(name)) % len(dtypes)])
        for name, arch in two_each()
        for dtypes in [KERNELS[name].header.dtypes or DTYPES]
    }
    assert met == set(itertools.product(ARCHS, DTYPES))


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "dtype"), list(itertools.product(ARCHS, DTYPES)))
@pytest.mark.parametrize("name", FLEXIBLE)
def test_seeds_compile_for_every_architecture_in_every_type(name: str, arch: str, dtype: str) -> None:
    seed = KERNELS[name]
    if arch not in archs(name):
        return
    if seed.header.dtypes and dtype not in seed.header.dtypes:
        assert task(name, dtype).domain_violations(seed)[0].kind == "other_task"
        return
    layouts = seed.header.layouts or ("col", "row")
    for layout in layouts:
        compiles(seed, arch, task(name, dtype, x_layout=layout, y_layout=layout).defines)


@pytest.mark.parametrize("name", FLEXIBLE)
def test_seeds_serve_two_types_or_more(name: str) -> None:
    fitting = [dtype for dtype in DTYPES if not task(name, dtype).domain_violations(KERNELS[name])]
    assert len(fitting) >= 2


@pytest.mark.parametrize("name", [name for name in KERNELS if name.startswith("gemm/dense_")])
def test_seeds_written_for_one_type_and_layout_say_so(name: str) -> None:
    seed = KERNELS[name]
    assert not task(name, "float16").domain_violations(seed)
    for changes in ({"dtype": "bfloat16"}, {"out_dtype": "float32"}, {"x_layout": "row"}, {"y_layout": "row"}):
        findings = task(name, str(changes.pop("dtype", "float16")), **changes).domain_violations(seed)
        assert {finding.kind for finding in findings} == {"other_task"}
