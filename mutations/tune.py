"""The `tune` operator: the parent's source with one to three params at other values of their lists."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from numpy.random import Generator

from fitness.kernel import Kernel
from fitness.outcome import Timed, Timing
from fitness.task import Task
from mutations.launches import launchable, live_params, servings
from mutations.operator import Context, Judged, Ledger, Proposal, Refusal

_DRAWS: Final = 64  # random proposals before the neighbourhood is listed
_LISTED: Final = 20_000  # at most that many children are listed when draws find nothing fresh
_CHANGES: Final = (0.55, 0.3, 0.15)  # chances of changing one, two, three params
_CUMULATIVE: Final = tuple(itertools.accumulate(_CHANGES))
_STEP: Final = 0.75  # chance of the next value up or down; else any other value of the list

EXHAUSTED: Final = "every feasible change of one to three params has already been tried in this run"

Params = Mapping[str, int]


class Tune:
    """Changes one to three params of its parent, mostly to the next value up or down.

    Only params that can matter at the task's shapes are touched, preferably those of the shape that stands
    farthest from its floor; constraints, `require` and the card's limits hold; a kernel the run already has
    is not proposed while there are others.
    """

    name = "tune"
    arity = 1

    def __init__(self) -> None:
        self._exhausted: WeakKeyDictionary[Ledger, set[str]] = WeakKeyDictionary()  # ids of parents, by run

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        """One child of one parent, or a refusal if it has no params or all its neighbours are known."""
        (parent,) = parents
        kernel = parent.candidate.kernel
        everywhere = live_params(kernel, context.task, context.target, context.task.shapes)
        if not any(len(kernel.header.params[name].values) > 1 for name in everywhere):
            return Refusal("the parent has no param with a second value that matters at the task's shapes")
        exhausted = self._exhausted.setdefault(context.ledger, set())
        if kernel.id in exhausted:
            return Refusal(EXHAUSTED)
        focus = _focus(parent, context.rng)
        names = everywhere
        if focus is not None:
            names = live_params(kernel, context.task, context.target, (focus.shape,)) or everywhere
        children = Children(kernel, context)
        for params in itertools.chain(_draws(kernel, names, context.rng), _listed(kernel, everywhere, context.rng)):
            child = children.at(params)
            if child is not None:
                return Proposal(child, _reason(kernel, child, focus))
        if _neighbours(kernel, everywhere) <= _LISTED:  # a run never forgets: what all are known of stays so
            exhausted.add(kernel.id)
        return Refusal(EXHAUSTED)


def _draws(kernel: Kernel, names: Sequence[str], rng: Generator) -> Iterator[dict[str, int]]:
    """Random children: few params, near values."""
    moves = Moves(kernel, names)
    for _ in range(_DRAWS if moves else 0):
        yield moves.draw(kernel.params, rng)


def _neighbours(kernel: Kernel, names: Sequence[str]) -> int:
    """How many children `_listed` has to list."""
    others = [len(kernel.header.params[name].values) - 1 for name in names]
    return sum(math.prod(group) for count in (1, 2, 3) for group in itertools.combinations(others, count))


class Children:
    """Kernels that a parent's source gives at other params, as far as judging them tells a run something."""

    def __init__(self, kernel: Kernel, context: Context) -> None:
        self._kernel, self._context = kernel, context
        self._header_matters = _header_depends(kernel)
        self._none: set[tuple[int, ...]] = set()

    def at(self, params: Params) -> Kernel | None:
        """The kernel at `params`, or None if it is infeasible, unfit for the task or card, or part of the run.

        What is asked for again and again, in draws from few values, is known after the first time.
        """
        values = tuple(params[name] for name in self._kernel.header.params)
        if values in self._none:
            return None
        child = self._child(values)
        if child is None:
            self._none.add(values)
        return child

    def _child(self, values: tuple[int, ...]) -> Kernel | None:
        """The cheapest question first: in a run that has tried nearly everything, the first one settles it."""
        parent, context = self._kernel, self._context
        child = dataclasses.replace(parent, params=dict(zip(parent.header.params, values, strict=True)))
        if child.params == parent.params or context.ledger.tried(child.id) or not parent.feasible(child.params):
            return None
        if self._serves_alike(child) or not launchable(child, context.task, context.target):
            return None
        return None if self._header_matters and _unfit(child, context.task) else child

    def _serves_alike(self, child: Kernel) -> bool:
        """True if a child differs in nothing that matters at any shape."""
        parent, task, card = self._kernel, self._context.task, self._context.target
        return all(
            ours == theirs and all(parent.params[name] == child.params[name] for name in ours[1])
            for ours, theirs in zip(servings(parent, task, card), servings(child, task, card), strict=True)
        )


def _header_depends(kernel: Kernel) -> bool:
    """True if what the task demands of the header (format, `require`) depends on params."""
    named = set().union(*(expression.names for expression in kernel.header.require))
    named |= {str(option) for option in kernel.header.format.options.values()}
    return not named.isdisjoint(kernel.header.params)


def _unfit(kernel: Kernel, task: Task) -> bool:
    return any(finding.severity == "error" for finding in task.domain_violations(kernel))


def _focus(parent: Judged, rng: Generator) -> Timing | None:
    """A shape to work on, drawn in proportion to its distance from the floor: log(time / floor)."""
    outcome = parent.outcome
    if not isinstance(outcome, Timed) or not outcome.timings:
        return None
    room = [max(math.log(timing.time_us / timing.floor_us), 0.0) + 1e-3 for timing in outcome.timings]
    at = float(rng.random()) * sum(room)
    for timing, share in zip(outcome.timings, room, strict=True):
        at -= share
        if at <= 0:
            return timing
    return outcome.timings[-1]


class Moves:
    """Random changes of one to three of some params of a kernel, mostly to the next value up or down."""

    def __init__(self, kernel: Kernel, names: Sequence[str]) -> None:
        lists = {name: sorted(kernel.header.params[name].values) for name in names}
        self._lists = [(name, values) for name, values in lists.items() if len(values) > 1]

    def __bool__(self) -> bool:
        return bool(self._lists)

    def draw(self, start: Params, rng: Generator) -> dict[str, int]:
        """`start` with one to three of the params at other values of their lists."""
        count = min(1 + bisect.bisect_right(_CUMULATIVE, rng.random()), len(self._lists))
        chosen = rng.choice(len(self._lists), size=count, replace=False)
        changed = [self._lists[int(place)] for place in chosen]
        return {**start, **{name: _move(name, values, start, rng) for name, values in changed}}


def _move(name: str, values: Sequence[int], start: Params, rng: Generator) -> int:
    """Another value of a param: usually a neighbour in the ordered list."""
    here = values.index(start[name])
    if rng.random() < _STEP:
        near = [i for i in (here - 1, here + 1) if 0 <= i < len(values)]
        return values[near[int(rng.integers(len(near)))]]
    far = [value for value in values if value != start[name]]
    return far[int(rng.integers(len(far)))]


def _listed(kernel: Kernel, names: Sequence[str], rng: Generator) -> Iterator[dict[str, int]]:
    """Children that change one param, then two, then three: all of them, as far as `_LISTED` reaches, shuffled."""
    others = {
        name: [value for value in kernel.header.params[name].values if value != kernel.params[name]] for name in names
    }
    budget = _LISTED
    for count in (1, 2, 3):
        layer: list[dict[str, int]] = []
        for group in itertools.combinations(names, count):
            for values in itertools.product(*(others[name] for name in group)):
                if len(layer) < budget:
                    layer.append(dict(zip(group, values, strict=True)))
        budget -= len(layer)
        for i in rng.permutation(len(layer)):
            yield {**kernel.params, **layer[i]}


def _reason(parent: Kernel, child: Kernel, focus: Timing | None) -> str:
    """What changed, from what to what, and for which shape, in plain words."""
    changed = [name for name in child.params if child.params[name] != parent.params[name]]
    steps = ", ".join(_step(parent, child, name) for name in changed)
    if focus is None:
        return f"{steps}; nothing is known yet of the parent's time"
    shape = ", ".join(f"{name} = {size}" for name, size in focus.shape.items())
    limiter = f"; limited by {focus.limiter}" if focus.limiter else ""
    return f"{steps}; aimed at {shape}, {focus.time_us:.2f} us over a floor of {focus.floor_us:.2f} us{limiter}"


def _step(parent: Kernel, child: Kernel, name: str) -> str:
    values = sorted(parent.header.params[name].values)
    old, new = parent.params[name], child.params[name]
    near = abs(values.index(old) - values.index(new)) == 1
    kind = ("one step up" if new > old else "one step down") if near else "a jump"
    return f"{name} {old} -> {new} ({kind})"
