"""Divergence, merging, barriers, spinning, budgets."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fitness.simulator.engine import clean, floats, kinds, launch, run

COLLATZ = """
extern "C" __global__ void collatz(const int* x, int* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = x[i], steps = 0;
  while (n != 1) {
    if (n % 2) n = 3 * n + 1; else { n /= 2; if (n == 7) continue; }
    if (++steps > 100) break;
  }
  switch (steps % 7) { case 0: steps += 10; break; case 1: steps *= 2; case 2: steps--; break;
                       case 5: steps ^= 3; break;
                       case 6: return; }
  y[i] = steps;
}
"""


def collatz(n: int) -> int | None:
    steps = 0
    while n != 1:
        if n % 2:
            n = 3 * n + 1
        else:
            n //= 2
            if n == 7:
                continue
        steps += 1
        if steps > 100:
            break
    case = steps % 7
    if case == 0:
        steps += 10
    elif case == 1:
        steps = steps * 2 - 1
    elif case == 2:
        steps -= 1
    elif case == 5:
        steps ^= 3
    return None if case == 6 else steps


@pytest.mark.parametrize("block", [32, 50, 256])
def test_divergent_control_flow(block: int) -> None:
    x = np.arange(1, 4 * block + 1, dtype=np.int32)
    execution = clean(
        run(COLLATZ, launch("collatz", 4, block, "x", "y"), {"x": x}, {"y": np.zeros(4 * block, np.int32)})
    )
    expected = [collatz(int(n)) for n in x]
    np.testing.assert_array_equal(execution.written["y"], [e is not None for e in expected])
    got = execution.outputs["y"][execution.written["y"]]
    np.testing.assert_array_equal(got, [e for e in expected if e is not None])


def test_threads_that_have_left_do_not_hold_up_a_barrier() -> None:
    source = """
    extern "C" __global__ void k(const float* x, float* y, int n) {
      __shared__ float s[64];
      if (threadIdx.x >= n) return;
      s[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      y[threadIdx.x] = s[n - 1 - threadIdx.x];
    }
    """
    x = floats(64)
    execution = clean(run(source, launch("k", 2, 64, "x", "y", 41), {"x": x}, {"y": np.zeros(41, np.float32)}))
    np.testing.assert_array_equal(execution.outputs["y"], x[:41][::-1])


def test_barrier_in_a_divergent_branch() -> None:
    source = """
    extern "C" __global__ void k(float* y) {
      if (threadIdx.x % 2) asm volatile("bar.sync 0;");
      y[threadIdx.x] = 1;
      __syncthreads();
    }
    """
    execution = run(source, launch("k", 1, 64, "y"), {}, {"y": np.zeros(64, np.float32)})
    assert "barrier_divergence" in kinds(execution)


def test_barrier_that_some_never_reach() -> None:
    source = (
        'extern "C" __global__ void k(float* y) { if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;"); y[0] = 1; }'
    )
    execution = run(source, launch("k", 1, 64, "y"), {}, {"y": np.zeros(1, np.float32)})
    assert execution.ended == "fault"
    assert kinds(execution) == {"barrier_divergence"}


def test_named_barriers_of_producer_and_consumer() -> None:
    source = """
    extern "C" __global__ void k(const float* x, float* y) {
      __shared__ float s[32];
      int lane = threadIdx.x % 32;
      for (int i = 0; i < 4; i++) {
        if (threadIdx.x < 32) {
          asm volatile("bar.sync 1, 64;" ::: "memory");
          s[lane] = x[i * 32 + lane];
          asm volatile("bar.arrive 2, 64;" ::: "memory");
        } else {
          asm volatile("bar.arrive 1, 64;" ::: "memory");
          asm volatile("bar.sync 2, 64;" ::: "memory");
          y[i * 32 + lane] = s[31 - lane];
        }
      }
    }
    """
    x = floats(128)
    execution = clean(
        run(source, launch("k", 2, 64, "x", "y"), {"x": x}, {"y": np.zeros(128, np.float32)}, races=False)
    )
    np.testing.assert_array_equal(execution.outputs["y"].reshape(4, 32), x.reshape(4, 32)[:, ::-1])


def test_block_wide_votes() -> None:
    source = """
    extern "C" __global__ void k(const float* x, int* y) {
      bool p = x[threadIdx.x] > 0;
      int n = __syncthreads_count(p), a = __syncthreads_and(p), o = __syncthreads_or(p);
      y[threadIdx.x] = n * 4 + (a != 0) * 2 + (o != 0);
    }
    """
    x = floats(96)
    execution = clean(run(source, launch("k", 1, 96, "x", "y"), {"x": x}, {"y": np.zeros(96, np.int32)}))
    assert set(execution.outputs["y"].tolist()) == {int((x > 0).sum()) * 4 + 1}


def test_spin_lock_is_granted_to_everybody() -> None:
    source = """
    extern "C" __global__ void k(const float* x, float* y, int* lock) {
      bool done = false;
      while (!done)
        if (atomicCAS(lock, 0, 1) == 0) {
          y[0] += x[threadIdx.x];
          __threadfence();
          atomicExch(lock, 0);
          done = true;
        }
    }
    """
    one = launch("k", 1, 40, "x", "y", "lock", memset=("y", "lock"))
    x = np.arange(40, dtype=np.float32)
    execution = run(source, one, {"x": x}, {"y": np.zeros(1, np.float32), "lock": np.zeros(1, np.int32)})
    assert execution.ended == "finished"
    assert execution.outputs["y"][0] == x.sum()


def test_budget_counts_warp_instructions() -> None:
    source = """
    extern "C" __global__ void k(float* y, int n) {
      float v = 0;
      for (int i = 0; i < n; i++) { v += i; asm volatile("" :: "f"(v)); }
      y[threadIdx.x] = v;
    }
    """
    y = {"y": np.zeros(64, np.float32)}
    few, many = (run(source, launch("k", 1, 64, "y", n), {}, y) for n in (100, 200))
    assert 2 * 100 * 2 <= many.steps - few.steps <= 2 * 100 * 10
    assert run(source, launch("k", 1, 64, "y", 200), {}, y, steps=few.steps).ended == "steps"


HALVES = """
extern "C" __global__ void halves(const int* x, int* y, int n) {
  int lane = threadIdx.x, sum = 0;
#pragma unroll 1
  for (int i = lane / 16; i < n; i += 2) { if (x[i] == lane) sum += 3; sum = sum * 5 + x[i]; if (lane >= 16) break; }
  y[lane] = __shfl_xor_sync(0xffffffff, sum, 16);
}
"""


@pytest.mark.parametrize("n", [1300, 2100])
def test_half_a_warp_waits_for_a_long_loop_of_the_other(n: int) -> None:
    """The scheduler's patience runs out inside the loop, with the other half waiting at the shuffle."""
    x = (np.arange(n) % 7).astype(np.int32)
    execution = clean(run(HALVES, launch("halves", 1, 32, "x", "y", n), {"x": x}, {"y": np.zeros(32, np.int32)}))
    sums = []
    for lane in range(32):
        total = np.int32(0)
        with np.errstate(over="ignore"):
            for i in range(lane // 16, n, 2):
                total = np.int32(total + 3) if x[i] == lane else total
                total = np.int32(total * np.int32(5) + x[i])
                if lane >= 16:
                    break
        sums.append(total)
    np.testing.assert_array_equal(execution.outputs["y"], np.roll(sums, 16))


SKIPS = """
extern "C" __global__ void skips(const int* x, int* y, int n) {
  int lane = threadIdx.x % 32, sum = 0;
  unsigned all = ~0u;
  for (int i = 0; ; i++) {
    bool go = i < n + lane % 3;
    all = __ballot_sync(all, go);
    if (!go) break;
    bool odd = (x[threadIdx.x] + i) & 1;
    unsigned part = __ballot_sync(all, odd);
    if (!odd) continue;
    sum += __reduce_add_sync(part, x[threadIdx.x]);
  }
  y[threadIdx.x] = sum;
}
"""


def test_lanes_that_go_round_a_loop_wait_for_those_that_do_not() -> None:
    """Lanes that `continue` reach the next vote first and name those still in the body, which must go before."""
    x = np.random.default_rng(5).integers(0, 50, 96).astype(np.int32)
    execution = clean(run(SKIPS, launch("skips", 1, 96, "x", "y", 4), {"x": x}, {"y": np.zeros(96, np.int32)}))
    want = np.zeros(96, np.int32)
    for i in range(6):
        for warp in range(3):
            lanes = [t for t in range(32 * warp, 32 * warp + 32) if i < 4 + t % 32 % 3 and (x[t] + i) & 1]
            want[lanes] += x[lanes].sum()
    np.testing.assert_array_equal(execution.outputs["y"], want)


BROADCAST = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void broadcast(const int* x, int* y) {
  __shared__ alignas(8) uint64_t full;
  __shared__ int v;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) mbarrier_init(&full, 1);
  __syncthreads();
  if (warp == 0) {
    int got = 0;
    if (lane == 0) { mbarrier_wait(&full, 0); got = v; }
    y[lane] = __shfl_sync(~0u, got, 0) + x[lane];
  } else {
    int s = x[lane];
    for (int i = 16; i; i /= 2) s += __shfl_xor_sync(~0u, s, i);
    SYNC
    if (lane == 0) { v = s; mbarrier_arrive(&full); }
  }
}
"""


@pytest.mark.parametrize("sync", ["", 'asm volatile("bar.sync 1, 32;" ::: "memory");'])
def test_a_warp_waits_at_a_shuffle_for_its_lane_at_an_mbarrier(sync: str) -> None:
    """Also while the warp that is to arrive there waits at a barrier of its own."""
    x = np.arange(32, dtype=np.int32)
    y = {"y": np.zeros(32, np.int32)}
    execution = clean(run(BROADCAST.replace("SYNC", sync), launch("broadcast", 1, 64, "x", "y"), {"x": x}, y))
    np.testing.assert_array_equal(execution.outputs["y"], x + x.sum())


def test_a_lane_that_never_comes_is_named() -> None:
    source = BROADCAST.replace("mbarrier_arrive(&full);", "").replace("SYNC", "")
    execution = run(source, launch("broadcast", 1, 64, "x", "y"), {"x": np.zeros(32, "i4")}, {"y": np.zeros(32, "i4")})
    assert kinds(execution) == {"deadlock"}
