"""What a kernel's header says about a task and a card before anything is compiled.

Which launches run at which shape, which params they touch, and whether a card can start them at all:
enough to keep operators from proposing what cannot run or cannot matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fitness.expressions import ExpressionError
from fitness.gpu import Gpu
from fitness.kernel import Kernel, Launch
from fitness.task import Task

Names = Mapping[str, int]


def names_at(kernel: Kernel, task: Task, shape: Names, gpu: Gpu) -> dict[str, int]:
    """Values of every name a header expression may use at a shape."""
    return {
        **task.expression_names(shape),
        "SMS": gpu.sms,
        "L2": gpu.l2_bytes,
        "W.nnz": int(task.nnz(shape)),
        **kernel.params,
    }


def active_launches(kernel: Kernel, names: Names) -> Iterator[Launch]:
    """The launches whose `when` holds; one that cannot be evaluated counts as active."""
    for launch in kernel.header.launches:
        try:
            if launch.when.evaluate(names):
                yield launch
        except ExpressionError:
            yield launch


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
    mentioned: set[str] = set()
    alive: set[str] = set()
    for launch in kernel.header.launches:
        mentioned |= _shaping_names(launch) | launch.when.names
    for shape in shapes:
        names = names_at(kernel, task, shape, gpu)
        for launch in active_launches(kernel, names):
            alive |= _shaping_names(launch)
        for launch in kernel.header.launches:
            alive |= {
                name for name in launch.when.names if name in kernel.params and _switches(kernel, launch, name, names)
            }
    return tuple(name for name in kernel.header.params if name in alive or name not in mentioned)


def serving(kernel: Kernel, task: Task, gpu: Gpu, shape: Names) -> tuple[tuple[int, ...], frozenset[str]]:
    """What serves a shape: places of the launches that run there, and the params that shape what they do.

    Unlike those of `live_params`, a param that only chooses between launches is not among them.
    """
    names = names_at(kernel, task, shape, gpu)
    active = list(active_launches(kernel, names))
    mentioned = set().union(*(_shaping_names(launch) | launch.when.names for launch in kernel.header.launches))
    shaping = set().union(*(_shaping_names(launch) for launch in active))
    places = tuple(n for n, launch in enumerate(kernel.header.launches) if launch in active)
    return places, frozenset(name for name in kernel.header.params if name in shaping or name not in mentioned)


def _switches(kernel: Kernel, launch: Launch, name: str, names: Names) -> bool:
    """True if some value of the param starts or stops the launch."""
    try:
        runs = {bool(launch.when.evaluate({**names, name: value})) for value in kernel.header.params[name].values}
    except ExpressionError:
        return True
    return len(runs) > 1


def _shaping_names(launch: Launch) -> set[str]:
    names = set(launch.shared.names)
    for expression in (*launch.grid, *launch.block):
        names |= expression.names
    return names
