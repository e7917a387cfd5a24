"""`st.async` and `red.async`: values, counting at mbarriers of other blocks, what is missing or misplaced."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fitness.devices.device import Execution
from tests.fitness.simulator.engine import Array, clean, floats, kinds, launch, run

HEAD = """
#include <cuda/ptx>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
"""
# Every block of a cluster of two stores its row into the other's tile, as cuda::ptx spells it.
EXCHANGE = """
extern "C" __global__ void NAME(const float* x, float* y) {
  __shared__ alignas(16) float tile[128];
  __shared__ alignas(8) cuda::std::uint64_t bar;
  auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&bar, 1);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &bar, 512);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  cluster.sync();
  unsigned other = cluster.block_rank() ^ 1;
  float* to = cluster.map_shared_rank(tile, other);
  cuda::std::uint64_t* at = cluster.map_shared_rank(&bar, other);
  STORE
  WAIT
  for (int i = threadIdx.x; i < 128; i += blockDim.x) y[128 * blockIdx.x + i] = tile[i];
  cluster.sync();
}
"""
WAIT = "while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {}"
STORES = {
    "one": "for (int i = threadIdx.x; i < 128; i += blockDim.x) ptx::st_async(to + i, x[128 * blockIdx.x + i], at);",
    "two": """for (int i = threadIdx.x; i < 64; i += blockDim.x) {
      const float v[2] = {x[128 * blockIdx.x + 2 * i], x[128 * blockIdx.x + 2 * i + 1]};
      ptx::st_async(to + 2 * i, v, at); }""",
    "four": """for (int i = threadIdx.x; i < 32; i += blockDim.x) {
      float4 f = ((const float4*)x)[32 * blockIdx.x + i]; const float v[4] = {f.x, f.y, f.z, f.w};
      ptx::st_async(to + 4 * i, v, at); }""",
    "wide": """for (int i = threadIdx.x; i < 64; i += blockDim.x)
      ptx::st_async((double*)to + i, ((const double*)x)[64 * blockIdx.x + i], at);""",
}


EXCHANGES = {
    **{form: (store, WAIT) for form, store in STORES.items()},
    "missing_wait": (STORES["one"], "__syncthreads();"),
    "too_few": (STORES["one"].replace("i < 128", "i < 96"), WAIT),
    "own_mbarrier": (STORES["one"].replace(", at)", ", &bar)"), WAIT),
    "one_place": (STORES["one"].replace("to + i", "to + i / 2"), WAIT),
    "beyond": (STORES["one"].replace("to + i", "to + i + 4096"), WAIT),
    "misaligned": (STORES["four"].replace("to + 4 * i", "to + 2 * i"), WAIT),
}
"""Name -> how it stores and waits. All in one source: the headers take a second to compile."""
SOURCE = HEAD + "".join(
    EXCHANGE.replace("NAME", name).replace("STORE", store).replace("WAIT", wait)
    for name, (store, wait) in EXCHANGES.items()
)


def exchange(name: str, **checks: Any) -> tuple[Execution, Array, Array]:
    x = floats(4 * 128)
    execution = run(SOURCE, launch(name, 4, 32, "x", "y", cluster=2), {"x": x}, {"y": np.zeros(512, "f4")}, **checks)
    return execution, execution.outputs["y"], x.reshape(2, 2, 128)[:, ::-1].ravel()


@pytest.mark.parametrize("form", STORES)
def test_stores_arrive_in_the_other_block(form: str) -> None:
    execution, got, want = exchange(form)
    clean(execution)
    np.testing.assert_array_equal(got, want)


def test_without_checks_the_result_is_the_same() -> None:
    execution, got, want = exchange("four", races=False, uninitialised=False, counters=True)
    clean(execution)
    np.testing.assert_array_equal(got, want)
    assert execution.counters


def test_a_missing_wait_is_found() -> None:
    execution, *_ = exchange("missing_wait")
    assert {"race", "uninitialised"} <= kinds(execution)


def test_too_few_bytes_are_a_deadlock() -> None:
    execution, *_ = exchange("too_few")
    assert kinds(execution) == {"deadlock"}
    assert "128 bytes are missing" in execution.findings[0].message


def test_destination_and_mbarrier_lie_in_one_block() -> None:
    execution, *_ = exchange("own_mbarrier")
    assert kinds(execution) == {"mbarrier"}
    assert "mbarrier of another" in execution.findings[0].message


def test_lanes_that_store_to_one_place_race() -> None:
    execution, *_ = exchange("one_place")
    assert "race" in kinds(execution)
    said = [finding.message for finding in execution.findings if "in one instruction" in finding.message]
    assert said
    assert re.search(r"different values to byte \d+ of a block's shared memory", said[0])


def test_out_of_bounds_and_misaligned() -> None:
    assert kinds(exchange("beyond")[0]) == {"out_of_bounds"}
    assert kinds(exchange("misaligned")[0]) == {"misaligned"}


REDUCE = """
// Both blocks of a cluster reduce their numbers into four cells of block 0; the cells begin as given.
extern "C" __global__ void NAME(const TYPE* x, const TYPE* start, TYPE* y) {
  __shared__ TYPE cells[4];
  __shared__ alignas(8) cuda::std::uint64_t bar;
  auto cluster = cg::this_cluster();
  if (threadIdx.x < 4) cells[threadIdx.x] = start[threadIdx.x];
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&bar, 1);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, &bar, 128 * sizeof(TYPE));
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  cluster.sync();
  TYPE* to = cluster.map_shared_rank(cells, 0);
  cuda::std::uint64_t* at = cluster.map_shared_rank(&bar, 0);
  TYPE v = x[64 * blockIdx.x + threadIdx.x];
  ptx::red_async(ptx::op_OP, to + threadIdx.x % 4, v, at);
  if (cluster.block_rank() == 0) {
    WAIT
    if (threadIdx.x < 4) y[2 * blockIdx.x + threadIdx.x] = cells[threadIdx.x];
  }
  cluster.sync();
}
"""
ORACLES: dict[str, Any] = {
    "add": lambda a, b: a + b, "min": min, "max": max, "and_op": lambda a, b: a & b, "or_op": lambda a, b: a | b,
    "xor_op": lambda a, b: a ^ b, "inc": lambda a, b: 0 if a >= b else a + 1,
    "dec": lambda a, b: b if a == 0 or a > b else a - 1,
}  # fmt: skip


REDUCTIONS = [
    ("add", "u4"), ("add", "i4"), ("add", "u8"), ("min", "u4"), ("min", "i4"), ("max", "u4"), ("max", "i4"),
    ("and_op", "u4"), ("or_op", "u4"), ("xor_op", "u4"), ("inc", "u4"), ("dec", "u4"),
]  # fmt: skip


KINDS = {"u4": "unsigned", "i4": "int", "u8": "cuda::std::uint64_t"}
SUMS = HEAD + "".join(
    REDUCE.replace("NAME", f"{operation}_{dtype}{'' if wait else '_at_once'}")
    .replace("TYPE", KINDS[dtype])
    .replace("OP", operation)
    .replace("WAIT", wait)
    for operation, dtype, wait in (*((*each, WAIT) for each in REDUCTIONS), ("add", "u4", ""))
)
"""A kernel for each, and one that does not wait."""


def operands(operation: str, dtype: str) -> tuple[Array, Array]:
    """Numbers, and first values of the cells."""
    random = np.random.default_rng(len(operation))
    x = random.integers(-(1 << 31), 1 << 31, 256).astype(dtype)
    if operation in ("inc", "dec"):
        x = np.full(256, 37, dtype)  # any order gives the same with one limit
    return x, random.integers(0, 60, 4).astype(dtype)


def reductions(operation: str, dtype: str, suffix: str = "") -> tuple[Execution, list[int]]:
    x, start = operands(operation, dtype)
    launched = launch(f"{operation}_{dtype}{suffix}", 4, 64, "x", "start", "y", cluster=2)
    execution = run(SUMS, launched, {"x": x, "start": start}, {"y": np.zeros(8, dtype)})
    bits = 8 * np.dtype(dtype).itemsize
    want = []
    for pair in x.reshape(2, 128):
        for cell in range(4):
            value = int(start[cell])
            for operand in pair[cell::4].tolist():
                value = ORACLES[operation](value, operand)
            value %= 1 << bits
            want.append(value - (1 << bits) if dtype[0] == "i" and value >> (bits - 1) else value)
    return execution, want


@pytest.mark.parametrize(("operation", "dtype"), REDUCTIONS)
def test_reductions(operation: str, dtype: str) -> None:
    execution, want = reductions(operation, dtype)
    clean(execution)
    np.testing.assert_array_equal(execution.outputs["y"], want)


def test_reading_a_sum_before_its_phase_is_a_race() -> None:
    execution, _ = reductions("add", "u4", "_at_once")
    assert "race" in kinds(execution)
