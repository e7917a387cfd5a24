"""The modelled clock rewards what makes kernels faster, and never undercuts the roofline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fitness import gpu
from fitness.devices.simulator.cost import LaunchTime, ModelError, modelled_time
from fitness.devices.simulator.counters import CounterError
from fitness.devices.simulator.limiter import sentence
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
