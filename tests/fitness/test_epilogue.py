"""Epilogues: agreement with hand-written formulas, the bound on errors, what is refused, and the code they become."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fitness import epilogue
from fitness.epilogue import ACTIVATIONS, Epilogue, Operands

PRODUCT = np.array([[-3.0, -0.5, 0.0, 0.25], [1.0, 2.0, 30.0, -30.0]])
BIAS = np.array([0.5, -1.0], np.float16)
RESIDUAL = np.arange(8, dtype=np.float32).reshape(2, 4)
ALL = Operands(BIAS, RESIDUAL, 2.0)


def test_steps_apply_in_order() -> None:
    chain = Epilogue(("scale", "bias", "relu", "residual"))
    want = np.maximum(PRODUCT * 2 + BIAS.astype(np.float64)[:, None], 0) + RESIDUAL
    np.testing.assert_array_equal(chain.apply(PRODUCT, ALL), want)
    other = Epilogue(("bias", "scale"))
    np.testing.assert_array_equal(other.apply(PRODUCT, ALL), (PRODUCT + BIAS.astype(np.float64)[:, None]) * 2)


def test_no_steps_give_the_product() -> None:
    np.testing.assert_array_equal(Epilogue().apply(PRODUCT, Operands()), PRODUCT)
    assert not Epilogue()


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("relu", lambda x: max(x, 0.0)),
        ("gelu", lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2))),
        ("gelu_tanh", lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        ("silu", lambda x: x / (1 + math.exp(-x))),
    ],
)
def test_activations(name: str, formula: object) -> None:
    assert callable(formula)
    want = [[formula(float(x)) for x in row] for row in PRODUCT]
    np.testing.assert_allclose(Epilogue((name,)).apply(PRODUCT, Operands()), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_constants_bound_the_slopes(name: str) -> None:
    function, constant = ACTIVATIONS[name]
    x = np.linspace(-20, 20, 400_001)
    slopes = np.abs(np.diff(function(x)) / np.diff(x))
    assert slopes.max() <= constant
    assert slopes.max() > constant - 0.01


def test_nan_passes_relu() -> None:
    assert np.isnan(Epilogue(("relu",)).apply(np.array([[np.nan]]), Operands())).all()


def test_errors_are_stretched_and_what_is_added_counts() -> None:
    scale = np.full((2, 4), 3.0)
    np.testing.assert_allclose(Epilogue(("scale",)).error_scale(scale, ALL), 6.0)
    np.testing.assert_allclose(Epilogue(("gelu",)).error_scale(scale, ALL), 3 * 1.13)
    with_bias = Epilogue(("bias",)).error_scale(scale, ALL)
    np.testing.assert_allclose(with_bias, np.hypot(3.0, np.abs(BIAS.astype(np.float64)))[:, None] * np.ones(4))
    assert (Epilogue(("residual",)).error_scale(scale, ALL) == np.hypot(3.0, RESIDUAL.astype(np.float64))).all()


def test_bytes_are_those_of_what_is_read() -> None:
    assert Epilogue(("bias", "relu")).bytes(64, 8, 2, 4) == 128
    assert Epilogue(("residual", "scale")).bytes(64, 8, 2, 4) == 64 * 8 * 4


def test_only_smooth_activations_are_inexact() -> None:
    assert Epilogue(("bias", "relu", "residual")).exact
    assert not Epilogue(("bias", "silu")).exact


def test_senseless_chains() -> None:
    assert epilogue.problem(("bias", "scale", "gelu", "residual")) == ""
    assert "'bias' occurs twice" in epilogue.problem(("bias", "relu", "bias"))
    assert "two activations" in epilogue.problem(("relu", "gelu"))


def test_code() -> None:
    assert Epilogue(("bias", "relu")).code == ".bias().relu()"
