"""Blocked ELL: the contract, padding that is no block of W, agreement with BSR."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fitness.formats.blocked_ell import BlockedEll
from fitness.formats.bsr import Bsr
from fitness.formats.ell import PADDING
from fitness.formats.format import complete
from fitness.formats.testing import FormatContract


class TestBlockedEll(FormatContract):
    storage = BlockedEll()
    pattern = {"kind": "block", "shape": [16, 16], "density": 0.3}  # noqa: RUF012
    fixed = {"r": "16", "c": "16"}  # noqa: RUF012


class TestBlockedEllBfloat16(TestBlockedEll):
    dtype = np.dtype(ml_dtypes.bfloat16)
    fixed = {"r": "32", "c": "64"}  # noqa: RUF012


class TestSmallBlocks(FormatContract):
    storage = BlockedEll()
    pattern = {"kind": "random", "density": 0.05}  # noqa: RUF012
    fixed = {"order": "row", "c": "8"}  # noqa: RUF012


def test_block_rows_are_padded_to_the_fullest() -> None:
    w = np.zeros((12, 16), np.float32)
    w[0, 0], w[1, 9], w[9, 4] = 1, 2, 3  # block row 1 is empty
    options = complete(BlockedEll(), {"r": "4", "c": "4"})
    packed = BlockedEll().pack(w, options)
    assert packed["indices"].tolist() == [[0, 2], [PADDING, PADDING], [1, PADDING]]
    assert packed["values"].shape == (3, 2, 4, 4)
    assert not packed["values"][1].any()
    assert BlockedEll().measure(packed, (12, 16), options) == {"width": 2, "nblocks": 6}
    stored = BlockedEll().stored_mask(w, options)
    assert stored.sum() == 3 * 16
    assert not stored[4:8].any()


def test_blocks_are_those_of_bsr() -> None:
    rng = np.random.default_rng(1)
    w = (rng.standard_normal((64, 96)) * (rng.random((4, 6)) < 0.5).repeat(16, 0).repeat(16, 1)).astype(np.float32)
    size = {"r": "16", "c": "16", "order": "fragment"}
    bsr, ell = Bsr().pack(w, complete(Bsr(), size)), BlockedEll().pack(w, complete(BlockedEll(), size))
    np.testing.assert_array_equal(ell["values"][ell["indices"] != PADDING], bsr["values"])
