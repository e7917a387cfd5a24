"""Bulk copies: contiguous bytes, `cp.async` at mbarriers, groups of stores, alignment, missing waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fitness.devices.device import Array, Execution
from tests.fitness.simulator.engine import clean, floats, kinds, launch, run

PIPELINE = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void pipeline(const float* x, float* y, int tiles) {
  __shared__ alignas(128) float stage[2][256], out[256];
  __shared__ alignas(8) uint64_t full[2], empty[2];
  x += blockIdx.x * tiles * 256; y += blockIdx.x * tiles * 256;
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; s++) { mbarrier_init(&full[s], 1); mbarrier_init(&empty[s], 256); }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    if (threadIdx.x == 256)
      for (int i = 0; i < tiles; i++) {
        int s = i % 2;
        mbarrier_wait(&empty[s], (i / 2 & 1) ^ 1);
        mbarrier_arrive_expect_tx(&full[s], 1024);
        bulk_load(stage[s], x + i * 256, 512, &full[s]);
        bulk_load(stage[s] + 128, x + i * 256 + 128, 512, &full[s]);
      }
    return;
  }
  for (int i = 0; i < tiles; i++) {
    int s = i % 2;
    mbarrier_wait(&full[s], i / 2 & 1);
    float v = stage[s][threadIdx.x ^ 255];
    mbarrier_arrive(&empty[s]);
    if (threadIdx.x == 0) bulk_wait_read<0>();
    asm volatile("bar.sync 1, 256;" ::: "memory");
    out[threadIdx.x] = 2.0f * v;
    fence_proxy_async();
    asm volatile("bar.sync 1, 256;" ::: "memory");
    if (threadIdx.x == 0) { bulk_store(y + i * 256, out, 1024); bulk_commit(); }
  }
  if (threadIdx.x == 0) bulk_wait<0>();
}
"""


def pipeline(source: str, tiles: int = 5, grid: int = 3, **checks: Any) -> tuple[Execution, Array, Array]:
    x = floats(grid * tiles * 256)
    y = {"y": np.zeros(x.size, np.float32)}
    execution = run(source, launch("pipeline", grid, 288, "x", "y", tiles), {"x": x}, y, **checks)
    return execution, execution.outputs["y"], 2 * x.reshape(-1, 256)[:, ::-1].ravel()


def test_a_warp_specialised_pipeline() -> None:
    execution, got, expected = pipeline(PIPELINE)
    clean(execution)
    np.testing.assert_array_equal(got, expected)


def test_without_checks_the_result_is_the_same() -> None:
    """Copies land at once in cost runs."""
    execution, got, expected = pipeline(PIPELINE, races=False, uninitialised=False, counters=True)
    clean(execution)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("removed", "found"),
    [
        ("mbarrier_wait(&full[s], i / 2 & 1);", "uninitialised"),
        ("mbarrier_wait(&empty[s], (i / 2 & 1) ^ 1);", "mbarrier"),
        ("if (threadIdx.x == 0) bulk_wait_read<0>();", "race"),
        ("mbarrier_arrive(&empty[s]);", "deadlock"),
        ("fence_proxy_async();", "race"),
    ],
)
def test_missing_waits_are_found(removed: str, found: str) -> None:
    assert removed in PIPELINE
    execution, _, _ = pipeline(PIPELINE.replace(removed, ""))
    assert found in kinds(execution)


def test_a_missing_fence_after_the_initialisation_is_a_warning() -> None:
    """A card was seen to run without it; the PTX ISA promises nothing then."""
    execution, got, expected = pipeline(PIPELINE.replace("fence_mbarrier_init();", ""))
    np.testing.assert_array_equal(got, expected)
    (finding,) = execution.findings
    assert (finding.kind, finding.severity) == ("race", "warning")
    assert "fence.mbarrier_init" in finding.suggestion
    assert finding.line
    clean(pipeline(PIPELINE.replace("fence_mbarrier_init();", "fence_proxy_async();"))[0])


def test_too_few_bytes_announced() -> None:
    execution, _, _ = pipeline(PIPELINE.replace("&full[s], 1024)", "&full[s], 1040)"))
    assert kinds(execution) == {"deadlock"}


MISALIGNED = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void copy(const float* x, float* y, int to, int from, int bytes, int back) {
  __shared__ alignas(128) float tile[64];
  __shared__ alignas(8) uint64_t full;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&full, bytes);
    bulk_load(tile + to, x + from, bytes, &full);
  }
  __syncthreads();
  mbarrier_wait(&full, 0);
  if (threadIdx.x == 0) { bulk_store(y + back, tile, bytes); bulk_commit(); bulk_wait<0>(); }
}
"""


@pytest.mark.parametrize(
    ("numbers", "kind", "said"),
    [
        ((0, 0, 256, 0), "", ""),
        ((1, 0, 64, 0), "misaligned", "byte 4 of shared memory, not a multiple of 16"),
        ((0, 2, 64, 0), "misaligned", "x[2], not a multiple of 16 bytes"),
        ((0, 0, 40, 0), "misaligned", "40 bytes: the size must be a multiple of 16"),
        ((60, 0, 64, 0), "out_of_bounds", "64 bytes at byte 240 of shared memory"),
        ((0, 56, 64, 0), "out_of_bounds", "past the end of x"),
        ((0, 0, 64, 60), "out_of_bounds", "past the end of y"),
        ((0, 0, 64, 3), "misaligned", "y[3], not a multiple of 16 bytes"),
    ],
)
def test_sizes_and_alignment(numbers: tuple[int, ...], kind: str, said: str) -> None:
    execution = run(MISALIGNED, launch("copy", 1, 32, "x", "y", *numbers), {"x": floats(64)}, {"y": np.zeros(64, "f4")})
    assert kinds(execution) == ({kind} if kind else set())
    if kind:
        assert said in execution.findings[0].message
        assert execution.findings[0].line


CP_ASYNC = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void arrive(const float* x, float* y) {
  __shared__ alignas(16) float tile[512];
  __shared__ alignas(8) uint64_t full;
  if (threadIdx.x == 0) mbarrier_init(&full, 128);
  __syncthreads();
  cp_async16(tile + 4 * threadIdx.x, x + 512 * blockIdx.x + 4 * threadIdx.x);
  ARRIVE;
  WAIT;
  for (int i = threadIdx.x; i < 512; i += 128) y[512 * blockIdx.x + i] = tile[511 - i];
}
"""


@pytest.mark.parametrize(
    "arrive",
    [
        "cp_async_mbarrier_arrive(&full)",
        'asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" :: "r"(shared_address(&full)) : "memory"); '
        "mbarrier_arrive(&full)",
    ],
)
def test_cp_async_arrives_at_mbarriers(arrive: str) -> None:
    x = floats(1024)
    source = CP_ASYNC.replace("ARRIVE", arrive)
    y = {"y": np.zeros(1024, np.float32)}
    execution = clean(
        run(source.replace("WAIT", "mbarrier_wait(&full, 0)"), launch("arrive", 2, 128, "x", "y"), {"x": x}, y)
    )
    np.testing.assert_array_equal(execution.outputs["y"], x.reshape(2, 512)[:, ::-1].ravel())
    assert "uninitialised" in kinds(
        run(source.replace("WAIT", "__syncthreads()"), launch("arrive", 2, 128, "x", "y"), {"x": x}, y)
    )
