"""Counters of made-up kernels for the cost model's tests: a streaming loop of loads and arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitness.devices.device import Entry, ResolvedLaunch
from fitness.devices.simulator.counters import REUSE_BUCKETS, BufferCounters, LaunchCounters, Op, SiteCounters
from fitness.devices.simulator.sampling import sample_blocks


@dataclass(frozen=True)
class Stream:
    """Every warp reads its own part of W, `loads` independent 16-byte loads per lane and iteration, then multiplies.

    `reread`: times a block asks for each sector (through L1, at a short distance if `near`); `sectors`: per
    request; `conflicts`: wavefronts of a shared load of which 4 are possible.
    """

    blocks: int = 264
    warps: int = 8
    iterations: int = 64
    loads: int = 4
    mmas: int = 4
    conflicts: float = 4.0
    sectors: float = 16.0
    reread: int = 1
    near: bool = True
    overlap: bool = True
    shared: int = 0
    registers: int = 64
    atomics: float = 0.0

    def launch(self) -> ResolvedLaunch:
        return ResolvedLaunch("k", (self.blocks, 1, 1), (32 * self.warps, 1, 1), self.shared, ())

    def entry(self, spills: int = 0) -> Entry:
        return Entry("k", (), self.registers, 0, 0, spills, spills)

    def code(self) -> tuple[tuple[Op, ...], ...]:
        body: list[Op] = []
        for i in range(self.loads):
            register = 100 + i if self.overlap else 100
            body.append(Op("load_global", 7, (register,), (1,) if self.overlap else (1, 100), site=0))
        body += [Op("load_shared", 9, (200 + i,), (2,), site=1) for i in range(self.loads)]
        body += [
            Op("mma:m16n8k16:f16", 11, (300 + i,), (300 + i, 100 + i % self.loads if self.overlap else 100, 200))
            for i in range(self.mmas)
        ]
        return (
            (Op("int", 3, (1,), ()), Op("int", 3, (2,), ())),
            (*body, Op("int", 12, (1,), (1,)), Op("branch", 12)),
            (Op("store_global", 15, (), (300,), site=2),),
        )

    def counters(self) -> LaunchCounters:
        n = len(sample_blocks(self.launch()))
        warps = n * self.warps
        requests = float(warps * self.iterations * self.loads)
        per_block = requests / n * self.sectors / self.reread
        again = requests * self.sectors * (1 - 1 / self.reread)
        reuse = [0.0] * REUSE_BUCKETS
        reuse[2 if self.near else REUSE_BUCKETS - 1] = again
        size = int(per_block * 32 * self.blocks)
        executions = np.repeat([[1], [self.iterations], [1]], warps, axis=1)
        return LaunchCounters(
            entry="k",
            blocks_total=self.blocks,
            blocks_simulated=n,
            warps_per_block=self.warps,
            code=self.code(),
            executions=executions,
            lane_executions=32.0 * executions.sum(axis=1),
            traces=((0, np.array([0, *[1] * self.iterations, 2], dtype=np.int32)),),
            sites=(
                SiteCounters("load_global", 7, 16, "W", True, requests, 32 * requests, requests * self.sectors,
                             4 * requests, 16 * requests, 4 * requests),
                SiteCounters("load_shared", 9, 16, "", True, requests, 32 * requests, 0, self.conflicts * requests,
                             0, 4 * requests),
                SiteCounters("store_global", 15, 4, "Y", False, warps, 32 * warps, 4 * warps, warps, 4 * warps, warps),
            ),
            buffers={
                "W": BufferCounters(size, per_block * n, per_block * n, reuse=tuple(reuse)),
                "Y": BufferCounters(
                    128 * self.warps * self.blocks,
                    written_per_block=4.0 * warps,
                    written_union=4.0 * warps,
                    atomic_max=self.atomics * n,
                    atomic_lanes=self.atomics * n,
                    atomic_addresses=1.0 if self.atomics else 0.0,
                ),
            },
        )  # fmt: skip
