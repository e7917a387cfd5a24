"""BSR: the contract, agreement with SciPy, ragged last blocks and the fragment order against the PTX ISA's figure."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse

from fitness.formats import FormatError
from fitness.formats.bsr import Bsr
from fitness.formats.format import Array, Options, complete
from fitness.formats.testing import FormatContract


class TestBsr(FormatContract):
    storage = Bsr()
    pattern = {"kind": "block", "shape": [32, 16], "density": 0.3}  # noqa: RUF012
    fixed = {"r": "32", "c": "16", "rows": "natural"}  # noqa: RUF012


class TestBsrBfloat16(TestBsr):
    dtype = np.dtype(ml_dtypes.bfloat16)
    fixed = {"r": "16", "c": "64", "columns": "natural"}  # noqa: RUF012


class TestSmallBlocks(FormatContract):
    """Blocks below 16, which have no fragment order, under a pattern that knows nothing of them."""

    storage = Bsr()
    pattern = {"kind": "random", "density": 0.05}  # noqa: RUF012
    fixed = {"r": "4", "c": "8", "order": "row"}  # noqa: RUF012


def options(r: int = 16, c: int = 16, order: str = "row") -> Options:
    return complete(Bsr(), {"r": str(r), "c": str(c), "order": order})


def blocks(rows: int, columns: int, r: int, c: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    kept = rng.random((rows // r, columns // c)) < 0.4
    kept[0] = False
    return (rng.standard_normal((rows, columns)) * kept.repeat(r, 0).repeat(c, 1)).astype(np.float32)


@pytest.mark.parametrize(("r", "c"), [(16, 16), (8, 32), (64, 4)])
def test_it_is_what_scipy_calls_bsr(r: int, c: int) -> None:
    w = blocks(192, 128, r, c)
    packed, scipys = Bsr().pack(w, options(r, c)), scipy.sparse.csr_array(w).tobsr(blocksize=(r, c))
    np.testing.assert_array_equal(packed["values"], scipys.data)
    np.testing.assert_array_equal(packed["indices"], scipys.indices)
    np.testing.assert_array_equal(packed["indptr"], scipys.indptr)


def fragment_elements() -> Iterator[tuple[int, int, int, int]]:
    """Lane, position, row, column of the A operand of m16n8k16 for 16-bit types, as the PTX ISA lists them."""
    for lane in range(32):
        for i in range(8):
            row = lane // 4 + (8 if i // 2 % 2 else 0)
            column = lane % 4 * 2 + i % 2 + (8 if i >= 4 else 0)
            yield lane, i, row, column


def test_fragment_order_is_that_of_the_tensor_cores() -> None:
    w = blocks(96, 96, 32, 48)
    w[w == 0] = 1  # every block is stored: block number = block row * 6 + block column
    packed = Bsr().pack(w, options(32, 16, "fragment"))["values"]
    assert packed.shape == (3 * 6, 2, 1, 32, 8)
    for block_row, block_column, tile in [(0, 0, 0), (2, 5, 1), (1, 3, 1)]:
        stored = packed[block_row * 6 + block_column, tile, 0]
        for lane, i, row, column in fragment_elements():
            assert stored[lane, i] == w[block_row * 32 + tile * 16 + row, block_column * 16 + column]


def test_ragged_blocks_are_padded() -> None:
    w = np.ones((20, 37), np.float32)
    packed = Bsr().pack(w, options())
    assert packed["values"].shape == (2 * 3, 16, 16)
    assert packed["values"].sum() == w.sum()
    assert Bsr().stored_mask(w, options()).shape == (20, 37)


def test_whole_blocks_are_stored() -> None:
    w = np.zeros((64, 64), np.float16)
    w[17, 40] = 1
    stored = Bsr().stored_mask(w, options(16, 32))
    assert stored[16:32, 32:64].all()
    assert stored.sum() == 16 * 32


@pytest.mark.parametrize(("r", "c"), [(8, 16), (16, 4)])
def test_small_blocks_have_no_fragment_order(r: int, c: int) -> None:
    with pytest.raises(FormatError, match="16x16"):
        Bsr().pack(np.ones((32, 32), np.float16), options(r, c, "fragment"))


def test_clustering_finds_blocks_that_a_permutation_has_torn_apart() -> None:
    rng = np.random.default_rng(5)
    whole = blocks(256, 256, 16, 16)
    torn = whole[rng.permutation(256)][:, rng.permutation(256)]
    clustered = {**options(), "rows": "cluster", "columns": "cluster"}
    stored = {name: len(Bsr().pack(w, chosen)["indices"]) for name, w, chosen in (
        ("whole", whole, options()), ("torn", torn, options()), ("clustered", torn, clustered),
    )}  # fmt: skip
    assert stored["torn"] > 2 * stored["whole"]
    assert stored["clustered"] <= 1.3 * stored["whole"]
    np.testing.assert_array_equal(Bsr().unpack(Bsr().pack(torn, clustered), (256, 256), clustered), torn)


def test_padding_is_no_row_and_no_column() -> None:
    packed = Bsr().pack(np.ones((20, 37), np.float32), options())
    np.testing.assert_array_equal(packed["row_order"], [*range(20), *[-1] * 12])
    np.testing.assert_array_equal(packed["column_order"], [*range(37), *[-1] * 11])
    assert Bsr().measure(packed, (20, 37), options()) == {"nblocks": 6}
