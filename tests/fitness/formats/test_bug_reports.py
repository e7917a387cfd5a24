"""Bugs that others' packers have had in public, as tests on every format: numbers 2, 3, 7 and 9 of the list.

Those about kernels are in `tests/seeds/test_bug_reports.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from fitness.formats import FORMATS, FormatError, get_format
from fitness.formats.format import Array, Format, Options

GROUPED = ("nm", "nm24")
KEEPING_ZEROS = ("dense", "rows", "channels")


def choices(storage: Format) -> Iterator[Options]:
    """All combinations of at most two choices of each option (2:4 alone of the ratios), less those a format refuses."""
    few = (options[:1] if option == "ratio" else options[:2] for option, options in storage.options.items())
    for picked in itertools.product(*few):
        options = dict(zip(storage.options, picked, strict=True))
        try:
            storage.validate(np.zeros((1, 4), np.float16), options)
        except FormatError:
            continue
        yield options


CASES = [(name, options) for name in sorted(FORMATS) for options in choices(get_format(name))]


def two_of_four(rows: int, columns: int, seed: int = 0) -> Array:
    """Any subset of two slots of each group, all pairs among them."""
    rng = np.random.default_rng(seed)
    keep = np.argsort(np.argsort(rng.random((rows, columns // 4, 4)), axis=2), axis=2) < rng.integers(
        0, 3, (rows, columns // 4, 1)
    )
    return np.where(keep.reshape(rows, columns), rng.standard_normal((rows, columns)), 0).astype(np.float16)


def test_every_format_is_here() -> None:
    assert {name for name, _ in CASES} == set(FORMATS)


@pytest.mark.parametrize("k", [64, 96, 192])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_2_negative_zero_takes_no_slot_and_all_comes_back(name: str, options: Options, k: int) -> None:
    storage, w = get_format(name), two_of_four(48, k, seed=k)
    negative = np.where(w == 0, np.float16(-0.0), w)
    packed, from_negative = storage.pack(w, options), storage.pack(negative, options)
    for argument, array in packed.items():
        if name in KEEPING_ZEROS:
            np.testing.assert_array_equal(array, from_negative[argument])  # as numbers: they keep the sign
        else:
            assert array.tobytes() == from_negative[argument].tobytes(), argument
    assert storage.unpack(packed, (48, k), options).tobytes() == w.tobytes()


@pytest.mark.parametrize("name", GROUPED)
def test_3_a_matrix_without_the_structure_is_refused_by_row_and_group(name: str) -> None:
    w = two_of_four(3072, 768)
    w[2071, 404:408] = [1, 0, 2, 3]
    storage = get_format(name)
    options = {option: values[0] for option, values in storage.options.items()}
    with pytest.raises(FormatError, match=r"row 2071, group 101 \(columns 404 to 407\) has 3 nonzeros"):
        storage.pack(w, options)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_3_a_transposed_view_packs_as_its_copy_does(name: str, options: Options) -> None:
    storage, w = get_format(name), two_of_four(96, 160)
    view = np.ascontiguousarray(w.T).T  # the same matrix, column after column in memory
    assert not view.flags.c_contiguous
    for argument, array in storage.pack(view, options).items():
        np.testing.assert_array_equal(array, storage.pack(w, options)[argument])


@pytest.mark.parametrize(("name", "options"), CASES)
def test_7_the_last_row_is_there_whatever_the_order(name: str, options: Options) -> None:
    storage, w = get_format(name), np.zeros((129, 260), np.float16)
    w[40, ::4], w[-1, [0, 100, 256]] = 1, [2, 3, 4]
    back = storage.unpack(storage.pack(w, options), (129, 260), options)
    np.testing.assert_array_equal(back[-1], w[-1])


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("shape", [(5, 0), (1, 1), (70, 64)])
def test_9_nothing_stored_comes_back_as_zeros(name: str, options: Options, shape: tuple[int, int]) -> None:
    storage = get_format(name)
    packed = storage.pack(np.zeros(shape, np.float16), options)
    back = storage.unpack(packed, shape, options)
    assert back.shape == shape
    assert not back.any()
    assert storage.bytes(np.zeros(shape, np.float16), options) == sum(array.nbytes for array in packed.values())
    if name in ("ell", "sell", "blocked_ell"):
        assert (packed["indices"] == -1).all()  # no padding says column 0
