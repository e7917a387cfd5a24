"""The table of element types against NumPy's own limits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fitness.dtypes import DTYPES, Dtype


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=list(DTYPES))
def test_limits(dtype: Dtype) -> None:
    info: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    assert dtype.unit_roundoff == float(info.eps) / 2
    assert dtype.largest == float(info.max)
    assert dtype.eta == float(np.float64(info.smallest_subnormal)) / 2
    one_more = np.array([dtype.exact_integers, dtype.exact_integers + 1], np.float64).astype(dtype.numpy)
    assert float(one_more[0]) == dtype.exact_integers
    assert float(one_more[1]) != dtype.exact_integers + 1
