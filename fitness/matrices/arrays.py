"""NumPy and SciPy files: .npy (mapped, not loaded), .npz of `scipy.sparse.save_npz`, .npz of dense arrays."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fitness.matrices.dense import dense_matrix
from fitness.matrices.error import MatrixError
from fitness.matrices.mask import Mask
from fitness.matrices.source import Entry, Matrix, Skipped, Source, check_shape
from fitness.matrices.streams import DEFLATE_RATIO, seekable, told
from fitness.matrices.tensors import as_matrix

MAX_MEMBER_BYTES: Final = 2**34
"""Of one array of an .npz, which is decompressed in memory."""

_SPARSE: Final = {
    "csr": ("indptr", "indices", "data"),
    "csc": ("indptr", "indices", "data"),
    "bsr": ("indptr", "indices", "data"),
    "coo": ("row", "col", "data"),
    "dia": ("offsets", "data"),
}
"""Arrays that each format of `scipy.sparse.save_npz` has, besides `format` and `shape`."""

_HEADER_ERRORS: Final = (
    ValueError, EOFError, SyntaxError, TypeError, KeyError, RecursionError, OverflowError, MemoryError,
    tokenize.TokenError,
)  # fmt: skip
"""What NumPy's reader of headers, which are Python literals, raises for damaged ones (found by fuzzing)."""

_Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


def open_npy(path: Path) -> Source:
    """The one dense array of a .npy file, gzipped or not.

    Raises:
        MatrixError: no array of numbers with two or more dimensions.
    """
    with seekable(path) as plain, told(path), plain.open("rb") as stream:
        shape, _, dtype = _header(path, "", stream)
    matrix, name = _checked(path, "", shape, dtype)
    return Source(path, "NumPy array", (Entry("", matrix, name, lambda: _load_npy(path, matrix, name)),))


def _load_npy(path: Path, shape: tuple[int, int], dtype: str) -> Matrix:
    with seekable(path) as plain, told(path):
        try:
            array = np.load(plain, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise MatrixError(path, f"is damaged: {error}", "write the file again") from None
        return dense_matrix(array.reshape(shape), dtype)


def open_npz(path: Path) -> Source:
    """The matrix of a `scipy.sparse.save_npz` file, or the dense arrays of a `numpy.savez` file.

    Raises:
        MatrixError: no zip file, or nothing in it is a matrix of numbers.
    """
    with seekable(path) as plain:
        headers = _headers(path, plain)
    if "format" in headers and "shape" in headers:
        return Source(path, "SciPy sparse matrix", (Entry("", None, None, lambda: _load_sparse(path)),))
    entries, skipped = [], []
    for name, (shape, _, dtype) in headers.items():
        if reason := _problem(shape, dtype):
            skipped.append(Skipped(name, reason))
            continue
        matrix, kind = _checked(path, name, shape, dtype)
        entries.append(Entry(name, matrix, kind, _member_loader(path, name, matrix, kind)))
    if not entries:
        raise MatrixError(path, f"none of its {len(skipped)} arrays is a matrix of numbers", "save matrices")
    return Source(path, "NumPy arrays", tuple(entries), tuple(skipped))


def _member_loader(path: Path, name: str, shape: tuple[int, int], dtype: str) -> Any:
    def load() -> Matrix:
        with seekable(path) as plain:
            return dense_matrix(_member(path, plain, name).reshape(shape), dtype)

    return load


def _problem(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    if dtype.kind not in "biuf" and not _is_bfloat16(dtype):
        return f"{dtype} is not a real number"
    return "" if as_matrix(shape) else f"shape {shape} is no matrix"


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None  # how NumPy saves ml_dtypes' bfloat16


def _checked(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[tuple[int, int], str]:
    """The matrix an array acts as and the name of its dtype; raises MatrixError."""
    if reason := _problem(shape, dtype):
        raise MatrixError(path, f"{name + ': ' if name else ''}{reason}", "save a matrix of real numbers")
    matrix = as_matrix(shape)
    assert matrix is not None
    check_shape(path, matrix)
    return matrix, "bfloat16" if _is_bfloat16(dtype) else dtype.newbyteorder("=").name


def _header(path: Path, name: str, stream: IO[bytes]) -> _Header:
    """Shape, order and dtype of an array; reads the header only. Objects, which need pickle, are refused."""
    where = f"{name}: " if name else ""
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except _HEADER_ERRORS as error:
        raise MatrixError(path, f"{where}no NumPy array: {error}", "write it with numpy.save") from None
    if dtype.hasobject:
        raise MatrixError(path, f"{where}holds Python objects, which may run code when read", "save numbers")
    if any(size < 0 for size in shape):
        raise MatrixError(path, f"{where}shape {shape}", "write it with numpy.save")
    return shape, fortran, dtype


# -- zip files --------------------------------------------------------------------------------------------------------


def _headers(path: Path, plain: Path) -> dict[str, _Header]:
    """Name -> header of every array; sizes are checked against what the zip can hold."""
    found: dict[str, _Header] = {}
    with told(path), _zip(path, plain) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            name = info.filename[:-4]
            with _opened_member(path, archive, info) as stream:
                shape, fortran, dtype = _header(path, name, stream)
            if math.prod(shape) * dtype.itemsize > min(info.file_size, info.compress_size * DEFLATE_RATIO):
                raise MatrixError(path, f"{name}: shape {shape} is more than the file holds", "write the file again")
            if info.file_size > MAX_MEMBER_BYTES:
                raise MatrixError(path, f"{name}: {info.file_size} bytes", "save it as .npy, which is not loaded whole")
            found[name] = (shape, fortran, dtype)
    return found


def _zip(path: Path, plain: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(plain)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise MatrixError(path, f"no zip file: {error}", "write it with scipy.sparse.save_npz") from None


def _opened_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return archive.open(info)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError) as error:
        raise MatrixError(path, f"{info.filename}: {error}", "write the file again") from None


def _member(path: Path, plain: Path, name: str) -> NDArray[Any]:
    with told(path), _zip(path, plain) as archive, _opened_member(path, archive, archive.getinfo(f"{name}.npy")) as s:
        try:
            read: NDArray[Any] = npy.read_array(s, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise MatrixError(path, f"{name}: is damaged: {error}", "write the file again") from None
    return read


def _load_sparse(path: Path) -> Matrix:
    with seekable(path) as plain:
        kind = (
            bytes(np.asarray(_member(path, plain, "format")).reshape(-1).tobytes())
            .replace(b"\0", b"")
            .decode("latin-1")
        )
        if kind not in _SPARSE:
            raise MatrixError(path, f"sparse format {kind[:20]!r}", f"known: {', '.join(_SPARSE)}")
        headers = _headers(path, plain)
        missing = [name for name in _SPARSE[kind] if name not in headers]
        if missing:
            raise MatrixError(path, f"no array {missing[0]!r}, which a {kind} matrix has", "write it again with SciPy")
        shape = _sparse_shape(path, _member(path, plain, "shape"))
        arrays = {name: _member(path, plain, name) for name in _SPARSE[kind]}
    return _sparse_matrix(path, kind, shape, arrays)


def _sparse_shape(path: Path, given: NDArray[Any]) -> tuple[int, int]:
    if given.shape != (2,) or given.dtype.kind not in "iu":
        raise MatrixError(path, "its shape is not two integers", "write it again with SciPy")
    return int(given[0]), int(given[1])


def _sparse_matrix(path: Path, kind: str, shape: tuple[int, int], arrays: Mapping[str, NDArray[Any]]) -> Matrix:
    from scipy import sparse

    data = arrays["data"]
    if data.dtype.kind not in "biuf":
        raise MatrixError(path, f"values of type {data.dtype}", "kernels here compute real numbers")
    check_shape(path, shape, int(data.size))
    if any(arrays[name].dtype.kind not in "iu" or arrays[name].ndim != 1 for name in _SPARSE[kind] if name != "data"):
        raise MatrixError(path, "indices that are no integers", "write it again with SciPy")
    made: Any
    try:
        if kind == "coo":
            made = sparse.coo_array((data, (arrays["row"], arrays["col"])), shape=shape)
        elif kind == "dia":
            made = sparse.dia_array((data, arrays["offsets"]), shape=shape)
        else:
            parts = (data, arrays["indices"], arrays["indptr"])
            made = {"csr": sparse.csr_array, "csc": sparse.csc_array, "bsr": sparse.bsr_array}[kind](parts, shape=shape)
            made.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise MatrixError(path, f"no {kind} matrix: {error}", "write it again with SciPy") from None
    entries = int(data.size)
    compressed = made.tocsr()
    compressed.sum_duplicates()
    places = compressed.nnz
    compressed.eliminate_zeros()
    mask = Mask.from_csr(shape, compressed.indptr, compressed.indices)
    duplicates = entries - places if kind in ("csr", "csc", "coo") else 0
    return Matrix(mask, data.dtype.newbyteorder("=").name, stored_zeros=places - compressed.nnz, duplicates=duplicates)
