"""Records what Hopper instructions give on a real card, to compare the simulator with.

    python -m tests.fitness.simulator.hardware_hopper build jobs.npz       # anywhere: compiles, makes inputs
    python -m tests.fitness.simulator.hardware_hopper record jobs.npz tests/fitness/simulator/data/h200_hopper.npz

`record` needs NumPy, cuda-bindings and a driver, and no compiler. Inputs are made from fixed seeds, so only the
outputs are kept, and of wgmma's accumulators every fifth thread's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.device import BufferRef, ResolvedLaunch, ResolvedTensorMap, Scalar

Array = NDArray[Any]
STEP = 5
"""Every how many threads accumulators are kept."""


@dataclass(frozen=True)
class Case:
    """One launch.

    Attributes:
        tolerance: largest difference from the simulator's result, relative to the largest magnitude; 0: bit for
            bit; None: the simulator refuses it, the record says what a card does.
        step: every how many columns of the outputs are kept.
    """

    name: str
    source: str
    launch: ResolvedLaunch
    buffers: dict[str, Array]
    outputs: dict[str, Array]
    tolerance: float | None = 0.0
    step: int = 1


def cases() -> Iterator[Case]:
    """All of them, in a fixed order."""
    yield from _products()
    yield from _copies()
    yield from _synchronisation()


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


# ---------------------------------------------------------------- build


def build(path: Path) -> None:
    """Compile every case and write cubins, inputs and launches."""
    from tests.fitness.simulator.engine import compiled

    arrays: dict[str, Array] = {}
    index = []
    for number, case in enumerate(cases()):
        arrays[f"{number}.cubin"] = np.frombuffer(compiled(case.source).cubin, np.uint8)
        for name, array in case.buffers.items():
            arrays[f"{number}.in.{name}"] = array
        index.append(
            {
                "name": case.name,
                "launch": asdict(case.launch) | {"arguments": [_argument(a) for a in case.launch.arguments]},
                "inputs": list(case.buffers),
                "outputs": {name: [list(a.shape), a.dtype.str] for name, a in case.outputs.items()},
                "step": case.step,
            }
        )
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez_compressed(path, allow_pickle=False, **arrays)
    sys.stdout.write(f"{len(index)} cases in {path}" + "\n")


def _argument(argument: Any) -> dict[str, Any]:
    kind = {BufferRef: "buffer", Scalar: "scalar", ResolvedTensorMap: "map"}[type(argument)]
    return {"kind": kind, **asdict(argument)}


# ---------------------------------------------------------------- record


class CardError(RuntimeError):
    """The driver refuses a call; `code` is its CUresult."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Card:
    """The first card, by the driver."""

    def __init__(self) -> None:
        from cuda.bindings import driver

        self.cu = driver
        self.call(driver.cuInit(0))
        device = self.call(driver.cuDeviceGet(0))
        self.name = self.call(driver.cuDeviceGetName(64, device)).split(b"\0")[0].decode()
        self.context = self.call(driver.cuDevicePrimaryCtxRetain(device))
        self.call(driver.cuCtxSetCurrent(self.context))

    @staticmethod
    def call(result: tuple[Any, ...]) -> Any:
        code, *values = result
        if int(code) != 0:
            raise CardError(int(code), f"the driver says {code!r}")
        return values[0] if len(values) == 1 else values

    def upload(self, array: Array) -> int:
        """A buffer with these contents, aligned to 256 bytes."""
        host = np.ascontiguousarray(array)
        pointer = int(self.call(self.cu.cuMemAlloc(max(16, host.nbytes))))
        if host.nbytes:
            self.call(self.cu.cuMemcpyHtoD(pointer, host.ctypes.data, host.nbytes))
        return pointer

    def launch(self, cubin: bytes, started: dict[str, Any], places: dict[str, int]) -> None:
        """Launch one kernel and wait for it."""
        cu = self.cu
        module = self.call(cu.cuModuleLoadData(cubin))
        function = self.call(cu.cuModuleGetFunction(module, started["entry"].encode()))
        if started["shared"] > 48 * 1024:
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call(cu.cuFuncSetAttribute(function, attribute, started["shared"]))
        held = [_bytes_of(a, places) for a in started["arguments"]]
        pointers = np.array([value.ctypes.data for value in held], dtype=np.uint64)
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = started["grid"]
        config.blockDimX, config.blockDimY, config.blockDimZ = started["block"]
        config.sharedMemBytes, config.hStream = started["shared"], 0
        if started["cluster"] != [1, 1, 1]:
            value = cu.CUlaunchAttributeValue()
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = started["cluster"]
            attribute = cu.CUlaunchAttribute()
            attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value = value
            config.attrs, config.numAttrs = [attribute], 1
        self.call(cu.cuLaunchKernelEx(config, function, pointers.ctypes.data, 0))
        self.call(cu.cuCtxSynchronize())
        self.call(cu.cuModuleUnload(module))


def _bytes_of(argument: dict[str, Any], places: dict[str, int]) -> Array:
    """A kernel argument as the driver wants it."""
    fields = dict(argument)
    kind = fields.pop("kind")
    if kind == "buffer":
        return np.array([places[fields["name"]]], dtype=np.uint64)
    if kind == "scalar":  # every scalar parameter of these kernels is an integer of at most 64 bits
        return np.array([int(fields["value"]) % (1 << 64)], dtype=np.uint64)
    from fitness.devices.cuda.tensormap import encode

    listed: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    tensormap = ResolvedTensorMap(**listed)
    words = encode(tensormap, places[tensormap.buffer])
    aligned = np.zeros(16 + 8, dtype=np.uint64)  # 64-byte alignment, as CUtensorMap has
    first = (-aligned.ctypes.data % 64) // 8
    aligned[first : first + 16] = words
    return aligned[first : first + 16]


def record(jobs: Path, out: Path) -> None:
    """Run every case on the card and keep the outputs, or the driver's error code where it faults.

    A fault ends the process's context: the cases after it run in a new process.
    """
    spawn = multiprocessing.get_context("spawn")
    results: dict[str, Array] = {}
    done, count = 0, len(json.loads(np.load(jobs)["index"].tobytes()))
    while done < count:
        mine, its = spawn.Pipe(duplex=False)
        worker = spawn.Process(target=_record_from, args=(jobs, done, its))
        worker.start()
        its.close()
        try:
            while True:
                found = mine.recv()
                results |= found
                done += "card" not in found
        except EOFError:
            worker.join()
        if worker.exitcode:
            raise RuntimeError(f"the recording process died with {worker.exitcode}")
    np.savez_compressed(out, allow_pickle=False, **results)
    sys.stdout.write(f"{count} cases in {out}" + "\n")


def _record_from(jobs: Path, first: int, sink: Any) -> None:
    """Send {"case/output": array} of the cases from the first one on, {"case/fault": code} for one that faults."""
    given = np.load(jobs)
    card = _Card()
    sink.send({"card": np.frombuffer(card.name.encode(), np.uint8)})
    for number, case in enumerate(json.loads(given["index"].tobytes())):
        if number < first:
            continue
        places = {name: card.upload(given[f"{number}.in.{name}"]) for name in case["inputs"]}
        empty = {name: np.zeros(shape, dtype) for name, (shape, dtype) in case["outputs"].items()}
        places |= {name: card.upload(array) for name, array in empty.items()}
        try:
            card.launch(given[f"{number}.cubin"].tobytes(), case["launch"], places)
        except CardError as error:
            sys.stdout.write(f"{case['name']}: {error}" + "\n")
            sink.send({f"{case['name']}/fault": np.array(error.code)})
            return
        found = {}
        for name, array in empty.items():
            card.call(card.cu.cuMemcpyDtoH(array.ctypes.data, places[name], array.nbytes))
            found[f"{case['name']}/{name}"] = np.ascontiguousarray(array[..., :: case["step"]])
        for pointer in places.values():
            card.call(card.cu.cuMemFree(pointer))
        sink.send(found)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="compile and make inputs")
    building.add_argument("jobs", type=Path)
    recording = commands.add_parser("record", help="run on the card")
    recording.add_argument("jobs", type=Path)
    recording.add_argument("out", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "build":
        build(chosen.jobs)
    else:
        record(chosen.jobs, chosen.out)


if __name__ == "__main__":
    main()
