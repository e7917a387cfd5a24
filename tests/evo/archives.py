"""A small archive with one finished run, built through the archive's own interface."""

from __future__ import annotations

from pathlib import Path

from evo.archive import Archive, Refused, RunRecord
from evo.archive.store import now
from evo.observer import Confirmation
from fitness.kernel import Kernel, parse_kernel
from fitness.outcome import CompileFailed, Finding, Gate, Outcome, Resources, Timed, Timing
from mutations.operator import Candidate, Plan

SHAPES = ({"M": 4096, "K": 4096, "N": 16}, {"M": 4096, "K": 4096, "N": 256})
FLOORS_US = (4.0, 8.0)

SOURCE = """/*---
about  = "%s"
format = "nm24"

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, BM)"]
block  = ["BM"]
args   = ["W.values", "W.meta", "X", "Y", "M", "N", "K", "ldx", "ldy"]

[params]
BM = { values = [16, 32, 64], default = 16 }
BN = { values = [8, 16], default = 8 }
---*/
#include <cuda_fp16.h>
extern "C" __global__ void spmm(const __half* values, const unsigned* meta, const __half* X, __half* Y,
                                int M, int N, int K, long long ldx, long long ldy) {
    int m = blockIdx.x * BM + threadIdx.x;
    if (m < M) Y[m] = __float2half(0.0f);
}
"""


def kernel(about: str = "scalar", **params: int) -> Kernel:
    return parse_kernel(SOURCE % about, params=params)


def timings(*times_us: float) -> tuple[Timing, ...]:
    return tuple(
        Timing(shape, "modelled", time_us, time_us, time_us, floor_us, 10.0, 1000.0, limiter="DRAM bandwidth")
        for shape, time_us, floor_us in zip(SHAPES, times_us, FLOORS_US, strict=True)
    )


def timed(key: str, *times_us: float) -> Timed:
    return Timed(
        Gate.TIMING, code_key=key, clock="modelled", timings=timings(*times_us), resources=Resources(32, 0, 0, 1.0)
    )


def experiment() -> dict[str, object]:
    task = {
        "op": "spmm",
        "pattern": {"kind": "nm", "n": 2, "m": 4},
        "dtype": "float16",
        "shapes": [dict(shape) for shape in SHAPES],
        "free": ["N"],
        "seeds": ["spmm/nm24_*"],
    }
    return {"name": "nm24", "rng_seed": 24, "task": task}


def empty(archive: Archive, name: str = "nm24") -> RunRecord:
    """A run that has just begun."""
    return archive.add_run(
        RunRecord(
            id="",
            name=name,
            experiment=experiment() | {"name": name},
            rng_seed=24,
            device="simulator",
            gpu="H200",
            arch="sm_90a",
            clock="modelled",
            version="0.1.0",
            commit_id=None,
            machine={"cpus": 2},
            status="running",
            started_at=now(),
        )
    )


def fill(archive: Archive, name: str = "nm24", *, confirmed: bool = True) -> RunRecord:
    """Two seeds, a child of the second, a failed child, a refusal, a grandchild that is the best."""
    run = empty(archive, name)
    archive.add_baseline(run.id, "gemm/dense_mma_pipelined", timings(16.0, 32.0))
    failed = CompileFailed(
        Gate.COMPILE, (Finding(Gate.COMPILE, "unknown_api", "__shfl is not there", 14, "use __shfl_sync"),)
    )
    rows: list[tuple[Candidate, Outcome]] = [
        (Candidate(Plan(0, 0, 0, "seed"), kernel("scalar"), "seed spmm/nm24_scalar: scalar"), timed("a", 64.0, 128.0)),
        (Candidate(Plan(1, 0, 1, "seed"), kernel("mma"), "seed spmm/nm24_mma: mma"), timed("b", 16.0, 16.0)),
        (Candidate(Plan(2, 1, 1, "tune", (1,)), kernel("mma", BM=32), "BM 16 -> 32"), timed("c", 8.0, 16.0)),
        (Candidate(Plan(3, 1, 0, "splice", (0, 1)), kernel("mma", BN=16), "BN of #1"), failed),
        (Candidate(Plan(5, 2, 1, "tune", (2,)), kernel("mma", BM=64), "BM 32 -> 64"), timed("d", 8.0, 8.0)),
    ]
    archive.add_entries(run.id, [candidate for candidate, _ in rows])
    archive.add_entries(run.id, [Refused(Plan(4, 1, 0, "tune", (0,)), "nothing left to tune")])
    for candidate, outcome in rows:
        archive.add_outcome(run.id, candidate.plan.n, outcome)
    if confirmed:
        archive.add_confirmation(run.id, Confirmation(5, "confirmed", 2.83, 2.83, 2.83))
    archive.set_status(run.id, "finished")
    found = archive.run(run.id)
    assert found is not None
    return found


def make(path: Path, name: str = "nm24") -> RunRecord:
    """An archive file with one run."""
    with Archive.open(path) as archive:
        return fill(archive, name)
