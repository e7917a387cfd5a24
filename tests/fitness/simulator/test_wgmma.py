"""`wgmma`: every family of forms against the product by definition; groups, fences, misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fitness.devices.device import Execution
from fitness.devices.simulator.codegen import generate
from fitness.devices.simulator.faults import Stop
from fitness.devices.simulator.ptx_parser import parse
from fitness.devices.simulator.wgmma_layout import Descriptor, UnsupportedLayout, addresses
from tests.fitness.simulator.engine import clean, compiled, kinds, launch, run
from tests.fitness.simulator.wgmma_cases import (
    FORMS,
    IMAGE,
    Array,
    Form,
    Operands,
    buffers,
    dealt,
    operands,
    source,
    truncated,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def execute(ops: Operands, text: str, blocks: int = 1, **checks: Any) -> Execution:
    form = ops.form
    given = buffers(ops)
    kind = np.float32 if form.d_type == "f32" else np.uint32
    started = launch(
        "multiply", blocks, 128, "image", "descriptors", "a_registers", "metadata", "c", "out", int(form.scale_d), 0,
        shared=IMAGE,
    )  # fmt: skip
    return run(text, started, given, {"out": np.zeros((form.registers, 128), kind)}, **checks)


def rounded(form: Form, exact: Array) -> Array:
    if form.d_type == "s32":
        exact = np.clip(exact, -(2.0**31), 2.0**31 - 1) if form.satfinite else exact
        return exact.astype(np.int64).astype(np.int32)
    return exact.astype(np.float16 if form.d_type == "f16" else np.float32)


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_products(form: Form) -> None:
    ops = operands(form, seed=form.n)
    execution = clean(execute(ops, source(form)))
    ops.a, ops.b = truncated(form.a_type, ops.a), truncated(form.b_type, ops.b)
    want = dealt(form, rounded(form, ops.expected()))
    got = execution.outputs["out"]
    if form.d_type == "f32":  # the order of a float64 sum is not defined
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    elif form.d_type == "f16":
        got, want = (x.view(np.float16).astype(np.float64) for x in (got, want))
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
        assert (got == want).mean() > 0.999
    else:
        np.testing.assert_array_equal(got, want)


def test_several_blocks_with_and_without_checks() -> None:
    """The same result in all of them."""
    form = Form(n=16, sparse=True, shared=False)
    ops = operands(form)
    checked = clean(execute(ops, source(form), blocks=3))
    plain = clean(execute(ops, source(form), blocks=3, races=False, uninitialised=False, counters=True))
    np.testing.assert_array_equal(checked.outputs["out"], plain.outputs["out"])


@pytest.mark.parametrize("sparse", [False, True])
def test_nan_and_infinity(sparse: bool) -> None:
    """They spread where a stored value meets them, and nowhere else."""
    form = Form(n=16, sparse=sparse)
    ops = operands(form, seed=3)
    ops.b[5, 3], ops.b[9, 4], ops.a[7, 2] = np.nan, np.inf, -np.inf
    got = clean(execute(ops, source(form))).outputs["out"]
    tile = np.zeros((64, 16))
    for row in range(64):
        for place in range(form.stored):
            column = ops.columns[row, place] if sparse else place
            tile[row] += float(ops.a[row, place]) * ops.b[column].astype(np.float64)
    np.testing.assert_allclose(got, dealt(form, (tile + ops.c).astype(np.float32)), rtol=1e-5, atol=1e-5)
    assert np.isnan(got).any()
    assert np.isfinite(got).any()


def test_results_that_are_not_waited_for() -> None:
    form = Form(n=16)
    ops = operands(form)
    early = source(form, between="for (int i = 0; i < 8; i++) d[i] += 1.0f;")
    execution = execute(ops, early)
    assert "wgmma" in kinds(execution)
    assert "is not waited for" in execution.findings[0].message
    late = source(form).replace("wait_group.sync.aligned 0", "wait_group.sync.aligned 1")
    assert "is not waited for" in execute(ops, late).findings[0].message
    uncommitted = source(form).replace('asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");', "")
    assert "is not waited for" in execute(ops, uncommitted).findings[0].message


def test_fences() -> None:
    """None at all; registers of A or accumulators written after it."""
    form = Form(n=16, shared=False)
    ops = operands(form)
    fence = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
    plain = source(form)
    assert "no wgmma.fence" in execute(ops, plain.replace(fence, "")).findings[0].message
    for written in ("a[2] ^= e & 1;", "d[3] *= 2.0f;"):
        execution = execute(ops, plain.replace(fence, f"{fence} {written}"))
        assert "written after the last wgmma.fence" in execution.findings[0].message
        clean(execute(ops, source(form, before=written)))


@pytest.mark.parametrize("waited", [False, True])
def test_operands_overwritten_while_a_product_runs(waited: bool) -> None:
    """A block-wide barrier is no wait for the product."""
    form = Form(n=16)
    wait = 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");'
    overwrite = "__syncthreads(); reinterpret_cast<volatile float*>(memory)[threadIdx.x] = 0.0f;"
    text = source(form).replace(wait, f"{wait} {overwrite}" if waited else f"{overwrite} {wait}")
    execution = execute(operands(form), text)
    assert kinds(execution) == (set() if waited else {"race"})
    if not waited:
        assert "that a wgmma" in execution.findings[0].message


def test_stores_that_the_async_proxy_may_not_see() -> None:
    """A fence of the writers before the barrier, or of the readers after it, and none."""
    form = Form(n=16)
    ops = operands(form)
    fence, barrier = "evo::fence_proxy_async();", "__syncthreads();"
    text = source(form)
    clean(execute(ops, text.replace(fence, "").replace(barrier, f"{barrier} {fence}")))
    execution = execute(ops, text.replace(fence, ""))
    assert kinds(execution) == {"race"}
    assert "no fence.proxy.async" in execution.findings[0].message


def test_part_of_a_warpgroup() -> None:
    form = Form(n=16)
    text = source(form, before="if (threadIdx.x >= 96) return;")
    execution = execute(operands(form), text)
    assert (execution.ended, kinds(execution)) == ("fault", {"barrier_divergence"})
    assert "part of the warpgroup" in execution.findings[0].message


def test_uninitialised_operands_reach_their_rows_and_columns() -> None:
    """A tile of B that nobody has written taints its columns, which an output shows."""
    form = Form(n=16)
    text = source(form).replace("i += 128) reinter", "i += 128) if (i < 1056) reinter")
    execution = execute(operands(form), text)
    assert kinds(execution) == {"uninitialised"}


def test_metadata_that_name_a_column_twice() -> None:
    form = Form(n=16, sparse=True)
    execution = execute(operands(form), source(form, before="e = 0x55555555;"))
    assert [f.kind for f in execution.findings] == ["invalid_metadata"]


@pytest.mark.parametrize("nibble", [0b0000, 0b0001, 0b1010, 0b1011])
def test_metadata_of_tf32_that_choose_neither_of_two(nibble: int) -> None:
    form = Form(n=16, sparse=True, a_type="tf32", b_type="tf32")
    execution = execute(operands(form), source(form, before=f"e = 0xE4E4E4E{nibble:X};"))
    assert [f.kind for f in execution.findings] == ["invalid_metadata"]
    assert "0b0100" in execution.findings[0].message
    assert not execute(operands(form), source(form, before="e = 0xE4E4E4E4;")).findings


def test_descriptors_out_of_bounds_and_different_ones() -> None:
    form = Form(n=16)
    ops = operands(form)
    beyond = source(form, before="db += 4000;")
    assert "by a descriptor" in execute(ops, beyond).findings[0].message
    differ = source(form, before="db += threadIdx.x & 1;")
    assert "different matrix descriptors" in execute(ops, differ).findings[0].message


@pytest.mark.parametrize(
    "opcode",
    [
        "wgmma.mma_async.sync.aligned.m64n16k8.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16",
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.bf16",
        "wgmma.mma_async.sync.aligned.m64n16k16.f16.bf16.bf16",
        "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.xor.popc",
        "wgmma.mma_async.sync.aligned.m64n40k256.s32.b1.b1.and.popc",
        "wgmma.mma_async.sp.sync.aligned.m64n16k8.f32.tf32.tf32",
    ],
)
def test_what_does_not_exist_or_is_not_modelled(opcode: str) -> None:
    """Refused by name and line when code is generated."""
    form = Form(n=16)
    ptx = compiled(source(form)).ptx
    assert form.opcode in ptx
    kernel = generate(parse(ptx.replace(form.opcode, opcode)), "multiply", track=True)
    stops = [item for name, item in kernel.space.items() if isinstance(item, Stop) and name[0] == "_"]
    assert len(stops) == 1
    assert opcode in stops[0].finding.message
    assert stops[0].finding.line


def test_descriptor_fields_and_refused_layouts() -> None:
    found = Descriptor.of(0x4000_0040_0001_0080 | 2 << 49)
    assert (found.start, found.leading, found.stride, found.span, found.base_offset) == (0x800, 16, 1024, 128, 2)
    with pytest.raises(UnsupportedLayout, match="base offset"):
        addresses(1 << 49, 64, 16, 2, k_major=True)
    with pytest.raises(UnsupportedLayout, match="leaves its swizzle span"):
        addresses(3 << 62, 64, 32, 2, k_major=True)  # 64 bytes of K in rows of 32
    with pytest.raises(UnsupportedLayout, match="leaves its swizzle span"):
        addresses(1 << 62 | 6, 64, 32, 2, k_major=True)  # from byte 96 of a row of 128


GROUPS = """
#include "evo.cuh"
// Two products in flight: the first is used while the second is not waited for.
extern "C" __global__ void groups(const uint4* image, float* out, unsigned long long da, unsigned long long db) {
  extern __shared__ __align__(1024) unsigned char memory[];
  for (int i = threadIdx.x; i < 4096; i += 128) reinterpret_cast<uint4*>(memory)[i] = image[i];
  evo::fence_proxy_async();
  __syncthreads();
  unsigned long long base = evo::shared_address(memory) >> 4;
  float d[2][4] = {};
  for (int k = 0; k < 3; k++) {
    float (&now)[4] = d[k % 2];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(now[0]), "+f"(now[1]), "+f"(now[2]), "+f"(now[3]) : "l"(da + base), "l"(db + base) : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    float (&last)[4] = d[(k + 1) % 2];
    if (k) for (int i = 0; i < 4; i++) out[(k - 1) * 512 + i * 128 + threadIdx.x] = last[i];
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; i++) out[2 * 512 + i * 128 + threadIdx.x] = d[0][i];
}
"""


def test_groups_are_waited_for_one_by_one() -> None:
    """Accumulators of a group that has ended may be used while the next one runs."""
    form = Form(n=8)
    ops = operands(form)
    given = buffers(ops)
    da, db = (int(x) for x in given["descriptors"])
    started = launch("groups", 1, 128, "image", "out", da, db, shared=IMAGE)
    out = {"out": np.zeros(1536, np.float32)}
    execution = clean(run(GROUPS, started, {"image": given["image"]}, out))
    product = dealt(form, (ops.dense @ ops.b.astype(np.float64)).astype(np.float32)).ravel()
    got = execution.outputs["out"].reshape(3, 512)
    np.testing.assert_allclose(got[0], product, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got[2], 2 * product, rtol=1e-5, atol=1e-5)
    early = GROUPS.replace("wait_group.sync.aligned 1", "wait_group.sync.aligned 2")
    assert "wgmma" in kinds(run(early, started, {"image": given["image"]}, out))
