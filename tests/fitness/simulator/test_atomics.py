"""Atomics: lanes that collide, old values, every operation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fitness.simulator.engine import Array, clean, launch, run

N = 200


def integers(seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.random.default_rng(seed).integers(-50, 50, N).astype(np.int32)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("atomicAdd(p, v)", lambda x: x.sum()),
        ("atomicMin(p, v)", lambda x: min(0, x.min())),
        ("atomicMax(p, v)", lambda x: max(0, x.max())),
        ("atomicOr(p, v)", np.bitwise_or.reduce),
        ("atomicXor(p, v)", np.bitwise_xor.reduce),
        ("atomicExch(p, v)", lambda x: x[-1]),
        ("atomicInc((unsigned*)p, 6)", lambda _: N % 7),
        ("atomicCAS(p, (int)threadIdx.x, (int)threadIdx.x + 1)", lambda _: N),
    ],
)
@pytest.mark.parametrize("used", [False, True])
def test_all_lanes_on_one_address(space: str, call: str, expected: object, used: bool) -> None:
    place = "__shared__ int s[4]; int* p = s + 1; if (threadIdx.x == 0) *p = 0; __syncthreads();"
    code = place if space == "shared" else "int* p = y;"
    write = "if (threadIdx.x == 0) y[0] = *p;" if space == "shared" else ""
    keep = "old[threadIdx.x] =" if used else ""
    source = f"""extern "C" __global__ void k(const int* x, int* y, int* old) {{
      int v = x[threadIdx.x]; {code}
      {keep} {call}; __syncthreads(); {write} }}"""
    x = integers()
    one = launch("k", 1, N, "x", "y", "old", memset=("y", "old"))
    outputs = {"y": np.zeros(1, np.int32), "old": np.zeros(N, np.int32)}
    execution = clean(run(source, one, {"x": x}, outputs))
    assert execution.outputs["y"][0] == expected(x)  # type: ignore[operator]
    if used and call.startswith("atomicAdd"):
        np.testing.assert_array_equal(execution.outputs["old"], np.cumsum(x) - x)


def test_floating_point_and_packed_halves() -> None:
    source = """
    #include <cuda_fp16.h>
    extern "C" __global__ void k(float* f, double* d, __half2* h, float* old) {
      old[threadIdx.x] = atomicAdd(f + threadIdx.x % 3, 0.5f);
      atomicAdd(d, 0.25);
      atomicAdd(h, __floats2half2_rn(1.0f, 2.0f));
    }
    """
    one = launch("k", 2, 96, "f", "d", "h", "old", memset=("f", "d", "h"))
    outputs: dict[str, Array] = {
        "f": np.zeros(3, np.float32),
        "d": np.zeros(1),
        "h": np.zeros(2, np.float16),
        "old": np.zeros(96, np.float32),
    }
    execution = run(source, one, {}, outputs, races=False)
    assert execution.ended == "finished"
    np.testing.assert_array_equal(execution.outputs["f"], [32, 32, 32])
    assert execution.outputs["d"][0] == 48
    np.testing.assert_array_equal(execution.outputs["h"], [192, 384])
    assert sorted(execution.outputs["old"]) == sorted(np.repeat(np.arange(32, 64) / 2, 3))


TINY = np.float32(2.0**-126)


def subnormal_job(space: str, *, used: bool) -> tuple[str, Array]:
    """A kernel that adds the second of each pair to the first, and the pairs."""
    p = "y" if space == "global" else "s"
    keep = "old[threadIdx.x] =" if used else ""
    source = f"""extern "C" __global__ void k(const float* x, float* y, float* old) {{
      __shared__ float s[96];
      {p}[threadIdx.x] = x[2 * threadIdx.x]; __syncthreads();
      {keep} atomicAdd({p} + threadIdx.x, x[2 * threadIdx.x + 1]); __syncthreads();
      y[threadIdx.x] = {p}[threadIdx.x]; }}"""
    pairs = [[TINY / 2, TINY], [1.5 * TINY, -TINY], [-TINY / 4, -TINY / 4], [1, TINY / 2], [-0.0, -TINY / 2],
             [-1.5 * TINY, TINY], [3, 4], [TINY, TINY], [0, -0.0]]  # fmt: skip
    return source, np.array(pairs * 3, np.float32)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("used", [False, True])
def test_subnormal_sums_are_flushed_in_global_memory_only(space: str, used: bool) -> None:
    """PTX ISA, "atom": add.f32 flushes subnormal operands and results on global memory, not on shared memory."""
    source, pairs = subnormal_job(space, used=used)
    n = len(pairs)
    outputs = {"y": np.zeros(n, np.float32), "old": np.zeros(n, np.float32)}
    execution = clean(run(source, launch("k", 1, n, "x", "y", "old"), {"x": pairs.ravel()}, outputs))

    def flushed(x: Array) -> Array:
        return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)

    want = flushed(flushed(pairs[:, 0]) + flushed(pairs[:, 1])) if space == "global" else pairs.sum(axis=1)
    np.testing.assert_array_equal(execution.outputs["y"].view(np.uint32), want.astype(np.float32).view(np.uint32))
    if used:
        np.testing.assert_array_equal(execution.outputs["old"].view(np.uint32), pairs[:, 0].copy().view(np.uint32))


WIDE = """
struct alignas(16) Pair { unsigned long long low, high; };
extern "C" __global__ void k(const Pair* x, Pair* cells, Pair* old) {
  __shared__ Pair s[48];
  Pair* p = PLACE;
  const unsigned t = threadIdx.x;
  if (t < 48) p[t] = Pair{t, 0ull};
  __syncthreads();
  const Pair mine = x[t], seen = {t % CELLS, t & 1};
  for (int half = 0; half < 2; half++) {
    if (t / 48 == half) old[t] = CALL;
    __syncthreads();
  }
  if (t < 48) cells[t] = p[t];
}
"""
WIDE_CALLS = {"exchange": "atomicExch(p + t % CELLS, mine)", "compare": "atomicCAS(p + t % CELLS, seen, mine)"}


def wide_job(call: str, space: str, cells: int = 48) -> tuple[str, Array]:
    """A kernel of 2 x 48 threads on cells of 16 bytes that hold (index, 0) first; each thread's new value."""
    text = WIDE.replace("CALL", WIDE_CALLS[call]).replace("PLACE", "s" if space == "shared" else "cells")
    x = np.random.default_rng(4).integers(0, 2**63, (96, 2)).astype(np.uint64)
    return text.replace("CELLS", str(cells)), x


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("call", WIDE_CALLS)
def test_cells_of_16_bytes(call: str, space: str) -> None:
    text, x = wide_job(call, space)
    outputs: dict[str, Array] = {"cells": np.zeros((48, 2), np.uint64), "old": np.zeros((96, 2), np.uint64)}
    got = clean(run(text, launch("k", 1, 96, "x", "cells", "old"), {"x": x}, outputs)).outputs
    first = np.stack([np.arange(48), np.zeros(48)], axis=1).astype(np.uint64)
    even = (np.arange(48) % 2 == 0)[:, None]  # the upper halves of odd cells differ, and no thread finds them equal
    between = x[:48] if call == "exchange" else np.where(even, x[:48], first)
    np.testing.assert_array_equal(got["old"], np.concatenate([first, between]))
    np.testing.assert_array_equal(got["cells"], x[48:] if call == "exchange" else between)


@pytest.mark.parametrize("space", ["global", "shared"])
def test_lanes_exchange_16_bytes_on_one_address(space: str) -> None:
    """In any order each value is seen once: by the next thread, or at the end."""
    text, x = wide_job("exchange", space, cells=1)
    outputs: dict[str, Array] = {"cells": np.zeros((48, 2), np.uint64), "old": np.zeros((96, 2), np.uint64)}
    got = clean(run(text, launch("k", 1, 96, "x", "cells", "old"), {"x": x}, outputs)).outputs
    seen = [*map(tuple, got["old"]), tuple(got["cells"][0])]
    assert sorted(seen) == sorted([(0, 0), *map(tuple, x)])
