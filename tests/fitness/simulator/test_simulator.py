"""The simulator as a device, and whole kernels against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.devices.device import BufferRef, Checks, Device, Inputs, Program, ResolvedLaunch, ResolvedWorkspace
from fitness.devices.simulator import codegen
from fitness.devices.simulator import running as module
from fitness.devices.simulator.simulator import Simulator
from fitness.devices.testing import DeviceContract
from fitness.gpu import load
from tests.fitness.simulator.engine import clean, compiled, floats, kinds, launch, run


class TestSimulator(DeviceContract):
    @pytest.fixture
    def device(self) -> Device:
        return Simulator(load("H200"))


GEMM = r"""
#include <cuda_fp16.h>
extern "C" __global__ void gemm(const half* A, const half* B, float* C, int M, int N, int K) {
  __shared__ half a[16][18];
  __shared__ float b[16][17];
  int m = blockIdx.y * 16 + threadIdx.y, n = blockIdx.x * 16 + threadIdx.x;
  float acc = 0;
  for (int k = 0; k < K; k += 16) {
    a[threadIdx.y][threadIdx.x] = m < M && k + threadIdx.x < K ? A[m * K + k + threadIdx.x] : __float2half(0.f);
    b[threadIdx.y][threadIdx.x] = n < N && k + threadIdx.y < K ? __half2float(B[n * K + k + threadIdx.y]) : 0.f;
    __syncthreads();
    for (int j = 0; j < 16; j++) acc += __half2float(a[threadIdx.y][j]) * b[j][threadIdx.x];
    __syncthreads();
  }
  if (m < M && n < N) C[n * M + m] = acc;
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("shape", [(32, 16, 32), (37, 21, 45), (1, 1, 1)])
def test_tiled_gemm_equals_numpy(shape: tuple[int, int, int], arch: str) -> None:
    m, n, k = shape
    a, b = floats(m * k).astype(np.float16).reshape(m, k), floats(n * k, 1).astype(np.float16).reshape(n, k)
    one = launch("gemm", (-(-n // 16), -(-m // 16)), (16, 16), "A", "B", "C", m, n, k)
    execution = clean(run(GEMM, one, {"A": a, "B": b}, {"C": np.zeros((n, m), np.float32)}, arch=arch))
    reference = b.astype(float) @ a.astype(float).T
    np.testing.assert_allclose(execution.outputs["C"], reference, rtol=1e-5, atol=1e-5)
    assert execution.written["C"].all()


def test_checks_do_not_change_results() -> None:
    m, n, k = 37, 21, 45
    a, b = floats(m * k).astype(np.float16), floats(n * k, 1).astype(np.float16)
    one = launch("gemm", (2, 3), (16, 16), "A", "B", "C", m, n, k)
    results = [
        run(GEMM, one, {"A": a, "B": b}, {"C": np.zeros(m * n, np.float32)}, races=races, uninitialised=track)
        for races in (False, True)
        for track in (False, True)
    ]
    assert len({r.outputs["C"].tobytes() for r in results}) == 1
    assert len({r.steps for r in results}) == 1


def test_sequence_of_launches_sees_memsets_and_workspaces() -> None:
    source = """
    extern "C" __global__ void partial(const float* x, float* part, int n) {
      int i = blockIdx.x * 64 + threadIdx.x;
      if (i < n) atomicAdd(part + threadIdx.x % 4, x[i]);
    }
    extern "C" __global__ void finish(const float* part, float* y) { y[threadIdx.x] = part[threadIdx.x]; }
    """
    x = np.arange(300, dtype=np.float32)
    launches = [launch("partial", 5, 64, "x", "part", 300, memset=("part",)), launch("finish", 1, 4, "part", "y")]
    scratch = ResolvedWorkspace("part", 16, "poison")
    execution = clean(run(source, launches, {"x": x}, {"y": np.zeros(4, np.float32)}, workspaces=[scratch]))
    np.testing.assert_array_equal(execution.outputs["y"], [x[i::4].sum() for i in range(4)])


def test_blocks_cooperate_through_a_ticket() -> None:
    source = """
    __device__ unsigned ticket;
    extern "C" __global__ void last(const float* x, float* part, float* y, int n) {
      __shared__ bool am_last;
      if (threadIdx.x == 0) {
        part[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        am_last = atomicAdd(&ticket, 1u) == gridDim.x - 1;
      }
      __syncthreads();
      if (am_last && threadIdx.x == 0) { float s = 0; for (int i = 0; i < n; i++) s += part[i]; y[0] = s; }
    }
    """
    x = np.arange(500, dtype=np.float32)
    scratch = ResolvedWorkspace("part", 2000, "poison")
    one = launch("last", 500, 32, "x", "part", "y", 500)
    execution = clean(run(source, one, {"x": x}, {"y": np.zeros(1, np.float32)}, workspaces=[scratch]))
    assert execution.outputs["y"][0] == x.sum()


def test_cooperative_launch_may_wait_for_all_its_blocks() -> None:
    source = """
    __device__ volatile unsigned arrived;
    extern "C" __global__ void meet(float* y) {
      if (threadIdx.x == 0) {
        y[blockIdx.x] = 1.0f;
        __threadfence();
        atomicAdd((unsigned*)&arrived, 1u);
        while (arrived < gridDim.x) {}
        __threadfence();
        if (blockIdx.x == 0) { float s = 0; for (int i = 0; i < gridDim.x; i++) s += y[i]; y[gridDim.x] = s; }
      }
    }
    """
    one = ResolvedLaunch("meet", (400, 1, 1), (32, 1, 1), 0, (BufferRef("y"),), cooperative=True)
    program = Program(compiled(source), (one,))
    inputs = Inputs({}, {"y": np.zeros(401, np.float32)})
    execution = Simulator(load("H200")).run(program, inputs, Checks(races=False))
    assert (execution.ended, execution.findings) == ("finished", ())
    assert execution.outputs["y"][400] == 400


def test_alignment_is_exactly_what_the_program_says() -> None:
    source = """
    extern "C" __global__ void address(const float* x, unsigned long long* y) { y[0] = (unsigned long long)x; }
    """
    for align in (4, 8, 16, 256):
        one = launch("address", 1, 1, "x", "y")
        execution = run(source, one, {"x": floats(8)}, {"y": np.zeros(1, np.uint64)}, align=align)
        address = int(execution.outputs["y"][0]) if align >= 8 else None
        assert address is None or (address & -address) == align


def test_unknown_instruction_is_unsupported_and_named() -> None:
    source = """
    extern "C" __global__ void odd(float* y) {
      unsigned v;
      asm volatile("vadd.u32.u32.u32 %0, %1, %1;" : "=r"(v) : "r"(threadIdx.x));
      y[threadIdx.x] = v;
    }
    """
    execution = run(source, launch("odd", 1, 32, "y"), {}, {"y": np.zeros(32, np.float32)})
    assert execution.ended == "unsupported"
    assert "vadd" in execution.findings[0].message
    assert execution.findings[0].line == 4


def test_empty_buffers_and_empty_outputs_are_fine() -> None:
    source = """
    extern "C" __global__ void none(const float* x, float* y, int n) {
      if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
    }
    """
    empty = np.zeros(0, np.float32)
    clean(run(source, launch("none", 1, 32, "x", "y", 0), {"x": empty}, {"y": empty}))
    broken = run(source, launch("none", 1, 32, "x", "y", 1), {"x": empty}, {"y": empty})
    assert kinds(broken) == {"out_of_bounds"}


def test_constant_tables_structs_and_local_arrays() -> None:
    source = """
    struct Pair { int a; float b[3]; };
    __constant__ float table[4] = {1.5f, 2.5f, 3.5f, 4.5f};
    __device__ const int* pointer_table[1];
    extern "C" __global__ void mixed(float* y, int k) {
      float own[8];
      Pair p = {1, {2.f, 3.f, 4.f}};
      for (int i = 0; i < 8; i++) own[i] = table[(i + threadIdx.x) & 3] + p.b[(i + k) % 3];
      y[threadIdx.x] = own[(k + threadIdx.x) & 7];
    }
    """
    execution = clean(run(source, launch("mixed", 1, 64, "y", 5), {}, {"y": np.zeros(64, np.float32)}))
    t = np.arange(64)
    i = (5 + t) & 7
    expected = np.array([1.5, 2.5, 3.5, 4.5])[(i + t) & 3] + np.array([2.0, 3.0, 4.0])[(i + 5) % 3]
    np.testing.assert_array_equal(execution.outputs["y"], expected.astype(np.float32))


def test_a_counted_run_translates_a_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costing asks for the kernel and for what counting knows of it beforehand: one translation serves both."""
    made = []

    def watched(*arguments: object, **options: object) -> object:
        made.append(arguments[1])
        return codegen.generate(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "generate", watched)
    source = 'extern "C" __global__ void counted_once(float* y) { y[threadIdx.x] = 19.75f; }'
    for _ in range(2):
        clean(run(source, launch("counted_once", 1, 32, "y"), {}, {"y": np.zeros(32, np.float32)}, counters=True))
    assert made == ["counted_once"]
