"""Tensor-core data paths in whole kernels: cp.async, ldmatrix, mma, mma.sp, wmma, shuffles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fitness.simulator.engine import clean, floats, kinds, launch, run

TILE = r"""
#include <cuda_fp16.h>
extern "C" __global__ void k(const half* A, const half* B, float* C) {  // A 16 x 64, B 8 x 64 (n-major), C 16 x 8
  __shared__ __align__(16) half a[2][16 * 16];
  __shared__ __align__(16) half b[2][8 * 16];
  int t = threadIdx.x;
  float c[4] = {};
  auto fetch = [&](int k) {
    unsigned da = __cvta_generic_to_shared(&a[k & 1][t * 8]), db = __cvta_generic_to_shared(&b[k & 1][t * 8]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(da), "l"(A + t / 2 * 64 + k * 16 + t % 2 * 8));
    int bytes = t < 16 ? 16 : 0;
    if (t < 16) asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
                             :: "r"(db), "l"(B + t / 2 * 64 + k * 16 + t % 2 * 8), "r"(bytes));
    asm volatile("cp.async.commit_group;");
  };
  fetch(0);
  for (int k = 0; k < 4; k++) {
    if (k < 3) fetch(k + 1); else asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group WAIT;" ::: "memory");
    __syncwarp();
    unsigned x[4], y[2];
    unsigned pa = __cvta_generic_to_shared(&a[k & 1][t % 16 * 16 + t / 16 * 8]);
    unsigned pb = __cvta_generic_to_shared(&b[k & 1][t % 8 * 16 + t / 8 % 2 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(pa) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(y[0]), "=r"(y[1]) : "r"(pb) : "memory");
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    __syncwarp();
  }
  for (int i = 0; i < 4; i++) C[(t / 4 + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = c[i];
}
"""


def operands() -> dict[str, np.ndarray[tuple[int, int], np.dtype[np.float16]]]:
    return {
        "A": floats(16 * 64).astype(np.float16).reshape(16, 64),
        "B": floats(8 * 64, 1).astype(np.float16).reshape(8, 64),
    }


def test_pipelined_tile_equals_numpy() -> None:
    given = operands()
    one = launch("k", 1, 32, "A", "B", "C")
    execution = clean(run(TILE.replace("WAIT", "1"), one, given, {"C": np.zeros((16, 8), np.float32)}))
    reference = given["A"].astype(float) @ given["B"].astype(float).T
    np.testing.assert_allclose(execution.outputs["C"], reference, rtol=1e-5, atol=1e-5)


def test_reading_a_copy_that_was_not_waited_for() -> None:
    one = launch("k", 1, 32, "A", "B", "C")
    execution = run(TILE.replace("WAIT", "2"), one, operands(), {"C": np.zeros((16, 8), np.float32)})
    assert "uninitialised" in kinds(execution)


def test_transposed_ldmatrix_and_stmatrix() -> None:
    source = """
    extern "C" __global__ void k(const unsigned short* x, unsigned short* y) {
      __shared__ __align__(16) unsigned short s[128], r[128];
      int t = threadIdx.x;
      for (int i = t; i < 128; i += 32) s[i] = x[i];
      __syncwarp();
      unsigned a, b, p = __cvta_generic_to_shared(s + t % 16 * 8), q = __cvta_generic_to_shared(r + t % 16 * 8);
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                   : "=r"(a), "=r"(b) : "r"(p) : "memory");
      asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%2], {%0,%1};" :: "r"(a), "r"(b), "r"(q) : "memory");
      __syncwarp();
      for (int i = t; i < 128; i += 32) y[i] = r[i];
    }
    """
    x = np.arange(128, dtype=np.uint16)
    execution = clean(run(source, launch("k", 1, 32, "x", "y"), {"x": x}, {"y": np.zeros(128, np.uint16)}))
    expected = x.reshape(2, 8, 8).transpose(0, 2, 1).ravel()
    np.testing.assert_array_equal(execution.outputs["y"], expected)


@pytest.mark.parametrize("layout", ["row_major", "col_major"])
def test_wmma(layout: str) -> None:
    source = f"""
    #include <mma.h>
    using namespace nvcuda;
    extern "C" __global__ void k(const half* A, const half* B, float* C) {{
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::{layout}> b;
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
      wmma::fill_fragment(c, 0.0f);
      wmma::load_matrix_sync(a, A, 16); wmma::load_matrix_sync(b, B, 16); wmma::mma_sync(c, a, b, c);
      wmma::store_matrix_sync(C, c, 16, wmma::mem_row_major);
    }}
    """
    a, b = (floats(256, seed).astype(np.float16).reshape(16, 16) for seed in (0, 1))
    outputs = {"C": np.zeros((16, 16), np.float32)}
    execution = clean(run(source, launch("k", 1, 32, "A", "B", "C"), {"A": a, "B": b}, outputs))
    right = b if layout == "row_major" else b.T
    np.testing.assert_allclose(execution.outputs["C"], a.astype(float) @ right.astype(float), rtol=1e-5, atol=1e-5)


def test_garbage_rows_taint_only_their_own_results() -> None:
    """Rows of A that a tail tile leaves uninitialised must not accuse the rows that are stored."""
    source = r"""
    extern "C" __global__ void k(const unsigned* x, float* y, int rows) {
      __shared__ unsigned s[16 * 8];
      int t = threadIdx.x;
      if (t < 8) for (int r = 0; r < 9; r++) s[r * 8 + t] = x[t];
      __syncwarp();
      int g = t / 4, q = t % 4;
      unsigned a0 = s[g * 8 + q], a1 = s[(g + 8) * 8 + q], a2 = s[g * 8 + q + 4], a3 = s[(g + 8) * 8 + q + 4];
      float c[4] = {};
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(x[t % 8]), "r"(x[0]));
      for (int i = 0; i < 4; i++) { int r = g + i / 2 * 8; if (r < rows) y[r * 8 + q * 2 + i % 2] = c[i]; }
    }
    """
    x = {"x": floats(16).astype(np.float16)}
    clean(run(source, launch("k", 1, 32, "x", "y", 9), x, {"y": np.zeros((9, 8), np.float32)}))
    execution = run(source, launch("k", 1, 32, "x", "y", 10), x, {"y": np.zeros((10, 8), np.float32)})
    assert kinds(execution) == {"uninitialised"}
    assert "y[72]" in execution.findings[0].message


def test_warp_reductions_in_partial_warps() -> None:
    source = """
    extern "C" __global__ void k(const int* x, int* y) {
      int v = x[threadIdx.x], lane = threadIdx.x % 32;
      unsigned mask = __ballot_sync(~0u, threadIdx.x < 70);
      if (threadIdx.x < 70) {
        int sum = __reduce_add_sync(mask, v);
        int up = __shfl_up_sync(mask, v, 1), best = v;
        for (int d = 16; d; d /= 2) {
          int o = __shfl_down_sync(mask, best, d);
          if (lane + d < __popc(mask)) best = max(best, o);
        }
        if (lane == 0) up = __shfl_sync(__activemask(), best, 0);
        y[threadIdx.x] = sum * 1000 + up;
      }
    }
    """
    x = np.random.default_rng(3).integers(0, 100, 96).astype(np.int32)
    execution = run(source, launch("k", 1, 96, "x", "y"), {"x": x}, {"y": np.zeros(70, np.int32)})
    assert execution.ended == "finished"
    assert not kinds(execution)
    expected = []
    for t in range(70):
        warp = x[t // 32 * 32 : min(70, t // 32 * 32 + 32)]
        expected.append(int(warp.sum()) * 1000 + int(warp.max() if t % 32 == 0 else x[t - 1]))
    np.testing.assert_array_equal(execution.outputs["y"], expected)


def test_mma_by_part_of_a_warp_is_an_error() -> None:
    source = """
    extern "C" __global__ void k(float* y) {
      float c[4] = {};
      if (threadIdx.x < 16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(0));
      y[threadIdx.x] = c[0];
    }
    """
    execution = run(source, launch("k", 1, 32, "y"), {}, {"y": np.zeros(32, np.float32)})
    assert kinds(execution) == {"barrier_divergence"}
    assert "mma" in execution.findings[0].message


def test_copies_that_ignore_their_source_write_zeros() -> None:
    source = """
    extern "C" __global__ void k(const float4* x, float4* y, int n) {
      __shared__ float4 s[64];
      const int t = threadIdx.x;
      const unsigned to = (unsigned)__cvta_generic_to_shared(s + t);
      asm volatile("{ .reg .pred p; setp.ge.s32 p, %2, %3; cp.async.cg.shared.global [%0], [%1], 16, p; }"
                   :: "r"(to), "l"(x + t), "r"(t), "r"(n) : "memory");
      asm volatile("cp.async.wait_all;" ::: "memory");
      y[t] = s[t];
    }
    """
    x = floats(4 * 40).reshape(40, 4)  # what is ignored may lie outside of the buffer
    execution = clean(run(source, launch("k", 1, 64, "x", "y", 40), {"x": x}, {"y": np.ones((64, 4), np.float32)}))
    np.testing.assert_array_equal(execution.outputs["y"], np.concatenate([x, np.zeros((24, 4), np.float32)]))
