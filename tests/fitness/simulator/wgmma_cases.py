"""`wgmma` kernels with their operands as NumPy arrays, and the product by definition: for tests and recordings.

One kernel runs one instruction: it copies an image of shared memory, reads descriptors, registers of A, metadata
and accumulators from buffers, multiplies once, and writes the accumulators of every thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

IMAGE = 64 * 1024
"""Bytes of shared memory that the kernel fills; A begins at 0, B at `B_START`."""
B_START = 16 * 1024
SHARED_BASE = 1024
"""Address of the first byte of dynamic shared memory on sm_90, where 1 KB belongs to the system."""

NUMPY: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8, "b1": np.uint8,
}  # fmt: skip
DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
SWIZZLES = {"none": (0, 16), "128B": (1, 128), "64B": (2, 64), "32B": (3, 32)}


@dataclass(frozen=True)
class Form:
    """One form of the instruction. Fields as in PTX; `swizzle` of both operands in shared memory."""

    n: int = 16
    a_type: str = "f16"
    b_type: str = "f16"
    d_type: str = "f32"
    sparse: bool = False
    selector: int = 0
    shared: bool = True
    trans_a: bool = False
    trans_b: bool = False
    scale_d: bool = True
    scale_a: int = 1
    scale_b: int = 1
    satfinite: bool = False
    swizzle: str = "128B"

    @property
    def k(self) -> int:
        """Columns of A before compression."""
        return DEPTH[self.a_type] * (2 if self.sparse else 1)

    @property
    def stored(self) -> int:
        """Columns of A as it is stored; single bits eight to a byte."""
        return DEPTH[self.a_type] // (8 if self.a_type == "b1" else 1)

    @property
    def registers(self) -> int:
        """Accumulator registers of a thread."""
        return self.n // (4 if self.d_type == "f16" else 2)

    @property
    def opcode(self) -> str:
        """The instruction's name."""
        return (
            f"wgmma.mma_async{'.sp' if self.sparse else ''}.sync.aligned.m64n{self.n}k{self.k}"
            f"{'.satfinite' if self.satfinite else ''}.{self.d_type}.{self.a_type}.{self.b_type}"
            f"{'.and.popc' if self.a_type == 'b1' else ''}"
        )

    @property
    def name(self) -> str:
        """A readable name of the form."""
        flags = [f"{'shared' if self.shared else 'registers'}", self.swizzle]
        flags += [f"sel{self.selector}"] if self.sparse else []
        flags += [name for name in ("trans_a", "trans_b") if getattr(self, name)]
        flags += ["negated"] if self.scale_a * self.scale_b < 0 else []
        flags += [] if self.scale_d else ["replaces"]
        return self.opcode.removeprefix("wgmma.mma_async") + " " + " ".join(flags)


def source(form: Form, before: str = "", between: str = "") -> str:
    """The kernel. `before` and `between`: code before the fence, and between the multiplication and its commit."""
    count = form.registers
    d = ", ".join(f"%{i}" for i in range(count))
    at = count
    if form.shared:
        a, a_in = f"%{at}", ['"l"(da)']
        at += 1
    else:
        a, a_in = "{" + ", ".join(f"%{at + i}" for i in range(4)) + "}", [f'"r"(a[{i}])' for i in range(4)]
        at += 4
    b, inputs = f"%{at}", [*a_in, '"l"(db)']
    at += 1
    meta = ""
    if form.sparse:
        meta, at = f", %{at}, {form.selector}", at + 1
        inputs.append('"r"(e)')
    inputs.append('"r"(scale)')
    floating = form.a_type not in ("s8", "u8", "b1")
    flags = f", {form.scale_a}, {form.scale_b}" if floating else ""
    if form.a_type in ("f16", "bf16"):
        flags += (f", {int(form.trans_a)}" if form.shared else "") + f", {int(form.trans_b)}"
    letter = "f" if form.d_type == "f32" else "r"
    kind = "float" if form.d_type == "f32" else "unsigned"
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    return f"""
#include "evo.cuh"
extern "C" __global__ void __launch_bounds__(128) multiply(const uint4* image, const unsigned long long* descriptors,
    const unsigned* a_registers, const unsigned* metadata, const {kind}* c, {kind}* out, int scale, int shift) {{
  extern __shared__ __align__(1024) unsigned char memory[];
  for (int i = threadIdx.x; i < {IMAGE} / 16; i += 128) reinterpret_cast<uint4*>(memory)[i] = image[i];
  unsigned a[4], e = metadata[threadIdx.x];
  for (int i = 0; i < 4; i++) a[i] = a_registers[i * 128 + threadIdx.x];
  unsigned long long base = (evo::shared_address(memory) >> 4) + shift;
  unsigned long long da = descriptors[0] + base, db = descriptors[1] + base;
  {kind} d[{count}];
  for (int i = 0; i < {count}; i++) d[i] = c[i * 128 + threadIdx.x];
  evo::fence_proxy_async();
  __syncthreads();
  {before}
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{.reg .pred p; setp.ne.b32 p, %{at}, 0;\\n{form.opcode} {{{d}}}, {a}, {b}{meta}, p{flags};}}"
               : {outputs} : {", ".join(inputs)} : "memory");
  {between}
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < {count}; i++) out[i * 128 + threadIdx.x] = d[i];
}}
"""


@dataclass
class Operands:
    """Operands of a form: `a` the stored values (64, stored), `b` (k, n), `c` (64, n), `index` of stored values."""

    form: Form
    a: Array
    b: Array
    c: Array
    index: Array

    @property
    def dense(self) -> Array:
        """A as (64, k) float64, zeros where nothing is stored."""
        if not self.form.sparse:
            return self.a.astype(np.float64)
        out = np.zeros((64, self.form.k))
        np.put_along_axis(out, self.columns, self.a.astype(np.float64), axis=1)
        return out

    @property
    def columns(self) -> Array:
        """Column of the dense A of each stored value."""
        places = np.arange(self.form.stored)
        return self.index + (2 * places if self.form.a_type == "tf32" else places // 2 * 4)

    def expected(self) -> Array:
        """The accumulators by definition, float64 (before rounding)."""
        form = self.form
        if form.a_type == "b1":
            a, b = np.unpackbits(self.a, axis=1).astype(np.int64), np.unpackbits(self.b, axis=0).astype(np.int64)
            return (a @ b + (self.c if form.scale_d else 0)).astype(np.float64)
        product = form.scale_a * form.scale_b * (self.dense @ self.b.astype(np.float64))
        return product + (self.c.astype(np.float64) if form.scale_d else 0.0)


def operands(form: Form, seed: int = 0) -> Operands:
    """Random operands, tf32 ones with all 32 bits set so that the ignored ones show."""
    rng = np.random.default_rng(seed)

    def values(kind: str, shape: tuple[int, int]) -> Array:
        if kind in ("s8", "u8", "b1"):
            low, high = (-128, 128) if kind == "s8" else (0, 256)
            return rng.integers(low, high, shape).astype(NUMPY[kind])
        return rng.standard_normal(shape).astype(np.float32).astype(NUMPY[kind])

    a, b = (
        values(form.a_type, (64, form.stored)),
        values(form.b_type, (form.stored if form.a_type == "b1" else form.k, form.n)),
    )
    if form.d_type == "s32":
        c = rng.integers(-(2**31), 2**31, (64, form.n)).astype(np.int32)
    else:
        c = rng.standard_normal((64, form.n)).astype(np.float16 if form.d_type == "f16" else np.float32)
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    index = pairs[rng.integers(0, 6, (64, form.stored // 2))].reshape(64, form.stored)
    if form.a_type == "tf32":  # one of two
        index = rng.integers(0, 2, (64, form.stored))
    return Operands(form, a, b, c, index)


def truncated(kind: str, values: Array) -> Array:
    """Values as the tensor core reads them: tf32 without its lower 13 bits."""
    if kind != "tf32":
        return values
    return (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def place(matrix: Array, image: Array, start: int, span: int, k_major: bool) -> tuple[int, int]:
    """Put a matrix (rows, columns of K) into an image of shared memory, element by element.

    Returns:
        (leading, stride) byte offsets of its descriptor.
    """
    rows, columns = matrix.shape
    width = matrix.dtype.itemsize
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, columns, width)
    per_chunk = 16 // width
    if k_major:
        leading, stride = (8 * 16 * (rows // 8), 8 * 16) if span == 16 else (16, 8 * span)
        leading = leading if span == 16 else 16
    elif span == 16:
        leading, stride = 128, 128 * (columns // 8)  # K groups side by side, then the next 8 rows
    else:
        leading, stride = span * columns, 8 * span
    for r in range(rows):
        for k in range(columns):
            if k_major and span == 16:
                at = r // 8 * stride + r % 8 * 16 + k // per_chunk * leading + k % per_chunk * width
            elif k_major:
                at = r // 8 * stride + r % 8 * span + k * width
            elif span == 16:
                at = r // 8 * stride + k // 8 * leading + k % 8 * 16 + r % 8 * width
            else:
                chunk = span // width
                at = r // chunk * leading + k // 8 * stride + k % 8 * span + r % chunk * width
            at += start
            if span > 16:
                at ^= (at >> 7 & (span // 16 - 1)) << 4
            image[at : at + width] = raw[r, k]
    return leading, stride


def fragment_of_a(values: Array) -> Array:
    """Registers of A (4, 128): register 2q + h of lane 4g + t of warp w has row 16w + g + 8h, chunk 4q + t."""
    raw = np.ascontiguousarray(values).view(np.uint32)  # chunks of 4 bytes
    out = np.zeros((4, 128), np.uint32)
    for thread in range(128):
        w, g, t = thread // 32, thread % 32 // 4, thread % 4
        for register in range(4):
            q, h = divmod(register, 2)
            out[register, thread] = raw[16 * w + g + 8 * h, 4 * q + t]
    return out


def metadata_of(ops: Operands) -> Array:
    """Metadata words (128,): see the figures of mma.sp m16n8k32 and m16n8k64, one 16-row slice per warp.

    tf32: each value has four bits, 0b0100 for the first of a pair of columns and 0b1110 for the second.
    """
    words = np.zeros(128, np.uint32)
    eight = ops.a.dtype.itemsize == 1
    for row in range(64):
        w, g, half = row // 16, row % 8, row // 8 % 2
        for column in range(ops.form.stored):
            group, bits = column // 2, int(ops.index[row, column])
            if ops.form.a_type == "tf32":
                lane, shift = 4 * g + column // 4 + 2 * ops.form.selector, 16 * half + 4 * (column % 4)
                bits = (0b0100, 0b1110)[bits]
            elif eight:
                lane, shift = 4 * g + half + 2 * (group // 8), 4 * (group % 8) + 2 * (column % 2)
            else:
                lane = 4 * g + group // 4 + 2 * ops.form.selector
                shift = 16 * half + 4 * (group % 4) + 2 * (column % 2)
            words[32 * w + lane] |= np.uint32(bits << shift)
    return words


def buffers(ops: Operands) -> dict[str, Array]:
    """Buffers of the kernel: image, descriptors, a_registers, metadata, c (registers x threads)."""
    form = ops.form
    code, span = SWIZZLES[form.swizzle]
    image = np.full(IMAGE, 0xFF, np.uint8)
    descriptors = np.zeros(2, np.uint64)
    parts = [(0, ops.a, form.trans_a), (1, np.ascontiguousarray(ops.b.T), form.trans_b)]
    for which, matrix, trans in parts:
        if which == 0 and not form.shared:
            continue
        start = B_START * which
        leading, stride = place(matrix, image, SHARED_BASE + start - SHARED_BASE, span, not trans)
        bits = (start >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | code << 62
        descriptors[which] = np.uint64(bits)
    registers = np.zeros((4, 128), np.uint32) if form.shared else fragment_of_a(ops.a)
    return {
        "image": image, "descriptors": descriptors, "a_registers": registers, "metadata": metadata_of(ops),
        "c": dealt(form, ops.c),
    }  # fmt: skip


def dealt(form: Form, tile: Array) -> Array:
    """A (64, n) tile as accumulator registers (registers, 128)."""
    elements = np.zeros((form.n // 2, 128), tile.dtype)
    for thread in range(128):
        w, g, t = thread // 32, thread % 32 // 4, thread % 4
        for e in range(form.n // 2):
            j, h, i = e // 4, e // 2 % 2, e % 2
            elements[e, thread] = tile[16 * w + g + 8 * h, 8 * j + 2 * t + i]
    if form.d_type == "f16":
        pairs = np.stack([elements[0::2], elements[1::2]], axis=2)
        return np.ascontiguousarray(pairs).view(np.uint32)[..., 0]
    return elements.view(np.uint32) if form.d_type == "s32" else elements


FORMS: tuple[Form, ...] = (
    *(Form(n=n, sparse=True, shared=True, selector=n // 8 % 2) for n in (8, 16, 64, 128, 256)),
    *(Form(n=n, sparse=True, shared=False, selector=n // 16 % 2) for n in (8, 16, 64, 128, 256)),
    Form(n=64, sparse=True, shared=False, selector=1, swizzle="64B"),
    Form(n=32, sparse=True, swizzle="none"),
    Form(n=32, sparse=True, trans_a=True, trans_b=True),
    Form(n=24, sparse=True, shared=False, trans_b=True, swizzle="none"),
    Form(n=16, sparse=True, d_type="f16", shared=False),
    Form(n=16, sparse=True, a_type="bf16", b_type="bf16", selector=1),
    Form(n=16, sparse=True, a_type="s8", b_type="u8", d_type="s32"),
    Form(n=48, sparse=True, a_type="u8", b_type="s8", d_type="s32", shared=False),
    Form(n=16, sparse=True, a_type="e4m3", b_type="e5m2"),
    Form(n=40, sparse=True, a_type="e5m2", b_type="e4m3", d_type="f16", shared=False),
    *(Form(n=n, sparse=True, a_type="tf32", b_type="tf32", selector=n // 8 % 2) for n in (8, 32, 248)),
    *(Form(n=n, sparse=True, a_type="tf32", b_type="tf32", shared=False, selector=n // 16 % 2) for n in (16, 64)),
    Form(n=24, sparse=True, a_type="tf32", b_type="tf32", swizzle="none"),
    *(Form(n=n) for n in (8, 40, 256)),
    *(Form(n=72, swizzle=s) for s in ("none", "32B", "64B", "128B")),
    *(Form(n=64, swizzle=s, trans_a=True, trans_b=True) for s in ("none", "32B", "64B", "128B")),
    Form(n=128, trans_b=True),
    Form(n=64, shared=False, trans_b=True, swizzle="64B"),
    Form(n=16, scale_d=False),
    Form(n=16, scale_a=-1),
    Form(n=16, scale_a=-1, scale_b=-1, shared=False),
    Form(n=24, d_type="f16"),
    Form(n=24, d_type="f16", shared=False, scale_d=False),
    Form(n=96, a_type="bf16", b_type="bf16", shared=False),
    Form(n=32, a_type="bf16", b_type="bf16", trans_b=True),
    Form(n=32, a_type="tf32", b_type="tf32"),
    Form(n=32, a_type="tf32", b_type="tf32", shared=False, swizzle="32B"),
    Form(n=32, a_type="e4m3", b_type="e4m3"),
    Form(n=32, a_type="e5m2", b_type="e4m3", shared=False),
    Form(n=32, a_type="e4m3", b_type="e5m2", d_type="f16"),
    Form(n=32, a_type="s8", b_type="s8", d_type="s32"),
    Form(n=32, a_type="u8", b_type="u8", d_type="s32", shared=False, satfinite=True),
    Form(n=16, a_type="s8", b_type="u8", d_type="s32", swizzle="none"),
    Form(n=48, a_type="b1", b_type="b1", d_type="s32"),
    Form(n=24, a_type="b1", b_type="b1", d_type="s32", shared=False, scale_d=False, swizzle="none"),
    Form(n=8, a_type="b1", b_type="b1", d_type="s32", swizzle="32B"),
)  # fmt: skip
"""One form of every family: what the tests run and a card is asked for."""
