"""Sizes are what the formats say of the packed arrays, whichever formats are registered."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fitness.analysis import sizes as module
from fitness.analysis.sizes import MaskEntries, sizes_of
from fitness.formats import FORMATS, FormatError, get_format
from fitness.formats.entries import Entries
from tests.fitness.matrices.test_mask import mask_of

FLOAT16 = np.dtype(np.float16)


def matrices() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    rng = np.random.default_rng(0)
    two_of_four = np.zeros((64, 32, 4), np.bool_)
    np.put_along_axis(two_of_four, rng.random((64, 32, 4)).argsort(axis=2)[..., :2], True, axis=2)
    return {
        "random": rng.random((130, 190)) < 0.05,
        "blocks": np.kron(rng.random((8, 8)) < 0.2, np.ones((16, 16))) > 0,
        "nm": two_of_four.reshape(64, 128),
        "band": np.abs(np.subtract.outer(np.arange(90), np.arange(90))) < 2,
        "periodic": np.tile(rng.random((8, 32)) < 0.2, (9, 5)),
        "dense": np.ones((33, 65), np.bool_),
        "empty": np.zeros((33, 65), np.bool_),
    }


@pytest.mark.parametrize("name", matrices())
def test_small_matrices_are_sized_exactly_and_well(name: str) -> None:
    bits = matrices()[name]
    w = bits.astype(FLOAT16)
    found = sizes_of(mask_of(bits), FLOAT16)
    assert set(FORMATS) == {size.format for size in found.stored} | set(found.refused)
    for size in found.stored:
        storage = get_format(size.format)
        packed = storage.pack(w, dict(size.options))
        assert size.exact
        assert size.bytes == sum(array.nbytes for array in packed.values())
        assert size.slots == pytest.approx(storage.stored_mask(w, dict(size.options)).sum(), rel=0.05, abs=80)


def test_options_are_the_smallest() -> None:
    """Against all combinations: never more than a few percent above."""
    for name, bits in matrices().items():
        w = bits.astype(FLOAT16)
        for size in sizes_of(mask_of(bits), FLOAT16).stored:
            storage = get_format(size.format)
            least = size.bytes
            for combination in itertools.product(*storage.options.values()):
                options = dict(zip(storage.options, combination, strict=True))
                try:
                    storage.validate(w, options)
                    least = min(least, storage.bytes(w, options))
                except FormatError:
                    continue
            assert size.bytes <= 1.1 * least, (name, size)


def test_ratios_are_found_where_nothing_can_be_reordered() -> None:
    bits = np.zeros((256, 64, 4), np.bool_)
    np.put_along_axis(bits, np.random.default_rng(3).integers(0, 4, (256, 64, 1)), True, axis=2)
    for reorder in (True, False):
        size = sizes_of(mask_of(bits.reshape(256, 256)), FLOAT16, reorder=reorder).of("nm")
        assert size is not None
        assert (size.options["ratio"], size.bytes) == ("1:4", 256 * 64 * 3)


def test_refusals_say_why() -> None:
    refused = sizes_of(mask_of(matrices()["random"]), FLOAT16).refused
    assert "nonzeros" in refused["nm24"]
    assert "1:2" in sizes_of(mask_of(matrices()["nm"]), np.dtype(np.float32)).refused["nm24"]


def test_large_matrices_come_near_on_some_of_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = np.kron(np.random.default_rng(2).random((200, 40)) < 0.1, np.ones((16, 16))) > 0
    mask = mask_of(bits)
    exact = {size.format: size for size in sizes_of(mask, FLOAT16).stored}
    monkeypatch.setattr(module, "_ALL_OPTIONS_NONZEROS", 20_000)
    monkeypatch.setattr(module, "_SAMPLE_ELEMENTS", 100_000)
    found = {size.format: size for size in sizes_of(mask, FLOAT16).stored}
    assert found["bsr"].exact
    assert found["bsr"].bytes == exact["bsr"].bytes
    assert found["csr"].bytes == exact["csr"].bytes
    assert not found["dia"].exact
    monkeypatch.setattr(module, "_EXACT_NONZEROS", 1000)
    scaled = {size.format: size for size in sizes_of(mask, FLOAT16).stored}
    assert not scaled["bsr"].exact
    assert scaled["bsr"].bytes == pytest.approx(exact["bsr"].bytes, rel=0.1)
    assert scaled["csr"].exact  # its size follows from the rows' lengths


def test_entries_of_a_mask_are_those_of_the_matrix() -> None:
    bits = matrices()["random"]
    made, expected = MaskEntries(mask_of(bits), FLOAT16), Entries.of(bits.astype(FLOAT16))
    np.testing.assert_array_equal(made.rows, expected.rows)
    np.testing.assert_array_equal(made.columns, expected.columns)
    np.testing.assert_array_equal(made.values, expected.values)
    assert (made.nnz, made.itemsize, made.longest) == (expected.nnz, expected.itemsize, expected.longest)
