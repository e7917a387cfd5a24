from __future__ import annotations

import pytest

from mutations.llm.messages import Usage
from mutations.llm.prices import Model, Price, listed, price_of


def test_a_price_counts_both_directions() -> None:
    assert Price(1.25, 10.0).usd(Usage(1_000_000, 100_000)) == pytest.approx(2.25)
    assert Model("x").usd(Usage(5, 5)) is None


def test_the_own_entry_counts_before_prefixes_and_the_longest_prefix_first() -> None:
    assert price_of("gpt-5") == Price(1.25, 10.0)
    assert price_of("gpt-5-mini-2025-08-07") == listed()["gpt-5-mini*"]
    assert price_of("gpt-4o-mini") == listed()["gpt-4o-mini*"]
    assert price_of("gpt-4o-2024") is None  # a dated name of a model without a prefix entry: never guessed
    assert price_of("my-model") is None


def test_every_listed_price_is_sensible() -> None:
    assert all(0 < price.usd_in <= price.usd_out < 1000 for price in listed().values())
