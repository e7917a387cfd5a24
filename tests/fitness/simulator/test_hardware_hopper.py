"""Hopper instructions against what a card gave (recorded by hardware_hopper.py).

Integers, copies and synchronisation bit for bit; floating-point products within the tolerance that each case
states, for the hardware truncates where the simulator rounds once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fitness.devices.device import Execution
from tests.fitness.simulator.engine import clean, run
from tests.fitness.simulator.hardware_hopper import Array, Case, _bytes_of, cases

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DATA = Path(__file__).parent / "data" / "h200_hopper.npz"
CASES = list(cases())


def simulated(case: Case) -> Execution:
    return run(case.source, case.launch, case.buffers, case.outputs)


def agree(mine: Array, theirs: Array, tolerance: float) -> None:
    """Equal, or as near as the tolerance says, NaN and infinities at the same places."""
    if tolerance == 0.0:
        np.testing.assert_array_equal(mine, theirs)
        return
    if mine.dtype == np.uint32:  # pairs of float16
        mine, theirs = (np.ascontiguousarray(x).view(np.float16).astype(np.float64) for x in (mine, theirs))
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(np.isfinite(mine), finite)
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
    largest = float(np.abs(theirs[finite]).max())
    np.testing.assert_allclose(mine[finite], theirs[finite], rtol=0, atol=tolerance * largest)


@pytest.mark.skipif(not DATA.is_file(), reason="no card has recorded these cases yet")
@pytest.mark.parametrize("case", [c for c in CASES if c.tolerance is not None], ids=lambda case: case.name)
def test_results_of_a_card(case: Case) -> None:
    assert case.tolerance is not None
    recorded = np.load(DATA)
    if f"{case.name}/fault" in recorded:
        assert simulated(case).ended == "fault"
        return
    execution = clean(simulated(case))
    for name, mine in execution.outputs.items():
        theirs = recorded[f"{case.name}/{name}"]
        written = execution.written[name][..., :: case.step]
        agree(np.where(written, mine[..., :: case.step], theirs), theirs, case.tolerance)


@pytest.mark.parametrize("case", [c for c in CASES if c.tolerance is None], ids=lambda case: case.name)
def test_what_is_not_known_is_refused(case: Case) -> None:
    """Until a card has said what it does."""
    assert simulated(case).ended == "unsupported"


def test_names_are_distinct() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_arguments_as_the_driver_wants_them() -> None:
    """Negative numbers in two's complement, buffers by address."""
    places = {"x": 0x7F00}
    assert _bytes_of({"kind": "buffer", "name": "x"}, places).tolist() == [0x7F00]
    assert _bytes_of({"kind": "scalar", "name": "n", "value": -5}, places).view(np.int32)[0] == -5
