"""Tensor maps: boxes against NumPy slices, swizzles, what lies outside, stores, multicast, misuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.device import ResolvedTensorMap
from fitness.devices.simulator import box_loads, bulk
from fitness.devices.simulator.tensormap import decode, encode
from fitness.tensormap import problem
from tests.fitness.simulator.engine import clean, floats, kinds, launch, run

Array = NDArray[Any]

MAP = ResolvedTensorMap("tx", "x", "float32", (40, 24), (160,), (16, 8), (1, 1))

LOAD = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void load(const __grid_constant__ TensorMap map, float* y, int c0, int c1) {
  extern __shared__ __align__(1024) unsigned char tile[];
  __shared__ alignas(8) uint64_t full;
  if (threadIdx.x == 0) {
    prefetch_tensormap(&map);
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&full, BYTES);
    COPY
  }
  __syncthreads();
  mbarrier_wait(&full, 0);
  for (int i = threadIdx.x; i < BYTES / 4; i += blockDim.x) y[i] = ((float*)tile)[i];
}
"""
COPY_2D = "tensor_load(tile, &map, c0, c1, &full);"


def loaded(tensormap: ResolvedTensorMap, x: Array, *where: int, copy: str = COPY_2D) -> Array:
    """A box as it lies in shared memory, 32-bit words."""
    size = int(np.prod([-(-b // s) for b, s in zip(tensormap.box, (1, *tensormap.element_strides[1:]), strict=True)]))
    size *= x.dtype.itemsize
    source = LOAD.replace("BYTES", str(size)).replace("COPY", copy)
    c0, c1 = (*where, 0)[:2]
    y = {"y": np.zeros(size // 4, np.float32)}
    execution = clean(run(source, launch("load", 1, 64, tensormap, "y", c0, c1, shared=size), {"x": x}, y))
    return execution.outputs["y"]


def box(x: Array, where: tuple[int, ...], shape: tuple[int, ...], fill: float = 0.0) -> Array:
    """A box of a tensor (both innermost first) by definition, one element at a time."""
    out = np.full(shape[::-1], fill, dtype=x.dtype)
    for index in np.ndindex(*shape[::-1]):
        at = tuple(i + c for i, c in zip(index, where[::-1], strict=True))
        if all(0 <= a < n for a, n in zip(at, x.shape, strict=True)):
            out[index] = x[at]
    return out


@pytest.mark.parametrize(
    "where", [(0, 0), (8, 3), (24, 16), (32, 20), (-4, -3), (36, 23), (-16, 0), (40, 0), (100, -50)]
)
@pytest.mark.parametrize("oob", ["zeros", "nan"])
def test_boxes_and_what_lies_outside(where: tuple[int, int], oob: str) -> None:
    x = floats(24 * 40).reshape(24, 40)
    got = loaded(replace(MAP, oob=oob), x, *where)
    np.testing.assert_array_equal(got.reshape(8, 16), box(x, where, (16, 8), np.nan if oob == "nan" else 0.0))


def test_padded_rows_and_traversal_strides() -> None:
    """Rows may be longer than the tensor is wide; a stride of 2 takes every other row (the innermost is ignored)."""
    x = floats(24 * 48).reshape(24, 48)
    tensormap = ResolvedTensorMap("tx", "x", "float32", (40, 24), (192,), (16, 8), (3, 2))
    got = loaded(tensormap, x, 32, 19)
    np.testing.assert_array_equal(got.reshape(4, 16), box(x[:, :40], (32, 19), (16, 8))[::2])


@pytest.mark.parametrize(("swizzle", "span"), [("32B", 32), ("64B", 64), ("128B", 128)])
def test_swizzles(swizzle: str, span: int) -> None:
    """Chunk c of row r of a span-wide box lies at chunk c ^ (address bits above 7) of its row (PTX ISA, figures)."""
    x = floats(64 * 32).reshape(64, 32)
    inner = span // 4
    tensormap = ResolvedTensorMap("tx", "x", "float32", (32, 64), (128,), (inner, 32), (1, 1), swizzle)
    got = loaded(tensormap, x, 0, 5).reshape(-1, 4)
    for row in range(32):
        for chunk in range(span // 16):
            address = row * span + 16 * chunk
            moved = address ^ ((address >> 7 & (span // 16 - 1)) << 4)
            np.testing.assert_array_equal(got[moved // 16], x[5 + row, 4 * chunk : 4 * chunk + 4], f"{row} {chunk}")
    if span == 128:  # the first rows of the 128-byte pattern, written out
        order = [[int(np.flatnonzero((got[8 * r + c] == x[5 + r].reshape(8, 4)).all(axis=1))[0]) for c in range(8)]
                 for r in range(8)]  # fmt: skip
        assert order[1] == [1, 0, 3, 2, 5, 4, 7, 6]
        assert order[4] == [4, 5, 6, 7, 0, 1, 2, 3]
        assert order[7] == [7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("rank", [1, 3, 4, 5])
def test_other_numbers_of_dimensions(rank: int) -> None:
    dims = (16, 6, 5, 4, 3)[:rank]
    shape = (8, 3, 2, 3, 2)[:rank]
    where = (12, -1, 4, 2, 1)[:rank]
    x = floats(int(np.prod(dims))).reshape(dims[::-1])
    strides = tuple(int(4 * np.prod(dims[:i])) for i in range(1, rank))
    tensormap = ResolvedTensorMap("tx", "x", "float32", dims, strides, shape, (1,) * rank)
    inputs = ", ".join(f"%{i + 3}" for i in range(rank))
    values = ", ".join(f'"r"({c})' for c in where)
    copy = (
        f'asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes '
        f'[%0], [%1, {{{inputs}}}], [%2];" :: "r"(shared_address(tile)), "l"(&map), "r"(shared_address(&full)), '
        f'{values} : "memory");'
    )
    got = loaded(tensormap, x, 0, copy=copy)
    np.testing.assert_array_equal(got.reshape(shape[::-1]), box(x, where, shape))


STORE = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void store(const __grid_constant__ TensorMap map, const float* x, int c0, int c1) {
  __shared__ alignas(1024) float tile[8 * 32];
  for (int i = threadIdx.x; i < 8 * 32; i += blockDim.x) {
    int row = i / 32, chunk = i / 4 % 8;
    tile[row * 32 + 4 * (chunk ^ row) + i % 4] = x[i];
  }
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) { tensor_store(&map, c0, c1, tile); bulk_commit(); bulk_wait<0>(); }
}
"""


@pytest.mark.parametrize("where", [(0, 0), (4, 3), (16, 19), (-4, -2), (40, 0)])
def test_stores_leave_out_what_lies_outside(where: tuple[int, int]) -> None:
    x = floats(256).reshape(8, 32)
    tensormap = ResolvedTensorMap("ty", "y", "float32", (40, 24), (160,), (32, 8), (1, 1), "128B")
    execution = clean(
        run(STORE, launch("store", 1, 64, tensormap, "x", *where), {"x": x}, {"y": np.zeros((24, 40), "f4")})
    )
    expected, written = np.zeros((24, 40), np.float32), np.zeros((24, 40), bool)
    for r, c in np.ndindex(8, 32):
        if 0 <= r + where[1] < 24 and 0 <= c + where[0] < 40:
            expected[r + where[1], c + where[0]] = x[r, c]
            written[r + where[1], c + where[0]] = True
    np.testing.assert_array_equal(execution.written["y"], written)
    np.testing.assert_array_equal(execution.outputs["y"][written], expected[written])


MULTICAST = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void spread(const __grid_constant__ TensorMap map, float* y) {
  __shared__ alignas(128) float tile[2][8 * 16];
  __shared__ alignas(8) uint64_t full;
  uint32_t rank = cluster_rank();
  if (threadIdx.x == 0) {
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&full, 2 * 512);
  }
  cluster_arrive(); cluster_wait();
  if (threadIdx.x == 0) tensor_load_multicast(tile[rank], &map, 16 * rank, 8 * (blockIdx.x / 2), &full, 3);
  mbarrier_wait(&full, 0);
  for (int i = threadIdx.x; i < 256; i += blockDim.x) y[256 * blockIdx.x + i] = tile[i / 128][i % 128];
  cluster_arrive(); cluster_wait();
}
"""


def test_multicast_to_a_cluster() -> None:
    x = floats(24 * 40).reshape(24, 40)
    y = {"y": np.zeros(4 * 256, np.float32)}
    execution = clean(run(MULTICAST, launch("spread", 4, 64, MAP, "y", cluster=2), {"x": x}, y))
    for block in range(4):
        tiles = execution.outputs["y"][256 * block :][:256].reshape(2, 8, 16)
        for rank in range(2):
            np.testing.assert_array_equal(tiles[rank], box(x, (16 * rank, block // 2 * 8), (16, 8)))


def test_misuse_is_found() -> None:
    """No map, another number of dimensions, a box that does not fit shared memory, one that is misaligned."""
    x = floats(24 * 40).reshape(24, 40)
    source = LOAD.replace("BYTES", "512").replace("COPY", COPY_2D)
    y = {"y": np.zeros(128, np.float32)}

    def message(source: str, shared: int = 512) -> str:
        execution = run(source, launch("load", 1, 64, MAP, "y", 0, 0, shared=shared), {"x": x}, y)
        assert execution.ended == "fault"
        assert execution.findings[0].line
        return execution.findings[0].message

    assert "no tensor map" in message(source.replace("tensor_load(tile, &map", "tensor_load(tile, (TensorMap*)y"))
    assert "2 dimensions is used with 3" in message(source.replace("c0, c1, &full)", "c0, c1, 0, &full)"))
    assert "which has" in message(source, shared=256)
    assert "not a multiple of 128" in message(source.replace("tensor_load(tile,", "tensor_load(tile + 16,"), shared=640)


def test_rows_shorter_than_the_swizzle_are_refused() -> None:
    x = floats(24 * 40).reshape(24, 40)
    source = LOAD.replace("BYTES", "512").replace("COPY", COPY_2D)
    tensormap = replace(MAP, swizzle="128B")
    execution = run(
        source, launch("load", 1, 64, tensormap, "y", 0, 0, shared=512), {"x": x}, {"y": np.zeros(128, "f4")}
    )
    assert execution.ended == "unsupported"
    assert kinds(execution) == {"unsupported_instruction"}


def test_maps_survive_their_encoding() -> None:
    found = decode(encode(replace(MAP, swizzle="64B", oob="nan"), 0x7F00_0000_1000))
    assert found is not None
    assert (found.address, found.dims, found.strides, found.box) == (0x7F00_0000_1000, MAP.dims, MAP.strides, MAP.box)
    assert (found.swizzle, found.oob, found.dtype, found.bytes) == ("64B", "nan", "float32", 512)
    assert decode(bytes(128)) is None


@pytest.mark.parametrize(
    ("change", "key", "said"),
    [
        ({}, "", ""),
        ({"dtype": "float8"}, "dtype", "float8"),
        ({"strides": (152,)}, "strides", "multiple of 16"),
        ({"strides": (144,)}, "strides", "less than the 160 bytes"),
        ({"strides": ()}, "strides", "0 strides for 2"),
        ({"dims": (40, 25)}, "dims", "spans 4000 bytes of x, which has 3840"),
        ({"dims": (40, 0)}, "dims", "from 1 to 2^32"),
        ({"box": (16,)}, "box", "1 sizes for a tensor of 2"),
        ({"box": (16, 257)}, "box", "from 1 to 256"),
        ({"box": (6, 8)}, "box", "24 bytes, no multiple of 16"),
        ({"box": (16, 8), "swizzle": "32B"}, "box", "64 bytes, more than the swizzle's 32"),
        ({"swizzle": "16B"}, "swizzle", "16B"),
        ({"element_strides": (1, 9)}, "element_strides", "from 1 to 8"),
        ({"l2promotion": "1KB"}, "l2promotion", "1KB"),
        ({"oob": "ones"}, "oob", "ones"),
        ({"dtype": "int32", "oob": "nan"}, "oob", "NaN cannot fill"),
    ],
)
def test_rules_of_the_encoding(change: dict[str, Any], key: str, said: str) -> None:
    """Those of cuTensorMapEncodeTiled."""
    found = problem(replace(MAP, **change), 24 * 160, 16)
    assert found[0] == key
    assert said in found[1]
    assert problem(MAP, 24 * 160, 8)[0] == "tensor"


@pytest.mark.parametrize("first", [5, -5, 2])
def test_a_box_that_begins_off_a_multiple_of_16_bytes_faults(first: int) -> None:
    """As on an H200 (h200_hopper.npz, "tensor load at (5, 3)")."""
    x = floats(24 * 40).reshape(24, 40)
    with pytest.raises(AssertionError, match="no multiple of 16"):
        loaded(MAP, x, first, 3)


@pytest.mark.parametrize("checks", [{}, {"uninitialised": False, "counters": True}])
@pytest.mark.parametrize("column", [0, 8, 32, -4, 40])
def test_copies_of_all_blocks_at_once_are_those_of_each(
    column: int, checks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes whole, cut on either side and outside: the same bytes, findings and counters as one by one."""
    x = floats(24 * 40).reshape(24, 40)
    source = LOAD.replace("BYTES", "512").replace("COPY", COPY_2D.replace("c1", "c1 + 8 * blockIdx.x"))
    source = source.replace("y[i]", "y[128 * blockIdx.x + i]")
    program = launch("load", 3, 64, MAP, "y", column, 0, shared=512)
    together, taken = box_loads.load_together, []

    def watched(*arguments: Any) -> bool:
        taken.append(together(*arguments))
        return taken[-1]

    executions = []
    for way in (watched, lambda *_: False):
        monkeypatch.setattr(bulk, "load_together", way)
        y = {"y": np.zeros(384, np.float32)}
        executions.append(run(source, program, {"x": x}, y, races=False, **checks))
    assert taken == [column != 40]
    for execution in executions:
        got = clean(execution).outputs["y"].reshape(3, 8, 16)
        np.testing.assert_array_equal(got, [box(x, (column, 8 * block), (16, 8)) for block in range(3)])
    assert repr(executions[0].counters) == repr(executions[1].counters)
