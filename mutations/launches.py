"""What a kernel's header says about a task and a card before anything is compiled.

Which launches run at which shape, which params they touch, and whether a card can start them at all:
enough to keep operators from proposing what cannot run or cannot matter.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping

from fitness.expressions import ExpressionError
from fitness.gpu import Gpu
from fitness.kernel import Kernel, Launch
from fitness.task import Task

Names = Mapping[str, int]


def names_at(kernel: Kernel, task: Task, shape: Names, gpu: Gpu) -> dict[str, int]:
    """Values of every name a header expression may use at a shape."""
    return _names(kernel, task, shape, (gpu.sms, gpu.l2_bytes))


def _names(kernel: Kernel, task: Task, shape: Names, card: tuple[int, int]) -> dict[str, int]:
    return {**_sizes(task, tuple(shape.items())), "SMS": card[0], "L2": card[1], **kernel.params}


@functools.lru_cache(maxsize=256)
def _sizes(task: Task, shape: tuple[tuple[str, int], ...]) -> Names:
    """What a task says of a shape."""
    sizes = dict(shape)
    return {**task.expression_names(sizes), "W.nnz": int(task.nnz(sizes))}


def active_launches(kernel: Kernel, names: Names) -> Iterator[Launch]:
    """The launches whose `when` holds; one that cannot be evaluated counts as active."""
    return (launch for launch in kernel.header.launches if _runs(launch, names))


def _runs(launch: Launch, names: Names) -> bool:
    try:
        return bool(launch.when.evaluate(names))
    except ExpressionError:
        return True


def launchable(kernel: Kernel, task: Task, gpu: Gpu) -> bool:
    """False if at a timed shape an active launch exceeds the card's threads or shared memory of a block."""
    limits = gpu.limits
    for shape in task.shapes:
        names = names_at(kernel, task, shape, gpu)
        for launch in active_launches(kernel, names):
            try:
                x, y, z = (extent.evaluate(names) for extent in launch.block)
                shared = launch.shared.evaluate(names)
            except ExpressionError:
                return False
            if not 0 < x * y * z <= limits.threads_per_block or not 0 <= shared <= limits.shared_bytes_per_block:
                return False
    return True


def live_params(kernel: Kernel, task: Task, gpu: Gpu, shapes: tuple[Names, ...]) -> tuple[str, ...]:
    """Params that can matter at one of `shapes`, in the header's order.

    A param is dead there if launches mention it, but none of those that it shapes runs and no value of its own
    switches one on or off; what only the code mentions counts as live.
    """
    alive: set[str] = set()
    for shape in shapes:
        names = names_at(kernel, task, shape, gpu)
        alive.update(*(launch.shaping for launch in active_launches(kernel, names)))
        for launch in kernel.header.launches:
            alive |= {
                name for name in launch.when.names if name in kernel.params and _switches(kernel, launch, name, names)
            }
    return _mattering(kernel, alive)


Serving = tuple[tuple[int, ...], frozenset[str]]
"""What serves a shape: places of the launches that run there, and the params that shape what they do."""


def serving(kernel: Kernel, task: Task, gpu: Gpu, shape: Names) -> Serving:
    """What serves a shape. Unlike `live_params`, a param that only chooses between launches is not among its params."""
    return _serving(kernel, names_at(kernel, task, shape, gpu))


def servings(kernel: Kernel, task: Task, gpu: Gpu) -> tuple[Serving, ...]:
    """What serves each timed shape of a task; a kernel that was asked about lately is known again."""
    return _servings(kernel, task, (gpu.sms, gpu.l2_bytes))


@functools.lru_cache(maxsize=2048)
def _servings(kernel: Kernel, task: Task, card: tuple[int, int]) -> tuple[Serving, ...]:
    return tuple(_serving(kernel, _names(kernel, task, shape, card)) for shape in task.shapes)


def _serving(kernel: Kernel, names: Names) -> Serving:
    launches = kernel.header.launches
    places = tuple(n for n, launch in enumerate(launches) if _runs(launch, names))
    return places, frozenset(_mattering(kernel, set().union(*(launches[n].shaping for n in places))))


def _mattering(kernel: Kernel, alive: Collection[str]) -> tuple[str, ...]:
    """Params that are alive and those that no launch mentions, in the header's order."""
    mentioned = kernel.header.launch_names
    return tuple(name for name in kernel.header.params if name in alive or name not in mentioned)


def _switches(kernel: Kernel, launch: Launch, name: str, names: Names) -> bool:
    """True if some value of the param starts or stops the launch."""
    try:
        runs = {bool(launch.when.evaluate({**names, name: value})) for value in kernel.header.params[name].values}
    except ExpressionError:
        return True
    return len(runs) > 1
