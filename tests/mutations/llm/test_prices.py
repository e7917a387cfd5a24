from __future__ import annotations

import re

import pytest

from mutations.llm.messages import Usage
from mutations.llm.prices import Model, Price, listed, price_of, source


def test_a_price_counts_both_directions() -> None:
    assert Price(1.25, 10.0).usd(Usage(1_000_000, 100_000)) == pytest.approx(2.25)
    assert Model("x").usd(Usage(5, 5)) is None


def test_only_a_listed_name_has_a_price() -> None:
    assert price_of("gpt-5") == Price(1.25, 10.0)
    for other in ("gpt-5-2025-08-07", "gpt-4o-mini-realtime", "gpt-5-mini-", "my-model"):  # may cost anything
        assert price_of(other) is None


def test_prices_say_where_they_are_from() -> None:
    assert re.search(r", 20\d\d-\d\d-\d\d; not read at the vendor's own page$", source())


def test_every_listed_price_is_sensible() -> None:
    assert all(0 < price.usd_in <= price.usd_out < 1000 for price in listed().values())
