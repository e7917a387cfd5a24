"""Real matrices of other projects (tests/data/matrices): each is read and analysed, or refused by file and line."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fitness import gpu as gpus
from fitness.analyze import analyze
from fitness.matrices import MatrixError, matrix_files, open_matrices

FOLDER = Path(__file__).parents[2] / "data" / "matrices"
ROWS = list(csv.DictReader((FOLDER / "INDEX.tsv").read_text(encoding="utf-8").splitlines(), delimiter="\t"))


def test_every_file_is_listed_with_its_licence() -> None:
    assert sorted(row["path"] for row in ROWS) == [str(p.relative_to(FOLDER)) for p in matrix_files(FOLDER)]
    assert all(row["licence"] and row["source"] and row["original_path"] for row in ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row["refused_line"]], ids=lambda row: row["path"])
def test_what_cannot_be_used_is_refused_by_line(row: dict[str, str]) -> None:
    path = FOLDER / row["path"]
    with pytest.raises(MatrixError) as caught:
        open_matrices(path).entries[0].load()
    assert str(caught.value).startswith(f"{path}:{row['refused_line']}: ")


@pytest.mark.parametrize("row", [row for row in ROWS if not row["refused_line"]], ids=lambda row: row["path"])
def test_what_can_be_used_is_analysed(row: dict[str, str]) -> None:
    matrix = open_matrices(FOLDER / row["path"]).entries[0].load()
    found = analyze(matrix, gpus.load("H200"))
    assert found.shape == (int(row["rows"]), int(row["columns"]))
    assert found.nnz == int(row["nonzeros"])
    assert found.nnz + (found.stored_zeros or 0) + found.duplicates == int(row["entries"])
    assert found.rows.mean * found.shape[0] == pytest.approx(found.nnz)
    assert sum(found.ratios.along[4]) == found.shape[0] * -(-found.shape[1] // 4)
    assert all(floor.time_us > 1 for floor in found.floors)
