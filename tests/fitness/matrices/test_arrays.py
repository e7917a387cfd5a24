"""NumPy and SciPy files; nothing is unpickled, nothing is believed about sizes."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import sparse

from fitness.matrices import Matrix, MatrixError, open_matrices
from fitness.matrices.dense import nonzero


def load(path: Path, name: str = "") -> Matrix:
    return next(entry for entry in open_matrices(path).entries if entry.name == name).load()


def dense(matrix: Matrix) -> Any:
    rows, columns = matrix.mask.shape
    return matrix.mask.window(slice(0, rows), slice(0, columns))


def values(density: float = 0.1, shape: tuple[int, int] = (130, 70)) -> Any:
    rng = np.random.default_rng(2)
    return np.where(rng.random(shape) < density, rng.standard_normal(shape), 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.bool_, ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_every_type(tmp_path: Path, dtype: Any, order: str) -> None:
    array = np.asarray(values() * 5, order=order).astype(dtype)  # type: ignore[call-overload]
    path = tmp_path / "a.npy"
    np.save(path, array)
    matrix = load(path)
    np.testing.assert_array_equal(dense(matrix), array.astype(np.float64) != 0)
    assert matrix.dtype == ("bfloat16" if dtype is ml_dtypes.bfloat16 else np.dtype(dtype).newbyteorder("=").name)
    assert matrix.stored_zeros == array.size - matrix.mask.nnz
    zipped = tmp_path / "a.npy.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert load(zipped).mask.nnz == matrix.mask.nnz


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float32]
)
def test_minus_zero_is_zero_and_nan_is_not(dtype: Any) -> None:
    array = np.array([0.0, -0.0, np.nan, 1.0, -2.0]).astype(dtype)
    assert nonzero(array).tolist() == [False, False, True, True, True]


def test_integers_are_not_compared_without_their_top_bit() -> None:
    assert nonzero(np.array([-128, 0, 1], np.int8)).tolist() == [True, False, True]
    assert nonzero(np.array([32768, 0], np.uint16)).tolist() == [True, False]


def test_convolutions_and_experts_become_matrices(tmp_path: Path) -> None:
    for shape, expected in (((8, 3, 5, 5), (8, 75)), ((4, 6, 32), (24, 32)), ((6, 4, 3), (6, 12))):
        np.save(tmp_path / "a.npy", np.ones(shape, np.float32))
        assert load(tmp_path / "a.npy").mask.shape == expected


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo", "dia"])
@pytest.mark.parametrize("compressed", [False, True])
def test_scipy_files(tmp_path: Path, kind: Any, compressed: bool) -> None:
    array = values()
    path = tmp_path / "a.npz"
    sparse.save_npz(path, sparse.coo_array(array).asformat(kind), compressed=compressed)
    matrix = load(path)
    np.testing.assert_array_equal(dense(matrix), array != 0)
    assert matrix.dtype == "float64"


def test_scipy_duplicates_and_zeros(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    made = sparse.coo_array((np.array([1.0, 2, 3, -3]), (np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))), shape=(2, 2))
    sparse.save_npz(path, made)
    matrix = load(path)
    assert dense(matrix).tolist() == [[False, True], [False, False]]
    assert (matrix.duplicates, matrix.stored_zeros) == (2, 1)


def test_dense_arrays_of_an_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, w=values(), bias=np.ones(7), text=np.array("x"))
    source = open_matrices(path)
    assert [entry.name for entry in source.entries] == ["w"]
    assert {item.name for item in source.skipped} == {"bias", "text"}
    np.testing.assert_array_equal(dense(load(path, "w")), values() != 0)


def load_all(path: Path) -> None:
    for entry in open_matrices(path).entries:
        entry.load()


def refused(path: Path) -> str:
    with pytest.raises(MatrixError) as caught:
        load_all(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_objects_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path(tmp_path / "ran").write_text, ("code ran",))

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": (2, 2)})
    content = header.getvalue() + pickle.dumps(Evil())
    (tmp_path / "a.npy").write_bytes(content)
    assert "may run code" in refused(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("w.npy", content)
    assert "may run code" in refused(tmp_path / "a.npz")
    assert not (tmp_path / "ran").exists()


def header_of(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def test_sizes_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(header_of((1_000_000, 1_000_000)) + b"\0" * 80)
    assert "is damaged" in refused(path)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", header_of((100_000, 100_000)) + b"\0" * 80)
    assert "more than the file holds" in refused(tmp_path / "a.npz")


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, values())
    whole = path.read_bytes()
    for content in (b"", b"\x93NUMPY", whole[:100], whole[:-8], b"x" * 200, whole.replace(b"fortran", b"fortram")):
        path.write_bytes(content)
        refused(path)
    path = tmp_path / "a.npz"
    sparse.save_npz(path, sparse.csr_array(values()))
    whole = path.read_bytes()
    for content in (b"", b"PK", whole[:100], whole[:-30], whole[:60] + b"\0" * 40 + whole[100:]):
        path.write_bytes(content)
        refused(path)


def test_broken_indices(tmp_path: Path) -> None:
    good = sparse.csr_array(values())
    path = tmp_path / "a.npz"
    for name, change in (
        ("indices", lambda a: a + 1000),
        ("indices", lambda a: a.astype(float)),
        ("indptr", lambda a: a[::-1]),
        ("indptr", lambda a: a[:3]),
        ("data", lambda a: a + 1j),
        ("shape", lambda _: np.array([10**12, 3])),
        ("shape", lambda _: np.array([3])),
        ("format", lambda _: np.array(b"lil")),
    ):
        arrays: dict[str, Any] = {
            "indices": good.indices,
            "indptr": good.indptr,
            "data": good.data,
            "shape": np.array(good.shape),
        }
        arrays["format"] = np.array(b"csr")
        arrays[name] = change(arrays[name])
        np.savez(path, **arrays)
        refused(path)
    del arrays["data"]
    arrays["format"] = np.array(b"csr")
    np.savez(path, **arrays)
    assert "no array 'data'" in refused(path)


def test_no_matrix(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    assert "is no matrix" in refused(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.ones((3, 3), complex))
    assert "is not a real number" in refused(tmp_path / "b.npy")
    np.savez(tmp_path / "c.npz", bias=np.ones(3))
    assert "none of its 1 arrays" in refused(tmp_path / "c.npz")
