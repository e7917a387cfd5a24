"""The contract every storage format passes. Importable by authors of formats; needs the `dev` extra (hypothesis).

class TestMine(FormatContract):
    storage = Mine()
    pattern = {"kind": "nm", "n": 2, "m": 4}
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.expressions import round_up
from fitness.formats.entries import Entries, EntryFormat
from fitness.formats.format import Array, Format, FormatError, Options, complete
from fitness.patterns import make_pattern


class FormatContract:
    """Subclass it with `storage` and a `pattern` the format can store.

    Attributes:
        storage: the format under test.
        pattern: table of a pattern it stores.
        row_step, column_step: shapes are multiples of these (where the format or pattern cannot have others).
        dtype: element type it supports.
        fixed: options that the pattern needs (a block size, a ratio); the others take every choice.
    """

    storage: ClassVar[Format]
    pattern: ClassVar[Mapping[str, Any]] = {"kind": "dense"}
    row_step: ClassVar[int] = 1
    column_step: ClassVar[int] = 1
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float16)
    fixed: ClassVar[Mapping[str, str]] = {}

    def choices(self) -> Iterator[Options]:
        """Every combination of options, those of `fixed` apart."""
        options = {
            name: (self.fixed[name],) if name in self.fixed else choices
            for name, choices in self.storage.options.items()
        }
        for combination in itertools.product(*options.values()):
            yield dict(zip(options, combination, strict=True))

    def operand(self, rows: int, columns: int, keep: float, seed: int) -> Array:
        """A random W of the pattern in which a share `keep` of the nonzeros stays; rows, columns: at least these."""
        rng = np.random.default_rng(seed)
        shape = (round_up(rows, self.row_step), round_up(columns, self.column_step))
        mask = make_pattern(self.pattern).mask(shape, rng) & (rng.random(shape) < keep)
        return np.where(mask, rng.standard_normal(shape), 0).astype(self.dtype)

    def test_round_trip_is_exact(self) -> None:
        """unpack(pack(w)) == w bit by bit, for every option and any shape."""

        # an inner function, as hypothesis refuses one @given method run by several subclasses
        @settings(max_examples=25, deadline=None)
        @given(st.integers(1, 70), st.integers(1, 260), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 2**16))
        def round_trip(rows: int, columns: int, keep: float, seed: int) -> None:
            w = self.operand(rows, columns, keep, seed)
            for options in self.choices():
                self.check_round_trip(w, options)

        round_trip()

    def check_round_trip(self, w: Array, options: Options) -> None:
        """Exact, contiguous, and of the size and names the format states."""
        shape = (w.shape[0], w.shape[1])
        packed = self.storage.pack(w, options)
        back = self.storage.unpack(packed, shape, options)
        assert back.dtype == w.dtype
        assert back.tobytes() == np.ascontiguousarray(w).tobytes()
        assert set(packed) == set(self.storage.argument_names(options))
        assert all(array.flags.c_contiguous for array in packed.values())
        assert self.storage.measure(packed, shape, options).keys() == set(self.storage.sizes)
        stated = self.storage.bytes(w, options)
        assert sum(array.nbytes for array in packed.values()) == stated

    def test_strides_do_not_matter(self) -> None:
        """A transposed, non-contiguous view packs as its copy does."""
        w = self.operand(40, 192, 1.0, 3)
        view = np.asfortranarray(w)
        for options in self.choices():
            for name, array in self.storage.pack(w, options).items():
                np.testing.assert_array_equal(array, self.storage.pack(view, options)[name])

    def test_negative_zero_is_a_zero(self) -> None:
        """-0.0 takes the place of no nonzero."""
        w = self.operand(32, 128, 0.7, 5)
        negative = np.where(w == 0, self.dtype.type(-0.0), w)
        for options in self.choices():
            back = self.storage.unpack(self.storage.pack(negative, options), (w.shape[0], w.shape[1]), options)
            np.testing.assert_array_equal(back, w)

    def test_nonfinite_values_are_kept(self) -> None:
        """NaN and Inf in nonzeros survive."""
        w = self.operand(32, 128, 1.0, 6)
        places = np.flatnonzero(w)
        w.flat[places[:3]] = [np.nan, np.inf, -np.inf]
        for options in self.choices():
            back = self.storage.unpack(self.storage.pack(w, options), (w.shape[0], w.shape[1]), options)
            np.testing.assert_array_equal(back.astype(np.float64), w.astype(np.float64))

    def test_every_nonzero_is_stored(self) -> None:
        """`stored_mask` covers at least the nonzeros and has the operand's shape."""
        for keep in (0.0, 0.4, 1.0):
            w = self.operand(33, 130, keep, 7)
            for options in self.choices():
                stored = self.storage.stored_mask(w, options)
                assert stored.shape == w.shape
                assert stored[w != 0].all()

    def test_a_matrix_that_never_was_dense_packs_alike(self) -> None:
        """From coordinates in any order, where the format is made from entries."""
        if not isinstance(self.storage, EntryFormat):
            return
        w, rng = self.operand(37, 150, 0.8, 9), np.random.default_rng(9)
        rows, columns = np.nonzero(w)
        order = rng.permutation(len(rows))
        rows, columns = rows[order], columns[order]
        entries = Entries.from_triplets((w.shape[0], w.shape[1]), rows, columns, w[rows, columns])
        for options in self.choices():
            packed = self.storage.packed(entries, options)
            for name, array in self.storage.pack(w, options).items():
                np.testing.assert_array_equal(packed[name], array)

    def test_empty_rows_and_columns_stay_empty(self) -> None:
        """First and last row and column, and a stretch between, without a nonzero; and one row full of them."""
        w = self.operand(48, 130, 0.9, 11)
        w[5] = self.operand(48, 130, 1.0, 11)[5]
        w[[0, -1]], w[20:37] = 0, 0
        w[:, [0, -1]], w[:, 40:80] = 0, 0
        for options in self.choices():
            self.check_round_trip(w, options)

    def test_no_nonzeros_at_all(self) -> None:
        """An operand with nnz = 0 packs and comes back."""
        w = self.operand(16, 64, 0.0, 8)
        for options in self.choices():
            assert not self.storage.unpack(self.storage.pack(w, options), (w.shape[0], w.shape[1]), options).any()

    def test_options_have_defaults_and_are_checked(self) -> None:
        """`complete` fills the first choice in and refuses what there is not."""
        assert all(len(choices) == len(set(choices)) >= 1 for choices in self.storage.options.values())
        assert complete(self.storage, {}) == {name: choices[0] for name, choices in self.storage.options.items()}
        with pytest.raises(FormatError, match="no option"):
            complete(self.storage, {"no such option": "x"})

    def test_domain_is_evaluable(self) -> None:
        """Conditions use shape names only."""
        for options in self.choices():
            for condition in self.storage.domain(options):
                assert math.isfinite(condition.evaluate({"M": 64, "N": 8, "K": 64}))
