"""Which blocks of a grid to simulate when costs are wanted and results are not.

One block per equal stratum of the grid, at a seeded place within it, the first and the last block always: every part of
the grid weighs the same, so means over the sample are means of the grid. Positions are relative, so a launch at
reduced K is sampled at the same places as the full one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from fitness.devices.device import ResolvedLaunch

BLOCKS = 16
TOGETHER = 12
"""Blocks sampled in a row where blocks exchange data: whole groups of 2, 3, 4, 6 or 12 neighbours that share a tile."""
_SEED = 20


def sample_blocks(
    launch: ResolvedLaunch, count: int = BLOCKS, *, seed: int = _SEED, together: int = 1
) -> tuple[int, ...]:
    """Linear indices (x fastest) of the blocks to simulate, ascending.

    Clusters are taken whole. Cooperative launches run all their blocks, for these wait for one another.

    Args:
        launch: a resolved launch.
        count: blocks wanted; fewer where the grid is smaller, more where clusters ask for it.
        seed: of the places within the strata.
        together: at least that many neighbours in a row (`TOGETHER` for kernels whose blocks exchange data: the
            last of a group to finish may have more to do, which a lone block never shows); two rows or more.
    """
    total = launch.grid[0] * launch.grid[1] * launch.grid[2]
    if launch.cooperative or total <= count:
        return tuple(range(total))
    if together > 1 and launch.cluster == (1, 1, 1):
        return _rows(total, count, together, seed)
    cluster = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
    places = _places(max(2, -(-count // cluster)), seed)
    clusters = total // cluster
    chosen = sorted({min(clusters - 1, int(place * clusters)) for place in places})
    return tuple(sorted({block for index in chosen for block in _members(launch, index)}))


def _places(count: int, seed: int) -> list[float]:
    """Relative positions in [0, 1): 0, one per inner stratum, and just below 1."""
    rng = random.Random(seed)
    inner = [(i + rng.random()) / count for i in range(1, count - 1)]
    return [0.0, *inner, 1.0 - 1e-9]


def _rows(total: int, count: int, together: int, seed: int) -> tuple[int, ...]:
    """Rows of `together` blocks, each beginning at a multiple of it."""
    rows = max(1, total // together)
    chosen = sorted({min(rows - 1, int(place * rows)) for place in _places(max(2, -(-count // together)), seed)})
    return tuple(block for row in chosen for block in range(row * together, min(total, (row + 1) * together)))


def clustered(launch: ResolvedLaunch, blocks: Iterable[int]) -> list[int]:
    """Linear block indices with the blocks of a cluster side by side, in the order of their rank.

    Args:
        launch: a resolved launch.
        blocks: whole clusters, in any order.
    """
    chosen = sorted(blocks)
    if launch.cluster == (1, 1, 1):
        return chosen
    (nx, ny, _), (cx, cy, cz) = launch.grid, launch.cluster

    def key(block: int) -> tuple[int, int]:
        x, y, z = block % nx, block // nx % ny, block // (nx * ny)
        cluster = x // cx + nx // cx * (y // cy + ny // cy * (z // cz))
        return cluster, x % cx + cx * (y % cy + cy * (z % cz))

    return sorted(chosen, key=key)


def _members(launch: ResolvedLaunch, index: int) -> list[int]:
    """Linear block indices of the index-th cluster."""
    grid, cluster = launch.grid, launch.cluster
    nx, ny = grid[0] // cluster[0], grid[1] // cluster[1]
    x0, y0, z0 = index % nx * cluster[0], index // nx % ny * cluster[1], index // (nx * ny) * cluster[2]
    return [
        x + grid[0] * (y + grid[1] * z)
        for z in range(z0, z0 + cluster[2])
        for y in range(y0, y0 + cluster[1])
        for x in range(x0, x0 + cluster[0])
    ]
