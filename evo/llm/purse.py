"""The run's tokens and dollars, for requests made in several threads."""

from __future__ import annotations

import threading

from evo.budget import Budget


class RunPurse:
    """The `Purse` of a run: both budgets are reserved together or not at all."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lock = threading.Lock()

    def reserve(self, tokens: int, usd: float) -> bool:
        """Set both aside; False, and nothing set aside, where one of them does not fit."""
        with self._lock:
            if not self._budget.fits("tokens", tokens) or not self._budget.fits("usd", usd):
                return False
            self._budget.reserve("tokens", tokens)
            self._budget.reserve("usd", usd)
            return True

    def settle(self, reserved: tuple[int, float], spent: tuple[int, float]) -> None:
        """Give a reservation back and book what was spent."""
        with self._lock:
            self._budget.settle("tokens", reserved[0], spent[0])
            self._budget.settle("usd", reserved[1], spent[1])
