"""Tensor maps that a kernel changes: every field against a map made so from the start, and misuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fitness.devices.device import Execution, ResolvedTensorMap, ResolvedWorkspace
from fitness.devices.simulator.tensormap import changed, decode, encode
from tests.fitness.simulator.engine import Array, clean, floats, kinds, launch, run

# The map of a parameter is copied to shared memory, changed there, published to global memory and used from there.
SOURCE = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void load(const __grid_constant__ TensorMap map, const float* x, float* y, TensorMap* made,
                                int c0, int c1) {
  __shared__ alignas(128) unsigned char held[128];
  extern __shared__ __align__(1024) unsigned char tile[];
  __shared__ alignas(8) uint64_t full;
  if (threadIdx.x < 8) ((uint4*)held)[threadIdx.x] = ((const uint4*)&map)[threadIdx.x];
  __syncwarp();
  if (threadIdx.x == 0) {
    const uint32_t at = shared_address(held);
    CHANGES
    mbarrier_init(&full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 32)
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                 "[%0], [%1], 128;" :: "l"(made), "r"(shared_address(held)) : "memory");
  if (threadIdx.x == 0) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(made) : "memory");
    mbarrier_arrive_expect_tx(&full, BYTES);
    tensor_load(tile, made, c0, c1, &full);
  }
  mbarrier_wait(&full, 0);
  for (int i = threadIdx.x; i < BYTES / 4; i += blockDim.x) y[i] = ((float*)tile)[i];
}
"""
MAP = ResolvedTensorMap("m", "x", "float32", (32, 20), (128,), (16, 8), (1, 1))


def field(name: str, value: str, *, ordinal: int | None = None, wide: bool = False) -> str:
    """One tensormap.replace."""
    kind, letter = ("b64", "l") if wide else ("b32", "r")
    given = "%1" if ordinal is None else f"{ordinal}, %1"
    place = f'"r"(at), "{letter}"({value})'
    constant = name in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
    if constant:
        given, place = value, '"r"(at)'
    return (
        f'asm volatile("tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [%0], {given};" :: {place} : "memory");'
    )


MADE = (ResolvedWorkspace("made", 128, "poison"),)


def job(changes: str, box_bytes: int) -> str:
    """The kernel with some changes, for a box of so many bytes."""
    return SOURCE.replace("CHANGES", changes).replace("BYTES", str(box_bytes))


def loaded(
    tensormap: ResolvedTensorMap, changes: str, box_bytes: int, where: tuple[int, int] = (8, 3)
) -> tuple[Execution, Array]:
    launched = launch("load", 1, 64, tensormap, "x", "y", "made", *where, shared=box_bytes)
    y = {"y": np.zeros(box_bytes // 4, np.float32)}
    x = {"x": floats(20 * 64)}
    execution = run(job(changes, box_bytes), launched, x, y, workspaces=MADE, align=128)
    return execution, execution.outputs["y"]


def size_of(tensormap: ResolvedTensorMap) -> int:
    """Bytes of a box."""
    return 4 * tensormap.box[0] * -(-tensormap.box[1] // tensormap.element_strides[1])


CHANGES: dict[str, tuple[str, dict[str, Any], str]] = {
    "dims": (field("global_dim", "40", ordinal=0) + field("global_dim", "9", ordinal=1),
             {"dims": (40, 9), "strides": (160,)}, field("global_stride", "160ull", ordinal=0, wide=True)),
    "box": (field("box_dim", "8", ordinal=0) + field("box_dim", "4", ordinal=1), {"box": (8, 4)}, ""),
    "fill": (field("fill_mode", "1"), {"oob": "nan"}, ""),
    "swizzle": (field("swizzle_mode", "2"), {"swizzle": "64B"}, ""),
    "steps": (field("element_stride", "2", ordinal=1), {"element_strides": (1, 2)}, ""),
    "type": (field("elemtype", "2"), {"dtype": "uint32"}, ""),
    "nothing": (field("interleave_layout", "0") + field("rank", "1"), {}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("where", [(8, 3), (24, 15)])
def test_a_changed_map_is_as_one_made_so(name: str, where: tuple[int, int]) -> None:
    first, fields, second = CHANGES[name]
    made = replace(MAP, **fields)
    size = size_of(made)
    execution, got = loaded(MAP, first + second, size, where)
    clean(execution)
    same, want = loaded(made, "", size, where)
    clean(same)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def test_another_address_in_the_buffer() -> None:
    """A map that begins at row 5: the box at (8, 3) of it is the one at (8, 8) of the whole."""
    fewer = field("global_dim", "15", ordinal=1)
    change = field("global_address", "x + 5 * 32", wide=True) + fewer
    execution, got = loaded(MAP, change, 512)
    clean(execution)
    _, want = loaded(MAP, "", 512, (8, 8))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (field("global_dim", "400", ordinal=1), "tensormap", "dims was changed to what is not possible: the tensor"),
        (field("global_stride", "100ull", ordinal=0, wide=True), "tensormap", "stride 100"),
        (field("global_address", "8ull", wide=True), "tensormap", "a tensor map of no buffer"),
        (field("elemtype", "11"), "unsupported_instruction", "the value 11 of a map's elemtype"),
        ("((unsigned*)held)[0] = 1;", "tensormap", "names no tensor map"),
        ("((unsigned*)held)[0] = 1;" + field("fill_mode", "1"), "tensormap", "of what is no tensor map"),
    ],
)  # fmt: skip
def test_misuse(change: str, kind: str, said: str) -> None:
    execution, _ = loaded(MAP, change, 512)
    assert kinds(execution) == {kind}
    assert said in execution.findings[0].message


def test_numbers_of_the_isa() -> None:
    image = encode(MAP, 4096)
    for number, name in ((0, "uint8"), (2, "uint32"), (6, "float16"), (7, "float32"), (9, "float64"), (10, "bfloat16")):
        found = decode(changed(image, "elemtype", 0, number) or b"")
        assert found is not None
        assert found.dtype == name
    assert changed(image, "elemtype", 0, 8) == b""  # f32.ftz is not modelled
    assert changed(image, "box_dim", 5, 1) == b""
    assert changed(bytes(128), "rank", 0, 1) is None
    three = decode(changed(image, "rank", 0, 2) or b"")
    assert three is not None
    assert len(three.dims) == 3
