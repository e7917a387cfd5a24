"""Patterns: structure, uniformity, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fitness.patterns
from fitness.patterns import PATTERNS, DensePattern, NmPattern, PatternError, make_pattern
from fitness.registry import UnknownNameError


@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 4), (4, 8), (7, 16), (1, 2)])
def test_every_group_has_n_of_m(n: int, m: int) -> None:
    mask = NmPattern(n, m).mask((37, 5 * m), np.random.default_rng(0))
    assert mask.shape == (37, 5 * m)
    assert (mask.reshape(37, 5, m).sum(axis=2) == n).all()
    assert NmPattern(n, m).density((37, 5 * m)) == mask.mean()


@pytest.mark.parametrize(("n", "m"), [(2, 4), (7, 16)])
def test_columns_are_equally_likely(n: int, m: int) -> None:
    mask = NmPattern(n, m).mask((4000, m), np.random.default_rng(1))
    np.testing.assert_allclose(mask.mean(axis=0), n / m, atol=0.04)


def test_every_pair_occurs() -> None:
    mask = NmPattern(2, 4).mask((64, 64), np.random.default_rng(2)).reshape(-1, 4)
    assert len({tuple(row) for row in mask.tolist()}) == 6


def test_index_bits_and_domain() -> None:
    assert NmPattern(2, 4).index_bits((1, 1)) == 2
    assert NmPattern(2, 8).index_bits((1, 1)) == 3
    assert [c.text for c in NmPattern(2, 4).default_domain()] == ["K % 64 == 0"]
    assert [c.text for c in NmPattern(2, 8).default_domain()] == ["K % 8 == 0"]


def test_dense() -> None:
    dense = make_pattern({"kind": "dense"})
    assert isinstance(dense, DensePattern)
    assert dense.mask((2, 3), np.random.default_rng(0)).all()
    assert (dense.density((2, 3)), dense.index_bits((2, 3)), dense.default_domain()) == (1.0, 0.0, ())


@pytest.mark.parametrize(
    "spec", [{}, {"kind": 3}, {"kind": "nm"}, {"kind": "nm", "n": 0, "m": 4}, {"kind": "nm", "n": True, "m": 4},
             {"kind": "nm", "n": 2, "m": 65}, {"kind": "dense", "n": 2}, {"kind": "banded"},
             {"kind": "banded", "bandwidth": -1}, {"kind": "banded", "bandwidth": 2, "density": 0},
             {"kind": "periodic", "density": 0.5}, {"kind": "periodic", "shape": [8, 300], "density": 0.5},
             {"kind": "channels"}, {"kind": "channels", "density": 0.5, "rows": 2}],
)  # fmt: skip
def test_refuses(spec: dict[str, Any]) -> None:
    with pytest.raises(PatternError):
        make_pattern(spec)


def test_unknown_kind() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'dense'"):
        make_pattern({"kind": "dens"})


def test_own_patterns_by_dotted_path() -> None:
    assert make_pattern({"kind": "fitness.patterns:NmPattern", "n": 1, "m": 2}) == NmPattern(1, 2)


SPARSE: list[dict[str, Any]] = [
    {"kind": "random", "density": 0.1},
    {"kind": "block", "shape": [8, 16], "density": 0.2},
    {"kind": "rows", "density": 0.25},
    {"kind": "power_law", "density": 0.05},
    {"kind": "power_law", "density": 0.3, "exponent": 2},
    {"kind": "channels", "density": 0.25},
    {"kind": "banded", "bandwidth": 40, "density": 0.5},
    {"kind": "periodic", "shape": [16, 64], "density": 0.25},
]


@pytest.mark.parametrize("spec", SPARSE, ids=lambda spec: spec["kind"])
def test_masks_have_the_stated_density_and_come_from_the_seed(spec: dict[str, Any]) -> None:
    pattern, shape = make_pattern(spec), (256, 320)
    mask = pattern.mask(shape, np.random.default_rng(3))
    assert mask.shape == shape
    assert mask.mean() == pytest.approx(pattern.density(shape), abs=0.01)
    np.testing.assert_array_equal(mask, pattern.mask(shape, np.random.default_rng(3)))
    assert (mask != pattern.mask(shape, np.random.default_rng(4))).any()


@pytest.mark.parametrize("spec", SPARSE, ids=lambda spec: spec["kind"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (33, 1), (17, 45)])
def test_no_mask_is_empty_at_any_shape(spec: dict[str, Any], shape: tuple[int, int]) -> None:
    for seed in range(5):
        assert make_pattern(spec).mask(shape, np.random.default_rng(seed)).any()


def test_blocks_are_whole() -> None:
    mask = make_pattern({"kind": "block", "shape": [8, 16], "density": 0.2}).mask((64, 160), np.random.default_rng(0))
    filled = mask.reshape(8, 8, 10, 16).mean(axis=(1, 3))
    assert set(np.unique(filled)) == {0.0, 1.0}
    assert filled.sum() == 16


def test_rows_are_full_or_empty() -> None:
    mask = make_pattern({"kind": "rows", "density": 0.25}).mask((40, 9), np.random.default_rng(0))
    assert sorted(mask.sum(axis=1).tolist()) == [0] * 30 + [9] * 10


def test_power_law_rows_are_unequal_and_never_longer_than_k() -> None:
    pattern = make_pattern({"kind": "power_law", "density": 0.05})
    lengths = np.sort(pattern.mask((1024, 512), np.random.default_rng(0)).sum(axis=1))[::-1]
    assert lengths[0] == 512
    assert lengths[0] > 20 * lengths[512]
    flat = make_pattern({"kind": "power_law", "density": 0.05, "exponent": 0})
    assert flat.mask((1024, 512), np.random.default_rng(0)).sum(axis=1).max() < 60


def test_index_bits_are_the_entropy_of_the_mask() -> None:
    assert make_pattern({"kind": "random", "density": 0.5}).index_bits((8, 8)) == 2.0
    assert make_pattern({"kind": "block", "shape": [4, 8], "density": 0.5}).index_bits((64, 64)) == 2.0 / 32
    assert make_pattern({"kind": "rows", "density": 1.0}).index_bits((64, 64)) == 0.0
    unequal = make_pattern({"kind": "power_law", "density": 0.1}).index_bits((512, 512))
    assert 0 < unequal < make_pattern({"kind": "random", "density": 0.1}).index_bits((512, 512))


def test_block_patterns_ask_for_whole_blocks_unless_the_task_says_otherwise() -> None:
    pattern = make_pattern({"kind": "block", "shape": [32, 1], "density": 0.2})
    assert [c.text for c in pattern.default_domain()] == ["M % 32 == 0"]
    assert pattern.mandatory() == ()


@pytest.mark.parametrize(
    "spec",
    [{"kind": "random"}, {"kind": "random", "density": 0}, {"kind": "random", "density": True},
     {"kind": "rows", "density": 1.5}, {"kind": "block", "density": 0.5}, {"kind": "block", "shape": [8], "density": 1},
     {"kind": "block", "shape": [0, 8], "density": 0.5}, {"kind": "power_law", "density": 0.1, "exponent": -1},
     {"kind": "random", "density": 0.1, "shape": [2, 2]}],
)  # fmt: skip
def test_sparse_patterns_refuse(spec: dict[str, Any]) -> None:
    with pytest.raises(PatternError):
        make_pattern(spec)


def test_columns_are_full_or_empty() -> None:
    mask = make_pattern({"kind": "channels", "density": 0.25}).mask((9, 40), np.random.default_rng(0))
    assert sorted(mask.sum(axis=0).tolist()) == [0] * 30 + [9] * 10


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (1, 1)])
def test_a_band_lies_around_the_diagonal(shape: tuple[int, int]) -> None:
    pattern = make_pattern({"kind": "banded", "bandwidth": 2})
    mask = pattern.mask(shape, np.random.default_rng(0))
    np.testing.assert_array_equal(mask, [[abs(i - j) <= 2 for j in range(shape[1])] for i in range(shape[0])])
    assert pattern.density(shape) == pytest.approx(mask.mean())
    assert pattern.index_bits(shape) == 0


def test_periods_repeat() -> None:
    pattern = make_pattern({"kind": "periodic", "shape": [4, 10], "density": 0.3})
    mask = pattern.mask((13, 47), np.random.default_rng(1))
    assert mask[:4, :10].sum() == 12
    for i in range(13):
        for j in range(47):
            assert mask[i, j] == mask[i % 4, j % 10]
    # one period costs its entropy once, however large W is
    assert pattern.index_bits((4, 10)) == pytest.approx(100 * pattern.index_bits((40, 100)))


def test_every_kind_is_documented_and_found() -> None:
    specs = [*SPARSE, {"kind": "nm", "n": 1, "m": 4}, {"kind": "dense"}]
    assert {spec["kind"] for spec in specs} == set(PATTERNS) - {"file"}
    for kind in PATTERNS:
        assert getattr(fitness.patterns, PATTERNS[kind].rpartition(":")[2]).kind == kind


@pytest.mark.parametrize(
    ("n", "m", "kept"),
    [
        (2, 4, True),
        (4, 8, True),
        (8, 16, True),
        (3, 4, True),
        (1, 4, False),
        (2, 8, False),
        (2, 2, True),
        (1, 2, False),
    ],
)
def test_two_of_four_keeps_to_wider_ratios(n: int, m: int, kept: bool) -> None:
    assert NmPattern(2, 4).keeps(n, m) is kept


@pytest.mark.parametrize("spec", SPARSE, ids=lambda spec: spec["kind"])
def test_other_patterns_promise_no_ratio_however_thin_they_are(spec: dict[str, Any]) -> None:
    assert not make_pattern(spec).keeps(8, 16)
    assert make_pattern(spec).keeps(4, 4)
