"""The whole analysis of one matrix, and of every real matrix of the repository."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fitness import gpu as gpus
from fitness.analyze import STORED_DTYPES, Analysis, analyze
from fitness.matrices import Matrix
from tests.fitness.matrices.test_mask import mask_of

H200 = gpus.load("H200")


def test_both_representations_are_analysed_alike() -> None:
    bits = np.random.default_rng(0).random((200, 300)) < 0.2
    found = [analyze(Matrix(mask_of(bits, as_bits=b), "float16"), H200) for b in (False, True)]
    for field in dataclasses.fields(Analysis):
        first, second = (getattr(analysis, field.name) for analysis in found)
        if field.name == "map":
            np.testing.assert_array_equal(first.density, second.density)
        elif field.name != "repetition":  # which only knows offsets where coordinates are kept
            assert first == second, field.name


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float16", "float16"), ("int64", "float32"), ("pattern", "float32"), ("float64", "float32")],
)
def test_the_type_on_the_gpu(dtype: str, expected: str) -> None:
    found = analyze(Matrix(mask_of(np.eye(40) > 0), dtype), H200)
    assert (found.dtype, found.gpu_dtype) == (dtype, expected)


@pytest.mark.parametrize("dtype", STORED_DTYPES)
def test_every_type(dtype: str) -> None:
    assert analyze(Matrix(mask_of(np.eye(40) > 0), "pattern"), H200, dtype=dtype).gpu_dtype == dtype


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (2, 3)])
@pytest.mark.parametrize("full", [False, True])
def test_extreme_shapes(shape: tuple[int, int], full: bool) -> None:
    found = analyze(Matrix(mask_of(np.full(shape, full)), "float32"), H200)
    assert found.density == full
    assert found.rows.empty == (0 if full else shape[0])
