"""The shared product: float64 accuracy in row blocks, and float32 squares that do not overflow."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fitness.ops.gemm import Gemm


def test_reference_in_row_blocks_is_the_plain_product() -> None:
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((1100, 40)).astype(np.float16), rng.standard_normal((40, 3)).astype(np.float16)
    np.testing.assert_allclose(Gemm().reference(w, x, None), w.astype(float) @ x.astype(float), rtol=1e-13)


def test_scale_of_extreme_values() -> None:
    w = np.array([[65504.0, 2.0**-24]], np.float16)
    np.testing.assert_allclose(Gemm().scale(w, w.T), [[65504.0**2]], rtol=1e-6)
    tiny = np.array([[2.0**-24]], np.float16)
    np.testing.assert_allclose(Gemm().scale(tiny, tiny), [[2.0**-48]], rtol=1e-6)
    large = np.array([[1e30]], ml_dtypes.bfloat16)
    assert np.isfinite(Gemm().scale(large, large)).all()


def test_scale_ignores_nonfinite_operands() -> None:
    w = np.array([[1.0, np.inf]], np.float16)
    np.testing.assert_allclose(Gemm().scale(w, np.array([[2.0], [np.nan]], np.float16)), [[2.0]])
