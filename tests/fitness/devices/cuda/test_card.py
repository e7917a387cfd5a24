"""On a real card: the contract of devices, and the red team that needs one. `pytest -m gpu`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evo.pool import CandidateLimits, DeviceSpec, Pool
from fitness.devices.device import Device
from fitness.devices.testing import DeviceContract
from fitness.gpu import load
from fitness.kernel import load_kernel
from fitness.outcome import Gate, Outcome, Timed
from fitness.task import Task
from tests.fitness.devices.cuda.isolated import IsolatedCuda

pytestmark = pytest.mark.gpu

REDTEAM = Path(__file__).parents[3] / "redteam"
SPEC = {
    "op": "spmm",
    "pattern": {"kind": "nm", "n": 2, "m": 4},
    "dtype": "float16",
    "shapes": [{"M": 128, "K": 512, "N": 160}],
    "free": ["N"],
}


@pytest.fixture(scope="module")
def card() -> Iterator[IsolatedCuda]:
    device = IsolatedCuda(load("H200"))
    yield device
    device.close()


class TestCuda(DeviceContract):
    samples = False
    locates = False
    sees_reads = False

    @pytest.fixture
    def device(self, card: IsolatedCuda) -> Device:
        return card


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(DeviceSpec("cuda", "H200"), 1, CandidateLimits(run_s=1.0)) as opened:
        yield opened


def judged(pool: Pool, *names: str, depth: Gate = Gate.TIMING) -> list[Outcome]:
    kernels = [(n, load_kernel(REDTEAM / f"{name}.cu")) for n, name in enumerate(names)]
    outcomes = dict(pool.judge(Task.from_spec(SPEC), kernels, depth))
    return [outcomes[n] for n in range(len(names))]


@pytest.mark.parametrize("name", sorted(path.stem for path in REDTEAM.glob("control_*.cu")))
def test_honest_kernels_pass(pool: Pool, name: str) -> None:
    (outcome,) = judged(pool, name)
    assert isinstance(outcome, Timed), outcome.findings


@pytest.mark.parametrize(
    "name", ["empty", "zeros", "copies_x", "skips_last_k_tile", "fp16_accumulators", "nan_outputs"]
)
def test_wrong_results_are_seen_without_the_simulator(pool: Pool, name: str) -> None:
    (outcome,) = judged(pool, name)
    assert outcome.kind == "WrongResult"


@pytest.mark.parametrize("name", ["honest_five_times", "caches_by_pointer"])
def test_state_between_launches_gains_nothing(pool: Pool, name: str) -> None:
    cheat, honest = judged(pool, name, "control_honest")
    assert isinstance(honest, Timed)
    if isinstance(cheat, Timed):
        assert cheat.timings[0].time_us >= 0.97 * honest.timings[0].time_us


def test_pinned_lines_gain_nothing(pool: Pool) -> None:
    pinned, honest = judged(pool, "control_evict_last", "control_honest")
    assert isinstance(pinned, Timed)
    assert isinstance(honest, Timed)
    assert pinned.timings[0].time_us >= 0.97 * honest.timings[0].time_us


@pytest.mark.parametrize(
    ("name", "kind"),
    [("infinite_loop", "TimedOut"), ("traps", "Crashed"), ("null_pointer", "SanitizerFinding"),
     ("writes_past_end", "SanitizerFinding"), ("zeroes_inputs", "SanitizerFinding")],
)  # fmt: skip
def test_a_fault_is_told_and_the_next_kernel_is_judged_well(pool: Pool, name: str, kind: str) -> None:
    began = time.monotonic()
    fault, after = judged(pool, name, "control_honest", depth=Gate.SMALL_RUN)
    assert fault.kind == kind, fault.findings
    assert after.valid, after.findings
    assert time.monotonic() - began < 10.0
