"""Finding the reader of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fitness.matrices import MatrixError, matrix_files, open_matrices


def test_unknown_kinds_and_missing_files(tmp_path: Path) -> None:
    other = tmp_path / "a.txt"
    other.write_text("x")
    with pytest.raises(MatrixError, match=r"a\.txt: no file of a known kind; known: \.mtx"):
        open_matrices(other)
    with pytest.raises(MatrixError, match="no such file"):
        open_matrices(tmp_path / "a.mtx")
    with pytest.raises(MatrixError, match="no safetensors model"):
        open_matrices(tmp_path)


def test_endings_count_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "A.NPY"
    with path.open("wb") as stream:
        np.save(stream, np.eye(3))
    assert open_matrices(path).kind == "NumPy array"


def test_files_of_a_folder(tmp_path: Path) -> None:
    names = ("b.mtx", "a/c.smtx.gz", "a/notes.txt", "m/model.safetensors.index.json", "m/model-1.safetensors", "x.npz")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in matrix_files(tmp_path)]
    assert found == ["a/c.smtx.gz", "b.mtx", "m/model.safetensors.index.json", "x.npz"]
