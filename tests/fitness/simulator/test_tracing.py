"""Traces: what one thread reads, writes and addresses at one line, branches and faults included."""

from __future__ import annotations

import numpy as np

from fitness.devices.device import Execution, Inputs, Program
from fitness.devices.simulator.simulator import Simulator
from fitness.devices.simulator.tracing import MOST, Point, Tracer
from fitness.gpu import load
from tests.fitness.simulator.engine import compiled, floats, launch

SOURCE = """
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ float tile[64];
  float sum = 0;
  tile[threadIdx.x] = x[64 * blockIdx.x + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < n; i++)
    sum += tile[threadIdx.x ^ i];
  if (threadIdx.x % 2 == 0)
    y[64 * blockIdx.x + threadIdx.x] = sum;
}
"""
#: Lines of the source as the compiler counts them.
LINE = {text.strip(): number for number, text in enumerate(SOURCE.splitlines(), 1)}


def traced(line: int, thread: int, block: int, n: int = 3, source: str = SOURCE) -> tuple[Execution, Tracer]:
    x = floats(128)
    program = Program(compiled(source), (launch("k", 2, 64, "x", "y", n),))
    inputs = Inputs({"x": x}, {"y": np.zeros(128, np.float32)})
    return Simulator(load("H200")).trace(program, inputs, Point(line, (thread, 0, 0), (block, 0, 0)))


def test_a_load_and_a_store_name_what_they_touch() -> None:
    _, tracer = traced(LINE["tile[threadIdx.x] = x[64 * blockIdx.x + threadIdx.x];"], 5, 1)
    load_step = next(step for step in tracer.steps if step.text.startswith("ld.global"))
    value = floats(128)[69]
    assert load_step.places[0].startswith(f"x[69] holding {value!s} (0x7f")
    assert load_step.writes[0].value.startswith(f"{value!s} (")
    store = next(step for step in tracer.steps if step.text.startswith("st.shared"))
    assert store.places == ("shared memory, byte 20 (tile+20)",)
    assert store.reads[-1].value == load_step.writes[0].value


def test_a_loop_is_seen_turn_by_turn_with_its_values() -> None:
    _, tracer = traced(LINE["sum += tile[threadIdx.x ^ i];"], 6, 0)
    sums = [step for step in tracer.steps if step.text.startswith("add") and ".f32" in step.text]
    total = np.float32(0)
    for turn, step in enumerate(sums):
        total = np.float32(total + floats(128)[6 ^ turn])
        assert step.writes[0].value.startswith(f"{total!s} (")
    assert len(sums) == 3


def test_a_thread_that_is_not_there_does_nothing() -> None:
    line = LINE["y[64 * blockIdx.x + threadIdx.x] = sum;"]
    assert not traced(line, 7, 0)[1].steps
    assert any(step.text.startswith("st.global") or "@" in step.text for step in traced(line, 8, 0)[1].steps)
    assert not traced(line, 8, 2)[1].reached


def test_the_way_to_a_fault_is_seen_and_uninitialised_values_are_named() -> None:
    wrong = SOURCE.replace("x[64 * blockIdx.x + threadIdx.x];", "x[640 * blockIdx.x + threadIdx.x];")
    line = LINE["tile[threadIdx.x] = x[64 * blockIdx.x + threadIdx.x];"]
    execution, tracer = traced(line, 1, 1, source=wrong)
    assert execution.ended == "fault"
    assert execution.findings[0].line == line
    bare = SOURCE.replace("tile[threadIdx.x] = x[64 * blockIdx.x + threadIdx.x];", "")
    _, tracer = traced(LINE["sum += tile[threadIdx.x ^ i];"], 0, 0, source=bare)
    loads = [step for step in tracer.steps if step.text.startswith("ld.shared")]
    assert loads
    assert not loads[0].writes[0].known


def test_a_long_trace_is_cut_and_counted() -> None:
    _, tracer = traced(LINE["sum += tile[threadIdx.x ^ i];"], 0, 0, n=2000, source=SOURCE.replace("^ i", "^ (i & 31)"))
    assert len(tracer.steps) == MOST
    assert tracer.left_out > 2000


def test_a_trace_changes_no_result() -> None:
    execution, _ = traced(LINE["sum += tile[threadIdx.x ^ i];"], 0, 0)
    rows = floats(128).reshape(2, 64)
    total = np.zeros_like(rows)
    for i in range(3):
        total += rows[:, np.arange(64) ^ i]
    np.testing.assert_array_equal(execution.outputs["y"].reshape(2, 64)[:, ::2], total[:, ::2])
