"""The race detector: what is a race, what is none, how it is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fitness.devices.device import ResolvedWorkspace
from tests.fitness.simulator.engine import clean, floats, kinds, launch, run

PRELUDE = "#define T threadIdx.x\n"
SHARED = {
    "no barrier": ("__shared__ float s[128]; s[T] = x[T]; y[T] = s[127 - T];", True),
    "barrier": ("__shared__ float s[128]; s[T] = x[T]; __syncthreads(); y[T] = s[127 - T];", False),
    "own element": ("__shared__ float s[128]; s[T] = x[T]; y[T] = s[T];", False),
    "warp barrier within the warp": ("__shared__ float s[128]; s[T] = x[T]; __syncwarp(); y[T] = s[T ^ 1];", False),
    "warp barrier between warps": ("__shared__ float s[128]; s[T] = x[T]; __syncwarp(); y[T] = s[127 - T];", True),
    "read by all, then written": (
        "__shared__ float s[128]; s[T] = x[T]; __syncthreads(); float v = s[5]; s[T] = v; y[T] = v;",
        True,
    ),
    "read by the warp, then written": (
        "__shared__ float s[128]; s[T] = x[T]; __syncthreads(); float v = s[T / 32 * 32]; s[T] = v; y[T] = s[T];",
        True,
    ),
    "neighbouring halves": ("__shared__ short s[128]; s[T] = T; y[T] = s[T];", False),
    "neighbouring bytes": ("__shared__ volatile char s[128]; s[T] = T; y[T] = s[T];", False),
    "atomics": (
        "__shared__ int s; if (T == 0) s = 0; __syncthreads(); atomicAdd(&s, 1); __syncthreads(); y[T] = s;",
        False,
    ),
    "atomic against plain read": (
        "__shared__ int s; if (T == 0) s = 0; __syncthreads(); atomicAdd(&s, 1); y[T] = s;",
        True,
    ),
    "same value from everybody": ("__shared__ float s; s = x[0]; __syncthreads(); y[T] = s;", False),
    "different values from everybody": ("__shared__ float s; s = x[T]; __syncthreads(); y[T] = s;", True),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_memory(name: str) -> None:
    code, racy = SHARED[name]
    source = f'{PRELUDE}extern "C" __global__ void k(const float* x, float* y) {{ {code} }}'
    execution = run(source, launch("k", 3, 128, "x", "y"), {"x": floats(128)}, {"y": np.zeros(128, np.float32)})
    # three blocks write y, but the same values except where they race
    assert ("race" in kinds(execution)) == racy, execution.findings
    unchecked = run(
        source, launch("k", 1, 128, "x", "y"), {"x": floats(128)}, {"y": np.zeros(128, np.float32)}, races=False
    )
    assert "race" not in kinds(unchecked)


def test_message_names_both_threads_and_lines() -> None:
    source = """
    extern "C" __global__ void k(const float* x, float* y) {
      __shared__ float s[128];
      s[threadIdx.x] = x[threadIdx.x];
      y[threadIdx.x] = s[127 - threadIdx.x];
    }
    """
    execution = run(source, launch("k", 1, 128, "x", "y"), {"x": floats(128)}, {"y": np.zeros(128, np.float32)})
    (finding,) = execution.findings
    assert finding.line == 5
    assert "line 4" in finding.message
    assert "thread (127, 0, 0)" in finding.message
    assert "__syncthreads" in finding.suggestion


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("y[threadIdx.x / 8 + 3] = threadIdx.x; y[threadIdx.x] = 1;", "y[3]"),
        ("__shared__ float s[8]; s[threadIdx.x / 8 + 2] = threadIdx.x; __syncthreads(); y[threadIdx.x] = s[2];",
         "shared memory at byte 8 "),
        ("__shared__ float4 s[8]; s[1 + threadIdx.x / 8] = make_float4(1, 2, threadIdx.x, 4); __syncthreads();"
         "y[threadIdx.x] = s[1].z;", "shared memory at byte 16 "),
    ],
)  # fmt: skip
def test_lanes_of_one_instruction_that_write_one_place_are_told_where(body: str, place: str) -> None:
    source = f'extern "C" __global__ void k(float* y) {{ {body} }}'
    execution = run(source, launch("k", 1, 32, "y"), {}, {"y": np.zeros(32, np.float32)})
    (finding,) = (f for f in execution.findings if "in one instruction" in f.message)
    assert (finding.kind, finding.line) == ("race", 1)
    assert f"different values to {place}" in finding.message
    assert finding.message.startswith("thread (0, 0, 0) of block (0, 0, 0)")
    assert "Let one thread write it" in finding.suggestion


def test_blocks_that_add_to_one_place_without_atomics() -> None:
    source = 'extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] += x[blockIdx.x]; }'
    one = launch("k", 8, 32, "x", "y", memset=("y",))
    racy = run(source, one, {"x": floats(8)}, {"y": np.zeros(32, np.float32)})
    assert kinds(racy) == {"race"}
    assert "block" in racy.findings[0].message
    assert "y[0]" in racy.findings[0].message
    fixed = source.replace("y[threadIdx.x] += x[blockIdx.x]", "atomicAdd(y + threadIdx.x, x[blockIdx.x])")
    clean(run(fixed, one, {"x": floats(8)}, {"y": np.zeros(32, np.float32)}))


def test_overlapping_tiles_that_agree_are_fine() -> None:
    source = """
    extern "C" __global__ void k(const float* x, float* y) {
      int i = min(blockIdx.x * 32, 20) + threadIdx.x;
      y[i] = x[i];
    }
    """
    clean(run(source, launch("k", 2, 32, "x", "y"), {"x": floats(52)}, {"y": np.zeros(52, np.float32)}))


PART = ResolvedWorkspace("part", 512, "poison")
GRID = """
#include <cooperative_groups.h>
extern "C" __global__ void k(float* y, float* part) {
  auto grid = cooperative_groups::this_grid();
  part[grid.thread_rank()] = grid.thread_rank();
  FIRST
  float sum = 0;
  for (int i = 0; i < 4; i++) sum += part[(grid.thread_rank() + 32 * i) % 128];
  SECOND
  part[127 - grid.thread_rank()] = sum;
  y[grid.thread_rank()] = sum;
}
"""


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("grid.sync();", "grid.sync();", set()),
        ("__syncthreads();", "grid.sync();", {"race"}),
        ("grid.sync();", "__syncthreads();", {"race"}),
        (
            "grid.sync();",
            "auto token = grid.barrier_arrive(); grid.barrier_wait(static_cast<decltype(token)&&>(token));",
            set(),
        ),
        ("__threadfence();", "grid.sync();", set()),  # fences of its own may order blocks in ways that are not followed
    ],
)
def test_global_memory_is_ordered_by_the_barrier_of_the_grid(first: str, second: str, found: set[str]) -> None:
    text = GRID.replace("FIRST", first).replace("SECOND", second)
    started = replace(launch("k", 4, 32, "y", "part"), cooperative=True)
    execution = run(text, started, {}, {"y": np.zeros(128, np.float32)}, workspaces=[PART])
    assert execution.ended == "finished"
    assert kinds(execution) == found
    if found:
        (finding, *_) = execution.findings
        assert "part[" in finding.message
        assert "nothing orders the two blocks" in finding.message
