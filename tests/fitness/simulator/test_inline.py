"""Device functions, printf and traps."""

from __future__ import annotations

import numpy as np

from tests.fitness.simulator.engine import clean, floats, launch, run

CALLS = r"""
extern "C" __device__ int printf(const char*, ...);
struct Line { float slope; float offset; int calls; };
__device__ __noinline__ float decay(float x, int n, Line line) {
  for (int i = 0; i < n; i++) { x = x * line.slope + line.offset; if (x < 0) return -x; }
  return x + line.calls;
}
__device__ __noinline__ void reverse(float* y, float v) {
  __shared__ float s[64];
  s[threadIdx.x] = v;
  __syncthreads();
  *y = s[63 - threadIdx.x];
}
extern "C" __global__ void k(const float* x, float* y, int n) {
  float v = decay(x[threadIdx.x], n, Line{0.5f, 0.25f, 3});
  if (threadIdx.x < 2) printf("lane %d: %.2f %s %llu%%\n", threadIdx.x, v, "ok", 1ull << 40);
  v = decay(v, 1, Line{2.0f, 0.0f, 0});
  reverse(y + threadIdx.x, v);
  if (n > 100) __trap();
}
"""


def decay(x: np.float32, n: int, slope: float, offset: float, calls: int) -> np.float32:
    for _ in range(n):
        x = np.float32(x * np.float32(slope) + np.float32(offset))
        if x < 0:
            return -x
    return x + np.float32(calls)


def test_calls_of_device_functions() -> None:
    x = np.linspace(-1, 1, 64).astype(np.float32)
    execution = clean(run(CALLS, launch("k", 1, 64, "x", "y", 3), {"x": x}, {"y": np.zeros(64, np.float32)}))
    first = [decay(v, 3, 0.5, 0.25, 3) for v in x]
    expected = [decay(v, 1, 2.0, 0.0, 0) for v in first][::-1]
    np.testing.assert_array_equal(execution.outputs["y"], expected)
    assert execution.printed == "".join(f"lane {i}: {first[i]:.2f} ok 1099511627776%\n" for i in range(2))


def test_trap_in_a_callee() -> None:
    execution = run(CALLS, launch("k", 1, 64, "x", "y", 101), {"x": floats(64)}, {"y": np.zeros(64, np.float32)})
    assert execution.ended == "trap"
    assert execution.findings[0].kind == "trap"


def test_recursion_is_unsupported_and_named() -> None:
    source = """
    __device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    extern "C" __global__ void k(int* y, int n) { y[threadIdx.x] = fib(n); }
    """
    execution = run(source, launch("k", 1, 32, "y", 5), {}, {"y": np.zeros(32, np.int32)})
    assert execution.ended == "unsupported"
    assert "fib" in execution.findings[0].message
