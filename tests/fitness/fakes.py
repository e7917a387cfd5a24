"""Stand-ins that the tests of the evaluation share: a dense kernel, its task, and a device of NumPy."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fitness.devices.device import Array, Checks, Execution, Inputs, Measurement, Profile, Program, Timeable
from fitness.gpu import Gpu, load
from fitness.kernel import Kernel, parse_kernel
from fitness.outcome import Clock, Finding, Gate
from fitness.task import Task

H200 = load("H200")

DENSE = """/*---
about   = "one thread per element"
format  = "dense"
require = ["K % 8 == 0"]

[[launch]]
kernel = "gemm"
grid   = ["cdiv(M, BM)", "N"]
block  = ["BM"]
shared = "SHARED"
args   = ["W.values", "X", "Y", "M", "N", "K", "ldx", "ldy"]

[params]
BM     = { values = [32, 64, 128, 2048], default = 64 }
SHARED = { values = [0, 1, 2, 3, 4, 5, 6, 7, 300000], default = 0 }
UNROLL = { values = [1, 2, 4], default = 1 }
---*/
#include <cuda_fp16.h>
extern "C" __global__ void gemm(const __half* W, const __half* X, __half* Y, int M, int N, int K, int ldx, int ldy) {
  int m = blockIdx.x * BM + threadIdx.x, n = blockIdx.y;
  if (m >= M) return;
  float sum = 0.0f;
#pragma unroll UNROLL
  for (int k = 0; k < K; k++) sum += __half2float(W[(long long)m * K + k]) * __half2float(X[(long long)n * ldx + k]);
  Y[(long long)n * ldy + m] = __float2half(sum);
}
"""


def dense_kernel(source: str = DENSE, **params: int) -> Kernel:
    """The kernel above, with params other than its defaults."""
    return parse_kernel(source, params=params)


def gemm_task(*shapes: tuple[int, int, int]) -> Task:
    """Dense fp16 product at the given (M, N, K); one small shape by default."""
    listed = [{"M": m, "N": n, "K": k} for m, n, k in shapes or ((256, 24, 128),)]
    return Task.from_spec({"op": "gemm", "dtype": "float16", "shapes": listed, "free": ["N"], "domain": ["K % 8 == 0"]})


def right(inputs: Inputs) -> Array:
    """Y of a dense fp16 product, accumulated in fp32: [n][m]."""
    w, x = inputs.buffers["W.values"].astype(np.float32), inputs.buffers["X"].astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # the data kinds that overflow or hold NaN
        product: Array = (x @ w.T).astype(np.float16)
    return product


def clean(y: Array) -> Execution:
    """A finished run that wrote all of `y`."""
    return Execution({"Y": y}, {"Y": np.ones(y.shape, np.bool_)}, steps=1)


@dataclass
class NumpyDevice:
    """Computes dense products with NumPy; `runner` and `time_us` can be replaced. Keeps what it was asked."""

    gpu: Gpu = H200
    clock: Clock = "modelled"
    runner: Callable[[Program, Inputs, Checks], Execution] | None = None
    time_us: float = 1e3
    calls: list[str] = field(default_factory=list)
    checks: list[Checks] = field(default_factory=list)
    timed: list[Timeable] = field(default_factory=list)

    def run(self, program: Program, inputs: Inputs, checks: Checks) -> Execution:
        self.calls.append("run")
        self.checks.append(checks)
        if self.runner is not None:
            return self.runner(program, inputs, checks)
        return clean(right(inputs))

    def time(self, subjects: Sequence[Timeable], *, screen: bool) -> tuple[Measurement, ...]:
        self.calls.append("screen" if screen else "time")
        self.timed.extend(subjects)
        return tuple(Measurement(self.time_us, self.time_us, self.time_us, occupancy=0.5) for _ in subjects)

    def profile(self, program: Program, inputs: Inputs) -> Profile:  # noqa: ARG002
        return Profile({}, "none")


class MisbehavingDevice(NumpyDevice):
    """What it does to its process depends on the kernel's dynamic shared bytes (param SHARED)."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu)

    def run(self, program: Program, inputs: Inputs, checks: Checks) -> Execution:
        match program.launches[0].shared:
            case 1:
                os.kill(os.getpid(), signal.SIGKILL)
            case 2:
                raise ValueError("a defect of the engine")
            case 3:
                time.sleep(600)
            case 4:
                raise MemoryError
            case 5:
                secrets = [name for name in os.environ if "KEY" in name or "TOKEN" in name]
                threads = os.environ.get("OPENBLAS_NUM_THREADS")
                told = Finding(Gate.SMALL_RUN, "environment", f"{secrets} {threads}")
                return Execution({}, {}, (told,), "unsupported")
            case 7:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case 6:
                print("not for the pipe", flush=True)  # noqa: T201 -- stdout is what is tested
                os.write(1, b"nor this")
        return super().run(program, inputs, checks)
