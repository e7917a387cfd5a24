"""What a cost run leaves out changes no counter: against runs that compute everything."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitness.devices.device import Checks, Inputs, Program, ResolvedLaunch
from fitness.devices.simulator import running
from fitness.devices.simulator.codegen import Kernel, generate
from fitness.devices.simulator.counting import Counting
from fitness.devices.simulator.ptx_parser import parse
from fitness.devices.simulator.simulator import Simulator
from fitness.gpu import load
from tests.fitness.simulator import kernel_cases, snippets
from tests.fitness.simulator.engine import Array, compiled, floats, launch
from tests.fitness.simulator.test_snippets import words

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def plain(value: Any) -> Any:
    """Counters as nested lists, to be compared."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.tolist())
    if isinstance(value, dict):
        return {key: plain(held) for key, held in value.items()}
    return [plain(held) for held in value] if isinstance(value, tuple | list) else value


def same_counters(program: Program, inputs: Inputs) -> int:
    """Check that the counters of all blocks are the same as with nothing left out and each access looked at anew.

    Returns:
        instructions executed.
    """
    blocks = tuple(tuple(range(int(np.prod(one.grid)))) for one in program.launches)
    checks = Checks(races=False, uninitialised=False, counters=True, blocks=blocks)
    less = Simulator(load("H200")).run(program, inputs, checks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Counting, "shared_at", lambda *_: False)
        patch.setattr(Counting, "global_at", lambda *_: False)
        whole = running.Run(program, inputs, checks).execute()
    assert (less.ended, less.steps) == (whole.ended, whole.steps), less.findings
    assert whole.ended == "finished"
    assert plain(less.counters) == plain(whole.counters)
    return whole.steps


@pytest.mark.parametrize("name", kernel_cases.CASES)
def test_realistic_kernels(name: str) -> None:
    case = kernel_cases.CASES[name]()
    launches = (case.launches,) if isinstance(case.launches, ResolvedLaunch) else tuple(case.launches)
    program = Program(compiled(kernel_cases.source(name)), launches, case.workspaces, 16)
    assert same_counters(program, Inputs(case.buffers, case.outputs))


def kernel_of(source: str, *, kept: frozenset[str] = frozenset()) -> Kernel:
    """The first entry of a source with what does not matter left out."""
    build = compiled(source)
    return generate(parse(build.ptx), next(iter(build.entries)), track=False, kept=kept)


SUM = """
extern "C" __global__ void k(const float* x, const int* which, float* y, int n) {
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 32) sum = fmaf(x[which[i]], 2.0f, sum);
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  y[blockIdx.x * 32 + threadIdx.x] = sum;
}
"""


def test_products_and_sums_are_left_out_and_indices_are_not() -> None:
    kernel = kernel_of(SUM)
    assert kernel.reads is not None
    assert any("param_1" in name for name in kernel.reads)
    assert not any("param_0" in name or "param_2" in name for name in kernel.reads)
    assert "memory.store" not in kernel.source
    assert "warps.shfl" not in kernel.source
    assert "memory.load" in kernel.source  # the indices
    whole = generate(parse(compiled(SUM).ptx), "k", track=False)
    assert "memory.store" in whole.source
    assert len(kernel.sites) == len(whole.sites)
    which = np.random.default_rng(2).integers(0, 100, 100).astype(np.int32)
    program = Program(compiled(SUM), (launch("k", 3, 32, "x", "which", "y", 100),), (), 16)
    same_counters(program, Inputs({"x": floats(100), "which": which}, {"y": np.zeros(96, np.float32)}))


def test_products_of_tiles_that_bulk_copies_bring_are_left_out() -> None:
    """What a copy reads is known by its tensor map, and matters where a value of a tile decides the way."""
    text = kernel_cases.source("wgmma_specialised")
    assert "wgmma.multiply" in generate(parse(compiled(text).ptx), "gemm", track=False).source
    kernel = kernel_of(text)
    assert "wgmma.multiply" not in kernel.source
    assert "memory.store" not in kernel.source
    assert kernel.reads == frozenset()
    decides = "if (threadIdx.x % 128 == 0) mbarrier"
    assert text.count(decides) == 1
    looked = kernel_of(text.replace(decides, "if (ring[s * bytes] == 77) return;\n        " + decides))
    assert "wgmma.multiply" not in looked.source
    assert looked.reads is not None
    assert {name.rsplit("_", 1)[1] for name in looked.reads} == {"0", "1"}  # both maps
    on_sum = kernel_of(text.replace(decides, "if (sum[0] > 7) return;\n        " + decides))
    assert "wgmma.multiply" in on_sum.source
    assert on_sum.reads == looked.reads


THROUGH = {
    "shared memory": "__shared__ int s[32]; s[t] = which[t]; __syncthreads(); y[t] = x[s[31 - t]];",
    "local memory": "int s[4]; for (int i = 0; i < 4; i++) s[i] = which[t + i]; y[t] = x[s[which[t] & 3]];",
    "its own output": "y[t] = which[t]; __syncthreads(); y[t + 32] = x[(int)y[31 - t]];",
    "an atomic": "int old = atomicAdd((int*)y, which[t]); y[t + 32] = x[(old + t) & 31];",
    "a shuffle": "y[t] = x[__shfl_sync(~0u, which[t], t ^ 5)];",
    "a vote": "if (__any_sync(~0u, which[t] > 30)) y[t] = x[t]; else y[t + 64] = x[t];",
    "a float": "if (x[t] > 0) y[t] = x[which[t]];",
    "a pointer table": "const float* p[2] = {x, y}; y[t + 32] = p[which[t] & 1][t];",
}


@pytest.mark.parametrize("name", THROUGH)
def test_what_reaches_an_address_or_a_branch_is_computed(name: str) -> None:
    source = f"""extern "C" __global__ void k(const float* x, const int* which, float* y) {{
      const int t = threadIdx.x; {THROUGH[name]} }}"""
    which = np.random.default_rng(3).permutation(40).astype(np.int32) % 32
    program = Program(compiled(source), (launch("k", 1, 32, "x", "which", "y", memset=("y",)),), (), 16)
    same_counters(program, Inputs({"x": floats(64), "which": which}, {"y": np.zeros(128, np.float32)}))


TWO = """
extern "C" __global__ void first(const int* which, int* between, float* other) {
  between[threadIdx.x] = which[threadIdx.x] ^ 1;
  other[threadIdx.x] = 1.0f;
}
extern "C" __global__ void second(const float* x, const int* between, float* y) {
  y[threadIdx.x] = x[between[threadIdx.x] * 8];
}
"""


def test_what_a_later_launch_needs_is_stored() -> None:
    which = np.random.default_rng(4).permutation(32).astype(np.int32)
    launches = (launch("first", 1, 32, "which", "between", "other"), launch("second", 1, 32, "x", "between", "y"))
    outputs: dict[str, Array] = {name: np.zeros(32, np.float32) for name in ("other", "y")}
    program = Program(compiled(TWO), launches, (), 16)
    inputs = Inputs({"x": floats(256), "which": which}, outputs | {"between": np.zeros(32, np.int32)})
    same_counters(program, inputs)
    blocks = Checks(races=False, uninitialised=False, counters=True, blocks=((0,), (0,)))
    run = running.Run(program, inputs, blocks, whole=False)
    run.execute()
    assert run.kept == [frozenset({"first_param_1"}), frozenset()]


def test_one_buffer_given_twice_leaves_nothing_out() -> None:
    source = """extern "C" __global__ void k(float* a, float* b, const float* x) {
      const int t = threadIdx.x; a[t] = t; __syncthreads(); x += (int)b[31 - t]; a[t + 32] = *x; }"""
    program = Program(compiled(source), (launch("k", 1, 32, "y", "y", "x"),), (), 16)
    same_counters(program, Inputs({"x": floats(64)}, {"y": np.zeros(64, np.float32)}))


def test_an_address_that_leaves_its_buffer_does_the_run_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """From one buffer into another by pointer arithmetic that hides where it goes."""
    source = """extern "C" __global__ void k(float* a, const float* x, const float* z, unsigned long long away) {
      const int t = threadIdx.x;
      *(float*)((char*)z + away + 4 * t) = t; __syncthreads();
      a[t + 32] = x[(int)a[31 - t]]; }"""
    whole = []
    begin = running.Run.__init__

    def counted(self: Any, *given: Any, **options: Any) -> None:
        whole.append(options.get("whole", True))
        begin(self, *given, **options)

    inputs = Inputs({"x": floats(64), "z": floats(64)}, {"a": np.zeros(64, np.float32)})
    probe = running.Run(Program(compiled(source), (), (), 16), inputs, Checks())
    away = (probe.buffers["a"].base - probe.buffers["z"].base) % (1 << 64)
    monkeypatch.setattr(running.Run, "__init__", counted)
    same_counters(Program(compiled(source), (launch("k", 1, 32, "a", "x", "z", away),), (), 16), inputs)
    assert whole == [False, True, True]


@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(snippets.snippets(), st.integers(0, 99))
def test_random_snippets(snippet: tuple[snippets.Statement, ...], seed: int) -> None:
    x = words(seed)
    launched = launch("snippet", snippets.BLOCKS, snippets.THREADS, "x", "y")
    same_counters(
        Program(compiled(snippets.cuda(snippet)), (launched,), (), 16), Inputs({"x": x}, {"y": np.zeros_like(x)})
    )


REUSED = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1) {
 .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .f32 %f<3>;
 ld.param.u64 %rd1, [k_param_0];
 ld.param.u64 %rd2, [k_param_1];
 mov.u32 %r1, %tid.x;
 mov.u32 %r2, 0;
 setp.eq.u32 %p1, %r1, %r2;
 @%p1 bra DONE;
 mul.wide.u32 %rd3, %r1, 4;
 add.u64 %rd4, %rd1, %rd3;
 add.u64 %rd5, %rd2, %rd3;
 BODY
 st.global.u32 [%rd5], %r2;
DONE:
 ret;
}
"""


@pytest.mark.parametrize(
    ("body", "loads"),
    [
        ("ld.global.u32 %r2, [%rd4];", False),
        ("setp.gt.u32 %p2, %r1, 7; @%p2 ld.global.u32 %r2, [%rd4];", False),
        ("ld.global.u32 %r2, [%rd4]; setp.gt.u32 %p2, %r2, 7; @%p2 bra DONE;", True),
        ("ld.global.u32 %r2, [%rd4]; @%p1 mov.u32 %r2, 3; setp.gt.u32 %p2, %r2, 7; @%p2 bra DONE;", True),
        ("ld.global.u32 %r2, [%rd4]; mov.u32 %r2, 3; setp.gt.u32 %p2, %r2, 7; @%p2 bra DONE;", False),
        ("AGAIN: setp.gt.u32 %p2, %r2, 7; @%p2 bra DONE; ld.global.u32 %r2, [%rd4]; setp.gt.u32 %p2, %r1, 31;"
         "@%p2 bra AGAIN;", True),
    ],
)  # fmt: skip
def test_a_register_matters_from_what_wrote_it_last_to_where_it_is_read(body: str, loads: bool) -> None:
    kernel = generate(parse(REUSED.replace("BODY", body)), "k", track=False, kept=frozenset())
    assert ("memory.load" in kernel.source) == loads
