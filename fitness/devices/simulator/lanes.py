"""Groups of lanes: which threads of which blocks execute together, and what they see of their position.

A *chunk* is the set of thread blocks simulated at once. Its lanes are numbered slot * stride + thread, slot
being the block's place in the chunk and stride the threads per block rounded up to whole warps. A *context*
is the set of lanes of one group; it gathers what its lanes need once and keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.int64]
Value = Any  # a NumPy scalar (uniform over the group) or an array with one element per lane
WARP = 32
WARPGROUP = 128

Dim3 = tuple[int, int, int]


def unravel(index: int, shape: Dim3) -> Dim3:
    """Linear index -> (x, y, z), x fastest."""
    return index % shape[0], index // shape[0] % shape[1], index // (shape[0] * shape[1])


class Chunk:
    """Thread blocks simulated at once: geometry, and how many of each block's threads have not exited.

    The blocks of a cluster lie side by side, in the order of their rank.
    """

    def __init__(
        self,
        grid: Dim3,
        block: Dim3,
        blocks: Sequence[int],
        shared_stride: int,
        local_stride: int,
        cluster: Dim3 = (1, 1, 1),
    ) -> None:
        self.grid, self.block, self.cluster = grid, block, cluster
        self.cluster_size = cluster[0] * cluster[1] * cluster[2]
        self.blocks = np.asarray(blocks, dtype=np.int64)
        self.threads = block[0] * block[1] * block[2]
        self.stride = -(-self.threads // WARP) * WARP
        self.warps_per_block = self.stride // WARP
        self.shared_stride, self.local_stride = shared_stride, local_stride
        slots = np.arange(len(blocks), dtype=np.int64)
        lanes = (slots[:, None] * self.stride + np.arange(self.threads)).ravel()
        self.live = np.zeros(len(blocks) * self.stride, dtype=bool)
        self.live[lanes] = True
        self.live_count = lanes.size
        self.all = Context(self, lanes)

    def exit(self, lanes: Lanes) -> None:
        """Threads end."""
        self.live[lanes] = False
        self.live_count -= lanes.size

    def position(self, lane: int) -> tuple[Dim3, Dim3]:
        """((blockIdx), (threadIdx)) of a lane."""
        slot, thread = divmod(int(lane), self.stride)
        return unravel(int(self.blocks[slot]), self.grid), unravel(thread, self.block)


class Context:
    """The lanes of one group, ascending.

    Attributes:
        lanes: (n,) lane numbers. parent, where: the context it was split from and its places there.
        drawn: what the group's values were gathered from at the split: the parent's values by their ids.
    """

    def __init__(
        self, chunk: Chunk, lanes: Lanes, parent: Context | None = None, where: NDArray[np.intp] | None = None
    ) -> None:
        self.chunk, self.lanes, self.parent, self.where = chunk, lanes, parent, where
        self.n = int(lanes.size)
        self._splits: dict[bytes, tuple[Context, Context]] = {}
        self._windows: dict[tuple[str, int, int], Value] = {}
        self._octets: dict[int, Context] = {}
        self._based: tuple[int, NDArray[np.int64]] | None = None
        self.drawn: dict[int, Value] = {}
        self._held: tuple[Value, ...] = ()  # so that no id in `drawn` passes to another value
        self._rows: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}

    def split(self, taken: NDArray[np.bool_]) -> tuple[Context, Context]:
        """Contexts of the lanes where `taken` is true, and of the others. Both are non-empty."""
        key = taken.tobytes()
        found = self._splits.get(key)
        if found is None:
            yes, no = np.flatnonzero(taken), np.flatnonzero(~taken)
            found = (
                Context(self.chunk, self.lanes[yes], self, yes),
                Context(self.chunk, self.lanes[no], self, no),
            )
            if len(self._splits) < 64:
                self._splits[key] = found
        return found

    def draw(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The parent's values for the lanes of this part of it."""
        assert self.where is not None
        self._held = found = gather(values, self.where)
        self.drawn = {id(new): old for new, old in zip(found, values, strict=True) if new is not old}
        return found

    def forget(self) -> None:
        """Where its values came from matters no more."""
        self.drawn, self._held = {}, ()

    @cached_property
    def whole(self) -> bool:
        """Whether the lanes are whole warps (32 consecutive lanes each)."""
        if self.n % WARP:
            return False
        rows = self.lanes.reshape(-1, WARP)
        return bool(np.all(rows[:, 0] % WARP == 0) and np.all(rows[:, -1] - rows[:, 0] == WARP - 1))

    @cached_property
    def whole_warpgroups(self) -> bool:
        """Whether the lanes are whole warpgroups (threads 128 i to 128 i + 127 of a block)."""
        if self.n % WARPGROUP:
            return False
        rows = self.lanes.reshape(-1, WARPGROUP)
        aligned = self.thread.reshape(-1, WARPGROUP)[:, 0] % WARPGROUP == 0
        return bool(np.all(aligned) and np.all(rows[:, -1] - rows[:, 0] == WARPGROUP - 1))

    @property
    def complete_warpgroups(self) -> bool:
        """Whether every warpgroup's lanes that have not exited are all here."""
        if self.whole_warpgroups:
            return True
        per_block = -(-self.chunk.stride // WARPGROUP)
        mine = np.bincount(
            self.slot * per_block + self.thread // WARPGROUP, minlength=self.chunk.blocks.size * per_block
        )
        lanes = np.flatnonzero(self.chunk.live)
        groups = lanes // self.chunk.stride * per_block + lanes % self.chunk.stride // WARPGROUP
        live = np.bincount(groups, minlength=mine.size)
        return bool(np.all((mine == 0) | (mine == live)))

    @cached_property
    def warps(self) -> NDArray[np.int64]:
        """Distinct warp numbers (lane // 32), ascending."""
        warps = self.lanes >> 5
        new = np.ones(warps.size, dtype=bool)
        np.not_equal(warps[1:], warps[:-1], out=new[1:])
        return warps[new]

    def warps_from(self, base: int) -> NDArray[np.int64]:
        """Warp numbers plus that of the chunk's first; the same array each time."""
        if not base:
            return self.warps
        if self._based is None or self._based[0] != base:
            self._based = (base, self.warps + base)
        return self._based[1]

    @cached_property
    def warp_count(self) -> int:
        """Number of warps with a lane in the group."""
        return self.n // WARP if self.whole else int(self.warps.size)

    @property
    def complete(self) -> bool:
        """Whether every warp's lanes that have not exited are all here."""
        if self.whole:
            return True
        here = np.bincount(self.lanes >> 5, minlength=self.chunk.live.size // WARP)
        live = self.chunk.live.reshape(-1, WARP).sum(axis=1)
        return bool(np.all(here[self.warps] == live[self.warps]))

    @cached_property
    def slot(self) -> NDArray[np.int64]:
        """(n,) place of each lane's block in the chunk."""
        return self.lanes // self.chunk.stride

    @cached_property
    def thread(self) -> NDArray[np.int64]:
        """(n,) linear thread index in the block."""
        return self.lanes % self.chunk.stride

    def window(self, space: str, shift: int, less: int = 0) -> Value:
        """Where each lane's shared or local memory begins, in elements of 2**shift bytes, less a number of them."""
        key = (space, shift, less)
        found = self._windows.get(key)
        if found is None:
            if space == "shared":
                found = self.slot * (self.chunk.shared_stride >> shift)
            else:
                found = self.lanes * (self.chunk.local_stride >> shift)
            if less:
                found = found - less
            self._windows[key] = found
        return found

    def _thread_axis(self, axis: int) -> Value:
        x, y, z = self.chunk.block
        if (x, y, z)[axis] == 1:
            return np.uint32(0)
        divisor = (1, x, x * y)[axis]
        index = self.thread if divisor == 1 else self.thread // divisor
        if axis < 2 and self.chunk.threads != divisor * (x, y, z)[axis]:
            index = index % (x, y, z)[axis]
        return index.astype(np.uint32)

    def _block_axis(self, axis: int) -> Value:
        x, y, _ = self.chunk.grid
        if self.chunk.grid[axis] == 1:
            return np.uint32(0)
        blocks = self.chunk.blocks // (1, x, x * y)[axis]
        if axis < 2:
            blocks = blocks % self.chunk.grid[axis]
        if np.all(blocks == blocks[0]):
            return np.uint32(blocks[0])
        return blocks.astype(np.uint32)[self.slot]

    @cached_property
    def tid_x(self) -> Value:
        """The special register %tid.x."""
        return self._thread_axis(0)

    @cached_property
    def tid_y(self) -> Value:
        """The special register %tid.y."""
        return self._thread_axis(1)

    @cached_property
    def tid_z(self) -> Value:
        """The special register %tid.z."""
        return self._thread_axis(2)

    @cached_property
    def ctaid_x(self) -> Value:
        """The special register %ctaid.x."""
        return self._block_axis(0)

    @cached_property
    def ctaid_y(self) -> Value:
        """The special register %ctaid.y."""
        return self._block_axis(1)

    @cached_property
    def ctaid_z(self) -> Value:
        """The special register %ctaid.z."""
        return self._block_axis(2)

    def _in_cluster(self, axis: int) -> tuple[Value, Value]:
        """(place of the block in its cluster, number of the cluster) along an axis."""
        size = np.uint32(self.chunk.cluster[axis])
        block = self._block_axis(axis)
        return (np.uint32(0) if size == 1 else block % size), (block if size == 1 else block // size)

    @cached_property
    def cluster_ctaid(self) -> tuple[Value, Value, Value]:
        """The special registers %cluster_ctaid.x, .y, .z."""
        return self._in_cluster(0)[0], self._in_cluster(1)[0], self._in_cluster(2)[0]

    @cached_property
    def clusterid(self) -> tuple[Value, Value, Value]:
        """The special registers %clusterid.x, .y, .z."""
        return self._in_cluster(0)[1], self._in_cluster(1)[1], self._in_cluster(2)[1]

    @cached_property
    def cluster_ctarank(self) -> Value:
        """The special register %cluster_ctarank."""
        size = self.chunk.cluster_size
        return np.uint32(0) if size == 1 else (self.slot % size).astype(np.uint32)

    @cached_property
    def laneid(self) -> Value:
        """The special register %laneid."""
        return (self.lanes & 31).astype(np.uint32)

    @cached_property
    def warpid(self) -> Value:
        """The special register %warpid."""
        return (self.thread >> 5).astype(np.uint32)

    @cached_property
    def smid(self) -> Value:
        """%smid: blocks in order, one to an SM."""
        return (self.chunk.blocks % 128).astype(np.uint32)[self.slot]

    @cached_property
    def rows(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row (warp in the group) and column (lane in the warp) of each lane, for groups of partial warps."""
        return np.searchsorted(self.warps, self.lanes >> 5), self.lanes & 31

    @cached_property
    def active(self) -> NDArray[np.bool_]:
        """(warps, 32) which lanes of the group's warps are in it."""
        found = np.zeros((self.warps.size, WARP), dtype=bool)
        found[self.rows] = True
        return found

    @property
    def exited(self) -> NDArray[np.bool_]:
        """(warps, 32) which lanes of the group's warps do not exist or have ended."""
        alive: NDArray[np.bool_] = self.chunk.live.reshape(-1, WARP)[self.warps]
        return ~alive

    def octets(self, count: int) -> Context:
        """The first 8 * count lanes of every warp (those whose addresses `ldmatrix.xN` takes); whole groups only."""
        if count == 4:
            return self
        found = self._octets.get(count)
        if found is None:
            lanes = np.ascontiguousarray(self.lanes.reshape(-1, WARP)[:, : 8 * count]).ravel()
            found = self._octets[count] = Context(self.chunk, lanes)
        return found

    def lanemask(self, relation: str) -> NDArray[np.uint32]:
        """The special register %lanemask_eq / lt / le / gt / ge."""
        equal = np.uint64(1) << (self.lanes & 31).astype(np.uint64)
        below = equal - np.uint64(1)
        masks = {"eq": equal, "lt": below, "le": below | equal, "gt": ~(below | equal), "ge": ~below}
        return (masks[relation] & np.uint64(0xFFFFFFFF)).astype(np.uint32)

    def as_warps(self, value: Value) -> NDArray[Any]:
        """(G, 32) array of a register; lanes not in the group read 0."""
        if self.whole:
            if not isinstance(value, np.ndarray):
                return np.full((self.n // WARP, WARP), value)
            known = self._rows.get(id(value))
            if known is None:  # the same view each time, so that what was made of it can be recognised
                if len(self._rows) > 128:
                    self._rows.clear()
                known = self._rows[id(value)] = (value, value.reshape(-1, WARP))
            return known[1]
        array = np.zeros((self.warps.size, WARP), dtype=value.dtype)
        array[self.rows] = value
        return array

    def from_warps(self, array: NDArray[Any]) -> NDArray[Any]:
        """The group's lanes of a (G, 32) array."""
        if self.whole:
            return array.reshape(-1)
        return array[self.rows]


def gather(values: tuple[Value, ...], where: NDArray[np.intp]) -> tuple[Value, ...]:
    """The values of some lanes of a group."""
    return tuple([v.take(where) if type(v) is np.ndarray else v for v in values])
