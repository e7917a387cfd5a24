"""What tokens cost: prices from `prices.toml` or the experiment, US dollars from tokens."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from mutations.llm.messages import Usage


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens sent and received."""

    usd_in: float
    usd_out: float

    def usd(self, usage: Usage) -> float:
        """What a request cost."""
        return (usage.tokens_in * self.usd_in + usage.tokens_out * self.usd_out) / 1e6


@dataclass(frozen=True)
class Model:
    """A model of the experiment: name, share of the requests, and price where one is known."""

    name: str
    weight: float = 1.0
    price: Price | None = None

    def usd(self, usage: Usage) -> float | None:
        """What a request cost; None where no price is known."""
        return self.price.usd(usage) if self.price is not None else None


@functools.cache
def _file() -> Mapping[str, Any]:
    text = resources.files("mutations.llm").joinpath("prices.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def listed() -> Mapping[str, Price]:
    """Prices of the data file, by name."""
    return {name: Price(*pair) for name, pair in _file()["models"].items()}


def source() -> str:
    """Where the listed prices are from and when they were looked up, in one line."""
    about = _file()["source"]
    doubt = "" if about["vendor"] else "; not read at the vendor's own page"
    return f"{about['what']}, {about['checked'].isoformat()}{doubt}"


def price_of(model: str) -> Price | None:
    """The listed price of exactly this model; None where there is none, however alike its name is to another's."""
    return listed().get(model)
