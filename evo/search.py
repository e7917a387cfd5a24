"""Ask/tell: which children to make of whom. Pure decisions, no evaluation, no IO, no clock.

    plans = search.ask()                      # a whole generation
    for plan in plans: search.tell(plan.n, outcome)      # in order of n, all of them

The state is a fold over the told outcomes in order of n: telling archived outcomes again rebuilds it
exactly. Child n's own generator is `search.rng(n)`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from evo.merit import fitness_us, shape_us
from evo.observer import GenerationStats
from evo.population import Member, Niches, Population, Share, Spread
from fitness.outcome import Outcome
from mutations.operator import Plan

MIGRATION_EVERY = 2
"""Generations between ring migrations: islands diverge for two, then share their best."""

SPREAD = 0.5
"""Share of the children whose parent's family is drawn first, in proportion to its speed: a family that improves fast
at first may have little left to gain, and one that begins slowly much.

A family descends from one seed and divides the timed shapes alike among its launches: where a kernel has a launch for
narrow operands and one for wide ones, which of them serves a shape is a choice that single steps of other params do not
undo."""

BARREN = 8
"""Children of a family without a better best that halve its chance: what is exhausted makes room."""

INSPIRATIONS = 2
"""Members of the hall of fame a child's operator may look at besides its parents: the best, then the best of
another seed's descendants."""

REPAIRABLE = 16
"""Latest failures that repairing operators choose from, the latest first."""

INJECTED = "inject"
"""Operator of kernels that a person adds."""


class OrderError(RuntimeError):
    """`ask` and `tell` called in an order that makes no sense (a bug of the caller)."""


@dataclass(frozen=True)
class Settings:
    """What steers the decisions.

    Attributes:
        rng_seed: of the run. seeds: number of starting kernels (candidates 0 .. seeds - 1).
        generations: after the seeds. children: per generation, over all islands. islands: how many.
        operators: name -> share. stagnation: generations without a better best after which only
            `narrow_to` is used (0: never).
        first: operator of generation 0; "seed", or one that makes a kernel of nothing.
    """

    rng_seed: int
    seeds: int
    generations: int
    children: int
    islands: int
    operators: Mapping[str, Share]
    stagnation: int = 0
    narrow_to: str = "tune"
    first: str = "seed"

    def __post_init__(self) -> None:
        for name in ("seeds", "children", "islands"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: at least 1 is needed")
        if not self.operators:
            raise ValueError("operators is empty: at least one with a weight > 0 is needed")

    @property
    def island_size(self) -> int:
        """Members an island keeps: two thirds of its children, so that selection is strong; at least 6."""
        return max(6, round(self.children / self.islands * 2 / 3))


@dataclass(frozen=True)
class Standing:
    """A valid candidate: its number and fitness."""

    n: int
    time_us: float


class Search:
    """The decisions of one run. See the module's docstring for the order of calls."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._population = Population(settings.rng_seed, settings.operators, settings.islands, settings.island_size)
        self._generation = -1
        self._plans: dict[int, Plan] = {}
        self._untold: list[int] = []
        self._truncated = False
        self._cut: list[Plan] = []
        self._asked = 0
        self._refilled = False
        self._outcomes: dict[int, Outcome | None] = {}
        self._codes: set[str] = set()
        self._roots: dict[int, int] = {}
        self._families: dict[int, Hashable] = {}
        self._champions: dict[Hashable, float] = {}
        self._barren: dict[Hashable, int] = {}
        self._valid: dict[int, float] = {}
        self._refuted: set[int] = set()
        self._failed: list[int] = []
        self._favour: Mapping[str, float] = {}
        self._stale = 0
        self._stats: list[GenerationStats] = []

    @property
    def generation(self) -> int:
        """The generation asked for last; -1 before the first `ask`, 0 for the seeds."""
        return self._generation

    @property
    def stats(self) -> tuple[GenerationStats, ...]:
        """Statistics of the complete generations, in order."""
        return tuple(self._stats)

    @property
    def narrowed(self) -> bool:
        """True while stagnation limits the operators to one."""
        settings = self.settings
        return 0 < settings.stagnation <= self._stale and settings.narrow_to in settings.operators

    @property
    def end(self) -> str | None:
        """Why `ask` has nothing more to give, or None."""
        if self._untold or self._generation < 0:
            return None
        if self._truncated:
            return "evaluations"
        if self._population.empty:
            return "no valid candidate to breed from"
        return "generations" if self._generation >= self.settings.generations else None

    def ask(
        self,
        limit: int | None = None,
        *,
        favour: Mapping[str, float] | None = None,
        injected: int = 0,
        narrow: bool = False,
    ) -> tuple[Plan, ...]:
        """Plan the next generation; generation 0 is all seeds.

        Args:
            limit: most children there is budget for; a generation cut short by it is the last one.
            favour: name -> factor on the weight of an operator, for this generation.
            injected: kernels that a person adds to this generation; they come first.
            narrow: use `narrow_to` alone, as under stagnation.

        Raises:
            OrderError: the previous generation is not told completely, or the search has ended.
        """
        if self._untold:
            raise OrderError(f"ask() while {_some(self._untold)} of generation {self._generation} wait for tell()")
        if self.end is not None:
            raise OrderError(f"ask() after the end of the search ({self.end})")
        self._generation += 1
        self._refilled = False
        self._favour = favour or {}
        plans = self._seed_plans() if self._generation == 0 else self._child_plans(injected, narrow)
        self._cut = []
        if limit is not None and limit < len(plans):
            plans, self._cut = plans[:limit], plans[limit:]
            self._truncated = True
        self._plans |= {plan.n: plan for plan in plans}
        self._untold = [plan.n for plan in plans]
        self._asked = len(plans)
        if not plans:
            self._close()
        return tuple(plans)

    def refill(self, refused: int) -> tuple[Plan, ...]:
        """Plan more children of this generation, in place of plans whose operators refused.

        Only operators with one parent get these places: the others have just shown that the parents have
        nothing new to exchange. A generation of refused plans only would waste what budget allows it. Where the
        generation was cut short, the places go first to the plans that were cut off: a run that goes on with a larger
        budget has them under the same numbers.

        Args:
            refused: how many places are free.

        Raises:
            OrderError: called before `ask` or after the first `tell` of a generation, or twice in it.
        """
        if self._refilled or not self._untold or len(self._untold) != self._asked:
            raise OrderError(f"refill({refused}) belongs between ask() and the first tell(), once")
        self._refilled = True
        only = frozenset(name for name, share in self.settings.operators.items() if share.arity == 1)
        if self._generation == 0 or refused < 1:
            return ()
        plans = self._cut[:refused]
        if len(plans) < refused and only:
            plans += self._children(refused - len(plans), only, again=1, first=len(self._plans) + len(plans))
        self._plans |= {plan.n: plan for plan in plans}
        self._untold += [plan.n for plan in plans]
        return tuple(plans)

    def tell(self, n: int, outcome: Outcome | None, served: Hashable = ()) -> None:
        """Report the verdict on candidate n; None where its operator refused.

        Args:
            n: the candidate.
            outcome: the verdict.
            served: equal for kernels whose launches divide the work alike, for example the timed shapes.

        Raises:
            OrderError: n was not asked for, was told before, or is not the next one in order.
        """
        if n not in self._plans:
            raise OrderError(f"tell({n}): no such candidate has been asked for")
        if n in self._outcomes:
            raise OrderError(f"tell({n}): its outcome has been told before")
        if n != self._untold[0]:
            raise OrderError(f"tell({n}) out of order: candidate {self._untold[0]} is next")
        self._untold.pop(0)
        self._outcomes[n] = outcome
        parents = self._plans[n].parents
        self._roots[n] = self._roots[parents[0]] if parents else n
        self._families[n] = (self._roots[n], served)
        if not self._untold:
            self._close()

    def refute(self, n: int) -> None:
        """Candidate n failed its confirmation: it is no parent any more and never the best.

        Raises:
            OrderError: called in the middle of a generation, or for a candidate that is not valid.
        """
        if self._untold:
            raise OrderError(f"refute({n}) in the middle of generation {self._generation}")
        if n not in self._valid:
            raise OrderError(f"refute({n}): not a valid candidate")
        self._refuted.add(n)
        self._population.remove(n)

    def ranking(self) -> tuple[Standing, ...]:
        """Every valid candidate that was not refuted and whose code is its own, fastest first."""
        standings = (Standing(n, time_us) for n, time_us in self._valid.items() if n not in self._refuted)
        return tuple(sorted(standings, key=lambda standing: (standing.time_us, standing.n)))

    def best(self) -> Standing | None:
        """The first of the ranking: the best of the whole history."""
        ranking = self.ranking()
        return ranking[0] if ranking else None

    def best_seed(self) -> Standing | None:
        """The fastest valid starting kernel, or None."""
        return next((standing for standing in self.ranking() if standing.n < self.settings.seeds), None)

    def rng(self, n: int) -> np.random.Generator:
        """Child n's own generator, fresh: SeedSequence([rng_seed, n])."""
        return np.random.default_rng(np.random.SeedSequence([self.settings.rng_seed, n]))

    # decisions

    def _seed_plans(self) -> list[Plan]:
        return [Plan(n, 0, n % self.settings.islands, self.settings.first) for n in range(self.settings.seeds)]

    def _child_plans(self, injected: int, narrow: bool) -> list[Plan]:
        settings, first = self.settings, len(self._plans)
        narrow = self.narrowed or (narrow and settings.narrow_to in settings.operators)
        only = frozenset({settings.narrow_to}) if narrow else None
        added = [Plan(first + place, self._generation, place % settings.islands, INJECTED) for place in range(injected)]
        return added + self._children(settings.children, only, again=0, first=first + injected)

    def _children(self, count: int, only: frozenset[str] | None, again: int, first: int) -> list[Plan]:
        """Children of all islands in turn, so that a generation cut short treats the islands alike."""
        homes = [island for island, members in enumerate(self._population.islands) if members]
        counts = {home: len(range(place, count, len(homes))) for place, home in enumerate(homes)}
        prospects = {family: 0.5 ** (barren / BARREN) for family, barren in self._barren.items()}
        niches = Niches(self._families.__getitem__, SPREAD, prospects)
        varied = {}
        for home, share in counts.items():
            varied[home] = self._population.vary(
                self._generation,
                home,
                share,
                only,
                again,
                niches=niches,
                favour=self._favour,
                failed=self._failed,
            )
            taken = {variation.parents[0] for variation in varied[home]}
            self._failed = [n for n in self._failed if n not in taken]
        plans = []
        for child in range(count):
            home = homes[child % len(homes)]
            choice = varied[home][child // len(homes)]
            inspirations = self._inspirations(choice.parents)
            plans.append(Plan(first + child, self._generation, home, choice.operator, choice.parents, inspirations))
        return plans

    def _inspirations(self, parents: tuple[int, ...]) -> tuple[int, ...]:
        """The best that are no parents: the very best, then the best of another seed's than the first parent's."""
        others = [member.n for member in self._population.hall if member.n not in parents]
        root = self._roots[parents[0]]
        strangers = [n for n in others[1:] if self._roots[n] != root]
        return tuple(dict.fromkeys([*others[:1], *strangers[:1], *others[1:]]))[:INSPIRATIONS]

    # the fold

    def _close(self) -> None:
        """Fold a completely told generation into the state."""
        told = [n for n, plan in self._plans.items() if plan.generation == self._generation]
        best_before = self.best()
        fresh: dict[int, list[Member]] = {}
        times: list[Member] = []
        for n in told:
            outcome = self._outcomes[n]
            time_us = fitness_us(outcome) if outcome is not None else None
            if outcome is not None:
                self._note(n, time_us)
            if outcome is None or time_us is None:
                self._failed = ([n] if outcome is not None else []) + self._failed[: REPAIRABLE - 1]
                continue
            member = Member(n, time_us, shape_us(outcome))
            times.append(member)
            if outcome.code_key is None or outcome.code_key not in self._codes:
                self._valid[n] = time_us
                fresh.setdefault(self._plans[n].island, []).append(member)
            self._codes |= {outcome.code_key} if outcome.code_key else set()
        self._settle(fresh)
        best = self.best()
        improved = best is not None and (best_before is None or best.time_us < best_before.time_us)
        self._stale = 0 if improved else self._stale + 1
        judged = sum(self._outcomes[n] is not None for n in told)
        self._record(
            judged, self._population.record(self._generation, times, judged=judged, valid=len(times)), len(times)
        )

    def _note(self, n: int, time_us: float | None) -> None:
        """Count the children of a family since one of them was a better best of its own."""
        own = self._families[n]
        parents = self._plans[n].parents
        of = self._families[parents[0]] if parents else own
        if time_us is not None and time_us < self._champions.get(own, math.inf):
            self._champions[own] = time_us
            self._barren[own] = self._barren[of] = 0
        else:
            self._barren[of] = self._barren.get(of, 0) + 1

    def _settle(self, fresh: Mapping[int, list[Member]]) -> None:
        population = self._population
        if self._generation == 0:
            population.start([member for members in fresh.values() for member in members])
            return
        niches = self.settings.island_size // 2
        for island in range(self.settings.islands):
            population.survive(island, fresh.get(island, []), self._families.__getitem__, niches)
        if self._generation % MIGRATION_EVERY == 0:
            population.migrate(self._families.__getitem__)

    def _record(self, judged: int, spread: Spread | None, valid: int) -> None:
        best = self.best()
        self._stats.append(
            GenerationStats(
                generation=self._generation,
                judged=judged,
                valid=valid,
                best_us=best.time_us if best else None,
                generation_best_us=spread.best_us if spread else None,
                median_us=spread.median_us if spread else None,
                worst_us=spread.worst_us if spread else None,
            )
        )


def _some(numbers: list[int]) -> str:
    """Candidates in words: the first three, then how many more."""
    shown = ", ".join(str(n) for n in numbers[:3])
    more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
    return f"candidate{'s' if len(numbers) > 1 else ''} {shown}{more}"
