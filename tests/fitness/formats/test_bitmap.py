"""Bitmaps: the contract, the order of the bits, and what they cost."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fitness.formats import FormatError
from fitness.formats.bitmap import Bitmap
from fitness.formats.blocks import ordered
from fitness.formats.testing import FormatContract


class TestBitmap(FormatContract):
    storage = Bitmap()
    pattern = {"kind": "random", "density": 0.4}  # noqa: RUF012
    fixed = {"order": "row"}  # noqa: RUF012


class TestFragments(FormatContract):
    storage = Bitmap()
    pattern = {"kind": "random", "density": 0.4}  # noqa: RUF012
    dtype = np.dtype(ml_dtypes.bfloat16)
    fixed = {"block": "16x16"}  # noqa: RUF012


def test_bits_of_a_row() -> None:
    w = np.zeros((2, 40), np.float32)
    w[0, [0, 31, 33]], w[1, 39] = [1, 2, 3], 4
    packed = Bitmap().pack(w, {"block": "1x32", "order": "row"})
    assert packed["bitmap"].tolist() == [[[1 | 1 << 31], [1 << 1]], [[0], [1 << 7]]]
    assert packed["indptr"].tolist() == [0, 2, 3, 3, 4]
    assert packed["values"].tolist() == [1, 2, 3, 4]


def test_a_lane_finds_its_elements_in_its_byte() -> None:
    rng = np.random.default_rng(2)
    w = np.where(rng.random((32, 48)) < 0.5, rng.standard_normal((32, 48)), 0).astype(np.float32)
    packed = Bitmap().pack(w, {"block": "16x16", "order": "fragment"})
    i, j = 1, 2
    lanes = ordered(w[None, 16:, 32:48], "fragment").reshape(32, 8)
    octets = packed["bitmap"][i, j].view(np.uint8)
    begin = packed["indptr"][i * 3 + j]
    for lane in range(32):
        bits = [octets[lane] >> b & 1 for b in range(8)]
        assert bits == (lanes[lane] != 0).tolist()
        first = begin + np.count_nonzero(lanes[:lane])
        np.testing.assert_array_equal(packed["values"][first : first + sum(bits)], lanes[lane][lanes[lane] != 0])


def test_a_bit_costs_an_eighth_of_a_byte() -> None:
    w = np.zeros((64, 64), np.float16)
    w[:, ::2] = 1
    assert Bitmap().bytes(w, {"block": "16x16", "order": "row"}) == 64 * 32 * 2 + 64 * 64 // 8 + 4 * (16 + 1)


def test_small_blocks_have_no_fragment_order() -> None:
    with pytest.raises(FormatError, match="16x16"):
        Bitmap().pack(np.ones((8, 8), np.float16), {"block": "8x8", "order": "fragment"})
