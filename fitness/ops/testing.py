"""The contract every op passes. Importable by authors of ops.

class TestMine(OpContract):
    op = Mine()
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fitness.ops.op import Array, Op


class OpContract:
    """Subclass it with `op`.

    Attributes:
        op: the op under test.
    """

    op: ClassVar[Op]

    def operands(self, m: int = 13, n: int = 5, k: int = 24, seed: int = 0) -> tuple[Array, Array]:
        """Random float16 W (M, K) with an empty row and X (K, N)."""
        rng = np.random.default_rng(seed)
        w = rng.standard_normal((m, k)).astype(np.float16)
        w[m // 2] = 0
        return w, rng.standard_normal((k, n)).astype(np.float16)

    def test_reference_is_float64_of_the_right_shape(self) -> None:
        """(M, N), finite for finite operands, the same in every call."""
        w, x = self.operands()
        reference = self.op.reference(w, x, None)
        assert reference.dtype == np.float64
        assert reference.shape == (13, 5)
        assert np.isfinite(reference).all()
        np.testing.assert_array_equal(reference, self.op.reference(w, x, None))

    def test_rows_of_w_are_independent(self) -> None:
        """A row of the result depends on its row of W only."""
        w, x = self.operands(m=600)
        np.testing.assert_allclose(self.op.reference(w, x, None)[7:9], self.op.reference(w[7:9], x, None), rtol=1e-13)

    def test_empty_rows_give_zero(self) -> None:
        """Exactly; the epilogue then sees 0."""
        w, x = self.operands()
        assert (self.op.reference(w, x, None)[13 // 2] == 0).all()

    def test_all_slots_stored_equals_the_plain_reference(self) -> None:
        """Where operands are finite, which slots are stored does not matter."""
        w, x = self.operands()
        plain = self.op.reference(w, x, None)
        for stored in (np.ones(w.shape, np.bool_), w != 0):
            np.testing.assert_allclose(self.op.reference(w, x, stored), plain, rtol=1e-12, atol=1e-12)

    def test_infinity_counts_in_stored_slots_only(self) -> None:
        """An empty row meets an infinity of X only where it stores slots."""
        w, x = self.operands()
        x[3, 1] = np.inf
        row = 13 // 2
        assert np.isnan(self.op.reference(w, x, np.ones(w.shape, np.bool_))[row, 1])
        skipping = self.op.reference(w, x, w != 0)
        assert np.isfinite(skipping[row]).all()
        assert not np.isfinite(skipping[row - 1, 1])

    def test_scale_bounds_the_result_in_the_mean(self) -> None:
        """`scale` is nonnegative, has the result's shape and grows with the operands."""
        w, x = self.operands()
        scale = self.op.scale(w, x)
        assert scale.shape == (13, 5)
        assert (scale >= 0).all()
        np.testing.assert_allclose(self.op.scale((w * 2).astype(w.dtype), x), 2 * scale, rtol=1e-5)

    def test_cost_grows_with_the_work(self) -> None:
        """FLOPs are linear in nonzeros; bytes grow with N."""
        small, large = {"M": 64, "N": 8, "K": 64}, {"M": 64, "N": 16, "K": 64}
        assert self.op.flops(small, 200.0) == 2 * self.op.flops(small, 100.0) > 0
        assert self.op.dense_bytes(large, 2, 2) > self.op.dense_bytes(small, 2, 2) > 0

    def test_arguments_name_the_operands(self) -> None:
        """The packed arrays with their prefix, the scalars, no name twice."""
        names = self.op.argument_names(("values", "meta"))
        assert len(names) == len(set(names))
        assert {"W.values", "W.meta", "X", "Y", *self.op.scalars} <= set(names)
        assert set(self.op.shape_names) <= set(self.op.scalars)
        assert set(self.op.default_layouts("dense")) <= {"row", "col"}
