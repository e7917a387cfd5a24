"""The text patterns of the Deep Learning Matrix Collection."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fitness.matrices import MatrixError, open_matrices, smtx

GOOD = "2, 4, 3\n0 1 3 \n2 0 3 \n"


def pattern(path: Path) -> list[list[int]]:
    matrix = open_matrices(path).entries[0].load()
    rows, columns = matrix.mask.shape
    bits: list[list[int]] = matrix.mask.window(slice(0, rows), slice(0, columns)).astype(int).tolist()
    return bits


@pytest.mark.parametrize(
    "text", [GOOD, GOOD.replace(",", ""), "% a comment\n%\n" + GOOD, GOOD.replace("\n", "\r\n"), GOOD.rstrip()]
)
def test_good_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.smtx"
    path.write_bytes(text.encode())
    assert pattern(path) == [[0, 0, 1, 0], [1, 0, 0, 1]]
    zipped = tmp_path / "a.smtx.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    assert pattern(zipped) == pattern(path)


def test_columns_in_any_order_and_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.smtx"
    path.write_text("1, 4, 3\n0 3\n3 0 3\n")
    assert pattern(path) == [[1, 0, 0, 1]]
    assert open_matrices(path).entries[0].load().duplicates == 1


def test_no_nonzeros(tmp_path: Path) -> None:
    path = tmp_path / "a.smtx"
    path.write_text("2, 2, 0\n0 0 0\n\n")
    assert pattern(path) == [[0, 0], [0, 0]]


def test_lines_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtx, "_CHUNK_BYTES", 128)
    rng = np.random.default_rng(0)
    bits = rng.random((40, 3000)) < 0.1
    starts = np.concatenate([[0], np.cumsum(bits.sum(axis=1))])
    path = tmp_path / "a.smtx"
    lines = ["40, 3000, " + str(bits.sum()), " ".join(map(str, starts)), " ".join(map(str, np.nonzero(bits)[1]))]
    path.write_text("\n".join(lines))
    assert pattern(path) == bits.astype(int).tolist()


BAD = {
    "empty": ("", 1, "no sizes"),
    "words": ("a, b, c\n", 1, "no sizes"),
    "commented": ("% x\n2, 2\n", 2, "no sizes"),
    "bomb": ("2, 2, 99999999999\n0 1\n", 1, "more than the file can hold"),
    "starts_short": ("2, 4, 3\n0 3\n2 0 3\n", 2, "only 2 starts of rows"),
    "starts_long": ("2, 4, 3\n0 1 3 3\n2 0 3\n", 2, "more than 3 starts of rows"),
    "starts_fall": ("2, 4, 3\n0 4 3\n2 0 3\n", 2, "do not rise from 0 to 3"),
    "starts_begin": ("2, 4, 3\n1 2 3\n2 0 3\n", 2, "do not rise"),
    "no_columns": ("2, 4, 3\n0 1 3\n", 3, "only 0 columns"),
    "column_out": ("2, 4, 3\n0 1 3\n2 0 4\n", 3, "column 4 of a matrix of 4 columns"),
    "column_negative": ("2, 4, 3\n0 1 3\n2 -1 3\n", 3, "column -1"),
    "no_integer": ("2, 4, 3\n0 1 3\n2 0.5 3\n", 3, "'0.5' among the columns is no integer"),
    "overflow": ("2, 4, 3\n0 1 3\n2 0 99999999999999999999\n", 3, "column"),
    "more": ("2, 4, 3\n0 1 3\n2 0 3\nx\n", 4, "more than sizes, starts and columns"),
    "long_word": ("2, 4, 3\n0 1 3\n" + "9" * 7_000_000 + "\n", 3, ""),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_line(tmp_path: Path, name: str) -> None:
    text, line, reason = BAD[name]
    path = tmp_path / "a.smtx"
    path.write_text(text)
    with pytest.raises(MatrixError) as caught:
        pattern(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert reason in str(caught.value)
