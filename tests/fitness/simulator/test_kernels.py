"""Forty-eight realistic kernels, written for this purpose: each is right and free of findings, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fitness.simulator.engine import Array, clean, run
from tests.fitness.simulator.kernel_cases import CASES, KERNELS, source

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def agree(got: Array, want: Array, rtol: float) -> None:
    """Equal, or within `rtol` of the largest magnitude."""
    if want.dtype.kind in "iu" or rtol == 0:
        np.testing.assert_array_equal(got, want)
        return
    wide = want.astype("f8")
    np.testing.assert_allclose(got.astype("f8"), wide, rtol=rtol, atol=rtol * float(np.abs(wide).max()))


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_agrees_with_numpy(name: str) -> None:
    case = CASES[name]()
    execution = clean(
        run(source(name), case.launches, dict(case.buffers), case.outputs, workspaces=case.workspaces, **case.checks)
    )
    for output, want in case.want.items():
        agree(execution.outputs[output], want, case.rtol)
        assert execution.written[output].all()


def test_every_kernel_has_a_case() -> None:
    assert {path.stem for path in KERNELS.glob("*.cu")} == set(CASES)
    assert len(CASES) >= 30
