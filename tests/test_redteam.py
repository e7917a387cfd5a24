"""The red team: cheats and mistakes that must be caught, and honest controls that must not be.

Every file of tests/redteam is one kernel for the same task; the table below names the verdict, the gate that
must give it and the kind of a finding that comes with it. Cheats that live from state between launches are neutralised
instead: they end as honest kernels and gain nothing. Cheats that need a real clock or cache are tested with
the GPU backend.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from fitness import gpu
from fitness.devices.simulator.simulator import Simulator
from fitness.evaluate import judge
from fitness.kernel import load_kernel
from fitness.outcome import Gate, Outcome, Timed
from fitness.task import Task

FOLDER = Path(__file__).parent / "redteam"
STEPS = 5_000_000


class Expected(NamedTuple):
    """A verdict, the gate that gives it, and the kind of a finding that must be among its errors."""

    kind: str
    gate: Gate
    finding: str


def _rejected(gate: Gate, finding: str) -> Expected:
    return Expected("Rejected", gate, finding)


def _unlaunchable(finding: str) -> Expected:
    return Expected("LaunchFailed", Gate.COMPILE, finding)


def _unsafe(finding: str) -> Expected:
    return Expected("SanitizerFinding", Gate.SMALL_RUN, finding)


_WRONG_SMALL = Expected("WrongResult", Gate.SMALL_RUN, "wrong_result")
_WRONG_LARGE = Expected("WrongResult", Gate.CORRECTNESS, "wrong_result")


CHEATS: dict[str, Expected] = {
    # nothing or nonsense computed
    "empty": _WRONG_SMALL,
    "empty_guarded": _WRONG_SMALL,
    "zeros": _WRONG_SMALL,
    "zeros_memset": _WRONG_SMALL,
    "copies_x": _WRONG_SMALL,
    "zeroes_inputs": _unsafe("input_written"),
    "nan_outputs": _WRONG_SMALL,
    "infinite_outputs": _WRONG_SMALL,
    "transposed_output": _WRONG_SMALL,
    "keeps_old_result": _unsafe("uninitialised"),
    "fake_verdict": _WRONG_SMALL,
    # work left out
    "skips_last_k_tile": _WRONG_SMALL,
    "skips_first_k_tile": _WRONG_SMALL,
    "rescales_k": _WRONG_SMALL,
    "exact_if_large": _WRONG_SMALL,
    "skips_one_k": _WRONG_LARGE,
    "last_tile_wrong": _WRONG_LARGE,
    "right_for_checked_n": _WRONG_LARGE,
    "right_for_listed_n": _WRONG_LARGE,
    "unwritten_for_unlisted_n": _WRONG_LARGE,
    # precision
    "fp16_accumulators": _WRONG_SMALL,
    "fp16_partial_sums": _WRONG_SMALL,
    "truncates_weights": _WRONG_SMALL,
    # memory
    "writes_past_end": _unsafe("out_of_bounds"),
    "writes_before_start": _unsafe("out_of_bounds"),
    "reads_past_end": _unsafe("out_of_bounds"),
    "reads_far": _unsafe("out_of_bounds"),
    "scans_neighbours": _unsafe("out_of_bounds"),
    "assumes_aligned_n": _unsafe("out_of_bounds"),
    "null_pointer": _unsafe("out_of_bounds"),
    "assumes_aligned_m": _unsafe("misaligned"),
    "misaligned_load": _unsafe("misaligned"),
    "index_overflow": _WRONG_LARGE,
    "shared_past_end": _unsafe("out_of_bounds"),
    "shared_uninitialised": _unsafe("uninitialised"),
    # synchronisation
    "missing_barrier_before_use": _unsafe("race"),
    "missing_barrier_after_use": _unsafe("race"),
    "warp_sync_is_not_enough": _unsafe("race"),
    "divergent_barrier": _unsafe("barrier_divergence"),
    "cp_async_not_awaited": _unsafe("uninitialised"),
    "split_k_race": _unsafe("race"),
    "atomics_into_uncleared": _unsafe("uninitialised"),
    "workspace_left_dirty": _unsafe("workspace_not_zero"),
    # abnormal ends
    "infinite_loop": Expected("TimedOut", Gate.SMALL_RUN, "step_limit"),
    "waits_for_itself": Expected("TimedOut", Gate.SMALL_RUN, "step_limit"),
    "traps": Expected("Crashed", Gate.SMALL_RUN, "trap"),
    "traps_on_condition": Expected("Crashed", Gate.SMALL_RUN, "trap"),
    # rules
    "narrows_require": _rejected(Gate.PARSE, "require_too_narrow"),
    "narrows_require_quietly": _rejected(Gate.PARSE, "require_too_narrow"),
    "includes_a_file": _rejected(Gate.SCREEN, "forbidden_include"),
    "includes_through_macro": _rejected(Gate.SCREEN, "forbidden_include"),
    "includes_parent_folder": _rejected(Gate.SCREEN, "forbidden_include"),
    "allocates": _rejected(Gate.SCREEN, "device_allocation"),
    "too_many_threads": _unlaunchable("block_size"),
    "too_much_shared": _unlaunchable("shared_memory"),
    "missing_entry": _unlaunchable("missing_entry"),
    "wrong_arguments": _unlaunchable("argument_count"),
}

NEUTRALISED = ("honest_five_times", "caches_by_pointer")
CONTROLS = tuple(sorted(path.stem for path in FOLDER.glob("control_*.cu")))


@cache
def verdict(name: str, depth: Gate = Gate.CORRECTNESS) -> Outcome:
    task = Task.from_spec(
        {
            "op": "spmm",
            "pattern": {"kind": "nm", "n": 2, "m": 4},
            "dtype": "float16",
            "shapes": [{"M": 128, "K": 512, "N": 160}],
            "free": ["N"],
        }
    )
    kernel = load_kernel(FOLDER / f"{name}.cu")
    return judge(kernel, task, Simulator(gpu.load("H200")), depth=depth, steps=STEPS)


def time_us(name: str) -> float:
    outcome = verdict(name, Gate.TIMING)
    assert isinstance(outcome, Timed), outcome.findings
    return outcome.timings[0].time_us


def test_every_file_is_expected() -> None:
    files = {path.stem for path in FOLDER.glob("*.cu")}
    assert files == {*CHEATS, *NEUTRALISED, *CONTROLS}
    assert len(CONTROLS) >= 9


@pytest.mark.parametrize("name", CHEATS)
def test_cheat_is_caught(name: str) -> None:
    outcome, expected = verdict(name), CHEATS[name]
    errors = [finding for finding in outcome.findings if finding.severity == "error"]
    assert (outcome.kind, outcome.stage) == (expected.kind, expected.gate), errors
    assert expected.finding in {finding.kind for finding in errors}
    assert all(finding.message for finding in errors)


@pytest.mark.parametrize("name", [*CONTROLS, *NEUTRALISED])
def test_honest_kernel_passes(name: str) -> None:
    outcome = verdict(name)
    assert isinstance(outcome, Timed), outcome.findings
    assert outcome.stage == Gate.CORRECTNESS
    assert not [finding for finding in outcome.findings if finding.severity == "error"]


@pytest.mark.parametrize("name", NEUTRALISED)
def test_state_between_launches_gains_nothing(name: str) -> None:
    assert time_us(name) >= 0.98 * time_us("control_honest")


def test_another_name_ties() -> None:
    assert time_us("control_renamed") == time_us("control_honest")


def test_a_cache_hint_is_noted() -> None:
    notes = [finding for finding in verdict("control_evict_last").findings if finding.severity == "note"]
    assert any("evict_last" in note.message for note in notes)
