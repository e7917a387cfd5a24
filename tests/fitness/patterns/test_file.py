"""A pattern from a matrix file: exact at its own shape, a true piece at others, and clear about what is wrong."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from numpy.typing import NDArray

from fitness.inputs import make_case
from fitness.kernel import FormatChoice
from fitness.patterns import FilePattern, PatternError, make_pattern
from fitness.task import Task, TaskError
from tests.fitness.cases import H200


def band(rows: int, columns: int, width: int) -> NDArray[np.bool_]:
    where: NDArray[np.bool_] = np.abs(np.arange(columns) - np.arange(rows)[:, None] * columns / rows) < width
    return where


def save(path: Path, mask: NDArray[np.bool_]) -> str:
    scipy.io.mmwrite(path, scipy.sparse.coo_array(mask.astype(np.float32)))
    return str(path)


def pattern(path: str, **keys: Any) -> FilePattern:
    made = make_pattern({"kind": "file", "path": path, **keys})
    assert isinstance(made, FilePattern)
    return made


def test_its_own_shape_gives_the_matrix(tmp_path: Path) -> None:
    mask = np.random.default_rng(0).random((30, 50)) < 0.1
    read = pattern(save(tmp_path / "a.mtx", mask))
    for seed in range(2):
        np.testing.assert_array_equal(read.mask((30, 50), np.random.default_rng(seed)), mask)
    assert read.density((30, 50)) == mask.mean()


def test_other_shapes_give_neighbouring_rows_with_columns_scaled(tmp_path: Path) -> None:
    mask = band(300, 600, 4)
    read = pattern(save(tmp_path / "a.mtx", mask))
    piece = read.mask((40, 150), np.random.default_rng(2))
    np.testing.assert_array_equal(piece, read.mask((40, 150), np.random.default_rng(2)))
    scaled: NDArray[np.bool_] = np.any(mask.reshape(300, 150, 4), axis=2)
    windows = [scaled[np.arange(first, first + 40) % 300] for first in range(300)]
    starts = [first for first, window in enumerate(windows) if np.array_equal(piece, window)]
    assert len(starts) == 1
    assert read.density((40, 150)) == pytest.approx(scaled.mean())
    larger = read.mask((700, 1200), np.random.default_rng(0))  # rows wrap around, columns spread
    assert larger.mean() == pytest.approx(read.density((700, 1200)), rel=0.05)
    assert not larger[:, 1::2].any()


@pytest.mark.parametrize("density", [0.5, 0.05])
def test_a_piece_of_a_filled_matrix_is_as_filled(tmp_path: Path, density: float) -> None:
    """Columns scaled to K would meet until every element is a nonzero: no kernel would be tried on its pattern."""
    np.save(tmp_path / "w.npy", np.random.default_rng(0).random((700, 1500)) < density)
    read = pattern(str(tmp_path / "w.npy"))
    for rows, columns in ((96, 200), (300, 512), (700, 1024), (1400, 512)):
        assert read.density((rows, columns)) == pytest.approx(density, rel=0.02)
        means = [read.mask((rows, columns), np.random.default_rng(seed)).mean() for seed in range(3)]
        assert means == pytest.approx([density] * 3, rel=0.15)
        assert len(set(means)) > 1
    assert read.mask((64, 16), np.random.default_rng(0)).sum() / 64 > 5  # more columns than 16, for nonzeros enough


def test_a_large_filled_layer_takes_no_time(tmp_path: Path) -> None:
    """Every task that `evo analyze` writes asks this of its layer; by hashing each nonzero it took a minute."""
    np.save(tmp_path / "w.npy", np.random.default_rng(0).random((4096, 4096), dtype=np.float32) < 0.5)
    began = time.process_time()
    read = pattern(str(tmp_path / "w.npy"))
    for columns in (512, 1024, 4096, 5000):
        read.density((4096, columns))
        read.mask((4096, columns), np.random.default_rng(0))
    assert len(read.digest) == 64
    assert time.process_time() - began < 8.0


def test_a_piece_keeps_blocks_and_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "blocks.npy", np.kron(rng.random((12, 40)) < 0.3, np.ones((32, 32), np.bool_)))
    groups = (np.argsort(rng.random((256, 128, 4)), axis=2) < 2).reshape(256, 512)
    np.save(tmp_path / "groups.npy", groups)
    for seed in range(6):
        piece = pattern(str(tmp_path / "blocks.npy")).mask((128, 256), np.random.default_rng(seed))
        share = piece.reshape(4, 32, 8, 32).mean(axis=(1, 3))
        assert set(share.ravel().tolist()) <= {0.0, 1.0}
        piece = pattern(str(tmp_path / "groups.npy")).mask((64, 128), np.random.default_rng(seed))
        assert piece.reshape(64, 32, 4).sum(axis=2).max() == 2


def test_a_piece_of_a_narrow_band_has_its_band(tmp_path: Path) -> None:
    read = pattern(save(tmp_path / "a.mtx", band(3000, 3000, 30)))
    for seed in range(5):
        piece = read.mask((64, 128), np.random.default_rng(seed))
        assert piece.any(axis=1).mean() > 0.4


def test_a_piece_is_never_empty(tmp_path: Path) -> None:
    mask = np.zeros((400, 400), np.bool_)
    mask[123, 7] = True
    read = pattern(save(tmp_path / "a.mtx", mask))
    assert all(read.mask((3, 5), np.random.default_rng(seed)).any() for seed in range(8))


def test_a_changed_file_is_refused_where_its_hash_was_noted(tmp_path: Path) -> None:
    mask = band(30, 30, 2)
    path = save(tmp_path / "a.mtx", mask)
    noted = pattern(path).digest
    assert pattern(path, sha256=noted).source.nnz == mask.sum()
    mask[0, 29] = True
    save(tmp_path / "a.mtx", mask)
    with pytest.raises(PatternError, match="has other nonzeros than when its sha256 was noted"):
        pattern(path, sha256=noted)
    assert pattern(path).mask((30, 30), np.random.default_rng(0))[0, 29]


def test_a_file_of_several_matrices_wants_a_name(tmp_path: Path) -> None:
    first, second = band(8, 8, 1).astype(np.float32), band(8, 8, 3).astype(np.float32)
    np.savez(tmp_path / "two.npz", first=first, second=second)
    path = str(tmp_path / "two.npz")
    np.testing.assert_array_equal(pattern(path, matrix="second").mask((8, 8), np.random.default_rng(0)), second != 0)
    with pytest.raises(PatternError, match="has 2 matrices; write matrix = one of"):
        pattern(path)
    with pytest.raises(PatternError, match="has no matrix 'secnd'; did you mean 'second'"):
        pattern(path, matrix="secnd")


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({}, "path is missing"),
        ({"path": 3}, "path = 3 is not a string"),
        ({"path": "none.mtx"}, "none.mtx"),
        ({"path": "none.mtx", "file": "x"}, "unknown key 'file'"),
    ],
)
def test_refuses(keys: dict[str, Any], part: str) -> None:
    with pytest.raises(PatternError, match=part):
        make_pattern({"kind": "file", **keys})


def test_a_damaged_or_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 1\n9 9 1.0\n")
    with pytest.raises(PatternError, match=r"bad\.mtx"):
        pattern(str(tmp_path / "bad.mtx"))
    (tmp_path / "empty.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 0\n")
    with pytest.raises(PatternError, match="has no nonzero"):
        pattern(str(tmp_path / "empty.mtx"))


def test_a_task_has_the_operand_of_the_file(tmp_path: Path) -> None:
    mask = band(64, 96, 3)
    spec = {"kind": "file", "path": save(tmp_path / "a.mtx", mask)}
    shapes = [{"M": 64, "K": 96, "N": 8}]
    task = Task.from_spec({"op": "spmm", "pattern": spec, "dtype": "float32", "shapes": shapes})
    made = make_case(task, task.shapes[0], FormatChoice("csr"), seed=0, data="normal", gpu=H200)
    np.testing.assert_array_equal(made.operands.w != 0, mask)
    assert task.nnz(task.shapes[0]) == mask.sum()
    with pytest.raises(TaskError, match=r"none\.mtx"):
        Task.from_spec({"op": "spmm", "pattern": {"kind": "file", "path": "none.mtx"}, "shapes": shapes})


def test_density_at_other_widths_counts_columns_that_meet_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    bits = rng.random((30, 37)) < np.where(np.arange(30) % 3 == 0, 0.0, 0.3)[:, None]  # empty rows first and between
    np.save(tmp_path / "w.npy", bits)
    read = FilePattern.from_spec({"path": str(tmp_path / "w.npy")})
    rows, columns = np.nonzero(bits)
    for width in (1, 5, 36, 100):
        places = set(zip(rows.tolist(), (columns * width // 37).tolist(), strict=True))
        assert read.density((30, width)) == pytest.approx(len(places) / (30 * width))
