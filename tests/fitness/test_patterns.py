"""Patterns: structure, uniformity, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fitness.patterns import DensePattern, NmPattern, PatternError, make_pattern
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
             {"kind": "nm", "n": 2, "m": 65}, {"kind": "dense", "n": 2}],
)  # fmt: skip
def test_refuses(spec: dict[str, Any]) -> None:
    with pytest.raises(PatternError):
        make_pattern(spec)


def test_unknown_kind() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'dense'"):
        make_pattern({"kind": "dens"})


def test_own_patterns_by_dotted_path() -> None:
    assert make_pattern({"kind": "fitness.patterns:NmPattern", "n": 1, "m": 2}) == NmPattern(1, 2)
