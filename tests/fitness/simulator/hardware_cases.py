"""Kernels whose results a real card has recorded, or is to record, for the simulator to be compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.device import ResolvedLaunch, ResolvedTensorMap, ResolvedWorkspace

Array = NDArray[Any]
STEP = 5
"""Every how many threads accumulators are kept."""


@dataclass(frozen=True)
class Case:
    """One kernel, or a few launches of one source.

    Attributes:
        tolerance: largest difference from the simulator's result, relative to the largest magnitude; 0: bit for
            bit; of 16-bit words: units in the last place; None: the simulator refuses it, the record says what a
            card does.
        step: every how many columns of the outputs are kept.
    """

    name: str
    source: str
    launches: ResolvedLaunch | tuple[ResolvedLaunch, ...]
    buffers: dict[str, Array]
    outputs: dict[str, Array]
    tolerance: float | None = 0.0
    step: int = 1
    workspaces: tuple[ResolvedWorkspace, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def sequence(self) -> tuple[ResolvedLaunch, ...]:
        """The launches in order."""
        return (self.launches,) if isinstance(self.launches, ResolvedLaunch) else self.launches


def cases() -> Iterator[Case]:
    """All of them, in a fixed order."""
    yield from _products()
    yield from _copies()
    yield from _synchronisation()
    yield from _remote()
    yield from _reductions()
    yield from _multiplications()
    yield from _scalars()
    yield from _maps()
    yield from _kernels()


def _products() -> Iterator[Case]:
    from tests.fitness.simulator.wgmma_cases import FORMS, Form, operands

    for form in FORMS:
        yield _product(form.name, form, operands(form, seed=form.n))
    for sparse in (False, True):
        form = Form(n=16, sparse=sparse)
        ops = operands(form, seed=3)
        ops.b[5, 3], ops.b[9, 4], ops.a[7, 2], ops.a[8, 3] = np.nan, np.inf, -np.inf, 0
        yield _product(f"nonfinite sparse={sparse}", form, ops)
        ops = operands(form, seed=4)
        ops.a[:] = (ops.a * np.float16(2.0**-14)).astype(np.float16)
        ops.c[:] = ops.c * np.float32(2.0**-24)
        yield _product(f"subnormal sparse={sparse}", form, ops)
        ops = operands(form, seed=5)
        ops.c[:] = ops.c * np.float32(2.0**12)  # what is left of small sums beside a large accumulator
        yield _product(f"large accumulators sparse={sparse}", form, ops)
    ops = operands(Form(n=16, sparse=True), seed=6)
    ops.index[:, 0::2], ops.index[:, 1::2] = ops.index[:, 1::2].copy(), ops.index[:, 0::2].copy()
    yield _product("descending metadata", ops.form, ops)
    ops = operands(Form(n=16, sparse=True, swizzle="32B"), seed=7)
    yield _product("sparse B beyond a 32-byte span", ops.form, ops, refused=True)


def _product(name: str, form: Any, ops: Any, *, refused: bool = False) -> Case:
    from tests.fitness.simulator.engine import launch
    from tests.fitness.simulator.wgmma_cases import IMAGE, buffers, source

    kind = np.float32 if form.d_type == "f32" else np.uint32
    started = launch(
        "multiply", 1, 128, "image", "descriptors", "a_registers", "metadata", "c", "out", int(form.scale_d), 0,
        shared=IMAGE,
    )  # fmt: skip
    # fp8 sums keep about 14 bits on this card; others lose their last bits by truncation.
    tolerance = {"s32": 0.0, "f16": 2e-3}.get(form.d_type, 1e-3 if form.a_type in ("e4m3", "e5m2") else 4e-6)
    out = {"out": np.zeros((form.registers, 128), kind)}
    return Case("wgmma " + name, source(form), started, buffers(ops), out, None if refused else tolerance, STEP)


def _copies() -> Iterator[Case]:
    from tests.fitness.simulator import test_bulk, test_tensormap
    from tests.fitness.simulator.engine import floats, launch

    def load(name: str, tensormap: ResolvedTensorMap, x: Array, *where: int, refused: bool = False) -> Case:
        shape = (1, *tensormap.element_strides[1:])
        size = 4 * int(np.prod([-(-b // s) for b, s in zip(tensormap.box, shape, strict=True)]))
        text = test_tensormap.LOAD.replace("BYTES", str(size)).replace("COPY", test_tensormap.COPY_2D)
        started = launch("load", 1, 64, tensormap, "y", *where, shared=2 * size)
        return Case(f"tensor load {name}", text, started, {"x": x}, {"y": np.zeros(size // 4, "f4")},
                    None if refused else 0.0)  # fmt: skip

    x = floats(24 * 40).reshape(24, 40)
    plain = test_tensormap.MAP
    for where in ((0, 0), (32, 20), (-4, -3), (5, 3), (-5, -3), (40, 0)):
        yield load(f"at {where}", plain, x, *where)
    nan = ResolvedTensorMap("tx", "x", "float32", (40, 24), (160,), (16, 8), (1, 1), oob="nan")
    yield load("outside is NaN", nan, x, 32, 20)
    steps = ResolvedTensorMap("tx", "x", "float32", (40, 24), (160,), (16, 8), (3, 2))
    yield load("element strides", steps, x, 8, 3)
    wide = floats(64 * 32).reshape(64, 32)
    for swizzle, inner in (("32B", 8), ("64B", 16), ("128B", 32)):
        tensormap = ResolvedTensorMap("tx", "x", "float32", (32, 64), (128,), (inner, 32), (1, 1), swizzle)
        yield load(f"swizzle {swizzle}", tensormap, wide, 0, 5)
    short = ResolvedTensorMap("tx", "x", "float32", (32, 64), (128,), (16, 32), (1, 1), "128B")
    yield load("rows shorter than the swizzle", short, wide, 0, 5, refused=True)
    store = ResolvedTensorMap("ty", "y", "float32", (40, 24), (160,), (32, 8), (1, 1), "128B")
    started = launch("store", 1, 64, store, "x", 16, 19)
    rows = floats(256).reshape(8, 32)
    yield Case("tensor store", test_tensormap.STORE, started, {"x": rows}, {"y": np.zeros((24, 40), "f4")})
    started = launch("spread", 4, 64, plain, "y", cluster=2)
    yield Case("multicast", test_tensormap.MULTICAST, started, {"x": x}, {"y": np.zeros(1024, "f4")})
    tiles = floats(3 * 5 * 256)
    started = launch("pipeline", 3, 288, "x", "y", 5)
    yield Case("bulk pipeline", test_bulk.PIPELINE, started, {"x": tiles}, {"y": np.zeros(tiles.size, "f4")})


def _synchronisation() -> Iterator[Case]:
    from tests.fitness.simulator import test_clusters, test_mbarrier
    from tests.fitness.simulator.engine import floats, launch

    # Which thread of a warp arrives first is not defined, so only one block's sum of states is comparable: not here.
    x = floats(3 * 5 * 128)
    started = launch("exchange", 3, 256, "x", "y", 5)
    yield Case("mbarrier exchange", test_mbarrier.EXCHANGE, started, {"x": x}, {"y": np.zeros(x.size, "f4")})
    for cluster in ((2, 1, 1), (1, 2, 1), (2, 2, 2)):
        started = launch("places", (4, 4, 2), 32, "y", cluster=cluster)
        yield Case(f"places in clusters {cluster}", test_clusters.PLACES, started, {}, {"y": np.zeros(384, "u4")})
    x = floats(256)
    started = launch("reduce", 8, 32, "x", "y", cluster=4)
    yield Case("cluster reduce", test_clusters.REDUCE, started, {"x": x}, {"y": np.zeros(8, "f4")}, 1e-6)
    x = floats(48)
    started = launch("gather", 8, 32, "x", "y", cluster=4)
    yield Case("remote mbarriers", test_clusters.REMOTE, started, {"x": x}, {"y": np.zeros(12, "f4")}, 1e-6)


def _remote() -> Iterator[Case]:
    """`st.async` and `red.async`."""
    from tests.fitness.simulator import test_remote
    from tests.fitness.simulator.engine import floats, launch

    for form in test_remote.STORES:
        started = launch(form, 4, 32, "x", "y", cluster=2)
        yield Case(f"st.async {form}", test_remote.SOURCE, started, {"x": floats(512)}, {"y": np.zeros(512, "f4")})
    for operation, dtype in test_remote.REDUCTIONS:
        x, start = test_remote.operands(operation, dtype)
        started = launch(f"{operation}_{dtype}", 4, 64, "x", "start", "y", cluster=2)
        given = {"x": x, "start": start}
        yield Case(f"red.async {operation} {dtype}", test_remote.SUMS, started, given, {"y": np.zeros(8, dtype)})


def _reductions() -> Iterator[Case]:
    """`cp.reduce.async.bulk`, and sums of subnormals by atomics."""
    from tests.fitness.simulator import test_atomics, test_bulk_reduce
    from tests.fitness.simulator.engine import launch

    for operation, form in test_bulk_reduce.FORMS:
        for subnormal in (False, True) if form == "f32" else (False,):
            start, rows = test_bulk_reduce.operands(form, blocks=1, subnormal=subnormal)
            words = start.nbytes // 4
            text = test_bulk_reduce.GLOBAL.replace("OP", f"{operation}.{form}").replace("FENCE", test_bulk_reduce.FENCE)
            both = (launch("begin", 1, 64, "start", "y", words), launch("reduce", 1, 64, "x", "y", words))
            buffers = {"start": start.view("u4"), "x": rows.view("u4").ravel()}
            name = f"cp.reduce {operation}.{form}{' subnormal' if subnormal else ''}"
            yield Case(name, text, both, buffers, {"y": np.zeros(words, "u4")})
    for operation, kind in test_bulk_reduce.CLUSTER_FORMS:
        if operation in ("inc", "dec"):
            continue  # what comes of them depends on the order of the blocks, which is nobody's
        text, buffers, words = test_bulk_reduce.cluster_job(operation, kind)
        started = launch("reduce", 8, 64, "x", "start", "y", words, cluster=4)
        yield Case(f"cp.reduce cluster {operation}.{kind}", text, started, buffers, {"y": np.zeros(2 * words, "u4")})
    for operation, dtype in test_bulk_reduce.TENSOR_FORMS:
        text, launches, tile, start = test_bulk_reduce.tensor_job(operation, dtype, (16, 19))
        yield Case(f"cp.reduce tensor {operation} {dtype}", text, launches, {"x": tile}, {"y": start})
    for space in ("global", "shared"):
        text, pairs = test_atomics.subnormal_job(space, used=True)
        n = len(pairs)
        outputs = {"y": np.zeros(n, "f4"), "old": np.zeros(n, "f4")}
        yield Case(
            f"atomicAdd subnormal {space}", text, launch("k", 1, n, "x", "y", "old"), {"x": pairs.ravel()}, outputs
        )
        for call in test_atomics.WIDE_CALLS:
            text, x = test_atomics.wide_job(call, space)
            wide: dict[str, Array] = {"cells": np.zeros((48, 2), "u8"), "old": np.zeros((96, 2), "u8")}
            started = launch("k", 1, 96, "x", "cells", "old")
            yield Case(f"atomic {call} of 16 bytes {space}", text, started, {"x": x}, wide)


def _multiplications() -> Iterator[Case]:
    """`mma` of doubles, 4-bit integers and bits, sparse of tf32 and 4-bit integers; `wmma` of what is not f16."""
    from tests.fitness.simulator import test_mma_kernels, test_mma_sparse
    from tests.fitness.simulator.engine import launch

    for form in test_mma_kernels.FORMS:
        x, held = test_mma_kernels.lanes(form)[:2]
        y: dict[str, Array] = {"y": np.zeros((32, form.counts[2]), held)}
        text = test_mma_kernels.source(form)
        yield Case(f"mma {form.op}", text, launch("multiply", 1, 32, "x", "y"), {"x": x}, y)
    for wmma in test_mma_kernels.WMMA_FORMS:
        for layouts in test_mma_kernels.LAYOUTS:
            text, launched, buffers, d = test_mma_kernels.wmma_job(wmma, layouts)[:4]
            name = f"wmma {wmma[0]} {wmma[4]}x{wmma[5]} {' '.join(layouts)}"
            yield Case(name, text, launched, buffers, {"d": d})
    for kind in test_mma_kernels.SUB_BYTE_FORMS:
        text, launched, buffers, d = test_mma_kernels.sub_byte_job(kind)[:4]
        yield Case(f"wmma {kind}", text, launched, buffers, {"d": d})
    for sparse in test_mma_sparse.FORMS:
        x = test_mma_sparse.sparse_job(sparse)[0]
        empty = {"y": np.zeros((32, 4), "f4" if sparse.sum == "f32" else "u4")}
        started = launch("multiply", 1, 32, "x", "y")
        yield Case(f"mma.sp {sparse.name}", test_mma_sparse.source(sparse), started, {"x": x}, empty)


def _scalars() -> Iterator[Case]:
    """Scalar instructions on random and special words; carries."""
    from tests.fitness.simulator import hardware_scalars, test_integer
    from tests.fitness.simulator.engine import launch

    for name, text, kind, tolerance in (*hardware_scalars.jobs(), *hardware_scalars.approximations()):
        x = hardware_scalars.operands(kind)
        y = {"y": np.zeros(hardware_scalars.LANES, hardware_scalars.RESULTS[kind])}
        yield Case(f"scalar {name}", text, launch("k", 1, hardware_scalars.LANES, "x", "y"), {"x": x}, y, tolerance)
    x = test_integer.chain_operands()
    started = launch("chain", 1, 512, "x", "y")
    options = ("--device-int128",)
    y = {"y": np.zeros((512, 9), "u4")}
    yield Case("carries", test_integer.WIDE, started, {"x": x}, y, options=options)


def _maps() -> Iterator[Case]:
    """Tensor maps that the kernel changes."""
    from tests.fitness.simulator import test_mapchange
    from tests.fitness.simulator.engine import floats, launch

    for name, (first, fields, second) in test_mapchange.CHANGES.items():
        size = test_mapchange.size_of(replace(test_mapchange.MAP, **fields))
        started = launch("load", 1, 64, test_mapchange.MAP, "x", "y", "made", 24, 15, shared=size)
        text, y = test_mapchange.job(first + second, size), {"y": np.zeros(size // 4, "f4")}
        x = {"x": floats(20 * 64)}
        yield Case(f"tensormap.replace {name}", text, started, x, y, workspaces=test_mapchange.MADE)


def _kernels() -> Iterator[Case]:
    """The realistic kernels; their workspaces begin as zeros on a card."""
    from tests.fitness.simulator import kernel_cases

    for name, make in kernel_cases.CASES.items():
        case = make()
        yield Case(
            f"kernel {name}", kernel_cases.source(name), case.launches, dict(case.buffers), case.outputs,
            2 * case.rtol, workspaces=case.workspaces,
        )  # fmt: skip
