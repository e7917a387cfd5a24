"""`cp.reduce.async.bulk`: operations and types against NumPy, in global memory, in a cluster, on tensor maps."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fitness.devices.device import Execution, ResolvedLaunch, ResolvedTensorMap
from tests.fitness.simulator.engine import Array, clean, kinds, launch, run

N = 64

# Every block reduces its row into y, which the first launch fills with `start`.
GLOBAL = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void begin(const unsigned* start, unsigned* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = start[i];
}
extern "C" __global__ void reduce(const unsigned* x, unsigned* y, int n) {
  __shared__ alignas(16) unsigned row[128];
  for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = x[n * blockIdx.x + i];
  FENCE
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.OP [%0], [%1], %2;"
                 :: "l"(y), "r"(shared_address(row)), "r"(4 * n) : "memory");
    bulk_commit(); bulk_wait<0>();
  }
}
"""
FENCE = "fence_proxy_async();"
TYPES = {
    "u32": "u4", "s32": "i4", "u64": "u8", "s64": "i8", "b32": "u4", "b64": "u8", "f32": "f4", "f64": "f8",
    "f16": "f2", "bf16": ml_dtypes.bfloat16,
}  # fmt: skip
OPERATIONS: dict[str, Any] = {
    "add": lambda a, b: a + b, "min": np.minimum, "max": np.maximum, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "inc": lambda a, b: np.where(a >= b, 0, a + 1),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1),
}  # fmt: skip
FORMS = [
    *(("add", t) for t in ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16")),
    *((o, t) for o in ("min", "max") for t in ("u32", "s32", "u64", "s64", "f16", "bf16")),
    *((o, t) for o in ("and", "or", "xor") for t in ("b32", "b64")),
    ("inc", "u32"), ("dec", "u32"),
]  # fmt: skip


def numbers(kind: str, shape: tuple[int, ...], seed: int) -> Array:
    random = np.random.default_rng(seed)
    dtype = np.dtype(TYPES[kind])
    if dtype.kind in "iu":
        whole: Array = random.integers(0, 1 << 31, shape).astype(dtype) * dtype.type(3 if dtype.itemsize == 8 else 1)
        return whole
    normal: Array = random.standard_normal(shape).astype(dtype)
    return normal


def operands(form: str, blocks: int, *, subnormal: bool = False) -> tuple[Array, Array]:
    """First values and the rows of some blocks."""
    kind = form.removeprefix("noftz.")
    start, rows = numbers(kind, (N,), 1), numbers(kind, (blocks, N), 2)
    if subnormal:
        start, rows = (x * x.dtype.type(2.0**-126) for x in (start, rows))
    return start, rows


def expected(operation: str, start: Array, rows: Array) -> Array:
    """Row after row, rounded each time, in the order of the blocks."""
    total = start.copy()
    for row in rows:
        total = np.asarray(OPERATIONS[operation](total, row)).astype(start.dtype)
    return total


@pytest.mark.parametrize(("operation", "form"), FORMS, ids=[f"{o}.{t}" for o, t in FORMS])
def test_global_memory(operation: str, form: str) -> None:
    start, rows = operands(form, 3)
    words = start.nbytes // 4
    source = GLOBAL.replace("OP", f"{operation}.{form}").replace("FENCE", FENCE)
    launches = (launch("begin", 1, 64, "start", "y", words), launch("reduce", 3, 64, "x", "y", words))
    buffers = {"start": start.view(np.uint32), "x": rows.view(np.uint32).ravel()}
    execution = clean(run(source, launches, buffers, {"y": np.zeros(words, np.uint32)}))
    want = expected(operation, start, rows)
    np.testing.assert_array_equal(execution.outputs["y"], np.ascontiguousarray(want).view(np.uint32))


def test_float_sums_keep_subnormals() -> None:
    """As an H200 does (h200_hopper.npz, "cp.reduce add.f32 subnormal"), unlike atomics on global memory."""
    tiny = np.float32(2.0**-126)
    start = np.array([tiny / 2, 1.5 * tiny, -tiny / 2, 1], np.float32)
    row = np.array([tiny, -tiny, -tiny / 4, tiny / 2], np.float32)
    launches = (launch("begin", 1, 32, "start", "y", 4), launch("reduce", 1, 32, "x", "y", 4))
    source = GLOBAL.replace("OP", "add.f32").replace("FENCE", FENCE)
    buffers = {"start": start.view(np.uint32), "x": row.view(np.uint32)}
    execution = clean(run(source, launches, buffers, {"y": np.zeros(4, np.uint32)}))
    want = start + row
    assert ((np.abs(want) > 0) & (np.abs(want) < tiny)).sum() == 2
    np.testing.assert_array_equal(execution.outputs["y"], want.view(np.uint32))


def test_what_is_missing_is_found() -> None:
    source = GLOBAL.replace("OP", "add.u32")
    buffers = {"start": np.zeros(N, np.uint32), "x": np.ones(3 * N, np.uint32)}
    whole = (launch("begin", 1, 64, "start", "y", N), launch("reduce", 3, 64, "x", "y", N))
    y = {"y": np.zeros(N, np.uint32)}
    assert kinds(run(source.replace("FENCE", ""), whole, buffers, y)) == {"race"}
    assert kinds(run(source.replace("FENCE", FENCE), whole[1:], buffers, y)) == {"uninitialised"}
    outside = (whole[0], launch("reduce", 3, 64, "x", "y", N + 4))
    buffers["x"] = np.ones(3 * N + 12, np.uint32)
    assert kinds(run(source.replace("FENCE", FENCE), outside, buffers, y)) == {"out_of_bounds"}


CLUSTER = """
#include "evo.cuh"
using namespace evo;
// Every block of a cluster reduces its row into the sums of block 0.
extern "C" __global__ void reduce(const unsigned* x, const unsigned* start, unsigned* y, int n) {
  __shared__ alignas(16) unsigned row[128], sums[128];
  __shared__ alignas(8) uint64_t full;
  uint32_t rank = cluster_rank();
  for (int i = threadIdx.x; i < n; i += blockDim.x) { row[i] = x[n * blockIdx.x + i]; sums[i] = start[i]; }
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    mbarrier_arrive_expect_tx(&full, 4 * 4 * n);
    fence_mbarrier_init();
  }
  fence_proxy_async();
  cluster_arrive(); cluster_wait();
  if (threadIdx.x == 0)
    asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.OP "
                 "[%0], [%1], %2, [%3];"
                 :: "r"(cluster_address(sums, 0)), "r"(shared_address(row)), "r"(4 * n), "r"(cluster_address(&full, 0))
                 : "memory");
  if (rank == 0) {
    WAIT
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[n * (blockIdx.x / 4) + i] = sums[i];
  }
  EARLY
  cluster_arrive(); cluster_wait();
}
"""
WAIT = "mbarrier_wait(&full, 0);"


def cluster_job(operation: str, kind: str, wait: str = WAIT, early: str = "") -> tuple[str, dict[str, Array], int]:
    """The kernel, its buffers, and 32-bit words of a row."""
    start, rows = numbers(kind, (N,), 3), numbers(kind, (8, N), 4)
    source = CLUSTER.replace("OP", f"{operation}.{kind}").replace("WAIT", wait).replace("EARLY", early)
    return source, {"start": start.view(np.uint32), "x": rows.view(np.uint32).ravel()}, start.nbytes // 4


def clusters(operation: str, kind: str, wait: str = WAIT, early: str = "") -> tuple[Execution, Array]:
    source, buffers, words = cluster_job(operation, kind, wait, early)
    start, rows = numbers(kind, (N,), 3), numbers(kind, (8, N), 4)
    one = launch("reduce", 8, 64, "x", "start", "y", words, cluster=4)
    execution = run(source, one, buffers, {"y": np.zeros(2 * words, np.uint32)})
    sums = [expected(operation, start, four) for four in rows.reshape(2, 4, N)]
    return execution, np.concatenate(sums).view(np.uint32)


CLUSTER_FORMS = [
    ("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "s32"), ("max", "u32"), ("inc", "u32"), ("dec", "u32"),
    ("and", "b32"), ("or", "b32"), ("xor", "b32"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "kind"), CLUSTER_FORMS)
def test_shared_memory_of_a_cluster(operation: str, kind: str) -> None:
    execution, want = clusters(operation, kind)
    clean(execution)
    np.testing.assert_array_equal(execution.outputs["y"], want)


def test_reading_the_sums_too_early_is_a_race() -> None:
    execution, _ = clusters("add", "u32", wait="")
    assert "race" in kinds(execution)


def test_writing_the_source_before_it_has_been_read_is_a_race() -> None:
    execution, _ = clusters("add", "u32", early="if (rank == 1) row[threadIdx.x] = 0;")
    assert kinds(execution) == {"race"}
    after, _ = clusters("add", "u32", early="cluster_arrive(); cluster_wait(); if (rank == 0) row[threadIdx.x] = 0;")
    clean(after)


TENSOR = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void begin(unsigned* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = FILL;
}
extern "C" __global__ void reduce(const __grid_constant__ TensorMap map, const float* x, int c0, int c1) {
  __shared__ alignas(128) float tile[8 * 32];
  for (int i = threadIdx.x; i < 8 * 32; i += blockDim.x) tile[i] = x[i];
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.OP.tile.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(&map), "r"(c0), "r"(c1), "r"(shared_address(tile)) : "memory");
    bulk_commit(); bulk_wait<0>();
  }
}
"""


TENSOR_FORMS = [("add", "float32"), ("min", "int32"), ("xor", "uint32")]


def tensor_job(
    operation: str, dtype: str, where: tuple[int, int]
) -> tuple[str, tuple[ResolvedLaunch, ...], Array, Array]:
    """The kernel, its launches, the tile (as float32 words) and what y holds before."""
    tile = np.random.default_rng(5).integers(-50, 50, (8, 32)).astype(dtype)
    start = np.full((24, 40), 3, dtype)
    fill = hex(int(start.view(np.uint32)[0, 0]))
    source = TENSOR.replace("OP", operation).replace("FILL", fill)
    tensormap = ResolvedTensorMap("ty", "y", dtype, (40, 24), (160,), (32, 8), (1, 1))
    launches = (launch("begin", 1, 64, "y", 960), launch("reduce", 1, 64, tensormap, "x", *where))
    return source, launches, tile.view(np.float32), start


@pytest.mark.parametrize("where", [(0, 0), (4, 3), (16, 19), (40, 0)])
@pytest.mark.parametrize(("operation", "dtype"), TENSOR_FORMS)
def test_tensor_maps(operation: str, dtype: str, where: tuple[int, int]) -> None:
    source, launches, words, start = tensor_job(operation, dtype, where)
    tile = words.view(dtype)
    execution = clean(run(source, launches, {"x": words}, {"y": start}))
    want = start.copy()
    inside = want[where[1] : where[1] + 8, where[0] : where[0] + 32]
    inside[...] = OPERATIONS[operation](inside, tile[: inside.shape[0], : inside.shape[1]])
    np.testing.assert_array_equal(execution.outputs["y"], want)


def test_a_tensor_reduction_the_type_does_not_have_is_refused() -> None:
    tensormap = ResolvedTensorMap("ty", "y", "float32", (40, 24), (160,), (32, 8), (1, 1))
    source = TENSOR.replace("OP", "min").replace("FILL", "0")
    launches = (launch("begin", 1, 64, "y", 960), launch("reduce", 1, 64, tensormap, "x", 0, 0))
    execution = run(source, launches, {"x": np.zeros(256, np.float32)}, {"y": np.zeros((24, 40), np.float32)})
    assert kinds(execution) == {"unsupported_instruction"}
    assert "min on float32" in execution.findings[0].message
