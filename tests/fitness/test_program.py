"""Resolved launches, and every reason why a kernel cannot be launched, found before a device sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fitness.compile import compile_source
from fitness.devices.device import BufferRef, Compiled, Program, ResolvedTensorMap, Scalar
from fitness.inputs import Case, make_case
from fitness.kernel import Kernel
from fitness.outcome import Finding
from fitness.program import LaunchProblem, build_program
from tests.fitness.fakes import DENSE, H200, dense_kernel, gemm_task

SHAPE = {"M": 256, "N": 24, "K": 128}
WORKSPACE = DENSE.replace("[params]", '[[workspace]]\nname = "partial"\nbytes = "4 * M * N * (UNROLL - 1)"\n\n[params]')


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path_factory.getbasetemp() / "program-cache"))


def case_of(kernel: Kernel) -> Case:
    return make_case(gemm_task(), SHAPE, kernel.format, seed=0, data="normal", gpu=H200)


def compiled_of(kernel: Kernel) -> Compiled:
    result = compile_source(kernel.source, defines=kernel.defines)
    assert isinstance(result, Compiled), result
    return result


def built(kernel: Kernel) -> Program:
    program = build_program(kernel, compiled_of(kernel), case_of(kernel), H200)
    assert isinstance(program, Program), program
    return program


def refused(source: str, **params: int) -> Finding:
    kernel = dense_kernel(source, **params)
    problem = build_program(kernel, compiled_of(kernel), case_of(kernel), H200)
    assert isinstance(problem, LaunchProblem), problem
    assert problem.finding.shape == SHAPE
    return problem.finding


def line_of(source: str, text: str) -> int:
    return source[: source.index(text)].count("\n") + 1


def test_expressions_and_arguments_are_resolved() -> None:
    (launch,) = built(dense_kernel(BM=32, SHARED=4)).launches
    assert (launch.grid, launch.block, launch.shared) == ((8, 24, 1), (32, 1, 1), 4)
    assert launch.arguments[:3] == (BufferRef("W.values"), BufferRef("X"), BufferRef("Y"))
    assert launch.arguments[3:] == tuple(
        Scalar(n, v) for n, v in (("M", 256), ("N", 24), ("K", 128), ("ldx", 128), ("ldy", 256))
    )


def test_when_skips_a_launch_and_not_all() -> None:
    twice = DENSE.replace("[params]", '[[launch]]\nkernel = "gemm"\nwhen = "UNROLL > 1"\ngrid = [1]\nblock = [32]\n'
                          'args = ["W.values", "X", "Y", "M", "N", "K", "ldx", "ldy"]\n[params]')  # fmt: skip
    assert len(built(dense_kernel(twice)).launches) == 1
    assert len(built(dense_kernel(twice, UNROLL=2)).launches) == 2
    never = DENSE.replace('kernel = "gemm"', 'kernel = "gemm"\nwhen = "N > 100"')
    assert refused(never).kind == "no_launch"


def test_workspaces_follow_the_shape_and_always_have_an_address() -> None:
    (workspace,) = built(dense_kernel(WORKSPACE, UNROLL=2)).workspaces
    assert (workspace.name, workspace.bytes, workspace.init) == ("partial", 4 * 256 * 24, "poison")
    (unused,) = built(dense_kernel(WORKSPACE)).workspaces
    assert unused.bytes == 1


@pytest.mark.parametrize(
    ("old", "new", "kind", "key"),
    [
        ('grid   = ["cdiv(M, BM)", "N"]', 'grid   = ["M // (N - 24)"]', "bad_expression", "grid   ="),
        ('grid   = ["cdiv(M, BM)", "N"]', 'grid   = ["1", "70000"]', "grid_size", "grid   ="),
        ('grid   = ["cdiv(M, BM)", "N"]', 'grid   = ["0"]', "grid_size", "grid   ="),
        ('block  = ["BM"]', 'block  = ["8", "1", "128"]', "block_size", "block  ="),
        ('block  = ["BM"]', 'block  = ["0"]', "block_size", "block  ="),
        ('block  = ["BM"]', 'cluster = [3]\nblock  = ["BM"]', "cluster_size", "cluster"),
        ('grid   = ["cdiv(M, BM)", "N"]', 'cooperative = true\ngrid   = ["1000 * N"]', "cooperative_grid", "grid   ="),
        ('kernel = "gemm"', 'kernel = "gem"', "missing_entry", "kernel ="),
        ('"M", "N", "K", "ldx", "ldy"]', '"M", "N", "K", "ldx"]', "argument_count", "args   ="),
        ('args   = ["W.values", "X", "Y", "M"', 'args   = ["W.values", "X", "M", "Y"', "argument_type", "args   ="),
        ('"K", "ldx", "ldy"]', '"K", "ldx", "0.5"]', "argument_type", "args   ="),
        ('"K", "ldx", "ldy"]', '"K", "ldx", "4294967296"]', "argument_type", "args   ="),
        ('"K", "ldx", "ldy"]', '"K", "ldx", "ldq"]', "unknown_argument", "args   ="),
        ('block  = ["BM"]', 'memset = ["X"]\nblock  = ["BM"]', "bad_memset", "memset"),
        ("extern", "extern \"C\" __global__ void second() {}\nextern", "undeclared_entry", "[[launch]]"),
        ("* BM + threadIdx.x", "* BM + threadIdx.x + big[Y == 0]", "shared_memory", "shared ="),
    ],
)  # fmt: skip
def test_what_cannot_be_launched_and_where(old: str, new: str, kind: str, key: str) -> None:
    source = DENSE.replace(old, new)
    if "big[" in new:
        source = source.replace(
            "  int m", "  __shared__ int big[13000]; big[threadIdx.x] = 0; __syncthreads();\n  int m"
        )
    finding = refused(source)
    assert (finding.kind, finding.line) == (kind, line_of(source, key))


def test_limits_of_the_card() -> None:
    assert refused(DENSE, BM=2048).kind == "block_size"
    assert "232448" in refused(DENSE, SHARED=300000).message
    bounds = DENSE.replace("void gemm", "void __launch_bounds__(64) gemm")
    assert "launch bounds" in refused(bounds, BM=128).message


def test_registers_of_a_block_must_fit() -> None:
    kernel = dense_kernel()
    compiled = compiled_of(kernel)
    greedy = replace(compiled.entries["gemm"], registers=255)
    wide = dense_kernel(DENSE.replace('block  = ["BM"]', 'block  = ["1024"]'))
    problem = build_program(wide, replace(compiled, entries={"gemm": greedy}), case_of(kernel), H200)
    assert isinstance(problem, LaunchProblem)
    assert problem.finding.kind == "registers"


def test_required_block_is_exact() -> None:
    kernel = dense_kernel()
    compiled = compiled_of(kernel)
    entry = replace(compiled.entries["gemm"], required_block=(128, 1, 1))
    problem = build_program(kernel, replace(compiled, entries={"gemm": entry}), case_of(kernel), H200)
    assert isinstance(problem, LaunchProblem)
    assert "exactly (128, 1, 1)" in problem.finding.message


def with_map(**keys: str) -> str:
    """The dense kernel with a tensor map of X as its last argument."""
    table = {"name": '"tma"', "tensor": '"X"', "box": '["64", "8"]'} | keys
    text = "".join(f"{key} = {value}\n" for key, value in table.items())
    source = DENSE.replace("[params]", f"[[tensormap]]\n{text}\n[params]")
    source = source.replace('"K", "ldx", "ldy"]', '"K", "ldx", "tma"]')
    source = source.replace("#include <cuda_fp16.h>", '#include "evo.cuh"')
    return source.replace("int ldy)", "const __grid_constant__ evo::TensorMap map)").replace("* ldy", "* M")


def test_tensor_maps_take_shape_and_type_from_their_buffer() -> None:
    (launch,) = built(dense_kernel(with_map(swizzle='"128B"'))).launches
    assert launch.arguments[-1] == ResolvedTensorMap(
        "tma", "X", "float16", (128, 24), (256,), (64, 8), (1, 1), swizzle="128B"
    )
    given = with_map(dims='["K // 2", 2, "N"]', strides='["K", "2 * ldx"]', box="[32, 1, 4]", dtype='"uint16"',
                     element_strides="[1, 1, 2]", oob='"zeros"', l2promotion='"256B"')  # fmt: skip
    (launch,) = built(dense_kernel(given)).launches
    assert launch.arguments[-1] == ResolvedTensorMap(
        "tma", "X", "uint16", (64, 2, 24), (128, 256), (32, 1, 4), (1, 1, 2), l2promotion="256B"
    )


def test_tensor_maps_that_cannot_be_encoded() -> None:
    for key, value, said in (
        ("box", '["K", "N"]', "more than the swizzle's 128"),
        ("dims", '["K", "N + 1"]', "spans 6400 bytes of X, which has 6144"),
        ("strides", '["K + 1"]', "multiple of 16"),
    ):
        source = with_map(**{"swizzle": '"128B"', key: value})
        finding = refused(source)
        assert (finding.kind, finding.line) == ("tensormap", line_of(source, f"{key} = "))
        assert said in finding.message
    wrong = with_map().replace("const __grid_constant__ evo::TensorMap map", "int last")
    assert "is a tensor map, but parameter 8" in refused(wrong).message


def test_clusters_fixed_when_compiled() -> None:
    fixed = DENSE.replace("void gemm", "void __cluster_dims__(2, 1, 1) gemm")
    (launch,) = built(dense_kernel(fixed, BM=32)).launches
    assert launch.cluster == (2, 1, 1)
    other = fixed.replace('block  = ["BM"]', 'cluster = [4]\nblock  = ["BM"]')
    assert "compiled for exactly (2, 1, 1)" in refused(other, BM=32).message


def test_numbers_and_params_may_be_arguments() -> None:
    source = DENSE.replace('"K", "ldx", "ldy"]', '"K", "0x80", "256"]')
    (launch,) = built(dense_kernel(source)).launches
    assert launch.arguments[-2:] == (Scalar("0x80", 128), Scalar("256", 256))
