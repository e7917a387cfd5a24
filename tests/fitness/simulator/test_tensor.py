"""Tensor-core instructions against the fragment tables of the PTX ISA, written out element by element."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator import mma_layout, mma_sparse, tensor

Array = NDArray[Any]


# The ISA's formulas for element i of a lane's fragment, as printed (not the general rule mma_layout.py uses).
def isa_a_16816(lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane % 4
    row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
    return row, t * 2 + (i & 1) + (8 if i >= 4 else 0)


def isa_b_16816(lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane % 4
    return t * 2 + (i & 1) + (8 if i >= 2 else 0), group


def isa_c(lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane % 4
    return (group if i < 2 else group + 8), t * 2 + (i & 1)


def isa_a_1688(lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane % 4
    return (group if i < 2 else group + 8), t * 2 + (i & 1)


def isa_b_1688(lane: int, i: int) -> tuple[int, int]:
    return (lane % 4) * 2 + i, lane >> 2


def isa_a_1688_tf32(lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane % 4
    return (group if i in (0, 2) else group + 8), (t if i in (0, 1) else t + 4)


def isa_b_1688_tf32(lane: int, i: int) -> tuple[int, int]:
    return (lane % 4) + (4 if i == 1 else 0), lane >> 2


def isa_a_16832_s8(lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane % 4
    row = group if 0 <= i < 4 or 8 <= i < 12 else group + 8
    return row, t * 4 + (i & 3) + (16 if i >= 8 else 0)


def isa_b_16832_s8(lane: int, i: int) -> tuple[int, int]:
    return (lane % 4) * 4 + (i & 3) + (16 if i >= 4 else 0), lane >> 2


def isa_b_16832_f16(lane: int, i: int) -> tuple[int, int]:
    """B of the sparse m16n8k32 with 16-bit types: four registers."""
    return (lane % 4) * 2 + (i & 1) + 8 * (i // 2), lane >> 2


@pytest.mark.parametrize(
    ("layout", "formula", "count"),
    [
        (mma_layout.a_fragment(16, 16), isa_a_16816, 8),
        (mma_layout.b_fragment(16, 16), isa_b_16816, 4),
        (mma_layout.a_fragment(8, 16), isa_a_1688, 4),
        (mma_layout.b_fragment(8, 16), isa_b_1688, 2),
        (mma_layout.a_fragment(8, 32), isa_a_1688_tf32, 4),
        (mma_layout.b_fragment(8, 32), isa_b_1688_tf32, 2),
        (mma_layout.a_fragment(32, 8), isa_a_16832_s8, 16),
        (mma_layout.b_fragment(32, 8), isa_b_16832_s8, 8),
        (mma_layout.b_fragment(32, 16), isa_b_16832_f16, 8),
        (mma_layout.c_fragment(32), isa_c, 4),
        (mma_layout.c_fragment(16), isa_c, 4),
    ],
)
def test_fragment_layout_is_the_isas(layout: tuple[Array, Array], formula: Any, count: int) -> None:
    rows, columns = (np.broadcast_to(x, np.broadcast_shapes(*(y.shape for y in layout))) for x in layout)
    assert rows.reshape(32, -1).shape == (32, count)
    for lane in range(32):
        for i in range(count):
            assert (rows.reshape(32, -1)[lane, i], columns.reshape(32, -1)[lane, i]) == formula(lane, i)


# ---------------------------------------------------------------- helpers: matrices <-> registers

_NUMPY: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "s8": np.int8,
    "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "tf32": np.float32,
    "f32": np.float32,
    "s32": np.int32,
}


def deal(matrices: Array, layout: tuple[Array, Array]) -> list[Array]:
    """(G, rows, columns) matrices -> registers (G, 32) uint32."""
    rows, columns = layout
    dealt = np.ascontiguousarray(matrices[:, rows, columns])
    words = dealt.view(np.uint8).reshape(*dealt.shape[:3], -1).view(np.uint32)[..., 0]
    return [np.ascontiguousarray(words[:, :, i]) for i in range(words.shape[2])]


def collect(registers: tuple[Array, ...], kind: str) -> Array:
    """Registers of D -> (G, 16, 8)."""
    bits = 16 if kind == "f16" else 32
    rows, columns = mma_layout.c_fragment(bits)
    words = np.stack([np.ascontiguousarray(r) for r in registers], axis=-1)
    elements = words.view(_NUMPY[kind]).reshape(words.shape[0], 32, len(registers), 32 // bits)
    out = np.empty((words.shape[0], 16, 8), dtype=_NUMPY[kind])
    out[:, rows, columns] = elements
    return out


def c_registers(c: Array, kind: str) -> list[Array]:
    registers = deal(c, mma_layout.c_fragment(16 if kind == "f16" else 32))
    return [r.view(np.float32) for r in registers] if kind == "f32" else registers


def draw(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    if kind == "s8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    if kind == "u8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    values = rng.standard_normal(shape).astype(np.float32)
    if kind == "tf32":
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return values.astype(_NUMPY[kind])


@pytest.mark.parametrize(
    ("shape", "a_type", "b_type", "c_type"),
    [
        ("m16n8k16", "f16", "f16", "f32"),
        ("m16n8k16", "f16", "f16", "f16"),
        ("m16n8k16", "bf16", "bf16", "f32"),
        ("m16n8k8", "f16", "f16", "f32"),
        ("m16n8k8", "bf16", "bf16", "f32"),
        ("m16n8k8", "tf32", "tf32", "f32"),
        ("m16n8k4", "tf32", "tf32", "f32"),
        ("m16n8k32", "s8", "s8", "s32"),
        ("m16n8k32", "u8", "s8", "s32"),
        ("m16n8k16", "s8", "u8", "s32"),
        ("m16n8k32", "e4m3", "e5m2", "f32"),
    ],
)
def test_mma_multiplies(shape: str, a_type: str, b_type: str, c_type: str) -> None:
    rng = np.random.default_rng(5)
    k = int(shape.split("k")[1])
    a, b = draw(rng, a_type, (3, 16, k)), draw(rng, b_type, (3, k, 8))
    c = rng.integers(-99, 99, (3, 16, 8)).astype(_NUMPY[c_type])
    bits_a, bits_b = mma_layout.TYPES[a_type].bits, mma_layout.TYPES[b_type].bits
    d = tensor.mma(
        shape,
        a_type,
        b_type,
        c_type,
        deal(a, mma_layout.a_fragment(k, bits_a)),
        deal(b, mma_layout.b_fragment(k, bits_b)),
        c_registers(c, c_type),
    )
    want = np.einsum("gmk,gkn->gmn", a.astype(np.float64), b.astype(np.float64)) + c.astype(np.float64)
    np.testing.assert_array_equal(collect(d, c_type), want.astype(_NUMPY[c_type]))


def test_f32_accumulation_rounds_once() -> None:
    # 1 + 16 * 2**-26 is 1 + 2**-22 exactly; adding the products one by one in float32 gives 1.
    a = np.full((1, 16, 16), 2.0**-13, np.float16)
    c = np.ones((1, 16, 8), np.float32)
    b = np.full((1, 16, 8), 2.0**-13, np.float16)
    d = tensor.mma(
        "m16n8k16",
        "f16",
        "f16",
        "f32",
        deal(a, mma_layout.a_fragment(16, 16)),
        deal(b, mma_layout.b_fragment(16, 16)),
        c_registers(c, "f32"),
    )
    assert (collect(d, "f32") == np.float32(1 + 2.0**-22)).all()


def test_integer_accumulators_wrap_or_saturate() -> None:
    a = np.full((1, 16, 32), 127, np.int8)
    b = np.full((1, 32, 8), 127, np.int8)
    c = np.full((1, 16, 8), 2**31 - 1, np.int32)
    fragments = (deal(a, mma_layout.a_fragment(32, 8)), deal(b, mma_layout.b_fragment(32, 8)), c_registers(c, "s32"))
    wrapped = collect(tensor.mma("m16n8k32", "s8", "s8", "s32", *fragments), "s32")
    clamped = collect(tensor.mma("m16n8k32", "s8", "s8", "s32", *fragments, saturate=True), "s32")
    assert (wrapped == np.int32(-(2**31) + 32 * 127 * 127 - 1)).all()
    assert (clamped == 2**31 - 1).all()


def test_nan_and_infinity_propagate() -> None:
    a, b = np.zeros((1, 16, 16), np.float16), np.zeros((1, 16, 8), np.float16)
    a[0, 2, 3], a[0, 5, 0] = np.nan, np.inf
    b[0, 0, 4] = 1
    c = np.zeros((1, 16, 8), np.float32)
    d = tensor.mma(
        "m16n8k16",
        "f16",
        "f16",
        "f32",
        deal(a, mma_layout.a_fragment(16, 16)),
        deal(b, mma_layout.b_fragment(16, 16)),
        c_registers(c, "f32"),
    )
    got = collect(d, "f32")[0]
    assert np.isnan(got[2]).all()
    assert np.isposinf(got[5, 4])
    assert np.isnan(got[5, 0])  # inf * 0


# ---------------------------------------------------------------- sparse


def random_sparse(rng: np.random.Generator, kind: str, groups: int, k: int) -> tuple[Array, Array, Array]:
    """(dense (G, 16, k), stored values (G, 16, k/2), indices (G, 16, k/2)) of a 2:4 matrix."""
    pairs = np.array([(i, j) for i in range(4) for j in range(i + 1, 4)])
    index = pairs[rng.integers(0, 6, (groups, 16, k // 4))]
    stored = draw(rng, kind, (groups, 16, k // 2))
    dense = np.zeros((groups, 16, k // 4, 4), stored.dtype)
    np.put_along_axis(dense, index, stored.reshape(groups, 16, k // 4, 2), axis=3)
    return dense.reshape(groups, 16, k), stored, index.reshape(groups, 16, k // 2)


def isa_metadata(index: Array, k: int, bits: int, selector: int, rng: np.random.Generator) -> Array:
    """Metadata registers from the ISA's figures, lane by lane; lanes that are not selected hold garbage."""
    groups = index.shape[0]
    metadata = rng.integers(0, 2**32, (groups, 32), dtype=np.uint64).astype(np.uint32)

    def word(warp: int, row: int, first_group: int, count: int) -> int:
        """2-bit indices of `count` groups of four from column 4 * first_group, first in the low bits."""
        return sum(int(index[warp, row, 2 * first_group + i]) << (2 * i) for i in range(2 * count))

    for warp in range(groups):
        for g in range(8):
            if (bits, k) == (16, 16):
                metadata[warp, 4 * g + selector] = word(warp, g, 0, 4) | word(warp, g + 8, 0, 4) << 16
            elif (bits, k) == (16, 32):
                for half in range(2):
                    value = word(warp, g, 4 * half, 4) | word(warp, g + 8, 4 * half, 4) << 16
                    metadata[warp, 4 * g + 2 * selector + half] = value
            elif (bits, k) == (8, 32):
                for upper in range(2):
                    metadata[warp, 4 * g + 2 * selector + upper] = word(warp, g + 8 * upper, 0, 8)
            else:
                for lane in range(4):
                    metadata[warp, 4 * g + lane] = word(warp, g + 8 * (lane % 2), 8 * (lane // 2), 8)
    return metadata


SPARSE = [
    ("m16n8k32", "f16", "f32", 0),
    ("m16n8k32", "f16", "f32", 1),
    ("m16n8k32", "f16", "f16", 1),
    ("m16n8k32", "bf16", "f32", 0),
    ("m16n8k16", "f16", "f32", 0),
    ("m16n8k16", "f16", "f32", 3),
    ("m16n8k16", "bf16", "f32", 2),
    ("m16n8k64", "s8", "s32", 0),
    ("m16n8k64", "e4m3", "f32", 0),
    ("m16n8k32", "u8", "s32", 1),
]


@pytest.mark.parametrize(("shape", "kind", "c_type", "selector"), SPARSE)
def test_sparse_mma_multiplies_the_expanded_matrix(shape: str, kind: str, c_type: str, selector: int) -> None:
    rng = np.random.default_rng(7)
    k, bits = int(shape.split("k")[1]), mma_layout.TYPES[kind].bits
    dense, stored, index = random_sparse(rng, kind, 2, k)
    b = draw(rng, kind, (2, k, 8))
    c = rng.integers(-99, 99, (2, 16, 8)).astype(_NUMPY[c_type])
    metadata = isa_metadata(index, k, bits, selector, rng)
    d = mma_sparse.mma_sp(
        shape,
        kind,
        kind,
        c_type,
        deal(stored, mma_layout.a_fragment(k // 2, bits)),
        deal(b, mma_layout.b_fragment(k, bits)),
        c_registers(c, c_type),
        metadata,
        selector,
    )
    want = np.einsum("gmk,gkn->gmn", dense.astype(np.float64), b.astype(np.float64)) + c.astype(np.float64)
    np.testing.assert_array_equal(collect(d, c_type), want.astype(_NUMPY[c_type]))
    assert mma_sparse.metadata_ordered(shape, kind, metadata, selector).all()


def test_sparse_mma_skips_infinity_where_nothing_is_stored() -> None:
    """Seen on an H200: an Inf or NaN of B reaches a row of D only through a stored value."""
    rng = np.random.default_rng(8)
    _, stored, index = random_sparse(rng, "f16", 2, 32)
    b = draw(rng, "f16", (2, 32, 8))
    b[0, 5, 3], b[0, 17, 6], b[1, 30, 0] = np.inf, np.nan, -np.inf
    d = mma_sparse.mma_sp(
        "m16n8k32",
        "f16",
        "f16",
        "f32",
        deal(stored, mma_layout.a_fragment(16, 16)),
        deal(b, mma_layout.b_fragment(32, 16)),
        c_registers(np.zeros((2, 16, 8), np.float32), "f32"),
        isa_metadata(index, 32, 16, 0, rng),
        0,
    )
    column = index + np.arange(16) // 2 * 4
    want = np.zeros((2, 16, 8))
    for warp, row, i in np.ndindex(2, 16, 16):
        with np.errstate(invalid="ignore"):
            want[warp, row] += float(stored[warp, row, i]) * b[warp, column[warp, row, i]].astype(np.float64)
    np.testing.assert_array_equal(collect(d, "f32"), want.astype(np.float32))
    assert np.isfinite(want).any()
    assert not np.isfinite(want).all()


def test_unordered_metadata_is_seen() -> None:
    metadata = np.full((2, 32), 0x44444444, np.uint32)  # indices (0, 1) everywhere
    assert mma_sparse.metadata_ordered("m16n8k32", "f16", metadata, 0).all()
    metadata[1, 4] ^= np.uint32(0x5)  # row 1, first group: (1, 0)
    np.testing.assert_array_equal(mma_sparse.metadata_ordered("m16n8k32", "f16", metadata, 0), [True, False])
    np.testing.assert_array_equal(mma_sparse.metadata_ordered("m16n8k32", "f16", metadata, 1), [True, True])


@pytest.mark.parametrize(
    ("shape", "a_type", "b_type"),
    [("m16n8k16", "f16", "bf16"), ("m16n8k64", "f16", "f16"), ("m8n8k4", "f16", "f16"), ("m16n8k16", "s8", "f16")],
)
def test_unknown_shapes_are_refused(shape: str, a_type: str, b_type: str) -> None:
    with pytest.raises(mma_layout.UnsupportedShape):
        tensor.mma(shape, a_type, b_type, "f32", [], [], [])


def test_selector_out_of_range_is_refused() -> None:
    with pytest.raises(mma_layout.UnsupportedShape, match="selector"):
        mma_sparse.mma_sp("m16n8k32", "f16", "f16", "f32", [], [], [], np.zeros((1, 32), np.uint32), 2)
