"""Profiles: counters of kernels whose numbers are known by hand, per source line, and the limiter's words."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.devices.device import Inputs, Profile, Program
from fitness.devices.simulator.profiling import INSTRUCTIONS, WAITS
from fitness.devices.simulator.simulator import Simulator
from fitness.gpu import load
from tests.fitness.simulator.engine import Array, compiled, floats, launch

COPY = """
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[1024];
  int t = threadIdx.x, at = blockIdx.x * 256 + t;
  s[(t * STRIDE) & 1023] = x[(at * STEP) & 65535];
  __syncthreads();
  float v = s[(t * STRIDE) & 1023];
  if (DIVERGES) v = v * 3.0f + 1.0f;
  y[at] = v;
}
"""


def profile(
    source: str, *, step: int = 1, stride: int = 1, diverges: str = "true", grid: int = 256, **buffers: Array
) -> Profile:
    for name, value in (("STEP", step), ("STRIDE", stride), ("DIVERGES", diverges)):
        source = source.replace(name, str(value))
    given = buffers or {"x": floats(1 << 16)}
    program = Program(compiled(source), (launch("k", grid, 256, "x", "y"),))
    inputs = Inputs(given, {"y": np.zeros(grid * 256, np.float32)})
    return Simulator(load("H200")).profile(program, inputs)


def line_of(source: str, text: str) -> int:
    return next(n for n, line in enumerate(source.splitlines(), 1) if text in line)


@pytest.mark.parametrize(("step", "sectors"), [(1, 4), (2, 8), (8, 32), (16, 32)])
def test_sectors_per_request(step: int, sectors: int) -> None:
    found = profile(COPY, step=step)
    name = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
    assert found.counters[name] == sectors
    assert found.per_line[line_of(COPY, "x[(at")][name] == sectors
    assert found.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 256 * 8
    assert found.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 256 * 8 * 4


@pytest.mark.parametrize(("stride", "passes"), [(1, 1), (2, 2), (4, 4)])
def test_bank_conflicts(stride: int, passes: int) -> None:
    found = profile(COPY, stride=stride)
    assert found.counters["l1tex__data_bank_conflicts_pipe_lsu.sum"] == 2 * 256 * 8 * (passes - 1)
    assert found.counters["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 256 * 8 * passes


def test_divergence_lowers_the_lanes_of_an_instruction() -> None:
    whole, parted = profile(COPY), profile(COPY.replace("v * 3.0f + 1.0f", "__expf(v) + y[at]"), diverges="t % 2")
    name = "smsp__thread_inst_executed_per_inst_executed.ratio"
    assert whole.counters[name] == 32
    assert parted.counters[name] < 32
    assert parted.counters["smsp__sass_branch_targets_threads_divergent.sum"] == 256 * 8
    assert whole.counters["smsp__sass_branch_targets_threads_divergent.sum"] == 0


def test_occupancy_waves_and_the_tail() -> None:
    """256 threads to a block and no other limit: 8 blocks to an SM of 64 warps."""
    found = profile(COPY, grid=132 * 8 + 8).counters
    assert found["sm__maximum_warps_per_active_cycle_pct"] == 100
    assert found["sm__warps_active.avg.pct_of_peak_sustained_active"] == 100
    assert found["launch__waves_per_multiprocessor"] == pytest.approx(1 + 1 / 132)
    assert found["evo__tail_idle.pct"] == pytest.approx(100 * (1 - (1 + 1 / 132) / 2))
    alone = profile(COPY, grid=1).counters
    assert alone["launch__waves_per_multiprocessor"] == pytest.approx(1 / (132 * 8))
    assert alone["sm__warps_active.avg.pct_of_peak_sustained_active"] == 12.5
    assert 0 <= alone["smsp__warps_eligible.avg.per_cycle_active"] <= 2


def test_traffic_behind_the_first_cache() -> None:
    found = profile(COPY).counters
    assert found["dram__bytes.sum"] == pytest.approx(4 * 65536 * 2, rel=0.01)
    assert found["lts__t_bytes.sum"] >= found["dram__bytes.sum"]


def test_atomics_are_counted_by_contention() -> None:
    source = (
        'extern "C" __global__ void k(const float* x, float* y) { atomicAdd(y + threadIdx.x % 2, x[threadIdx.x]); }'
    )
    found = profile(source, grid=4).counters
    assert found["evo__atomics_requests.sum"] == 4 * 8
    assert found["evo__atomics_serial.sum"] == 4 * 8 * 16
    assert found["evo__atomics_hottest_address.max"] == 4 * 128


def test_tensor_instructions_and_the_mix() -> None:
    source = """
    #include "evo.cuh"
    extern "C" __global__ void k(const float* x, float* y) {
      float d[4] = {}; uint32_t a[4] = {};
      for (int i = 0; i < 10; i++) evo::mma_m16n8k16(d, a, threadIdx.x, i);
      y[blockIdx.x * 256 + threadIdx.x] = d[0] + d[1] + d[2] + d[3] + x[0];
    }"""
    found = profile(source, grid=3).counters
    assert found["sm__inst_executed_pipe_tensor.sum"] == found["evo__inst_executed_mma.sum"] == 3 * 8 * 10
    mix = sum(value for name, value in found.items() if name.startswith("evo__inst_executed_"))
    assert mix == found[INSTRUCTIONS]


def test_lines_add_up_and_name_what_is_waited_for() -> None:
    found = profile(COPY, step=8)
    assert sum(line[INSTRUCTIONS] for line in found.per_line.values()) <= found.counters[INSTRUCTIONS]
    waits = {line: counts.get(WAITS, 0.0) for line, counts in found.per_line.items()}
    assert max(waits, key=lambda line: waits[line]) == line_of(COPY, "x[(at")
    assert sum(waits.values()) <= 100.001
