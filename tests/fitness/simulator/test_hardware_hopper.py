"""Hopper instructions against what a card gave (recorded by hardware_hopper.py).

Integers, copies and synchronisation bit for bit; floating-point products within the tolerance that each case
states, for the hardware truncates where the simulator rounds once.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fitness.devices.device import Execution, ResolvedLaunch
from tests.fitness.simulator.engine import clean, launch, run
from tests.fitness.simulator.hardware_cases import Array, Case, cases
from tests.fitness.simulator.hardware_hopper import (
    DATA,
    _recorded,
    _without,
    build,
    held,
    is_recorded,
    packed,
    unpacked,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
CASES = list(cases())
RECORDED = set(np.load(DATA).files)


def simulated(case: Case) -> Execution:
    """Its buffers are aligned as those of a card's allocator."""
    return run(
        case.source,
        case.sequence,
        case.buffers,
        case.outputs,
        workspaces=case.workspaces,
        options=case.options,
        align=256,
    )


def agree(mine: Array, theirs: Array, tolerance: float, *, pairs: bool = False) -> None:
    """Equal, or as near as the tolerance says, NaN and infinities at the same places; `pairs`: words of two float16."""
    if tolerance == 0.0 or (mine.dtype.kind in "iu" and mine.dtype.itemsize != 2 and not pairs):
        np.testing.assert_array_equal(mine, theirs)
        return
    if mine.dtype == np.uint16:  # floating-point words of one sign and neighbourhood
        assert int(np.abs(mine.astype(np.int64) - theirs.astype(np.int64)).max()) <= tolerance
        return
    if pairs:
        mine, theirs = (np.ascontiguousarray(x).view(np.float16).astype(np.float64) for x in (mine, theirs))
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(np.isfinite(mine), finite)
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
    largest = float(np.abs(theirs[finite]).max())
    np.testing.assert_allclose(mine[finite], theirs[finite], rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.tolerance is not None and is_recorded(c, RECORDED)], ids=lambda case: case.name
)
def test_results_of_a_card(case: Case) -> None:
    assert case.tolerance is not None
    recorded = np.load(DATA)
    if f"{case.name}/fault" in recorded:
        assert simulated(case).ended == "fault"
        return
    execution = clean(simulated(case))
    for name, mine in execution.outputs.items():
        theirs = recorded[f"{case.name}/{name}"]
        theirs = theirs.view(mine.dtype) if theirs.dtype.kind == "V" else theirs
        written = execution.written[name][..., :: case.step]
        pairs = case.name.startswith("wgmma") and mine.dtype == np.uint32
        agree(np.where(written, mine[..., :: case.step], theirs), theirs, case.tolerance, pairs=pairs)


@pytest.mark.parametrize("case", [c for c in CASES if c.tolerance is None], ids=lambda case: case.name)
def test_what_is_not_known_is_refused(case: Case) -> None:
    """Until a card has said what it does."""
    assert simulated(case).ended == "unsupported"


def test_names_are_distinct() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_launches_survive_the_way_to_the_card() -> None:
    for case in CASES:
        for one in case.sequence:
            assert unpacked(json.loads(json.dumps(packed(one)))) == one


class PretendCard:
    """Host memory by address, and a launch that doubles what its first buffer holds into its second."""

    def __init__(self) -> None:
        self.held: dict[int, Array] = {}
        self.freed: list[int] = []

    def allocate(self, size: int) -> int:
        place = 256 * (len(self.held) + 1)
        self.held[place] = np.zeros(size, np.uint8)
        return place

    def upload(self, pointer: int, array: Array) -> None:
        self.held[pointer][: array.nbytes] = array.reshape(-1).view(np.uint8)

    def fill(self, pointer: int, value: int, size: int) -> None:
        self.held[pointer][:size] = value

    def wait(self, timeout_s: float) -> None:
        assert timeout_s > 0

    def download(self, pointer: int, size: int) -> Array:
        return self.held[pointer][:size].copy()

    def free(self, pointer: int) -> None:
        self.freed.append(pointer)


class PretendModule:
    def __init__(self, card: PretendCard, cubin: bytes) -> None:
        assert cubin
        self.card = card

    def allow(self, launch: ResolvedLaunch) -> None:
        assert launch.entry == "twice"

    def launch(self, launch: ResolvedLaunch, arguments: tuple[Array, ...]) -> None:
        assert launch.cluster == (2, 1, 1)
        x, y, n = (int(value[0]) for value in arguments)
        doubled = 2 * self.card.held[x].view(np.float32)[:n]
        self.card.held[y].view(np.float32)[:n] += doubled

    def close(self) -> None:
        pass


def test_a_case_is_recorded_as_it_was_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The way from a case to the arrays that are kept, with a card that is only pretended."""
    text = 'extern "C" __global__ void twice(const float* x, float* y, int n) { y[0] = x[n]; }'
    started = launch("twice", 2, 32, "x", "y", 6, cluster=2, memset=("y",))
    x = np.arange(8, dtype="f4")
    cases_of_one = [Case("twice", text, started, {"x": x}, {"y": np.zeros((2, 4), "f4")}, step=2)]
    monkeypatch.setattr("tests.fitness.simulator.hardware_hopper.cases", lambda: iter(cases_of_one))
    monkeypatch.setattr("fitness.devices.cuda.driver.Module", PretendModule)
    build(tmp_path / "jobs.npz")
    jobs, card = np.load(tmp_path / "jobs.npz"), PretendCard()
    (described,) = json.loads(jobs["index"].tobytes())
    found = _recorded(card, jobs, 0, described)
    np.testing.assert_array_equal(found["twice/y"], [[0, 4], [8, 0]])
    assert len(card.freed) == 2


def test_only_what_is_missing_is_built_and_the_rest_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = 'extern "C" __global__ void k(float* y) { y[0] = 1; }'
    two = [Case(name, text, launch("k", 1, 32, "y"), {}, {"y": np.zeros(1, "f4")}) for name in ("a/b", "c")]
    monkeypatch.setattr("tests.fitness.simulator.hardware_hopper.cases", lambda: iter(two))
    recorded: dict[str, Array] = {"a/b/y": np.ones(1), "card": np.zeros(1)}
    np.savez_compressed(tmp_path / "data.npz", allow_pickle=False, **recorded)
    build(tmp_path / "jobs.npz", held(tmp_path / "data.npz"))
    assert [case["name"] for case in json.loads(np.load(tmp_path / "jobs.npz")["index"].tobytes())] == ["c"]
    before: dict[str, Array] = {"a/b/y": np.ones(1), "c/y": np.ones(1), "c/fault": np.array(1), "card": np.zeros(1)}
    assert set(_without(before, ["c"])) == {"a/b/y", "card"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.tolerance is not None and not is_recorded(c, RECORDED)], ids=lambda case: case.name
)
def test_what_no_card_has_recorded_yet_runs(case: Case) -> None:
    clean(simulated(case))
