"""Matrix Market: every symmetry and field, and refusals that name the line."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from scipy import sparse
from scipy.io import mmwrite

from fitness.matrices import Matrix, MatrixError, open_matrices


def load(path: Path) -> Matrix:
    (entry,) = open_matrices(path).entries
    return entry.load()


def dense(matrix: Matrix) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    rows, columns = matrix.mask.shape
    return matrix.mask.window(slice(0, rows), slice(0, columns))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="latin-1")
    return path


BANNER = "%%MatrixMarket matrix coordinate real general\n"

GOOD = {
    "symmetric": (
        "%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 1 2.\n3 1 1e3\n3 3 -1\n",
        [[1, 0, 1], [0, 0, 0], [1, 0, 1]],
    ),
    "skew": ("%%MatrixMarket matrix coordinate integer skew-symmetric\n2 2 1\n2 1 5\n", [[0, 1], [1, 0]]),
    "pattern": ("%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 3\n2 1\n", [[0, 0, 1], [1, 0, 0]]),
    "array": ("%%MatrixMarket matrix array real general\n2 2\n1\n0\n-0.0\n4\n", [[1, 0], [0, 1]]),
    "array_symmetric": ("%%MatrixMarket matrix array real symmetric\n2 2\n1\n3\n0\n", [[1, 1], [1, 0]]),
    "duplicates": (BANNER + "2 2 4\n1 1 1\n1 1 2\n2 2 1\n2 2 -1\n", [[1, 0], [0, 0]]),
    "stored_zero": (BANNER + "2 2 2\n1 1 0.0\n2 2 -0.0\n", [[0, 0], [0, 0]]),
    "not_a_number": (BANNER + "1 2 2\n1 1 nan\n1 2 inf\n", [[1, 1]]),
    "free_format": (
        "%%MatrixMarket MATRIX Coordinate REAL General\n% comment\n\n  2   2  1 \n\n\t2\t1   3e-1 \n",
        [[0, 0], [1, 0]],
    ),
    "windows": (BANNER.replace("\n", "\r\n") + "% x\r\n1 1 1\r\n1 1 7\r\n", [[1]]),
    "no_nonzeros": (BANNER + "2 2 0\n", [[0, 0], [0, 0]]),
    "unsigned": ("%%MatrixMarket matrix coordinate unsigned-integer general\n1 1 1\n1 1 18446744073709551615\n", [[1]]),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("zipped", [False, True])
def test_good_files(tmp_path: Path, name: str, zipped: bool) -> None:
    text, expected = GOOD[name]
    path = write(tmp_path / "a.mtx", text)
    if zipped:
        path = tmp_path / "a.mtx.gz"
        path.write_bytes(gzip.compress(text.encode()))
    np.testing.assert_array_equal(dense(load(path)), np.array(expected, np.bool_))


def test_what_is_said_of_values(tmp_path: Path) -> None:
    twice = load(write(tmp_path / "a.mtx", GOOD["duplicates"][0]))
    assert (twice.duplicates, twice.stored_zeros, twice.dtype) == (2, 1, "float64")
    assert load(write(tmp_path / "b.mtx", GOOD["stored_zero"][0])).stored_zeros == 2
    assert load(write(tmp_path / "c.mtx", GOOD["pattern"][0])).dtype == "pattern"
    assert load(write(tmp_path / "d.mtx", GOOD["skew"][0])).dtype == "int64"
    assert open_matrices(tmp_path / "c.mtx").entries[0].shape == (2, 3)


BAD = {
    "empty": ("", 1, "ends before"),
    "no_banner": ("3 3 1\n1 1 1\n", 1, "no Matrix Market banner"),
    "complex": ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", 1, "a complex matrix"),
    "hermitian": ("%%MatrixMarket matrix coordinate real hermitian\n1 1 1\n1 1 1\n", 1, "a hermitian matrix"),
    "field": ("%%MatrixMarket matrix coordinate quaternion general\n1 1 1\n1 1 1\n", 1, "field 'quaternion'"),
    "symmetry": ("%%MatrixMarket matrix coordinate real spd\n1 1 1\n1 1 1\n", 1, "symmetry 'spd'"),
    "cut_banner": ("%%MatrixMarket matrix array\n", 1, "lacks the field"),
    "vector": ("%%MatrixMarket vector coordinate real general\n1 1\n1 1\n", 1, "object 'vector'"),
    "no_sizes": (BANNER + "% only comments\n", 3, "ends before its sizes"),
    "sizes": (BANNER + "%\n3 3\n", 3, "'3 3' are no sizes"),
    "negative": (BANNER + "3 -3 1\n", 2, "are no sizes"),
    "zero": (BANNER + "0 3 0\n", 2, "has no elements"),
    "not_square": ("%%MatrixMarket matrix coordinate real symmetric\n3 4 1\n1 1 1\n", 2, "not square"),
    "row": (BANNER + "3 3 2\n1 1 1\n4 1 1\n", 4, "Row index out of bounds"),
    "column": (BANNER + "3 3 1\n1 0 1\n", 3, "Column index out of bounds"),
    "value": (BANNER + "3 3 1\n1 1 x\n", 3, "Invalid floating-point value"),
    "overflow": (BANNER + "3 3 1\n99999999999999999999 1 1\n", 3, "Integer out of range"),
    "too_many": (BANNER + "3 3 1\n1 1 1\n2 2 2\n", 4, "Too many lines"),
    "too_few": (BANNER + "3 3 2\n1 1 1\n2\n", 4, ""),
    "cut_off": (BANNER + "3 3 3\n1 1 1.000000000\n2 2 2.00000000\n", 4, "Truncated"),
    "bomb": (BANNER + "1000000 1000000 99999999999\n1 1 1\n", 2, "more than the file can hold"),
    "array_bomb": ("%%MatrixMarket matrix array real general\n1000000 1000000\n1\n", 2, "more than the file can hold"),
    "tall": (BANNER + "2000000000 2000000000 1\n1 1 1\n", 2, "nearly all rows or columns are empty"),
    "too_tall": (BANNER + "3000000000 3 1\n1 1 1\n", 2, "counts rows and columns to"),
    "array_pattern": ("%%MatrixMarket matrix array pattern general\n1 1\n", 1, "an array has values"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_line(tmp_path: Path, name: str) -> None:
    text, line, reason = BAD[name]
    path = write(tmp_path / "a.mtx", text)
    with pytest.raises(MatrixError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", [b"4M-u", b"4 x", b"4\0", b"4\0 7\n", b"4 ", b"4\t\x08"])
@pytest.mark.parametrize("layout", ["array", "coordinate"])
def test_nothing_behind_a_value_makes_the_parser_run_away(tmp_path: Path, layout: str, ending: bytes) -> None:
    """SciPy's parser crashed the process where a last line had no newline but something behind its value."""
    body = b"2 1\n1\n" if layout == "array" else b"2 1 2\n1 1 1\n2 1 "
    path = tmp_path / "a.mtx"
    path.write_bytes(f"%%MatrixMarket matrix {layout} real general\n".encode() + body + ending)
    for _ in range(30):  # it did not crash each time
        try:
            assert dense(load(path)).tolist() == [[True], [True]]
        except MatrixError as error:
            assert str(error).startswith(f"{path}:")  # noqa: PT017 - either is right: read, or refused


def test_damaged_gzip_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.mtx.gz"
    whole = gzip.compress((BANNER + "300 300 300\n" + "".join(f"{i} {i} {i}.5\n" for i in range(1, 301))).encode())
    for damaged in (b"no gzip at all", whole[:40], whole[:-9], whole[:200] + b"\xff" * 50 + whole[250:]):
        path.write_bytes(damaged)
        with pytest.raises(MatrixError, match=r"a\.mtx\.gz"):
            load(path)


def test_random_matrices_as_scipy_writes_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    cases: tuple[tuple[tuple[int, int], Literal["general", "symmetric"]], ...] = (
        ((17, 40), "general"),
        ((33, 33), "symmetric"),
    )
    for shape, symmetry in cases:
        values = sparse.random_array(shape, density=0.1, rng=rng).toarray()
        if symmetry == "symmetric":
            values = values + values.T
        path = tmp_path / "a.mtx"
        mmwrite(path, sparse.coo_array(values), symmetry=symmetry)
        np.testing.assert_array_equal(dense(load(path)), values != 0)
