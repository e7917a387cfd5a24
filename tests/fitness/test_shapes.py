"""Fitting shapes into a domain, and drawing hidden ones."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.expressions import Expression
from fitness.shapes import EmptyDomainError, fit, hidden_target


def fitted(domain: list[str], **target: int) -> dict[str, int]:
    return fit(target, [Expression(text) for text in domain])


def test_a_shape_of_the_domain_stays() -> None:
    assert fitted(["K % 64 == 0"], M=83, N=37, K=192) == {"M": 83, "N": 37, "K": 192}


@pytest.mark.parametrize(("k", "nearest"), [(199, 192), (1, 64), (96, 128), (255, 256), (648, 640)])
def test_the_nearest_multiple(k: int, nearest: int) -> None:
    assert fitted(["K % 64 == 0"], M=83, N=37, K=k) == {"M": 83, "N": 37, "K": nearest}


def test_conditions_on_several_dimensions() -> None:
    shape = fitted(["M >= K", "(M + N) % 16 == 0"], M=40, N=9, K=64)
    assert shape["M"] >= shape["K"]
    assert (shape["M"] + shape["N"]) % 16 == 0


def test_nothing_near() -> None:
    with pytest.raises(EmptyDomainError, match="no shape near"):
        fitted(["K == 100000"], M=8, N=8, K=8)


def test_hidden_targets_are_log_uniform_up_to_twice_the_largest() -> None:
    rng = np.random.default_rng(0)
    shapes = [{"M": 8, "N": 16}, {"M": 8, "N": 128}]
    drawn = [hidden_target(shapes, ["N"], rng, beyond=False)["N"] for _ in range(400)]
    assert min(drawn) == 1
    assert 128 < max(drawn) <= 256
    assert 8 < np.median(drawn) < 32  # sqrt(256) = 16
    far = [hidden_target(shapes, ["N"], rng, beyond=True)["N"] for _ in range(400)]
    assert 128 < min(far) < 150 < 240 < max(far) <= 256
    assert hidden_target([{"M": 8, "N": 1}], ["N"], rng, beyond=True)["N"] == 2
