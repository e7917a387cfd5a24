"""Expressions: Python's meaning where Python has one, limits, and errors that name the fix."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.expressions import Expression, ExpressionError, nearest

NAMES = {"M": 100, "N": 7, "BM": 64, "W.nnz": 5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cdiv(M, BM)", 2),
        ("round_up(N, 8) * 2", 16),
        ("M // BM + M % BM", 37),
        ("-M // BM", -2),
        ("min(M, N, 3)", 3),
        ("max(M, N)", 100),
        ("M % 4 == 0 and N < 8", 1),
        ("not M or N == 8", 0),
        ("not (M == 1)", 1),
        ("W.nnz * 4", 20),
        ("2 - 3 - 4", -5),
        ("N != 0 or M // 0", 1),
        ("(M > 3) + (N > 3)", 2),
    ],
)
def test_value(text: str, value: int) -> None:
    assert Expression(text).evaluate(NAMES) == value


@settings(deadline=None)
@given(
    st.recursive(
        st.integers(0, 99).map(str),
        lambda s: st.tuples(s, st.sampled_from(["+", "-", "*"]), s).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        max_leaves=8,
    )
)
def test_agrees_with_python(text: str) -> None:
    expected = eval(text)  # the oracle: digits and + - * only
    assert Expression(text).evaluate({}) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("M +", "ends where a value"),
        ("M / 2", "`//`"),
        ("M = 2", "`==`"),
        ("M N", "unexpected 'N'"),
        ("(M", "expected ')'"),
        ("cdv(M, 2)", "did you mean 'cdiv'"),
        ("cdiv(M)", "2 to 2 arguments"),
        ("1 < M < 3", "chained"),
        ("__import__('os')", "unexpected"),
        ("__import__(os)", "unknown function '__import__'"),
        ("M.__class__ ** 2", "unexpected '*'"),
        ("9" * 20, "2^63"),
        ("(" * 40 + "1" + ")" * 40, "nested deeper"),
        ("-" * 400 + "1", "nested deeper"),
        ("1 + " * 200 + "1", "characters"),
    ],
)
def test_refuses(text: str, part: str) -> None:
    with pytest.raises(ExpressionError, match=None) as caught:
        Expression(text)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("M // (N - 7)", "division by zero"),
        ("cdiv(M, 0)", "division by zero"),
        ("m + QQ", "did you mean 'M'"),
        ("4611686018427387904 * 2", "2^63"),
    ],
)
def test_evaluation_errors(text: str, part: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(text).evaluate(NAMES)
    assert part in str(caught.value)


def test_long_chain_of_allowed_length_evaluates() -> None:
    assert Expression("+".join(["1"] * 65)).evaluate({}) == 65
    with pytest.raises(ExpressionError, match="more than 64 operators"):
        Expression("+".join(["1"] * 66))


def test_frozen_hashed_and_picklable() -> None:
    expression = Expression("cdiv(M, BM) * W.nnz")
    assert expression.names == {"M", "BM", "W.nnz"}
    assert pickle.loads(pickle.dumps(expression)) == expression
    assert len({expression, Expression("cdiv(M, BM) * W.nnz")}) == 1


def test_nearest_lists_what_is_known() -> None:
    assert nearest("zzz", ["alpha"]) == "known: alpha"
    assert nearest("alhpa", ["alpha", "beta"]) == "did you mean 'alpha'?"
