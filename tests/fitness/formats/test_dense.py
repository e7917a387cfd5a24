"""Dense storage passes the contract; ml_dtypes' types too."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fitness.formats.bsr import Bsr
from fitness.formats.dense import Dense
from fitness.formats.format import complete
from fitness.formats.testing import FormatContract


class TestDense(FormatContract):
    storage = Dense()
    fixed = {"r": "16", "c": "64"}  # noqa: RUF012


class TestDenseBfloat16(FormatContract):
    storage = Dense()
    dtype = np.dtype(ml_dtypes.bfloat16)
    fixed = {"r": "32", "c": "32"}  # noqa: RUF012


def test_every_slot_is_stored() -> None:
    assert Dense().stored_mask(np.zeros((3, 5), np.float16), {}).all()


def test_rows_stay_as_they_are() -> None:
    w = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert Dense().pack(w, complete(Dense(), {}))["values"].tolist() == w.tolist()


def test_tiles_are_contiguous() -> None:
    w = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)
    values = Dense().pack(w, {"order": "tile", "r": "16", "c": "64"})["values"]
    np.testing.assert_array_equal(values[1, 0], w[16:, :64])


def test_fragments_are_those_of_a_block_format() -> None:
    w = np.arange(1, 32 * 48 + 1, dtype=np.float32).reshape(32, 48)
    blocks = Bsr().pack(w, complete(Bsr(), {"r": "16", "c": "16", "order": "fragment"}))["values"]
    values = Dense().pack(w, {"order": "fragment", "r": "64", "c": "64"})["values"]
    np.testing.assert_array_equal(values.reshape(-1, 32, 8), blocks.reshape(-1, 32, 8))
