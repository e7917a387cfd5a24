"""The modelled clock rewards what makes kernels faster, and never undercuts the roofline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fitness import gpu
from fitness.devices.device import Checks, Inputs, Program, Timeable
from fitness.devices.simulator.cost import LaunchTime, ModelError, modelled_time
from fitness.devices.simulator.counters import CounterError, LaunchCounters
from fitness.devices.simulator.limiter import sentence
from fitness.devices.simulator.simulator import Simulator
from fitness.devices.simulator.timing import program_time
from tests.fitness.simulator.engine import compiled, launch
from tests.fitness.simulator.synthetic import Stream

H200 = gpu.load("H200")
WAITING = {"blocks": 1056, "warps": 2, "overlap": False}  # one load after the other


def timed(stream: Stream | None = None, **changes: Any) -> LaunchTime:
    stream = replace(stream or Stream(), **changes)
    return modelled_time(H200, stream.launch(), stream.entry(), [(1.0, stream.counters())])


def test_a_good_streaming_kernel_is_near_its_floor_and_above() -> None:
    time = timed(blocks=1056, iterations=64, mmas=1)
    assert time.floor_us < time.time_us < 1.5 * time.floor_us
    assert max(time.terms, key=lambda term: time.terms[term]) == "DRAM"


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"overlap": True}, {"overlap": False}),  # loads in flight
        ({"conflicts": 4.0}, {"conflicts": 32.0}),  # bank conflicts
        ({"sectors": 16.0}, {"sectors": 32.0}),  # coalescing
        ({"reread": 8, "near": True}, {"reread": 8, "near": False}),  # locality in L1
        ({"blocks": 264, "iterations": 64}, {"blocks": 33, "iterations": 512}),  # the same work on few SMs (split-K)
        ({"warps": 8, "iterations": 64}, {"warps": 1, "iterations": 512}),  # the same work by few warps
        ({"mmas": 4}, {"mmas": 64}),  # tensor work
        ({"atomics": 0.0}, {"atomics": 2000.0}),  # contention
        ({**WAITING, "registers": 64}, {**WAITING, "registers": 255}),  # occupancy
        ({**WAITING, "shared": 0}, {**WAITING, "shared": 200_000}),
    ],
)
def test_better_kernels_are_faster(good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert 1.05 * timed(**good).time_us < timed(**bad).time_us


def test_spills_cost() -> None:
    stream = Stream(blocks=1056, mmas=32)
    dry = modelled_time(H200, stream.launch(), stream.entry(), [(1.0, stream.counters())])
    wet = modelled_time(H200, stream.launch(), stream.entry(spills=400), [(1.0, stream.counters())])
    assert wet.time_us > dry.time_us


@pytest.mark.parametrize("changes", [{}, {"overlap": False}, {"warps": 2, "blocks": 64}, {"reread": 4}, {"mmas": 32}])
def test_reduced_k_extrapolates_to_the_full_one(changes: dict[str, Any]) -> None:
    stream = replace(Stream(iterations=512), **changes)
    reduced = [(scale, replace(stream, iterations=int(512 * scale)).counters()) for scale in (1 / 16, 1 / 8)]
    full = timed(stream)
    quick = modelled_time(H200, stream.launch(), stream.entry(), reduced)
    assert quick.time_us == pytest.approx(full.time_us, rel=0.03)


def test_one_reduced_k_is_not_enough() -> None:
    stream = Stream()
    with pytest.raises(CounterError, match="two"):
        modelled_time(H200, stream.launch(), stream.entry(), [(0.5, stream.counters())])


def test_a_time_below_the_floor_is_a_fault() -> None:
    impossible = replace(H200, model={**H200.model, "dram_gb_per_s": 1e6, "l2_gb_per_s": 1e6, "ramp_clk": 1e-3})
    stream = Stream(blocks=10_560, iterations=8, mmas=1, loads=8, registers=32)
    with pytest.raises(ModelError, match="floor"):
        modelled_time(impossible, stream.launch(), stream.entry(), [(1.0, stream.counters())])


def test_workspaces_that_fit_stay_in_l2() -> None:
    stream = Stream(iterations=4)
    kept = modelled_time(H200, stream.launch(), stream.entry(), [(1.0, stream.counters())], workspaces=frozenset({"W"}))
    assert kept.served["W"].dram_bytes == 0
    assert kept.time_us < timed(stream).time_us


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"blocks": 1056, "mmas": 1}, ["DRAM-bound", "MB moved"]),
        ({"blocks": 1056, "mmas": 1, "sectors": 32.0}, ["32.0 sectors per request where 16.0 are possible, line 7"]),
        ({"conflicts": 64.0}, ["shared-memory-bound", "64.0 wavefronts per request where 4.0 are possible, line 9"]),
        ({"mmas": 256}, ["tensor-core-bound"]),
        ({"overlap": False, "blocks": 33}, ["latency-bound", "global loads of line 7", "only 33 of 132 SMs"]),
        ({"atomics": 4000.0}, ["atomics-bound", "operations on the most contended address"]),
    ],
)
def test_the_limiter_sentence_names_the_cause(changes: dict[str, Any], words: list[str]) -> None:
    said = sentence(timed(**changes), H200.sms)
    assert all(word in said for word in words), said
    assert "next " in said


def test_the_same_counters_give_the_same_time_and_words() -> None:
    first, second = timed(), timed()
    assert first == second
    assert sentence(first, H200.sms) == sentence(second, H200.sms)


RING = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void ring(const float* x, float* y, int tiles) {
  __shared__ alignas(128) float stage[STAGES][1024];
  __shared__ alignas(8) uint64_t full[STAGES], empty[STAGES];
  x += (long long)blockIdx.x * tiles * 1024;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) { mbarrier_init(&full[s], 1); mbarrier_init(&empty[s], 128); }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 128)
    for (int i = 0; i < tiles; i++) {
      mbarrier_wait(&empty[i % STAGES], (i / STAGES & 1) ^ 1);
      mbarrier_arrive_expect_tx(&full[i % STAGES], 4096);
      bulk_load(stage[i % STAGES], x + i * 1024, 4096, &full[i % STAGES]);
    }
  if (threadIdx.x >= 128) return;
  float sum = 0;
  for (int i = 0; i < tiles; i++) {
    mbarrier_wait(&full[i % STAGES], i / STAGES & 1);
    for (int j = 0; j < 8; j++) sum += stage[i % STAGES][j * 128 + threadIdx.x];
    mbarrier_arrive(&empty[i % STAGES]);
  }
  y[blockIdx.x * 128 + threadIdx.x] = sum;
}
"""


def rung(stages: int) -> tuple[float, LaunchCounters]:
    """Modelled time of a stream through a ring of bulk loads, and its counters."""
    source = RING.replace("STAGES", str(stages))
    program = Program(compiled(source), (launch("ring", 132, 160, "x", "y", 32),))
    inputs = Inputs({"x": np.zeros(132 * 32 * 1024, np.float32)}, {"y": np.zeros(132 * 128, np.float32)})
    simulator = Simulator(H200)
    chosen = Checks(races=False, uninitialised=False, counters=True, blocks=((0, 1),))
    (counters,) = simulator.run(program, inputs, chosen).counters or ()
    return program_time(simulator, Timeable(program, inputs)).time_us, counters


def test_deeper_rings_of_bulk_loads_hide_more_latency() -> None:
    """Bytes, phases and room are counted; a ring of twice the stages takes about half the time until DRAM limits."""
    (slow, counters), (fast, _) = rung(2), rung(4)
    assert (counters.ring.bytes, counters.ring.phases, counters.ring.room) == (2 * 32 * 4096, 2 * 32, 2 * 2 * 4096)
    assert fast < 0.65 * slow


@pytest.mark.parametrize(("size", "sms"), [(1, 132), (2, 132), (4, 120), (8, 112)])
def test_clusters_leave_sms_over(size: int, sms: int) -> None:
    """Blocks that fill an SM: 132 are one wave alone or in pairs, two in clusters of four, 30 at a time."""
    stream = Stream(blocks=sms, shared=200_000)
    started = replace(stream.launch(), cluster=(size, 1, 1))
    fits = modelled_time(H200, started, stream.entry(), [(1.0, stream.counters())])
    assert (fits.waves, fits.busy_sms) == (1.0, sms)
    more = replace(stream, blocks=sms + size)
    started = replace(more.launch(), cluster=(size, 1, 1))
    assert modelled_time(H200, started, more.entry(), [(1.0, more.counters())]).waves == 2.0
