"""Dense storage passes the contract; ml_dtypes' types too."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fitness.formats.dense import Dense
from fitness.formats.testing import FormatContract


class TestDense(FormatContract):
    storage = Dense()


class TestDenseBfloat16(FormatContract):
    storage = Dense()
    dtype = np.dtype(ml_dtypes.bfloat16)


def test_every_slot_is_stored() -> None:
    assert Dense().stored_mask(np.zeros((3, 5), np.float16), {}).all()
