"""`mma` of doubles, 4-bit integers, single bits and shapes of 8 rows, by the fragment formulas of the PTX ISA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from fitness.devices.device import ResolvedLaunch
from tests.fitness.simulator.engine import Array, clean, launch, run

Place = Callable[[int, int], tuple[int, int]]
"""(lane, element) -> (row, column), as the ISA's tables give it."""


@dataclass(frozen=True)
class Form:
    """One instruction: elements of A, B and C per lane, the bits of a multiplicand's element, and where they lie."""

    op: str
    m: int
    k: int
    counts: tuple[int, int, int]
    bits: int
    a: Place
    b: Place
    c: Place


def rows_16(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)


def rows_8(lane: int, i: int) -> tuple[int, int]:
    return lane // 4, lane % 4 * 2 + i


def octet(per: int) -> tuple[Place, Place]:
    """A and B of the shapes of 8 rows: `per` elements of one register."""
    return (lambda lane, i: (lane // 4, lane % 4 * per + i)), (lambda lane, i: (lane % 4 * per + i, lane // 4))


def packed(per: int) -> tuple[Place, Place]:
    """A and B of m16n8kK, `per` elements to a register: register 1 and 3 are eight rows below, 2 and 3 half of K on."""

    def a(lane: int, i: int) -> tuple[int, int]:
        register = i // per
        return lane // 4 + 8 * (register % 2), lane % 4 * per + i % per + 4 * per * (register // 2)

    def b(lane: int, i: int) -> tuple[int, int]:
        return lane % 4 * per + i % per + 4 * per * (i // per), lane // 4

    return a, b


F64 = ".row.col.f64.f64.f64.f64"
FORMS = [
    Form("m8n8k4" + F64, 8, 4, (1, 1, 2), 64, *octet(1), rows_8),
    Form("m16n8k4" + F64, 16, 4, (2, 1, 4), 64, *packed(1), rows_16),
    Form("m16n8k8" + F64, 16, 8, (4, 2, 4), 64, *packed(1), rows_16),
    Form("m16n8k16" + F64, 16, 16, (8, 4, 4), 64, *packed(1), rows_16),
    *(Form(f"m8n8k16.row.col.s32.{t}.s32", 8, 16, (4, 4, 2), 8, *octet(4), rows_8) for t in ("s8.s8", "u8.s8")),
    *(Form(f"m8n8k32.row.col.s32.{t}.s32", 8, 32, (8, 8, 2), 4, *octet(8), rows_8) for t in ("s4.u4", "u4.u4")),
    *(Form(f"m16n8k32.row.col.s32.{t}.s32", 16, 32, (16, 8, 4), 4, *packed(8), rows_16) for t in ("s4.s4", "u4.s4")),
    Form("m16n8k64.row.col.s32.s4.u4.s32", 16, 64, (32, 16, 4), 4, *packed(8), rows_16),
    Form("m8n8k128.row.col.s32.b1.b1.s32.xor.popc", 8, 128, (32, 32, 2), 1, *octet(32), rows_8),
    Form("m16n8k128.row.col.s32.b1.b1.s32.and.popc", 16, 128, (64, 32, 4), 1, *packed(32), rows_16),
    Form("m16n8k256.row.col.s32.b1.b1.s32.xor.popc", 16, 256, (128, 64, 4), 1, *packed(32), rows_16),
]  # fmt: skip


def registers(form: Form) -> tuple[int, int, int]:
    """32-bit (for doubles 64-bit) registers of A, B and C."""
    a, b, c = form.counts
    return (a, b, c) if form.bits == 64 else (a * form.bits // 32, b * form.bits // 32, c)


def source(form: Form) -> str:
    """A kernel in which a warp multiplies the fragments that its lanes read."""
    a, b, c = registers(form)
    kind, letter = ("double", "d") if form.bits == 64 else ("unsigned", "r")
    lists, at = [], 0
    for count in (c, a, b, c):
        names = ", ".join(f"%{i}" for i in range(at, at + count))
        lists.append("{" + names + "}")
        at += count
    outputs = ", ".join(f'"={letter}"(d[{i}])' for i in range(c))
    inputs = ", ".join(f'"{letter}"({v}[{i}])' for v, n in (("a", a), ("b", b), ("c", c)) for i in range(n))
    return f"""
    extern "C" __global__ void multiply(const {kind}* x, {kind}* y) {{
      {kind} a[{a}], b[{b}], c[{c}], d[{c}];
      const {kind}* mine = x + threadIdx.x * {a + b + c};
      for (int i = 0; i < {a}; i++) a[i] = mine[i];
      for (int i = 0; i < {b}; i++) b[i] = mine[{a} + i];
      for (int i = 0; i < {c}; i++) c[i] = mine[{a + b} + i];
      asm volatile("mma.sync.aligned.{form.op} {lists[0]}, {lists[1]}, {lists[2]}, {lists[3]};"
                   : {outputs} : {inputs});
      for (int i = 0; i < {c}; i++) y[threadIdx.x * {c} + i] = d[i];
    }}
    """


def drawn(kind: str, shape: tuple[int, int], random: np.random.Generator) -> Array:
    if kind == "f64":
        return random.standard_normal(shape)
    low, high = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}[kind]
    return random.integers(low, high, shape)


def fragment(matrix: Array, place: Place, count: int, bits: int) -> Array:
    """Registers of every lane (32, registers)."""
    elements = np.array([[matrix[place(lane, i)] for i in range(count)] for lane in range(32)])
    if bits == 64:
        return elements
    per = 32 // bits
    whole = (elements.astype(np.int64) & ((1 << bits) - 1)).reshape(32, -1, per)
    shifts = np.arange(per, dtype=np.int64) * bits
    words: Array = (whole << shifts).sum(axis=-1).astype(np.uint32)
    return words


def lanes(form: Form) -> tuple[Array, type, Array, Array, Array]:
    """Registers of every lane (A, B, then C), their type, and the matrices."""
    parts = form.op.split(".")
    a_type, b_type = parts[4], parts[5]
    random = np.random.default_rng(form.k + form.m)
    a, b = drawn(a_type, (form.m, form.k), random), drawn(b_type, (form.k, 8), random)
    c: Array
    if form.bits == 64:
        c = random.standard_normal((form.m, 8))
    else:
        c = random.integers(-1000, 1000, (form.m, 8)).astype(np.int32)
    held = np.float64 if form.bits == 64 else np.uint32
    lanes_c = np.array([[c[form.c(lane, i)] for i in range(form.counts[2])] for lane in range(32)])
    x = np.concatenate(
        [fragment(a, form.a, form.counts[0], form.bits), fragment(b, form.b, form.counts[1], form.bits),
         lanes_c.astype(held) if form.bits == 64 else lanes_c.astype(np.int32).view(np.uint32)], axis=1,
    ).astype(held)  # fmt: skip
    return x, held, a, b, c


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.op)
def test_fragments_multiply_as_the_isa_lays_them_out(form: Form) -> None:
    x, held, a, b, c = lanes(form)
    parts = form.op.split(".")
    y: dict[str, Array] = {"y": np.zeros((32, form.counts[2]), held)}
    execution = clean(run(source(form), launch("multiply", 1, 32, "x", "y"), {"x": x}, y))
    got = execution.outputs["y"] if form.bits == 64 else execution.outputs["y"].view(np.int32)
    if parts[4] == "b1":
        pairs = a[:, None, :] ^ b.T[None] if parts[-2] == "xor" else a[:, None, :] & b.T[None]
        want = c + pairs.sum(axis=-1)
    elif form.bits == 64:
        want = c + a @ b
    else:
        want = c + a.astype(np.int64) @ b.astype(np.int64)
    for lane in range(32):
        for i in range(form.counts[2]):
            np.testing.assert_allclose(got[lane, i], want[form.c(lane, i)], rtol=0 if form.bits < 64 else 1e-13)


def test_doubles_are_fused_in_the_order_of_k() -> None:
    """A product is not rounded before it is added; each sum is."""
    form = FORMS[0]
    a, b = np.zeros((8, 4)), np.zeros((4, 8))
    a[0], b[:, 0] = [1 + 2.0**-30, -1, 0, 0], [1 - 2.0**-30, 1, 0, 0]
    x = np.concatenate([fragment(a, form.a, 1, 64), fragment(b, form.b, 1, 64), np.zeros((32, 2))], axis=1)
    got = clean(run(source(form), launch("multiply", 1, 32, "x", "y"), {"x": x}, {"y": np.zeros((32, 2))})).outputs["y"]
    assert got[0, 0] == 0.0  # (1 - 2**-60) rounds to 1 in the first step, for it is added to c = 0
    c = np.zeros((32, 2))
    c[0, 0] = -1.0
    a[0], b[:, 0] = [1 + 2.0**-30, 0, 0, 0], [1 - 2.0**-30, 0, 0, 0]
    x = np.concatenate([fragment(a, form.a, 1, 64), fragment(b, form.b, 1, 64), c], axis=1)
    got = clean(run(source(form), launch("multiply", 1, 32, "x", "y"), {"x": x}, {"y": np.zeros((32, 2))})).outputs["y"]
    assert got[0, 0] == -(2.0**-60)  # fused: the product is not rounded


def test_uninitialised_rows_and_columns_taint_only_their_results() -> None:
    form = FORMS[4]
    text = source(form).replace("for (int i = 0; i < 1; i++) a[i] = mine[i];", "if (threadIdx.x >= 4) a[0] = mine[0];")
    text = text.replace("y[threadIdx.x * 2 + i] = d[i];", "if (threadIdx.x >= 4) y[threadIdx.x * 2 + i] = d[i];")
    x = np.zeros((32, 4), np.uint32)
    clean(run(text, launch("multiply", 1, 32, "x", "y"), {"x": x}, {"y": np.zeros((32, 2), np.uint32)}))


WMMA = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void product(const STORED* a, const STORED* b, const SUM* c, SUM* d, int lda, int ldb, int ldc) {
  fragment<matrix_a, M, N, K, TYPE, ROWS> fa;
  fragment<matrix_b, M, N, K, TYPE, COLUMNS> fb;
  fragment<accumulator, M, N, K, SUM> sum;
  load_matrix_sync(fa, a, lda);
  load_matrix_sync(fb, b, ldb);
  load_matrix_sync(sum, c, ldc, mem_row_major);
  for (int i = 0; i < sum.num_elements; i++) sum.x[i] = sum.x[i] * 2;
  mma_sync(sum, fa, fb, sum);
  store_matrix_sync(d, sum, ldc, mem_row_major);
}
"""
WMMA_FORMS = [
    *(("signed char", "i1", "int", "i4", m, n, 16) for m, n in ((16, 16), (32, 8), (8, 32))),
    *(("unsigned char", "u1", "int", "i4", m, n, 16) for m, n in ((16, 16), (32, 8), (8, 32))),
    ("precision::tf32", "f4", "float", "f4", 16, 16, 8),
    ("double", "f8", "double", "f8", 8, 8, 4),
]


LAYOUTS = [("row_major", "col_major"), ("col_major", "row_major")]
WmmaForm = tuple[str, str, str, str, int, int, int]


def wmma_job(form: WmmaForm, layouts: tuple[str, str]) -> tuple[str, ResolvedLaunch, dict[str, Array], Array, Array]:
    """Kernel, launch, buffers, an empty result, and the result wanted."""
    name, stored, total, held, m, n, k = form
    random = np.random.default_rng(m + n)
    small = stored in ("i1", "u1")
    a, b = (random.integers(-100 if stored == "i1" else 0, 100, s) if small else random.integers(-64, 64, s) / 8
            for s in ((m, k), (k, n)))  # fmt: skip
    c = random.integers(-99, 99, (m, n)).astype(held)
    a, b = a.astype(stored), b.astype(stored)
    text = WMMA.replace("STORED", {"f4": "float"}.get(stored, name)).replace("TYPE", name).replace("SUM", total)
    for word, size in (("M", m), ("N", n), ("K", k)):
        text = text.replace(f", {word},", f", {size},")
    text = text.replace("ROWS", layouts[0]).replace("COLUMNS", layouts[1])
    given_a = a if layouts[0] == "row_major" else np.ascontiguousarray(a.T)
    given_b = b if layouts[1] == "row_major" else np.ascontiguousarray(b.T)
    sizes = (given_a.shape[1], given_b.shape[1], n)
    launched = launch("product", 1, 32, "a", "b", "c", "d", *sizes)
    buffers = {"a": given_a, "b": given_b, "c": c}
    return text, launched, buffers, np.zeros((m, n), held), 2 * c + a.astype("f8") @ b.astype("f8")


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize("form", WMMA_FORMS, ids=lambda form: f"{form[0]} {form[4]}x{form[5]}")
def test_wmma_of_bytes_tf32_and_doubles(form: WmmaForm, layouts: tuple[str, str]) -> None:
    text, launched, buffers, d, want = wmma_job(form, layouts)
    execution = clean(run(text, launched, buffers, {"d": d}, align=32))
    np.testing.assert_array_equal(execution.outputs["d"], want)


SUB_BYTE = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void product(const void* a, const void* b, const int* c, int* d, int lda, int ldb) {
  fragment<matrix_a, 8, 8, K, experimental::precision::TYPE, row_major> fa;
  fragment<matrix_b, 8, 8, K, experimental::precision::TYPE, col_major> fb;
  fragment<accumulator, 8, 8, K, int> sum;
  load_matrix_sync(fa, a, lda);
  load_matrix_sync(fb, b, ldb);
  load_matrix_sync(sum, c, 8, mem_row_major);
  MULTIPLY;
  store_matrix_sync(d, sum, 8, mem_row_major);
}
"""
SUB_BYTE_FORMS = {
    "s4": "mma_sync(sum, fa, fb, sum)",
    "u4": "mma_sync(sum, fa, fb, sum)",
    "b1 xor": "bmma_sync(sum, fa, fb, sum, experimental::bmmaBitOpXOR)",
    "b1 and": "bmma_sync(sum, fa, fb, sum, experimental::bmmaBitOpAND)",
}


def sub_byte_job(form: str) -> tuple[str, ResolvedLaunch, dict[str, Array], Array, Array]:
    """Kernel, launch, buffers, an empty result, the result wanted; rows of A are longer than K."""
    kind, operation = (*form.split(), "")[:2]
    k, bits = (128, 1) if kind == "b1" else (32, 4)
    random = np.random.default_rng(k + len(form))
    a, b = drawn(kind, (8, 2 * k), random), drawn(kind, (8, k), random)  # B by columns
    c = random.integers(-99, 99, (8, 8)).astype(np.int32)

    def held(matrix: Array) -> Array:
        whole = (matrix.astype(np.int64) & ((1 << bits) - 1)).reshape(8, -1, 32 // bits)
        words: Array = (whole << (np.arange(32 // bits) * bits)).sum(axis=-1).astype(np.uint32)
        return words

    pairs = a[:, None, :k] ^ b[None] if operation == "xor" else a[:, None, :k] * b[None]
    text = SUB_BYTE.replace("TYPE", kind).replace("K", str(k)).replace("MULTIPLY", SUB_BYTE_FORMS[form])
    launched = launch("product", 1, 32, "a", "b", "c", "d", 2 * k, k)
    return text, launched, {"a": held(a), "b": held(b), "c": c}, np.zeros((8, 8), np.int32), c + pairs.sum(axis=-1)


@pytest.mark.parametrize("form", SUB_BYTE_FORMS)
def test_wmma_of_4_bit_integers_and_of_bits(form: str) -> None:
    text, launched, buffers, d, want = sub_byte_job(form)
    execution = clean(run(text, launched, buffers, {"d": d}, align=32))
    np.testing.assert_array_equal(execution.outputs["d"], want)
