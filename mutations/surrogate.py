"""The `surrogate` operator: params where a model of the times seen so far expects, or hopes for, a faster kernel.

Surrogate-assisted evolution. For each timed shape a Gaussian process (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, chapters 2 and 5) is fitted to the logarithm of the times of the run's candidates. Each param
has a length of its own (section 5.1, automatic relevance determination): nothing is spent on those that change no
time. The child is the member of a pool of mutants and crossovers with the largest expected improvement on the best
(Jones, Schonlau and Welch, Journal of Global Optimization 13, 1998). Children whose times are not known yet count as
if they took what is expected of them, so that those of one generation look in different places (Ginsbourger, Le Riche
and Carraro, 2010).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from fitness.kernel import Kernel
from fitness.outcome import Timed
from mutations.launches import servings
from mutations.operator import Context, Judged, Proposal, Refusal
from mutations.tune import Children, Moves, Params

FEWEST: Final = 4
"""Timed kernels with the parent's params below which nothing is expected yet: any mutant will do."""

LATEST: Final = 256
"""Timed kernels the model looks at, the latest ones: its cost grows with their number cubed."""

_POOL: Final = 256  # mutants and crossovers a child is chosen from
_ELITE: Final = 8  # fastest kernels that the parent is crossed with
_MARGIN: Final = 0.05  # mean of the improvement (of log time) a child must hope to exceed: bold ones among careful ones
_NOISE: Final = 1e-3  # of the variance: what params do not explain
_KIN: Final = 0.8  # correlation of two sources with the same params, at equal params
_LENGTHS: Final = (1.5, 3.0, 6.0, 100.0)  # steps in a param's list over which times stay alike; the last: it is idle
_SWEEPS: Final = 2  # over the params, for a length of each
_CLEARLY: Final = 0.1  # by which another length must raise the log likelihood
_SHARES: Final = (0.3, 0.7, 0.95)  # of the variance that is a sum over params, the rest their interplay

Matrix = NDArray[np.float64]


class Surrogate:
    """Changes params of its parent to what a model of all times so far finds most promising.

    Where the run has timed fewer than `FEWEST` kernels with the parent's params, the child is a random mutant.
    """

    name = "surrogate"
    arity = 1

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        """One child of one parent, or a refusal if it has no params or every mutant of the pool is known."""
        (parent,) = parents
        kernel = parent.candidate.kernel
        if not any(len(param.values) > 1 for param in kernel.header.params.values()):
            return Refusal("the parent has no param with a second value")
        seen = _kin(kernel, context)
        pool = list(_pool(kernel, seen, context))
        if not pool:
            return Refusal("every mutant and crossover drawn is infeasible or has already been tried in this run")
        if len(seen) < FEWEST:
            child = pool[0]
            return Proposal(child, f"{_changes(kernel, child)}; too few times yet to expect anything of them")
        pending = [one.kernel for one in context.ledger.pending() if _same_params(one.kernel, kernel)]
        expected = _expect(seen, pending, pool, context)
        # Rounded, so that the last bits of a linear algebra library decide nothing.
        margin = _MARGIN * float(context.rng.exponential())
        best = int(np.argmax(np.round(_improvement(seen, expected, margin), 9)))
        child, us, width = pool[best], math.exp(expected.mean[best]), 100 * math.sqrt(expected.variance[best])
        belief = f"{us:.3g} us +-{width:.0f} % expected after {len(seen)} times"
        return Proposal(child, f"{_changes(kernel, child)}; {belief}")


@dataclass(frozen=True)
class _Expected:
    """What a model expects of every kernel of a pool: log of us, mean over the shapes, and its variance."""

    mean: Matrix
    variance: Matrix


def _kin(kernel: Kernel, context: Context) -> list[Judged]:
    """Timed kernels of the run with the same params, the latest `LATEST`."""
    shapes = len(context.task.shapes)
    return [
        one
        for one in context.ledger.timed()
        if isinstance(one.outcome, Timed)
        and len(one.outcome.timings) == shapes
        and _same_params(one.candidate.kernel, kernel)
    ][-LATEST:]


def _same_params(one: Kernel, other: Kernel) -> bool:
    return one.header is other.header or one.header.params == other.header.params


def _improvement(seen: Sequence[Judged], expected: _Expected, margin: float) -> Matrix:
    """Expected improvement, beyond a margin, on the fastest kernel seen, in the logarithm of the mean time."""
    fastest = min(float(np.mean(np.log(_times(one)))) for one in seen) - margin
    deviation = np.sqrt(expected.variance) + 1e-9
    better = (fastest - expected.mean) / deviation
    density = np.exp(-(better**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(deviation * (better * ndtr(better) + density), np.float64)


def _times(one: Judged) -> tuple[float, ...]:
    return tuple(timing.time_us for timing in one.outcome.timings) if isinstance(one.outcome, Timed) else ()


def _pool(kernel: Kernel, seen: Sequence[Judged], context: Context) -> Iterator[Kernel]:
    """Children the run does not have: mutants of the parent, and what it gives crossed with the fastest."""
    known = set()
    children = Children(kernel, context)
    for params in _draws(kernel, _elite(seen), context.rng):
        key = tuple(params.values())
        if key in known:
            continue
        known.add(key)
        child = children.at(params)
        if child is not None:
            yield child


def _draws(kernel: Kernel, elite: Sequence[Params], rng: Generator) -> Iterator[Params]:
    """In turn: the parent mutated, the parent crossed with one of the elite, the same mutated."""
    names = list(kernel.header.params)
    moves = Moves(kernel, names)
    for n in range(_POOL):
        start = dict(kernel.params)
        if elite and n % 3:
            other = elite[int(rng.integers(len(elite)))]
            coins = rng.random(len(names)) < 0.5
            crossed = {name: other[name] for name, coin in zip(names, coins, strict=True) if coin}
            start |= {name: value for name, value in crossed.items() if value in kernel.header.params[name].values}
        yield start if elite and n % 3 == 1 else moves.draw(start, rng)


def _elite(seen: Sequence[Judged]) -> list[Params]:
    """Params of the fastest, over all shapes and at each."""
    if not seen:
        return []
    times = np.log([_times(one) for one in seen])
    ranks = [np.argsort(times.mean(axis=1), kind="stable")]
    ranks += [np.argsort(times[:, shape], kind="stable") for shape in range(times.shape[1])]
    order = dict.fromkeys(int(n) for place in range(_ELITE) for rank in ranks for n in rank[place : place + 1])
    return [seen[n].candidate.kernel.params for n in list(order)[:_ELITE]]


def _expect(seen: Sequence[Judged], pending: Sequence[Kernel], pool: Sequence[Kernel], context: Context) -> _Expected:
    """The mean over the shapes of one Gaussian process each."""
    kernels = [*(one.candidate.kernel for one in seen), *pending, *pool]
    shapes = len(context.task.shapes)
    mean, variance = np.zeros(len(pool)), np.zeros(len(pool))
    for place, features in enumerate(_features(kernels, context)):
        times = np.log([_times(one)[place] for one in seen])
        one = _process(times, len(pending), features)
        mean += one.mean / shapes
        variance += one.variance / shapes**2
    return _Expected(mean, variance)


@dataclass(frozen=True)
class _Features:
    """What a model sees of kernels at a shape.

    Attributes:
        ranks: (kernels, params) places of the values in the params' sorted lists; -1 where a param does not matter.
        launches: (kernels,) equal for kernels that the same launches serve; others have nothing in common.
        sources: (kernels,) equal for the same source; others with the same params are kin.
    """

    ranks: NDArray[np.int64]
    launches: NDArray[np.int64]
    sources: NDArray[np.int64]

    def __getitem__(self, part: slice) -> _Features:
        return _Features(self.ranks[part], self.launches[part], self.sources[part])


def _features(kernels: Sequence[Kernel], context: Context) -> list[_Features]:
    """Features of kernels with the same params, one for each of the task's shapes."""
    places = [
        (name, {value: i for i, value in enumerate(sorted(param.values))})
        for name, param in kernels[0].header.params.items()
    ]
    shapes = len(context.task.shapes)
    ranks = np.empty((shapes, len(kernels), len(places)), np.int64)
    launches = np.empty((shapes, len(kernels)), np.int64)
    labels: dict[str, int] = {}
    sources = np.array([labels.setdefault(kernel.source, len(labels)) for kernel in kernels])
    for n, kernel in enumerate(kernels):
        own = [place[kernel.params[name]] for name, place in places]
        for at, (served_by, live) in enumerate(servings(kernel, context.task, context.target)):
            ranks[at, n] = [rank if name in live else -1 for rank, (name, _) in zip(own, places, strict=True)]
            launches[at, n] = sum(1 << place for place in served_by)
    return [_Features(ranks[at], launches[at], sources) for at in range(shapes)]


class _Likeness:
    """How alike two lists of kernels are: a prior covariance, in units of the variance, of given hyperparameters.

    A param's part falls with the distance of two ranks over the param's own length. The parts of all lengths are looked
    up once, so that trying another length of one param costs little more than solving.
    """

    def __init__(self, ours: _Features, theirs: _Features) -> None:
        apart = np.abs(ours.ranks.T[:, :, None] - theirs.ranks.T[:, None, :])  # params, ours, theirs
        steps = np.arange(1 + int(apart.max(initial=0)))
        self._parts = [np.exp(steps / -length)[apart] for length in _LENGTHS]
        same_source = ours.sources[:, None] == theirs.sources[None, :]
        self._alike = (ours.launches[:, None] == theirs.launches[None, :]) * np.where(same_source, 1.0, _KIN)

    def covariance(self, prior: _Prior) -> Matrix:
        """A sum over params and a product over params, mixed."""
        parts = np.stack([self._parts[length][place] for place, length in enumerate(prior.lengths)])
        return self._mixed(prior.share, parts.mean(axis=0), parts.prod(axis=0))

    def with_each_length(self, prior: _Prior, place: int) -> Iterator[Matrix]:
        """The covariance of a prior with every length of one param in turn."""
        count = len(prior.lengths)
        others = [self._parts[length][at] for at, length in enumerate(prior.lengths) if at != place]
        total = np.sum(others, axis=0) if others else 0.0
        product = np.prod(others, axis=0) if others else 1.0
        for parts in self._parts:
            yield self._mixed(prior.share, (total + parts[place]) / count, product * parts[place])

    def _mixed(self, share: float, mean: Matrix, product: Matrix) -> Matrix:
        return np.asarray(self._alike * (share * mean + (1 - share) * product), np.float64)


class _Prior(NamedTuple):
    """Hyperparameters: each param's place in `_LENGTHS`, and the share of the variance that is a sum over params."""

    lengths: tuple[int, ...]
    share: float


def _likelihood(times: Matrix, covariance: Matrix) -> float:
    """Logarithm of the likelihood of standardised times, but for a constant."""
    factor = _factor(covariance)
    return -0.5 * float(times @ cho_solve(factor, times)) - float(np.log(np.diag(factor[0])).sum())


def _fitted(times: Matrix, features: _Features) -> _Prior:
    """The likeliest prior: one length for all params, then each param's own where that says clearly more.

    Args:
        times: (n,) standardised log times.
        features: of the same kernels.
    """
    likeness, params = _Likeness(features, features), features.ranks.shape[1]
    shared = [_Prior((length,) * params, share) for length in range(len(_LENGTHS)) for share in _SHARES]
    likelihoods = [round(_likelihood(times, likeness.covariance(prior)), 6) for prior in shared]
    reached = max(likelihoods)
    best = shared[likelihoods.index(reached)]
    for _ in range(_SWEEPS):
        before = best
        for place in range(params):
            for length, covariance in enumerate(likeness.with_each_length(best, place)):
                tried = _likelihood(times, covariance)
                if tried > reached + _CLEARLY:
                    reached = tried
                    best = best._replace(lengths=(*best.lengths[:place], length, *best.lengths[place + 1 :]))
        if best == before:
            break
    return best


@functools.lru_cache(maxsize=16)
def _known_prior(times: bytes, ranks: bytes, launches: bytes, sources: bytes) -> _Prior:
    """`_fitted` of the arrays' bytes: children of one generation are drawn from the same times."""
    y = np.frombuffer(times, np.float64)
    whole = np.frombuffer(ranks, np.int64).reshape(len(y), -1)
    return _fitted(y, _Features(whole, np.frombuffer(launches, np.int64), np.frombuffer(sources, np.int64)))


def _process(times: Matrix, pending: int, features: _Features) -> _Expected:
    """A Gaussian process through log times, by the likeliest prior, evaluated on the pool.

    Args:
        times: (n,) log times of the first n kernels.
        pending: how many come next, whose times are as expected: they lower the variance and nothing else.
        features: of the n timed kernels, the pending ones and the pool.
    """
    n, known = len(times), len(times) + pending
    level, spread = float(times.mean()), max(float(times.std()), 1e-3)
    y = np.ascontiguousarray((times - level) / spread)
    first = features[:n]
    arrays = (np.ascontiguousarray(each) for each in (first.ranks, first.launches, first.sources))
    prior = _known_prior(y.tobytes(), *(array.astype(np.int64).tobytes() for array in arrays))
    alike = _Likeness(features[:known], features[:known]).covariance(prior)
    factor, weights = _factor(alike), cho_solve(_factor(alike[:n, :n]), y)
    across = _Likeness(features[known:], features[:known]).covariance(prior)
    explained = (across * cho_solve(factor, across.T).T).sum(axis=1)
    variance = np.maximum(1.0 - explained, 0.0)
    return _Expected(level + spread * (across[:, :n] @ weights), spread**2 * variance)


def _factor(covariance: Matrix) -> tuple[Matrix, bool]:
    """Cholesky factor of a covariance with noise, as `cho_solve` takes it."""
    lower: tuple[Matrix, bool] = cho_factor(covariance + _NOISE * np.eye(len(covariance)), lower=True)
    return lower


def _changes(parent: Kernel, child: Kernel) -> str:
    """What changed, from what to what."""
    changed = {name: value for name, value in child.params.items() if value != parent.params[name]}
    return ", ".join(f"{name} {parent.params[name]} -> {value}" for name, value in changed.items())
