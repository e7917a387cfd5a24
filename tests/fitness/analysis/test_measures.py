"""Every measure against a slow and plain count, in both representations of a mask."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fitness.analysis import blocks as blocks_module
from fitness.analysis.blocks import EDGES, count_blocks
from fitness.analysis.diagonals import DiagonalCounter, Diagonals
from fitness.analysis.lengths import lengths_of, padding
from fitness.analysis.maps import CELLS, MapCounter
from fitness.analysis.ratios import GROUPS, RatioCounter, Ratios
from fitness.analysis.repetition import Repetition, RepetitionCounter
from fitness.matrices.mask import Mask
from tests.fitness.matrices.test_mask import mask_of

Bits = NDArray[np.bool_]

matrices = st.builds(
    lambda rows, columns, density, seed: np.random.default_rng(seed).random((rows, columns)) < density,
    st.integers(1, 150),
    st.integers(1, 150),
    st.sampled_from([0.0, 0.01, 0.2, 0.9, 1.0]),
    st.integers(0, 99),
)


def both(bits: Bits) -> tuple[Mask, Mask]:
    return mask_of(bits, as_bits=False), mask_of(bits, as_bits=True)


@settings(deadline=None, max_examples=40)
@given(matrices, st.integers(0, 9))
def test_blocks(bits: Bits, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order, places = rng.permutation(bits.shape[0]), rng.permutation(bits.shape[1])
    moved = np.zeros_like(bits)
    moved[:, places] = bits[order]
    for mask in both(bits):
        for counted, expected in ((count_blocks(mask), bits), (count_blocks(mask, order, places), moved)):
            assert counted.sampled == 1
            for r in EDGES:
                for c in EDGES:
                    padded = np.pad(expected, ((0, -expected.shape[0] % r), (0, -expected.shape[1] % c)))
                    stored = padded.reshape(padded.shape[0] // r, r, -1, c).any(axis=(1, 3)).sum()
                    assert counted.stored[r, c] == stored
                    assert counted.fill((r, c)) == pytest.approx(bits.sum() / (stored * r * c) if stored else 0)


def test_best_and_whole_blocks() -> None:
    rng = np.random.default_rng(4)
    bits = np.kron(rng.random((40, 30)) < 0.1, np.ones((16, 8))) > 0
    counted = count_blocks(mask_of(bits))
    assert counted.best(2) == (16, 8)
    assert counted.whole() == (16, 8)
    scattered = count_blocks(mask_of(rng.random((300, 300)) < 0.02))
    assert scattered.best(2) == (1, 1)
    assert scattered.whole() is None


def test_blocks_of_large_matrices_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    bits = np.kron(rng.random((4000, 40)) < 0.05, np.ones((8, 8))) > 0
    mask = mask_of(bits, as_bits=False)
    exact = count_blocks(mask)
    monkeypatch.setattr(blocks_module, "_EXACT_NONZEROS", 1000)
    monkeypatch.setattr(blocks_module, "_SAMPLE_NONZEROS", mask.nnz // 4)
    monkeypatch.setattr("fitness.matrices.mask._STRIP_NONZEROS", 4000)
    sampled = count_blocks(mask)
    assert 0.15 < sampled.sampled < 0.4
    for size in ((8, 8), (16, 1), (1, 64)):
        assert sampled.fill(size) == pytest.approx(exact.fill(size), rel=0.03)


def ratios_of(mask: Mask) -> Ratios:
    counter = RatioCounter(mask.shape[1])
    for strip in mask.strips():
        counter.add(strip)
    return counter.result()


@settings(deadline=None, max_examples=40)
@given(matrices)
def test_ratios(bits: Bits) -> None:
    for ratios in map(ratios_of, both(bits)):
        for m in GROUPS:
            padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % m)))
            groups = padded.reshape(len(bits), -1, m).sum(axis=2)
            assert ratios.along[m] == tuple((groups == n).sum() for n in range(m + 1))
            assert ratios.exact(m) == groups.max()
            assert ratios.share(m // 2, m) == pytest.approx((groups <= m // 2).mean())
        tall = np.pad(bits, ((0, -bits.shape[0] % 4), (0, 0))).reshape(-1, 4, bits.shape[1]).sum(axis=1)
        assert ratios.share_across(2) == pytest.approx((tall <= 2).mean())


def diagonals_of(mask: Mask) -> Diagonals:
    counter = DiagonalCounter(mask.shape)
    for strip in mask.strips():
        counter.add(strip)
    return counter.result()


@settings(deadline=None, max_examples=40)
@given(matrices)
def test_diagonals(bits: Bits) -> None:
    rows, columns = bits.shape
    counts = {d: int(np.diagonal(bits, d).sum()) for d in range(1 - rows, columns)}
    occupied = [d for d, count in counts.items() if count]
    for found in map(diagonals_of, both(bits)):
        assert found.occupied == len(occupied)
        if not occupied:
            continue
        assert (found.lower, found.upper) == (max(0, -occupied[0]), max(0, occupied[-1]))
        assert found.fill == pytest.approx(bits.sum() / sum(len(np.diagonal(bits, d)) for d in occupied))
        assert found.fullest == pytest.approx(sum(sorted(counts.values())[-32:]) / bits.sum())
        lower, upper = not np.triu(bits, 1).any(), not np.tril(bits, -1).any()
        assert found.triangular == ("diagonal" if lower and upper else "lower" if lower else "upper" if upper else "")


def test_a_narrow_matrix_takes_no_square_of_its_rows() -> None:
    bits = np.ones((200_000, 3), np.bool_)
    found = diagonals_of(mask_of(bits, as_bits=True))
    assert (found.occupied, found.fill) == (200_002, 1.0)


@settings(deadline=None, max_examples=40)
@given(matrices)
def test_density_map(bits: Bits) -> None:
    for mask in both(bits):
        counter = MapCounter(mask.shape)
        for strip in mask.strips():
            counter.add(strip)
        density = counter.result().density
        assert density.shape == (min(CELLS, bits.shape[0]), min(CELLS, bits.shape[1]))
        rows, columns = (
            [np.flatnonzero(np.arange(size) * cells // size == i) for i in range(cells)]
            for size, cells in zip(bits.shape, density.shape, strict=True)
        )
        assert density[-1, 0] == pytest.approx(bits[np.ix_(rows[-1], columns[0])].mean())
        assert density[0, -1] == pytest.approx(bits[np.ix_(rows[0], columns[-1])].mean())
        assert 0 <= density.min() <= density.max() <= 1


def repetition_of(mask: Mask) -> Repetition:
    counter = RepetitionCounter(mask.shape[0])
    for strip in mask.strips():
        counter.add(strip)
    return counter.result(mask)


def test_repetition_of_a_periodic_pattern() -> None:
    rng = np.random.default_rng(6)
    tile = rng.random((12, 20)) < 0.3
    tile[0], tile[:, 0] = True, True
    tile[1:, 1:] &= rng.random((11, 19)) < 0.7
    for mask in both(np.tile(tile, (9, 7))):
        found = repetition_of(mask)
        assert (found.period_rows, found.period_columns) == (12, 20)
        assert found.distinct_rows == len(np.unique(tile, axis=0))
    broken = np.tile(tile, (9, 7))
    broken[50, 60] ^= True
    for mask in both(broken):
        assert (repetition_of(mask).period_rows, repetition_of(mask).period_columns) == (None, None)


def test_repetition_of_a_stencil() -> None:
    bits = (np.eye(400) + np.eye(400, k=1) + np.eye(400, k=-20)) > 0
    sparse, dense = map(repetition_of, both(bits))
    assert sparse.stencil == pytest.approx(379 / 400)
    assert dense.stencil is None
    assert sparse.distinct_rows == dense.distinct_rows == 400


def test_equal_masks_have_equal_digests() -> None:
    bits = np.random.default_rng(7).random((90, 40)) < 0.02
    other = bits.copy()
    other[13, 7] ^= True
    first, again, changed = (repetition_of(mask_of(b)).digest for b in (bits, bits.copy(), other))
    assert first == again != changed


def test_lengths_and_padding() -> None:
    counts = np.array([0, 1, 2, 3, 4, 8, 0, 6])
    found = lengths_of(counts)
    assert (found.empty, found.least, found.most, found.mean, found.imbalance) == (2, 0, 8, 3.0, 8 / 3)
    assert dict(zip(found.edges, found.counts, strict=False)) == {0: 2, 1: 1, 2: 2, 4: 2, 8: 1}
    assert sum(found.counts) == len(counts)
    assert padding(counts, 4) == pytest.approx((4 * 3 + 4 * 8) / 24)
    assert padding(counts[:6], 4) == pytest.approx((4 * 3 + 2 * 8) / 18)
    assert padding(np.zeros(5, np.int64)) == 1
