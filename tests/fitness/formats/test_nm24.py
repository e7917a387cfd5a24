"""2:4 storage: the contract, its orders against a lane-by-lane reading of the documentation, and refusals."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator.mma_sparse import metadata_ordered, mma_sp
from fitness.formats import FormatError, get_format
from fitness.formats.nm24 import Nm24
from fitness.formats.testing import FormatContract

STORAGE = Nm24()
ORDERS = STORAGE.options["values"]


class TestNm24(FormatContract):
    storage = STORAGE
    pattern = {"kind": "nm", "n": 2, "m": 4}  # noqa: RUF012
    column_step = 4


class TestNm24Bfloat16(TestNm24):
    dtype = np.dtype(ml_dtypes.bfloat16)


def operand(rows: int, columns: int, seed: int = 0) -> NDArray[np.float16]:
    rng = np.random.default_rng(seed)
    keep = rng.random((rows, columns // 4, 4)).argsort(axis=2) < 2
    return (rng.standard_normal(keep.shape) * keep).reshape(rows, columns).astype(np.float16)


@pytest.mark.parametrize("rows", [1, 16, 33])
@pytest.mark.parametrize("columns", [64, 96, 192])
@pytest.mark.parametrize("order", ORDERS)
def test_padding(rows: int, columns: int, order: str) -> None:
    w = operand(rows, columns)
    packed = STORAGE.pack(w, {"values": order})
    padded_rows, padded_columns = -(-rows // 16) * 16, -(-columns // 64) * 64
    assert packed["values"].size == padded_rows * padded_columns // 2
    assert packed["meta"].shape == (padded_rows // 16, padded_columns // 64, 32)
    assert packed["meta"].dtype == np.uint32
    np.testing.assert_array_equal(STORAGE.unpack(packed, w.shape, {"values": order}), w)


def test_every_slot_combination() -> None:
    """All sixteen masks of a group: those with three or four nonzeros are refused, the others as documented."""
    expected = {(): (0, 1), (0,): (0, 3), (1,): (1, 3), (2,): (2, 3), (3,): (0, 3)}
    for columns in itertools.chain.from_iterable(itertools.combinations(range(4), r) for r in range(5)):
        w = np.zeros((16, 64), np.float16)
        w[5, [20 + c for c in columns]] = 1.5  # group 5 of row 5
        if len(columns) > 2:
            with pytest.raises(FormatError, match=r"row 5, group 5 \(columns 20 to 23\)"):
                STORAGE.pack(w, {"values": "row"})
            continue
        packed = STORAGE.pack(w, {"values": "row"})
        nibble = packed["meta"][0, 0, 4 * 5 + 1] >> 4 & 15  # row g = 5, second half of the first k32, group 5 % 4
        indices = expected.get(columns, columns)
        assert (nibble & 3, nibble >> 2) == indices
        values = packed["values"][5, 10:12]
        assert [float(v) for v in values] == [1.5 if index in columns else 0.0 for index in indices]


def test_indices_are_ascending_and_distinct_everywhere() -> None:
    w = operand(48, 192)
    w[np.random.default_rng(1).random(w.shape) < 0.5] = 0
    meta = STORAGE.pack(w, {"values": "row"})["meta"]
    for shift in range(0, 32, 4):
        nibble = meta >> np.uint32(shift) & 15
        assert ((nibble & 3) < (nibble >> 2)).all()


def test_fragment_order_lane_by_lane() -> None:
    """The A operand of mma.sp.m16n8k32 as PTX draws it, read slowly."""
    w = operand(32, 192, 3)
    row_order = STORAGE.pack(w, {"values": "row"})["values"]
    fragments = STORAGE.pack(w, {"values": "fragment"})["values"]
    assert fragments.shape == (2, 3, 2, 32, 8)
    for tile, block, step, lane in itertools.product(range(2), range(3), range(2), range(32)):
        g, t = lane // 4, lane % 4
        origin = 32 * block + 16 * step
        want = []
        for row, column in ((g, 2 * t), (g + 8, 2 * t), (g, 2 * t + 8), (g + 8, 2 * t + 8)):
            want += [row_order[16 * tile + row, origin + column + e] for e in (0, 1)]
        assert fragments[tile, block, step, lane].tolist() == [float(v) for v in want]


def test_metadata_lane_by_lane() -> None:
    w = operand(16, 64, 4)
    packed = STORAGE.pack(w, {"values": "row"})
    for step, half, g in itertools.product(range(2), range(2), range(8)):
        word = int(packed["meta"][0, 0, 4 * g + 2 * step + half])
        for row, bits in ((g, word & 0xFFFF), (g + 8, word >> 16)):
            for i in range(4):
                group = 8 * step + 4 * half + i
                low, high = bits >> 4 * i & 3, bits >> 4 * i + 2 & 3
                assert [low, high] == np.flatnonzero(w[row, 4 * group : 4 * group + 4]).tolist()


@pytest.mark.parametrize("keep", [1.0, 0.6])
def test_a_warp_multiplies_with_it(keep: float) -> None:
    """mma.sp::ordered_metadata on the fragments and the metadata, lane for lane, gives W @ X."""
    w = operand(32, 192, 6)
    w[np.random.default_rng(7).random(w.shape) > keep] = 0
    x = np.random.default_rng(8).integers(-3, 4, (192, 8)).astype(np.float16)
    packed = STORAGE.pack(w, {"values": "fragment"})
    g, t = np.arange(32) // 4, np.arange(32) % 4
    for tile in range(2):
        c = tuple(np.zeros((1, 32), np.float32) for _ in range(4))
        for block, step in itertools.product(range(3), range(2)):
            a = packed["values"][tile, block, step].view(np.uint32)  # lanes, registers
            k = 64 * block + 32 * step
            rows = [k + 8 * i + 2 * t for i in range(4)]
            pairs = [np.stack([x[row, g], x[row + 1, g]], axis=1) for row in rows]
            b = tuple(pair.view(np.uint32)[None, :, 0] for pair in pairs)
            registers = tuple(a[None, :, i] for i in range(4))
            meta = packed["meta"][tile, block][None]
            assert metadata_ordered("m16n8k32", "f16", meta, step).all()
            c = mma_sp("m16n8k32", "f16", "f16", "f32", registers, b, c, meta, step)
        want = w[16 * tile : 16 * tile + 16].astype(np.float64) @ x.astype(np.float64)
        got = np.zeros((16, 8))
        for i, register in enumerate(c):
            got[g + 8 * (i // 2), 2 * t + i % 2] = register[0]
        np.testing.assert_allclose(got, want, atol=1e-3)


def test_tile_order() -> None:
    w = operand(32, 128, 5)
    row_order = STORAGE.pack(w, {"values": "row"})["values"]
    tiles = STORAGE.pack(w, {"values": "tile"})["values"]
    assert tiles.shape == (2, 2, 16, 32)
    np.testing.assert_array_equal(tiles[1, 0], row_order[16:, :32])


def test_negative_zero_takes_no_slot() -> None:
    w = np.zeros((16, 64), np.float16)
    w[0, :4] = [-0.0, 1.0, -0.0, 2.0]
    packed = STORAGE.pack(w, {"values": "row"})
    assert packed["values"][0, :2].tolist() == [1.0, 2.0]
    assert not np.signbit(STORAGE.pack(np.full((16, 64), -0.0, np.float16), {"values": "row"})["values"]).any()


def test_first_offender_is_named_in_later_rows() -> None:
    w = operand(3072, 768)
    w[2000, 764:768] = 1
    with pytest.raises(FormatError, match=r"row 2000, group 191 .* has 4 nonzeros"):
        STORAGE.validate(w, {"values": "row"})


def test_transposed_view_of_a_large_operand() -> None:
    w = operand(768, 3072).T.copy().T
    assert not w.flags.c_contiguous
    packed = STORAGE.pack(w, {"values": "fragment"})
    np.testing.assert_array_equal(STORAGE.unpack(packed, w.shape, {"values": "fragment"}), w)


def test_refuses_other_types() -> None:
    with pytest.raises(FormatError, match="1:2"):
        STORAGE.validate(np.zeros((16, 64), np.float32), {"values": "row"})
    assert "float64" in STORAGE.supports(np.dtype(np.float64))
    with pytest.raises(FormatError, match="matrix"):
        STORAGE.validate(np.zeros(64, np.float16), {"values": "row"})


def test_stored_mask_has_two_slots_in_every_group() -> None:
    w = np.zeros((17, 96), np.float16)
    w[3, 7] = 1
    stored = STORAGE.stored_mask(w, {"values": "row"})
    assert (stored.reshape(17, 24, 4).sum(axis=2) == 2).all()
    assert stored[3, 4:8].tolist() == [True, False, False, True]


def test_found_by_name() -> None:
    assert isinstance(get_format("nm24"), Nm24)
    assert isinstance(get_format("fitness.formats.nm24:Nm24"), Nm24)
