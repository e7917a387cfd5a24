"""Realistic kernels (kernels/*.cu) with inputs and what NumPy says they must give.

`CASES` maps the name of a file to a function that makes its `Case`. Integers must be equal; floating-point results lie
within `rtol` of a float64 computation, relative to the largest magnitude of the output where `scale` is set.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from fitness.devices.device import ResolvedLaunch, ResolvedTensorMap, ResolvedWorkspace
from tests.fitness.simulator.engine import Array, floats, launch

KERNELS = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class Case:
    """One kernel to run.

    Attributes:
        launches, buffers, outputs, workspaces: as `engine.run` takes them.
        want: outputs by name. rtol: 0 asks for equality. checks: as of `engine.run`.
    """

    launches: tuple[ResolvedLaunch, ...]
    buffers: Mapping[str, Array]
    want: Mapping[str, Array]
    rtol: float = 0.0
    workspaces: tuple[ResolvedWorkspace, ...] = ()
    checks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> dict[str, Array]:
        """Arrays that give shapes and types of the outputs."""
        return {name: np.zeros_like(array) for name, array in self.want.items()}


CASES: dict[str, Callable[[], Case]] = {}


def case(function: Callable[[], Case]) -> Callable[[], Case]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def source(name: str) -> str:
    """Text of a kernel."""
    return (KERNELS / f"{name}.cu").read_text()


def integers(low: int, high: int, size: int | tuple[int, ...], seed: int = 0, dtype: str = "i4") -> Array:
    """Random integers in [low, high)."""
    drawn: Array = np.random.default_rng(seed).integers(low, high, size).astype(dtype)
    return drawn


def matrix(rows: int, columns: int, seed: int = 0, dtype: Any = "f4") -> Array:
    """Standard normal numbers."""
    drawn: Array = floats(rows * columns, seed).reshape(rows, columns).astype(dtype)
    return drawn


def softmax(x: Array) -> Array:
    """Along the last axis, in float64."""
    e = np.exp(x.astype("f8") - x.max(axis=-1, keepdims=True))
    shares: Array = e / e.sum(axis=-1, keepdims=True)
    return shares


@case
def softmax_rows() -> Case:
    x = matrix(5, 777) * 4
    return Case((launch("softmax", 5, 128, "x", "y", 777),), {"x": x}, {"y": softmax(x).astype("f4")}, 1e-5)


@case
def layernorm() -> Case:
    x, gamma, beta = matrix(8, 260) * 3 + 5, floats(260, 1), floats(260, 2)
    wide = x.astype("f8")
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * gamma + beta
    launched = launch("layernorm", 2, (32, 4), "x", "gamma", "beta", "y", 65, 1e-5)
    return Case((launched,), {"x": x, "gamma": gamma, "beta": beta}, {"y": want.astype("f4")}, 1e-5)


@case
def rmsnorm_bf16() -> Case:
    bf16 = ml_dtypes.bfloat16
    x, weight = matrix(8, 512, 3, bf16), floats(512, 4).astype(bf16)
    total = (x.astype("f4") ** 2).astype("f8").sum(1) / 512
    scale = (1 / np.sqrt(total + 1e-5)).astype("f4").astype(bf16)
    want = (x * scale[:, None]).astype(bf16) * weight
    launched = launch("rmsnorm", 2, 128, "x", "weight", "y", 64)
    return Case((launched,), {"x": x, "weight": weight}, {"y": want.astype(bf16)}, 0.008)


def _attention(q: Array, k: Array, v: Array, scale: float, *, causal: bool) -> Array:
    scores = q.astype("f8") @ k.astype("f8").T * scale
    if causal:
        scores[np.triu_indices(len(scores), 1)] = -np.inf
    result: Array = softmax(scores) @ v.astype("f8")
    return result


@case
def attention_online() -> Case:
    q, k, v = (matrix(75, 32, seed) for seed in (1, 2, 3))
    launched = launch("attention", 3, (32, 4), "q", "k", "v", "o", 75, 0.2, 1)
    want = _attention(q, k, v, 0.2, causal=True).astype("f4")
    return Case((launched,), {"q": q, "k": k, "v": v}, {"o": want}, 1e-5)


@case
def attention_mma() -> Case:
    q, k, v = (matrix(96, 64, seed, "f2") for seed in (4, 5, 6))
    launched = launch("attention", 3, 64, "q", "k", "v", "o", 96, 0.125)
    want = _attention(q, k, v, 0.125, causal=False).astype("f2")
    return Case((launched,), {"q": q, "k": k, "v": v}, {"o": want}, 2e-3)


@case
def scan_lookback() -> Case:
    x = integers(-1000, 1000, 2000, 7)
    launched = launch("scan", 8, 256, "x", "y", "status", "ticket", 2000)
    spaces = (ResolvedWorkspace("status", 64, "zero"), ResolvedWorkspace("ticket", 4, "zero"))
    return Case((launched,), {"x": x}, {"y": np.cumsum(x, dtype="i4")}, workspaces=spaces)


@case
def scan_blelloch() -> Case:
    x = integers(0, 1 << 32, (3, 256), 8, "u4")
    want = np.cumsum(x, axis=1, dtype="u4") - x
    return Case((launch("scan", 3, 128, "x", "y", shared=264 * 4),), {"x": x}, {"y": want})


@case
def histogram() -> Case:
    x = (np.abs(floats(4096, 9)) * 60).astype("u1")
    launched = launch("histogram", 3, 128, "x", "bins", 4096, memset=("bins",))
    return Case((launched,), {"x": x}, {"bins": np.bincount(x, minlength=256).astype("u4")})


@case
def gemm_stream_k() -> Case:
    a, b = matrix(64, 80, 1), matrix(80, 96, 2)
    launched = launch("gemm", 5, 256, "a", "b", "c", "parts", "flags", 64, 96, 80)
    spaces = (ResolvedWorkspace("parts", 5 * 4096, "poison"), ResolvedWorkspace("flags", 20, "zero"))
    return Case((launched,), {"a": a, "b": b}, {"c": (a.astype("f8") @ b).astype("f4")}, 1e-5, spaces)


@case
def tma_pipeline() -> Case:
    x = matrix(32, 320, 5)
    maps = [
        ResolvedTensorMap("in", "x", "float32", (320, 32), (1280,), (64, 16), (1, 1)),
        ResolvedTensorMap("out", "y", "float32", (64, 32), (256,), (64, 16), (1, 1)),
    ]
    want = x.reshape(32, 5, 64).astype("f8").sum(1).astype("f4")
    return Case((launch("combine", 2, 288, *maps, 5),), {"x": x}, {"y": want}, 1e-6)


@case
def wgmma_specialised() -> Case:
    a, b = matrix(128, 192, 1, "f2"), matrix(128, 192, 2, "f2")
    maps = [
        ResolvedTensorMap("a", "a", "float16", (192, 128), (384,), (64, 128), (1, 1), "128B"),
        ResolvedTensorMap("b", "b", "float16", (192, 128), (384,), (64, 64), (1, 1), "128B"),
    ]
    want = (a.astype("f8") @ b.astype("f8").T).astype("f4")
    launched = launch("gemm", (1, 2), 384, *maps, "c", 128, 192, shared=2 * (128 + 64) * 128)
    return Case((launched,), {"a": a, "b": b}, {"c": want}, 1e-5)


@case
def cluster_reduce() -> Case:
    x = matrix(3, 5000, 6)
    launched = launch("total", (4, 3), 256, "x", "y", 5000, cluster=4)
    return Case((launched,), {"x": x}, {"y": x.astype("f8").sum(1).astype("f4")}, 1e-5)


@case
def transpose() -> Case:
    x = integers(0, 1 << 16, (70, 45), 1, "u2")
    launched = launch("transpose", (2, 3), (32, 8), "x", "y", 70, 45)
    return Case((launched,), {"x": x}, {"y": np.ascontiguousarray(x.T)})


@case
def sgemm_async() -> Case:
    a, b = matrix(40, 64, 1), matrix(40, 128, 2)
    launched = launch("sgemm", (2, 1), 256, "a", "b", "c", 64, 128, 40)
    return Case((launched,), {"a": a, "b": b}, {"c": (a.T.astype("f8") @ b).astype("f4")}, 1e-6)


@case
def hgemm_wmma() -> Case:
    a, b, bias = matrix(64, 48, 1, "f2"), matrix(64, 48, 2, "f2"), floats(64, 3)
    want = np.maximum(a.astype("f8") @ b.astype("f8").T + bias, 0).astype("f2")
    launched = launch("gemm", (2, 2), 128, "a", "b", "bias", "c", 64, 64, 48)
    return Case((launched,), {"a": a, "b": b, "bias": bias}, {"c": want}, 1e-3)


@case
def igemm_dp4a() -> Case:
    a, b = integers(-128, 128, (32, 128), 1, "i1"), integers(-128, 128, (48, 128), 2, "i1")
    rows, columns = np.abs(floats(32, 3)), np.abs(floats(48, 4))
    sums = (a.astype("i4") @ b.astype("i4").T).astype("f4")
    want = (sums * rows[:, None]).astype("f4") * columns
    launched = launch("gemm", (3, 2), (16, 16), "a", "b", "rows", "columns", "c", 32, 48, 32)
    return Case((launched,), {"a": a, "b": b, "rows": rows, "columns": columns}, {"c": want})


@case
def igemm_mma() -> Case:
    a, b = integers(0, 256, (32, 96), 1, "u1"), integers(-128, 128, (24, 96), 2, "i1")
    sums = (a.astype("i4") @ b.astype("i4").T).astype("f4") * np.float32(0.002)
    want = np.clip(np.rint(sums), -128, 127).astype("i1")
    launched = launch("gemm", (3, 2), 32, "a", "b", "c", 24, 24, 0.002)
    return Case((launched,), {"a": a, "b": b}, {"c": want})


@case
def tf32_gemm() -> Case:
    a, b = matrix(32, 64, 1), matrix(64, 24, 2)
    launched = launch("gemm", (3, 2), 32, "a", "b", "c", 24, 64)
    return Case((launched,), {"a": a, "b": b}, {"c": (a.astype("f8") @ b).astype("f4")}, 2e-6)


@case
def bitonic_sort() -> Case:
    keys = floats(512, 1).reshape(2, 256)
    payload = np.arange(512, dtype="i4").reshape(2, 256)
    order = np.argsort(keys, axis=1)
    want = {"sorted": np.take_along_axis(keys, order, 1), "moved": np.take_along_axis(payload, order, 1)}
    return Case(
        (launch("sort", 2, 256, "keys", "payload", "sorted", "moved"),), {"keys": keys, "payload": payload}, want
    )


@case
def radix_pass() -> Case:
    x = integers(0, 1 << 32, (3, 128), 2, "u4")
    order = np.argsort(x >> 8 & 15, axis=1, kind="stable")
    return Case((launch("pass", 3, 128, "x", "y", 8),), {"x": x}, {"y": np.take_along_axis(x, order, 1)})


@case
def stencil3d() -> Case:
    x = floats(5 * 11 * 37, 3).reshape(5, 11, 37)
    wide = np.pad(x.astype("f8"), 1)
    around = sum(np.roll(wide, s, axis)[1:-1, 1:-1, 1:-1] for axis in range(3) for s in (-1, 1))
    want = (0.5 * x + 0.25 * around).astype("f4")
    launched = launch("stencil", (2, 2), (32, 8), "x", "y", 37, 11, 5, 0.5, 0.25)
    return Case((launched,), {"x": x}, {"y": want}, 1e-6)


@case
def conv2d() -> Case:
    x = floats(2 * 19 * 35, 4).reshape(2, 19, 35)
    filters = np.array([[[1, 2, 1], [2, 4, 2], [1, 2, 1]], [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]])
    wide = np.pad(x.astype("f8"), ((0, 0), (1, 1), (1, 1)))
    want = np.zeros((2, 2, 19, 35))
    for i in range(3):
        for j in range(3):
            want += filters[None, :, i, j, None, None] * wide[:, None, i : i + 19, j : j + 35]
    want = np.where(want < 0, 0.1 * want, want).astype("f4")
    return Case((launch("conv", (2, 3, 2), (32, 8), "x", "y", 19, 35),), {"x": x}, {"y": want}, 1e-6)


@case
def spmv_merge() -> Case:
    random = np.random.default_rng(5)
    lengths = random.integers(0, 30, 90) * (random.random(90) < 0.6)
    ends = np.cumsum(lengths).astype("i4")
    columns, values = integers(0, 64, int(ends[-1]), 6), floats(int(ends[-1]), 7)
    x = floats(64, 8)
    want = np.zeros(90)
    np.add.at(want, np.repeat(np.arange(90), lengths), values.astype("f8") * x[columns])
    threads = -(-(90 + ends[-1]) // 9)
    launched = launch("spmv", -(-int(threads) // 64), 64, "ends", "columns", "values", "x", "y", 90, int(ends[-1]), 9,
                      memset=("y",))  # fmt: skip
    buffers = {"ends": ends, "columns": columns, "values": values, "x": x}
    return Case((launched,), buffers, {"y": want.astype("f4")}, 1e-5)


@case
def bfs_level() -> Case:
    """The order of the queue is free, so the distances and the number of new vertices are compared."""
    degree = integers(0, 6, 200, 9)
    offsets = np.concatenate([[0], np.cumsum(degree)]).astype("i4")
    targets = integers(0, 200, int(offsets[-1]), 10)
    frontier = np.arange(0, 200, 4, dtype="i4")
    reached = np.unique(np.concatenate([targets[offsets[v] : offsets[v + 1]] for v in frontier]))
    # The distances begin as -1: all bits set, which a launch of its own writes.
    distance = np.full(200, -1, dtype="i4")
    distance[reached] = 3
    begin = launch("begin", 1, 256, "distance", "count")
    level = launch("level", 1, 64, "offsets", "targets", "frontier", 50, "distance", "next", "count", 3)
    buffers = {"offsets": offsets, "targets": targets, "frontier": frontier}
    want = {"distance": distance, "count": np.array([reached.size], "i4")}
    return Case((begin, level), buffers, want, workspaces=(ResolvedWorkspace("next", 800, "poison"),))


@case
def nbody() -> Case:
    bodies = np.abs(matrix(100, 4, 11))
    wide = bodies.astype("f8")
    apart = wide[None, :, :3] - wide[:, None, :3]
    inverse = 1 / np.sqrt((apart**2).sum(-1) + 1e-3)
    want = np.zeros((100, 4))
    want[:, :3] = (apart * (wide[None, :, 3] * inverse**3)[..., None]).sum(1)
    launched = launch("forces", 2, 64, "bodies", "out", 100, shared=1024)
    return Case((launched,), {"bodies": bodies}, {"out": want.astype("f4")}, 1e-5)


@case
def fft256() -> Case:
    x = matrix(2, 512, 12)
    spectrum = np.fft.fft(x.astype("f8").view("c16"), axis=1)
    want = spectrum.view("f8").astype("f4")
    return Case((launch("fft", 2, 128, "x", "y"),), {"x": x}, {"y": want}, 1e-6)


@case
def fp8_quantise() -> Case:
    x = matrix(4, 100, 13) * np.array([[1], [1e-3], [300], [0]], "f4")
    scales = np.abs(x).max(1) / np.float32(448)
    scales[scales == 0] = 1
    q = np.clip((x / scales[:, None]).astype("f4"), -448, 448).astype(ml_dtypes.float8_e4m3fn)
    want = {"q": q.view("u1"), "scales": scales, "back": q.astype("f2")}
    return Case((launch("quantise", 4, 32, "x", "q", "scales", "back", 100),), {"x": x}, want)


@case
def gemv_half2() -> Case:
    a, x = matrix(12, 640, 14, "f2"), floats(640, 15).astype("f2")
    want = (a.astype("f8") @ x.astype("f8")).astype("f2")
    return Case((launch("gemv", 3, (32, 4), "a", "x", "y", 80),), {"a": a, "x": x}, {"y": want}, 3e-3)


@case
def topk_warp() -> Case:
    x = matrix(3, 500, 16)
    order = np.argsort(-x, axis=1)[:, :8]
    want = {"best": np.take_along_axis(x, order, 1), "where": order.astype("i4")}
    return Case((launch("topk", 3, 32, "x", "best", "where", 500),), {"x": x}, want)


@case
def cholesky_batch() -> Case:
    root = np.random.default_rng(17).standard_normal((3, 13, 13))
    a = root @ root.transpose(0, 2, 1) + 13 * np.eye(13)
    launched = launch("cholesky", 3, 64, "a", "l", 13, shared=13 * 13 * 8)
    return Case((launched,), {"a": a}, {"l": np.linalg.cholesky(a)}, 1e-13)


@case
def philox() -> Case:
    n = 300
    c = [np.arange(n, dtype="u8"), np.zeros(n, "u8"), np.full(n, 7, "u8"), np.zeros(n, "u8")]
    key, low = [2024, 0x1234567], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), p0 & low]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    words = np.stack(c, axis=1).astype("u4")
    u = ((words[:, 0].astype("f4") + np.float32(0.5)).astype("f4") * np.float32(2.3283064e-10)).astype("f8")
    v = (words[:, 1].astype("f4") * np.float32(2.3283064e-10)).astype("f8")
    radius = np.sqrt(-2 * np.log(u))
    normals = np.stack([radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)], axis=1)
    launched = launch("generate", 3, 128, "words", "normals", 2024, n)
    return Case((launched,), {}, {"words": words, "normals": normals.astype("f4")}, 2e-6)


@case
def jacobi_grid_sync() -> Case:
    b = floats(300, 18)
    x = np.zeros(302)
    for _ in range(7):
        x[1:-1] = 0.5 * (x[:-2] + x[2:] + b)
    launched = replace(launch("jacobi", 3, 64, "b", "one", "two", 300, 7), cooperative=True)
    spaces = (ResolvedWorkspace("two", 1200, "poison"),)
    return Case((launched,), {"b": b}, {"one": x[1:-1].astype("f4")}, 1e-6, spaces)


@case
def crc32() -> Case:
    import zlib

    lengths = integers(0, 40, 70, 19)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("i4")
    text = integers(0, 256, int(offsets[-1]), 20, "u1")
    sums = [zlib.crc32(text[a:b].tobytes()) for a, b in itertools.pairwise(offsets)]
    launched = launch("crc", 2, 64, "text", "offsets", "sums", 70)
    return Case((launched,), {"text": text, "offsets": offsets}, {"sums": np.array(sums, "u4")})


@case
def compact_labels() -> Case:
    labels, values = integers(0, 7, 200, 21), integers(-99, 99, 200, 22)
    totals = np.zeros(7, "i4")
    np.add.at(totals, labels, values)
    groups = [np.bincount(labels[i : i + 32], minlength=7) for i in range(0, 200, 32)]
    launched = launch("sums", 2, 128, "labels", "values", "totals", "sizes", 200, memset=("totals", "sizes"))
    want = {"totals": totals, "sizes": np.max(groups, axis=0).astype("i4")}
    return Case((launched,), {"labels": labels, "values": values}, want)


@case
def mandelbrot() -> Case:
    i = np.arange(24 * 20)
    c = (-2.0 + 3.0 * (i % 24) / 24) + 1j * (-1.5 + 3.0 * (i // 24) / 20)
    x, y, times = np.zeros(i.size), np.zeros(i.size), np.zeros(i.size, "u2")
    alive = np.ones(i.size, bool)
    for _ in range(60):
        alive &= x * x + y * y <= 4
        times += alive
        x, y = np.where(alive, x * x - y * y + c.real, x), np.where(alive, 2 * x * y + c.imag, y)
    return Case((launch("mandelbrot", 4, 128, "times", 24, 20, 60),), {}, {"times": times})


@case
def pipeline_api() -> Case:
    x = matrix(2, 5 * 128, 23)
    want = x.reshape(2, 5, 128)[:, :, ::-1].astype("f8").sum(1).astype("f4")
    return Case((launch("reverse_sum", 2, 128, "x", "y", 5),), {"x": x}, {"y": want}, 1e-6)


@case
def interpreter() -> Case:
    """Sums x + (x - 1) + ... + 1 in a loop, then mixes; inputs up to 12."""
    program = [
        (0, 0), (1, 0),  # sum, i
        (5, 0), (6, 5), (9, 0),  # stop unless i > 0
        (0, 0),  # placeholder the jump skips to: sum i 0
        (2, 0), (5, 0), (5, 0), (3, 0), (0, 3), (7, 1), (8, 0), (2, 0), (9, 0),
    ]  # fmt: skip
    x = integers(-5, 13, 100, 24)
    y = np.array([_interpreted(program, int(v)) for v in x], "i4")
    code = np.array(program, "i4").ravel()
    launched = launch("interpret", 2, 64, "program", len(program), "x", "y", 100)
    return Case((launched,), {"program": code, "x": x}, {"y": y}, checks={"uninitialised": True})


def _interpreted(program: list[tuple[int, int]], x: int) -> int:
    stack, top, at = [0] * 16, 0, 0
    binary: dict[int, Callable[[int, int], int]] = {
        2: lambda a, b: a + b, 3: lambda a, b: a * b, 4: lambda a, b: a - b, 8: lambda a, b: a ^ b,
    }  # fmt: skip
    for _ in range(200):
        if at >= len(program):
            break
        op, argument = program[at]
        at += 1
        if op in (0, 1):
            stack[top & 15] = argument if op == 0 else x
            top += 1
        elif op in binary:
            top -= 1
            stack[top - 1 & 15] = binary[op](stack[top - 1 & 15], stack[top & 15])
        elif op == 5:
            stack[top & 15] = stack[top - 1 & 15]
            top += 1
        elif op == 6:
            top -= 1
            if stack[top & 15] > 0:
                at = argument
        elif op == 7:
            stack[top - 1 & 15] >>= argument
        else:
            at = len(program)
    return stack[top - 1 & 15]


@case
def cub_block_sort() -> Case:
    x = integers(0, 1 << 16, (2, 256), 25, "u4")
    ordered = np.sort(x, axis=1)
    want = {"sorted": ordered, "sums": np.cumsum(ordered, axis=1, dtype="u4")}
    return Case((launch("sort_and_scan", 2, 64, "x", "sorted", "sums"),), {"x": x}, want)


def _gelu(exact: int) -> Case:
    from scipy.special import erf

    x, bias, residual = matrix(6, 64, 26, "f2"), floats(64, 27).astype("f2"), matrix(6, 64, 28, "f2")
    u = (x + bias).astype("f8")
    curve = 1 + (erf(u / np.sqrt(2)) if exact else np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
    want = (0.5 * u * curve + residual).astype("f2")
    launched = launch("fuse", 2, 64, "x", "bias", "residual", "y", 192, 32, exact)
    return Case((launched,), {"x": x, "bias": bias, "residual": residual}, {"y": want}, 1e-3)


@case
def gelu_residual() -> Case:
    return _gelu(1)


@case
def st_async_ring() -> Case:
    x = matrix(16, 128, 29)
    want = np.repeat(x.reshape(2, 8, 128).astype("f8").sum(1), 8, axis=0).astype("f4")
    return Case((launch("ring", 16, 128, "x", "y", cluster=8),), {"x": x}, {"y": want}, 1e-6)


@case
def gemv_batched() -> Case:
    w, x = matrix(11, 100, 30), matrix(6, 100, 31)
    want = (x.astype("f8") @ w.astype("f8").T).astype("f4")
    return Case((launch("gemv", (3, 2), 128, "w", "x", "y", 11, 25, 6),), {"w": w, "x": x}, {"y": want}, 1e-5)


@case
def layernorm_backward() -> Case:
    x, dy, gamma = matrix(10, 90, 32) + 2, matrix(10, 90, 33), floats(90, 34)
    wide, grad = x.astype("f8"), dy.astype("f8")
    scale = 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    hat, g = (wide - wide.mean(1, keepdims=True)) * scale, grad * gamma
    dx = scale * (g - g.mean(1, keepdims=True) - hat * (g * hat).mean(1, keepdims=True))
    want = {"dx": dx, "dgamma": (grad * hat).sum(0), "dbeta": grad.sum(0)}
    launched = launch(
        "backward", 3, 64, "x", "dy", "gamma", "dx", "dgamma", "dbeta", 10, 90, 4, 1e-5,
        shared=720, memset=("dgamma", "dbeta"),
    )  # fmt: skip
    buffers = {"x": x, "dy": dy, "gamma": gamma}
    return Case((launched,), buffers, {name: array.astype("f4") for name, array in want.items()}, 1e-5)


@case
def topk_radix() -> Case:
    x, k = integers(-40, 40, (3, 700), 35).astype("f4") / 7, 50  # with ties
    places = np.sort(np.argsort(-x, axis=1, kind="stable")[:, :k], axis=1).astype("i4")
    want = {"values": np.take_along_axis(x, places, 1), "places": places}
    return Case((launch("select", 3, 256, "x", "values", "places", 700, k),), {"x": x}, want)


@case
def winograd() -> Case:
    x, w = floats(3 * 13 * 18, 36).reshape(3, 13, 18), floats(2 * 3 * 9, 37).reshape(2, 3, 3, 3)
    padded = np.pad(x.astype("f8"), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    want = np.einsum("chwij,fcij->fhw", windows, w.astype("f8")).astype("f4")
    launched = launch("convolve", (1, 2), 64, "x", "w", "y", 3, 13, 18, 2, shared=192)
    return Case((launched,), {"x": x, "w": w}, {"y": want}, 1e-5)


@case
def sddmm() -> Case:
    a, b = matrix(9, 48, 38, "f2"), matrix(20, 48, 39, "f2")
    mask = np.random.default_rng(40).random((9, 20)) < 0.3
    mask[4] = False
    rows, indices = np.nonzero(mask)
    scale = floats(rows.size, 41)
    products = (a[rows] * b[indices]).astype("f8")  # each rounded to half
    want = (products.sum(1) * scale).astype("f4")
    indptr = np.concatenate([[0], np.cumsum(mask.sum(1))]).astype("i4")
    buffers = {"indptr": indptr, "indices": indices.astype("i4"), "a": a, "b": b, "scale": scale}
    return Case((launch("sample", 3, (32, 4), *buffers, "out", 9, 24),), buffers, {"out": want}, 1e-5)


@case
def softmax_pv_async() -> Case:
    scores, v = matrix(32, 75, 42) * 3, matrix(75, 64, 43, "f2")
    want = (softmax(scores) @ v.astype("f8")).astype("f4")
    return Case((launch("apply", 2, 128, "scores", "v", "o", 75),), {"scores": scores, "v": v}, {"o": want}, 1e-5)


@case
def gemm_multicast() -> Case:
    a, b = matrix(64, 192, 44, "f2"), matrix(64, 192, 45, "f2")
    maps = [
        ResolvedTensorMap("a", "a", "float16", (192, 64), (384,), (64, 32), (1, 1), "none"),
        ResolvedTensorMap("b", "b", "float16", (192, 64), (384,), (64, 16), (1, 1), "none"),
    ]
    want = (a.astype("f8") @ b.astype("f8").T).astype("f4")
    return Case((launch("gemm", (2, 2), 160, *maps, "c", 64, 192, cluster=2),), {"a": a, "b": b}, {"c": want}, 1e-5)


@case
def hash_join() -> Case:
    keys, values = integers(1, 60, 300, 46, "u4"), integers(1, 1000, 300, 47)
    wanted = integers(1, 90, 100, 48, "u4")
    want = np.array([
        (values[keys == key].max(), values[keys == key].sum()) if (keys == key).any() else (-1, -1) for key in wanted
    ]).astype("i4")  # fmt: skip
    launches = (
        launch("insert", 3, 128, "keys", "values", "table", "groups", "locks", 300, 127),
        launch("probe", 1, 128, "wanted", "table", "groups", "found", 100, 127),
    )
    scratch = tuple(
        ResolvedWorkspace(n, size, "zero") for n, size in (("table", 512), ("groups", 1024), ("locks", 512))
    )
    return Case(launches, {"keys": keys, "values": values, "wanted": wanted}, {"found": want}, workspaces=scratch)
