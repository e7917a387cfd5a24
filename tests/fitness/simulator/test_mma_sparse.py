"""`mma.sp` of tf32 (one of two) and of 4-bit integers (two pairs of four), by the fragment formulas of the PTX ISA."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fitness.devices.device import Execution
from tests.fitness.simulator.engine import Array, clean, launch, run
from tests.fitness.simulator.test_mma_kernels import drawn, fragment, packed, rows_16


@dataclass(frozen=True)
class Sparse:
    """One instruction: K of the dense A, element types, the metadata selector."""

    k: int
    types: tuple[str, str]
    selector: int

    @property
    def bits(self) -> int:
        return 32 if self.types[0] == "tf32" else 4

    @property
    def sum(self) -> str:
        return "f32" if self.types[0] == "tf32" else "s32"

    @property
    def op(self) -> str:
        return f"m16n8k{self.k}.row.col.{self.sum}.{self.types[0]}.{self.types[1]}.{self.sum}"

    @property
    def registers(self) -> int:
        """32-bit registers of A, and of B: K times 8 elements a warp, either way."""
        return self.k * 8 * self.bits // 1024

    @property
    def name(self) -> str:
        return f"{self.op} selector {self.selector}"


FORMS = [
    *(Sparse(8, ("tf32", "tf32"), selector) for selector in range(4)),
    *(Sparse(16, ("tf32", "tf32"), selector) for selector in range(2)),
    *(Sparse(64, types, selector) for types in (("s4", "s4"), ("u4", "s4")) for selector in range(2)),
    *(Sparse(128, types, 0) for types in (("s4", "u4"), ("u4", "u4"))),
]


def source(form: Sparse, *, ordered: bool = False) -> str:
    """A kernel in which a warp multiplies the fragments that its lanes read: A, B, C, metadata."""
    n, kind, letter = form.registers, "float" if form.sum == "f32" else "unsigned", "f" if form.sum == "f32" else "r"
    lists, at = [], 0
    for count in (4, n, n, 4):
        lists.append("{" + ", ".join(f"%{i}" for i in range(at, at + count)) + "}")
        at += count
    bits = "__uint_as_float" if form.sum == "f32" else ""
    back = "__float_as_uint" if form.sum == "f32" else ""
    outputs = ", ".join(f'"={letter}"(d[{i}])' for i in range(4))
    inputs = ", ".join(f'"r"({v}[{i}])' for v in "ab" for i in range(n))
    inputs += ", " + ", ".join(f'"{letter}"(c[{i}])' for i in range(4))
    suffix = "::ordered_metadata" if ordered else ""
    return f"""
    extern "C" __global__ void multiply(const unsigned* x, unsigned* y) {{
      unsigned a[{n}], b[{n}];
      {kind} c[4], d[4];
      const unsigned* mine = x + threadIdx.x * {2 * n + 5};
      for (int i = 0; i < {n}; i++) a[i] = mine[i];
      for (int i = 0; i < {n}; i++) b[i] = mine[{n} + i];
      for (int i = 0; i < 4; i++) c[i] = {bits}(mine[{2 * n} + i]);
      asm volatile("mma.sp{suffix}.sync.aligned.{form.op} {lists[0]}, {lists[1]}, {lists[2]}, {lists[3]}, "
                   "%{at}, {form.selector};" : {outputs} : {inputs}, "r"(mine[{2 * n + 4}]));
      for (int i = 0; i < 4; i++) y[threadIdx.x * 4 + i] = {back}(d[i]);
    }}
    """


def metadata_of(form: Sparse, nibbles: Array) -> Array:
    """The metadata register of every lane: `nibbles` (16, groups) in their order; lanes not selected hold garbage."""
    words = np.random.default_rng(9).integers(0, 2**32, 32, dtype=np.uint64).astype(np.uint32)

    def joined(row: int, first: int, count: int) -> int:
        return sum(int(nibbles[row, first + i]) << 4 * i for i in range(count))

    for g in range(8):
        if (form.bits, form.k) == (32, 8):  # as of f16 with K = 16: rows g and g + 8 in one lane
            words[4 * g + form.selector] = joined(g, 0, 4) | joined(g + 8, 0, 4) << 16
        elif form.bits == 32:  # as of f16 with K = 32
            for half in range(2):
                lane = 4 * g + 2 * form.selector + half
                words[lane] = joined(g, 4 * half, 4) | joined(g + 8, 4 * half, 4) << 16
        elif form.k == 64:  # as of 8-bit integers with K = 32: a lane a row
            for lower in range(2):
                words[4 * g + 2 * form.selector + lower] = joined(g + 8 * lower, 0, 8)
        else:
            for t in range(4):
                words[4 * g + t] = joined(g + 8 * (t % 2), 8 * (t // 2), 8)
    return words


def sparse_job(form: Sparse) -> tuple[Array, Array]:
    """Words of every lane (32, 2 n + 5), and the result wanted (16, 8)."""
    random = np.random.default_rng(form.k + form.selector)
    groups = form.k // (2 if form.bits == 32 else 8)
    if form.bits == 32:
        stored = (random.integers(-512, 512, (16, groups)) / 8).astype(np.float32)
        b = (random.integers(-512, 512, (form.k, 8)) / 8).astype(np.float32)
        c: Array = random.integers(-99, 99, (16, 8)).astype(np.float32)
        chosen = random.integers(0, 2, (16, groups))
        nibbles = np.where(chosen, 0b1110, 0b0100)  # the ISA allows no other
        dense = np.zeros((16, groups, 2))
        np.put_along_axis(dense, chosen[..., None], stored[..., None], axis=2)
    else:
        stored, b = drawn(form.types[0], (16, form.k // 2), random), drawn(form.types[1], (form.k, 8), random)
        c = random.integers(-1000, 1000, (16, 8)).astype(np.int32)
        pairs = np.array([(i, j) for i in range(4) for j in range(i + 1, 4)])[random.integers(0, 6, (16, groups))]
        nibbles = pairs[..., 0] | pairs[..., 1] << 2
        dense = np.zeros((16, groups, 4, 2))
        np.put_along_axis(dense, pairs[..., None], stored.reshape(16, groups, 2, 2).astype(float), axis=2)
    a_place, b_place = packed(32 // form.bits)
    n = form.registers
    per = 32 // form.bits
    a_words, b_words = (
        (words(fragment(m, place, n * per, 64)) if form.bits == 32 else fragment(m, place, n * per, 4))
        for m, place in ((stored, a_place), (b, b_place))
    )
    c_words = np.array([[c[rows_16(lane, i)] for i in range(4)] for lane in range(32)]).view(np.uint32)
    x = np.concatenate([a_words, b_words, c_words, metadata_of(form, nibbles)[:, None]], axis=1)
    return x, c + dense.reshape(16, form.k) @ b.astype(float)


def words(numbers: Array) -> Array:
    """float32 numbers as words, with bits below those of tf32, which the card does not read."""
    whole: Array = np.ascontiguousarray(numbers, np.float32).view(np.uint32) | np.uint32(0x1234 & 0x1FFF)
    return whole


def multiplied(form: Sparse, x: Array, **options: bool) -> Execution:
    y: dict[str, Array] = {"y": np.zeros((32, 4), np.uint32)}
    return run(source(form, **options), launch("multiply", 1, 32, "x", "y"), {"x": x}, y)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_expanded_matrix_is_multiplied(form: Sparse, ordered: bool) -> None:
    x, want = sparse_job(form)
    got = clean(multiplied(form, x, ordered=ordered)).outputs["y"]
    got = got.view(np.float32 if form.sum == "f32" else np.int32)
    for lane in range(32):
        np.testing.assert_array_equal(got[lane], [want[rows_16(lane, i)] for i in range(4)])


@pytest.mark.parametrize(("form", "broken"), [(FORMS[0], 0b0101), (FORMS[4], 0b1000), (FORMS[6], 0b0100 ^ 0b0101)])
def test_metadata_that_the_isa_does_not_define_is_told(form: Sparse, broken: int) -> None:
    """tf32: 0b0100 and 0b1110 alone; 4-bit integers: ascending pairs."""
    x = sparse_job(form)[0]
    lane = 2 * form.selector + (form.selector if form.k == 8 else 0)
    x[lane, -1] = (x[lane, -1] & ~np.uint32(15)) | np.uint32(broken)
    execution = multiplied(form, x, ordered=True)
    assert [finding.kind for finding in execution.findings] == ["invalid_metadata"]
    assert multiplied(form, x).findings == ()
