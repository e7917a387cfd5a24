"""Budgets: what a run may spend, what it has spent, what is in flight.

A spender reserves before it starts and settles when it is done, so that work in flight cannot overshoot
a budget. Time budgets may end a run; nothing else may depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from evo.experiment import BudgetSection
from evo.observer import BudgetLine

Kind = Literal["evaluations", "minutes", "gpu_minutes", "tokens", "usd"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TIMES: tuple[Kind, ...] = ("minutes", "gpu_minutes")


class BudgetError(ValueError):
    """A reservation that does not fit, or one settled that was never made (a bug of the caller)."""


class Budget:
    """The budgets of one run.

    Args:
        limits: the experiment's; None is unlimited.
        clock: seconds, monotonic.
        earlier_s: seconds that earlier sessions of the run took.
    """

    def __init__(self, limits: BudgetSection, clock: Callable[[], float], earlier_s: float = 0.0) -> None:
        self._limits: dict[Kind, float | None] = {kind: getattr(limits, kind) for kind in KINDS}
        self._used: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        self._reserved: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        self._clock = clock
        self._started = clock()
        self._earlier_s = earlier_s

    @property
    def session_s(self) -> float:
        """Seconds since this session started."""
        return self._clock() - self._started

    def used(self, kind: Kind) -> float:
        """What has been spent, earlier sessions included."""
        return (self._earlier_s + self.session_s) / 60 if kind == "minutes" else self._used[kind]

    def left(self, kind: Kind) -> float | None:
        """What may still be reserved, never negative; None where unlimited."""
        return self.line(kind).left

    def fits(self, kind: Kind, amount: float) -> bool:
        """True if `amount` may still be reserved."""
        left = self.left(kind)
        return left is None or amount <= left

    def reserve(self, kind: Kind, amount: float) -> None:
        """Set `amount` aside for work that starts now.

        Raises:
            BudgetError: it does not fit (ask `fits` or `left` first), or is negative.
        """
        if amount < 0 or not self.fits(kind, amount):
            raise BudgetError(f"{amount:g} {kind} do not fit into the {self.left(kind)} left; ask fits() before")
        self._reserved[kind] += amount

    def settle(self, kind: Kind, reserved: float, spent: float) -> None:
        """Give a reservation back and book what was really spent (which may be more: it happened).

        Raises:
            BudgetError: more is given back than is reserved, or `spent` is negative.
        """
        if reserved > self._reserved[kind] + 1e-9 or spent < 0:
            raise BudgetError(f"{reserved:g} {kind} settled, but only {self._reserved[kind]:g} are reserved")
        self._reserved[kind] = max(0.0, self._reserved[kind] - reserved)
        self._used[kind] += spent

    def spend(self, kind: Kind, spent: float) -> None:
        """Book something that was not reserved (replayed from the archive, measured afterwards)."""
        self.settle(kind, 0.0, spent)

    def exhausted(self) -> Kind | None:
        """The first budget of which nothing is left, or None. Those of models do not end a run."""
        limit = self._limits["evaluations"]
        return "evaluations" if limit is not None and self.used("evaluations") >= limit else self.exhausted_time()

    def exhausted_time(self) -> Kind | None:
        """The first time budget of which nothing is left, or None."""
        return next((k for k in TIMES if (limit := self._limits[k]) is not None and self.used(k) >= limit), None)

    def line(self, kind: Kind) -> BudgetLine:
        """One budget as a fact."""
        return BudgetLine(kind, self.used(kind), self._reserved[kind], self._limits[kind])

    def lines(self) -> tuple[BudgetLine, ...]:
        """Every budget as a fact."""
        return tuple(self.line(kind) for kind in KINDS)
