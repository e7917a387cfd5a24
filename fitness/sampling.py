"""Which part of a large launch the simulator runs: sampled blocks, reduced shapes.

A timed shape is too large to simulate whole. Blocks that work each for itself are sampled: first, last,
corners of the grid and some drawn from a seed. Blocks that cooperate (several launches, atomics, grid
barriers) make sense only together: such kernels run whole with fewer rows of W, every other dimension as
it is, so that they take the same path as at the timed shape.
"""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from fitness.compiler.ptx import communicates
from fitness.devices.device import Dim3, Program
from fitness.shapes import EmptyDomainError, Shape, fit
from fitness.task import Task

#: Blocks sampled of one launch for correctness, when their work allows.
MOST_BLOCKS: Final = 32
FEWEST_BLOCKS: Final = 5
#: Dense multiply-adds to simulate at most per correctness run at a timed shape; bounds its cost.
WORK_LIMIT: Final = 1 << 25
#: Rows of W to which a cooperating kernel's shape is reduced.
REDUCED_ROWS: Final = 128
#: K to which a shape is reduced where the whole grid of a kernel with independent blocks runs.
WHOLE_GRID_K: Final = 128
#: K to which the costing of a shape is reduced: two points of a line in K.
REDUCED_K: Final = (512, 1024)


def cooperates(program: Program) -> bool:
    """True if its blocks need each other: running some of them alone would mean nothing."""
    launches = program.launches
    if len(launches) > 1 or any(launch.cooperative or launch.cluster != (1, 1, 1) for launch in launches):
        return True
    return any(communicates(program.compiled.ptx, launch.entry) for launch in launches)


def sample_blocks(grid: Dim3, count: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Linear indices of at most `count` blocks, ascending: first, last, other corners, then seeded random ones.

    Args:
        grid: x, y, z; the linear index runs fastest along x.
        count: how many; the whole grid if it is no larger.
        rng: draws the rest.
    """
    total = grid[0] * grid[1] * grid[2]
    if total <= count:
        return tuple(range(total))
    corners = itertools.product(*((0, size - 1) for size in reversed(grid)))
    chosen = list(dict.fromkeys((z * grid[1] + y) * grid[0] + x for z, y, x in corners))
    # The two far ends first, so that a small count keeps them; at most half the places go to corners.
    chosen = list(dict.fromkeys((0, total - 1, *chosen)))[: max(2, count // 2)]
    while len(chosen) < count:
        block = int(rng.integers(total))
        if block not in chosen:
            chosen.append(block)
    return tuple(sorted(chosen))


def blocks_for(shape: Shape, grid: Dim3) -> int:
    """How many blocks of a launch to run for correctness at a timed shape."""
    work = float(np.prod([float(size) for size in shape.values()]))
    per_block = max(1.0, work / (grid[0] * grid[1] * grid[2]))
    return int(min(MOST_BLOCKS, max(FEWEST_BLOCKS, WORK_LIMIT // per_block)))


def fewer_rows(task: Task, shape: Shape) -> Shape:
    """The shape with M reduced to a few tiles; the shape itself where that is no reduction."""
    return _reduced(task, shape, "M", REDUCED_ROWS) or shape


def whole_grid(task: Task, shape: Shape) -> Shape:
    """The shape with M and K reduced, so that every block may run: none of its outputs may be left out.

    Sampled blocks cannot tell whose an unwritten element was.
    """
    rows = fewer_rows(task, shape)
    return _reduced(task, rows, "K", WHOLE_GRID_K) or rows


def smaller_k(task: Task, shape: Shape) -> tuple[Shape, ...]:
    """Two shapes that differ from `shape` in a smaller K only, ascending; empty if it is too small to reduce."""
    if "K" not in shape or shape["K"] < 2 * REDUCED_K[-1]:
        return ()
    reduced = [_reduced(task, shape, "K", size) for size in REDUCED_K]
    return tuple(item for item in reduced if item is not None) if all(reduced) else ()


def _reduced(task: Task, shape: Shape, name: str, size: int) -> Shape | None:
    """The shape with one dimension near `size`, None where the domain has none such that is smaller."""
    if name not in shape or shape[name] <= size:
        return None
    try:
        fitted = fit({**shape, name: size}, task.domain)
    except EmptyDomainError:
        return None
    alone = all(fitted[other] == shape[other] for other in shape if other != name)
    return fitted if alone and fitted[name] < shape[name] else None
