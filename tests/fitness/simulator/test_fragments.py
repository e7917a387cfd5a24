"""ldmatrix, stmatrix, movmatrix and wmma against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator import fragments, mma_layout

Array = NDArray[Any]


def matrices_as_rows(matrices: Array) -> Array:
    """(G, count, 8, 8) uint16 -> what ldmatrix reads: (G, 8 * count, 4) uint32."""
    groups, count = matrices.shape[:2]
    return np.ascontiguousarray(matrices).view(np.uint32).reshape(groups, 8 * count, 4)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_gives_each_lane_its_two_elements(count: int, transposed: bool) -> None:
    matrices = np.random.default_rng(1).integers(0, 2**16, (3, count, 8, 8)).astype(np.uint16)
    registers = fragments.ldmatrix(matrices_as_rows(matrices), count, transposed=transposed)
    assert len(registers) == count
    for m, register in enumerate(registers):
        for lane in range(32):
            row, column = lane // 4, 2 * (lane % 4)
            source = matrices[:, m].transpose(0, 2, 1) if transposed else matrices[:, m]
            want = source[:, row, column].astype(np.uint32) | source[:, row, column + 1].astype(np.uint32) << 16
            np.testing.assert_array_equal(register[:, lane], want)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix_undoes_ldmatrix(count: int, transposed: bool) -> None:
    rows = np.random.default_rng(2).integers(0, 2**32, (2, 8 * count, 4), dtype=np.uint64).astype(np.uint32)
    registers = fragments.ldmatrix(rows, count, transposed=transposed)
    np.testing.assert_array_equal(fragments.stmatrix(registers, transposed=transposed), rows)


def test_movmatrix_transposes() -> None:
    matrix = np.arange(64, dtype=np.uint16).reshape(1, 1, 8, 8)
    straight = fragments.ldmatrix(matrices_as_rows(matrix), 1)[0]
    across = fragments.ldmatrix(matrices_as_rows(matrix), 1, transposed=True)[0]
    np.testing.assert_array_equal(fragments.movmatrix(straight), across)


@pytest.mark.parametrize("shape", sorted(fragments.WMMA_SHAPES))
@pytest.mark.parametrize(
    ("operand", "kind"), [("a", "f16"), ("b", "f16"), ("a", "bf16"), ("b", "bf16"), ("c", "f16"), ("c", "f32")]
)
def test_wmma_fragments_hold_every_element_equally_often(shape: str, operand: str, kind: str) -> None:
    m, n, k = fragments.wmma_dimensions(shape)
    height, width = {"a": (m, k), "b": (k, n), "c": (m, n)}[operand]
    rows, columns = fragments.wmma_fragment(operand, shape, kind)
    counts = np.zeros((height, width), int)
    np.add.at(counts, (rows, columns), 1)
    assert counts.min() == counts.max() > 0
    # Register counts: PTX ISA, wmma.load ("a fragment is a vector of 8 .f16x2", ...).
    registers = {"f16": 8 if operand in "ab" else 4, "f32": 8, "bf16": height * width // 64}[kind]
    assert rows.shape[1] == registers


def load(operand: str, shape: str, kind: str, matrices: Array) -> list[Array]:
    rows, columns = fragments.wmma_fragment(operand, shape, kind)
    dealt = np.ascontiguousarray(matrices[:, rows, columns])
    words = dealt.view(np.float32 if kind == "f32" else np.uint32)[..., 0]
    return [np.ascontiguousarray(words[:, :, i]) for i in range(words.shape[2])]


@pytest.mark.parametrize("shape", sorted(fragments.WMMA_SHAPES))
@pytest.mark.parametrize("c_type", ["f32", "f16"])
@pytest.mark.parametrize("d_type", ["f32", "f16"])
def test_wmma_multiplies(shape: str, c_type: str, d_type: str) -> None:
    rng = np.random.default_rng(3)
    m, n, k = fragments.wmma_dimensions(shape)
    numpy_types: dict[str, Any] = {"f32": np.float32, "f16": np.float16}
    a = rng.standard_normal((2, m, k)).astype(np.float16)
    b = rng.standard_normal((2, k, n)).astype(np.float16)
    c = rng.standard_normal((2, m, n)).astype(numpy_types[c_type])
    d = fragments.wmma_mma(
        shape,
        "f16",
        c_type,
        d_type,
        load("a", shape, "f16", a),
        load("b", shape, "f16", b),
        load("c", shape, c_type, c),
    )
    want = (a.astype(np.float64) @ b.astype(np.float64) + c).astype(numpy_types[d_type])
    for got, expected in zip(d, load("d", shape, d_type, want), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_unknown_wmma_shape_is_refused() -> None:
    with pytest.raises(mma_layout.UnsupportedShape):
        fragments.wmma_fragment("a", "m8n8k4", "f16")
