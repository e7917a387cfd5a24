"""The population: selection, variation, survival, migration, statistics. The only module that imports deap.

DEAP sees nothing but `Member`s, a candidate's number and its fitness. It never sees a kernel, and never
a failure: NaN ranks as best in DEAP and infinities spoil its distances, so failures stay outside.
DEAP's chance is the global `random`; `chance` is the one place where it is seeded, around every DEAP
call that draws, and the caller's state is put back afterwards.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import operator
import random
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from deap import base, tools

TOURNAMENT = 3
"""Members per tournament: with six members the best is drawn in 42 % of the draws, the worst in 0.5 %."""

REACH = 2.5
"""Members this many times slower than the best of their island do not breed while two others can: a child
of theirs would have to gain that much at once, and ends at the timing screen as hopeless otherwise."""


@functools.cache
def _fitness_class(values: int) -> type[base.Fitness]:
    """A fitness of so many times in microseconds, all to be minimised (DEAP wants the count in the class)."""
    return type(f"Times{values}", (base.Fitness,), {"weights": (-1.0,) * values})


class Member:
    """A candidate as DEAP sees it: number and fitness. Equal and hashed by `n` (HallOfFame compares individuals).

    The fitness is (mean time, time at the first shape, at the second, ...) in microseconds. It is compared
    by the mean; lexicase selection looks at one of its values at a time and so finds the specialists.
    """

    __slots__ = ("fitness", "n")

    def __init__(self, n: int, time_us: float, shape_us: Sequence[float] = ()) -> None:
        values = (time_us, *shape_us)
        if not all(math.isfinite(value) and value > 0 for value in values):
            raise ValueError(f"candidate {n} has no usable time ({values}); failures stay out of the population")
        self.n = n
        self.fitness = _fitness_class(len(values))(values)

    @property
    def time_us(self) -> float:
        """The mean time."""
        return float(self.fitness.values[0])

    @property
    def shape_us(self) -> tuple[float, ...]:
        """Times per shape."""
        return tuple(map(float, self.fitness.values[1:]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Member) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)

    def __repr__(self) -> str:
        return f"Member({self.n}, {self.time_us:g} us)"


@dataclass(frozen=True)
class Share:
    """An operator as the population knows it: relative weight (> 0), number of parents, and if it takes failed ones."""

    weight: float
    arity: int
    repairs: bool = False


@dataclass(frozen=True)
class Variation:
    """A decision: which operator on which parents (candidate numbers)."""

    operator: str
    parents: tuple[int, ...]


@dataclass(frozen=True)
class Niches:
    """Families, members of one kind, as places of their own to breed in.

    Attributes:
        family: of a candidate number.
        spread: how often a parent's family is drawn first, in proportion to its best member's speed times its
            prospects; else, and within a family, the faster members are preferred.
        prospects: factor on a family's chance; 1 where there is none.
    """

    family: Callable[[int], Hashable]
    spread: float
    prospects: Mapping[Hashable, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Spread:
    """Times of the valid members of a generation, microseconds."""

    best_us: float
    median_us: float
    worst_us: float


@contextlib.contextmanager
def chance(rng_seed: int, generation: int, island: int, again: int = 0) -> Iterator[None]:
    """Seed the global `random` for the DEAP calls of the block; the caller's state is restored after it.

    `again` counts further draws for the same island and generation.
    """
    before = random.getstate()
    entropy = [rng_seed, generation, island, *([again] if again else [])]
    random.seed(int.from_bytes(np.random.SeedSequence(entropy).generate_state(8).tobytes()))
    try:
        yield
    finally:
        random.setstate(before)


class Population:
    """Islands of members and what is known of them.

    Args:
        rng_seed: of the run.
        operators: name -> share; used in the order of their names.
        islands: number of islands.
        size: members an island keeps.
        hall: members of the hall of fame.
    """

    def __init__(self, rng_seed: int, operators: Mapping[str, Share], islands: int, size: int, hall: int = 16) -> None:
        self._rng_seed = rng_seed
        self._operators = dict(sorted(operators.items()))
        self._size = size
        self.islands: list[list[Member]] = [[] for _ in range(islands)]
        self.hall = tools.HallOfFame(hall)
        self.logbook = tools.Logbook()
        self._statistics = tools.Statistics(key=operator.attrgetter("time_us"))
        self._statistics.register("best_us", min)
        self._statistics.register("median_us", statistics.median)
        self._statistics.register("worst_us", max)
        self.toolbox = self._registered()

    def _registered(self) -> base.Toolbox:
        toolbox = base.Toolbox()
        toolbox.register("clone", copy.copy)
        toolbox.register("select", tools.selTournament, tournsize=TOURNAMENT)
        toolbox.register("partner", tools.selLexicase)
        toolbox.register("mutate", self._mutate)
        toolbox.register("mate", self._mate)
        toolbox.register("rank", tools.selBest)
        toolbox.register("migrate", tools.migRing, k=1, selection=tools.selBest)
        return toolbox

    @property
    def empty(self) -> bool:
        """True if no island has a member: nothing can be a parent."""
        return not any(self.islands)

    def vary(
        self,
        generation: int,
        island: int,
        count: int,
        only: frozenset[str] | None = None,
        again: int = 0,
        *,
        niches: Niches | None = None,
        favour: Mapping[str, float] | None = None,
        failed: Sequence[int] = (),
    ) -> list[Variation]:
        """Decide `count` children of an island; a longer list begins with the shorter one.

        DEAP's `varOr` would also *make* the children, one after the other; here only decisions are made.

        Args:
            generation: the children's.
            island: whose members are the parents.
            count: how many children.
            only: names of the operators to use, None for all.
            again: how often children of this generation and island were decided before.
            niches: how parents are drawn by family; None: by their times only.
            favour: name -> factor on the operator's weight.
            failed: candidates that an operator with `repairs` may take, each once; it is not used without any.
        """
        factors = favour or {}
        shares = {
            name: replace(share, weight=share.weight * factors.get(name, 1.0))
            for name, share in self._operators.items()
            if only is None or name in only
        }
        breeding, broken = self._breeding(island), list(failed)
        with chance(self._rng_seed, generation, island, again):
            return [self._vary_one(self._niche(breeding, niches), breeding, shares, broken) for _ in range(count)]

    def _niche(self, members: list[Member], niches: Niches | None) -> list[Member]:
        """Members, best first, that the first parent is chosen from: those of one family, or all."""
        if niches is None or random.random() >= niches.spread:
            return members
        chances: dict[Hashable, float] = {}
        for member in members:
            family = niches.family(member.n)
            chances.setdefault(family, niches.prospects.get(family, 1.0) / member.time_us)
        (chosen,) = random.choices(list(chances), list(chances.values()))
        return [member for member in members if niches.family(member.n) == chosen]

    def _breeding(self, island: int) -> list[Member]:
        """Members of an island that may be parents: those within reach of its best, at least two."""
        ranked = self._distinct(self.islands[island])
        near = self._near(ranked)
        return near if len(near) > 1 else ranked[:2]

    def _near(self, ranked: Sequence[Member]) -> list[Member]:
        """Members, best first, that are within reach of the best."""
        return [member for member in ranked if member.time_us <= REACH * ranked[0].time_us]

    def _vary_one(
        self, niche: Sequence[Member], members: Sequence[Member], shares: Mapping[str, Share], broken: list[int]
    ) -> Variation:
        """One decision, with a first parent of `niche`; a repair takes the first of `broken` out of the list."""
        (first,) = self.toolbox.select(niche, 1)
        others = [member for member in members if member != first]
        usable = {
            name: share
            for name, share in shares.items()
            if (share.arity == 1 or others) and (broken or not share.repairs)
        } or shares
        (name,) = random.choices(list(usable), [share.weight for share in usable.values()])
        if usable[name].repairs and broken:
            return Variation(name, (broken.pop(0),))
        if usable[name].arity == 1:
            return Variation(name, self.toolbox.mutate(first))
        return Variation(name, self.toolbox.mate(first, others or list(members), usable[name].arity))

    def _mutate(self, member: Member) -> tuple[int, ...]:
        return (member.n,)

    def _mate(self, first: Member, others: Sequence[Member], arity: int) -> tuple[int, ...]:
        """A good one and partners that are the best at something: the mean, or the time at one shape."""
        partners: list[Member] = self.toolbox.partner(others, arity - 1)
        return (first.n, *(partner.n for partner in partners))

    def start(self, members: Sequence[Member]) -> None:
        """Found every island with the same members (the seeds): no island begins with the slow half."""
        best = self._distinct(members)
        self.islands = [[self.toolbox.clone(member) for member in best] for _ in self.islands]
        self.hall.update(best)

    def survive(
        self, island: int, children: Sequence[Member], family: Callable[[int], Hashable], niches: int = 1
    ) -> None:
        """(mu + lambda): the best of the island and its children live on, the best at each shape among them.

        Args:
            island: which one.
            children: this generation's valid ones, without those whose code the run had before.
            family: of a candidate number.
            niches: how many families within reach keep their best member whatever the others do, the fastest
                first, so that a seed which is slow only at its default parameters is not lost.
        """
        ranked = self._distinct([*self.islands[island], *children])
        kept = self._near(self._champions(ranked, family))[:niches]
        first = list(dict.fromkeys([*kept, *self._specialists(ranked)]))[: max(niches, self._size // 2)]
        rest = [member for member in ranked if member not in first]
        self.islands[island] = self._distinct((first + rest)[: self._size])
        self.hall.update(self._distinct(children))

    def _champions(self, ranked: Sequence[Member], family: Callable[[int], Hashable]) -> list[Member]:
        """The best of each family, best first, of members that are ranked."""
        best: dict[Hashable, Member] = {}
        for member in ranked:
            best.setdefault(family(member.n), member)
        return list(best.values())

    def _specialists(self, ranked: Sequence[Member]) -> list[Member]:
        """The best by the mean, then the best at each shape; each once."""
        shapes = range(len(ranked[0].shape_us) if ranked else 0)
        best = [min(ranked, key=lambda member: member.shape_us[shape]) for shape in shapes]
        return list(dict.fromkeys([*ranked[:1], *best]))

    def migrate(self, family: Callable[[int], Hashable] = lambda n: n) -> None:
        """Ring migration: each island's best replaces a slow one of the next; no object is in two islands.

        Args:
            family: of a candidate number; the best of each stays, while there are others.
        """

        def replaceable(members: list[Member], k: int) -> list[Member]:
            ranked = self._distinct(members)
            champions = self._champions(ranked, family)
            others = [member for member in ranked if member not in champions]
            return (others or ranked)[-k:]

        if len(self.islands) < 2 or min(len(members) for members in self.islands) < 2:
            return
        fresh = [[self.toolbox.clone(member) for member in members] for members in self.islands]
        self.toolbox.migrate(fresh, replacement=replaceable)  # puts one object into two islands: hence the second clone
        self.islands = [self._distinct([self.toolbox.clone(member) for member in members]) for members in fresh]

    def remove(self, n: int) -> None:
        """Take a candidate out of every island and the hall of fame (its confirmation failed)."""
        self.islands = [[member for member in members if member.n != n] for members in self.islands]
        keep = [member for member in self.hall if member.n != n]
        self.hall.clear()
        if keep:  # HallOfFame.update reads population[0] of an empty hall
            self.hall.update(keep)

    def record(self, generation: int, members: Sequence[Member], **counts: int) -> Spread | None:
        """Enter a generation into the logbook; its spread, or None if nothing in it was valid."""
        spread = self._statistics.compile(members) if members else {}
        self.logbook.record(gen=generation, **counts, **spread)
        return Spread(**spread) if spread else None

    def _distinct(self, members: Sequence[Member]) -> list[Member]:
        """Members best first (equal times: lower n first), each n once."""
        unique = {member.n: member for member in sorted(members, key=operator.attrgetter("n"))}
        ranked: list[Member] = self.toolbox.rank(list(unique.values()), len(unique))
        return ranked
