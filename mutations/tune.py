"""The `tune` operator: the parent's source with one to three params at other values of their lists."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from numpy.random import Generator

from fitness.kernel import Kernel
from fitness.outcome import Timed, Timing
from fitness.shapes import Shape
from fitness.task import Task
from mutations.launches import launchable, live_params, serving
from mutations.operator import Context, Judged, Proposal, Refusal

_DRAWS: Final = 64  # random proposals before the neighbourhood is listed
_LISTED: Final = 20_000  # at most that many children are listed when draws find nothing fresh
_CHANGES: Final = (0.55, 0.3, 0.15)  # chances of changing one, two, three params
_STEP: Final = 0.75  # chance of the next value up or down; else any other value of the list

Params = Mapping[str, int]


class Tune:
    """Changes one to three params of its parent, mostly to the next value up or down.

    Only params that can matter at the task's shapes are touched, preferably those of the shape that stands
    farthest from its floor; constraints, `require` and the card's limits hold; a kernel the run already has
    is not proposed while there are others.
    """

    name = "tune"
    arity = 1

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        """One child of one parent, or a refusal if it has no params or all its neighbours are known."""
        (parent,) = parents
        kernel = parent.candidate.kernel
        everywhere = live_params(kernel, context.task, context.target, context.task.shapes)
        if not any(len(kernel.header.params[name].values) > 1 for name in everywhere):
            return Refusal("the parent has no param with a second value that matters at the task's shapes")
        focus = _focus(parent, context.rng)
        names = everywhere
        if focus is not None:
            names = live_params(kernel, context.task, context.target, (focus.shape,)) or everywhere
        for params in itertools.chain(_draws(kernel, names, context.rng), _listed(kernel, everywhere, context.rng)):
            child = child_of(kernel, params, context)
            if child is not None:
                return Proposal(child, _reason(kernel, child, focus))
        return Refusal("every feasible change of one to three params has already been tried in this run")


def child_of(kernel: Kernel, params: Params, context: Context) -> Kernel | None:
    """The kernel at `params`, or None if it is infeasible, unfit for the task or card, or part of the run."""
    if params == kernel.params or not kernel.feasible(params):
        return None
    child = kernel.with_params(params)
    if all(_serve_alike(kernel, child, shape, context) for shape in context.task.shapes):
        return None
    if context.ledger.tried(child.id) or not launchable(child, context.task, context.target):
        return None
    return None if _header_depends(kernel) and _unfit(child, context.task) else child


def _serve_alike(kernel: Kernel, child: Kernel, shape: Shape, context: Context) -> bool:
    """True if a child differs in nothing that matters at a shape."""
    ours, theirs = (serving(one, context.task, context.target, shape) for one in (kernel, child))
    return ours == theirs and all(kernel.params[name] == child.params[name] for name in ours[1])


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


def _draws(kernel: Kernel, names: Sequence[str], rng: Generator) -> Iterator[dict[str, int]]:
    """Random children: few params, near values."""
    if not any(len(kernel.header.params[name].values) > 1 for name in names):
        return
    for _ in range(_DRAWS):
        yield moves(kernel, kernel.params, names, rng)


def moves(kernel: Kernel, start: Params, names: Sequence[str], rng: Generator) -> dict[str, int]:
    """`start` with one to three of `names` at other values of the kernel's lists, mostly the next up or down."""
    tunable = [name for name in names if len(kernel.header.params[name].values) > 1]
    count = min(1 + int(rng.choice(len(_CHANGES), p=_CHANGES)), len(tunable))
    chosen = rng.choice(len(tunable), size=count, replace=False)
    return {**start, **{tunable[i]: _move(kernel, start, tunable[i], rng) for i in chosen}}


def _move(kernel: Kernel, start: Params, name: str, rng: Generator) -> int:
    """Another value of a param: usually a neighbour in the ordered list."""
    values = sorted(kernel.header.params[name].values)
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
