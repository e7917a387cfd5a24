"""Matrix Market files (NIST, https://math.nist.gov/MatrixMarket/formats.html): coordinate and array, real fields.

The header is read here, so that what cannot be used is refused before memory is spent; the body by SciPy's reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NoReturn, cast

import numpy as np

from fitness.matrices.dense import dense_matrix
from fitness.matrices.error import MatrixError
from fitness.matrices.mask import Mask
from fitness.matrices.source import Entry, Matrix, Source, check_shape
from fitness.matrices.streams import most_bytes, opened

FIELDS: Final = ("real", "double", "integer", "unsigned-integer", "pattern")
SYMMETRIES: Final = ("general", "symmetric", "skew-symmetric")
_LONGEST_LINE: Final = 1 << 16  # of banner, comments and sizes
_DTYPES: Final = {"integer": "int64", "unsigned-integer": "uint64", "pattern": "pattern"}


@dataclass(frozen=True)
class Header:
    """Banner and sizes of a file.

    Attributes:
        layout: "coordinate" or "array"; field, symmetry: as in the banner.
        sizes: rows, columns and, of coordinates, entries; line: where they stand, 1-based.
    """

    layout: str
    field: str
    symmetry: str
    sizes: tuple[int, ...]
    line: int


def open_market(path: Path) -> Source:
    """The one matrix of a .mtx file, gzipped or not.

    Raises:
        MatrixError: no Matrix Market file, or complex, hermitian or impossible sizes; naming the line.
    """
    with opened(path) as stream:
        header = _header(path, stream)
    _check(path, header)
    shape = (header.sizes[0], header.sizes[1])
    entry = Entry("", shape, _DTYPES.get(header.field, "float64"), lambda: _load(path, header))
    return Source(path, "Matrix Market", (entry,))


def _header(path: Path, stream: IO[bytes]) -> Header:
    banner = _line(path, stream, 1).split()
    if not banner or banner[0].lower() not in ("%%matrixmarket", "%matrixmarket"):
        raise MatrixError(
            path,
            "no Matrix Market banner",
            "the first line must read: %%MatrixMarket matrix coordinate real general",
            1,
        )
    words = [word.lower() for word in banner[1:5]]
    kinds = (
        ("object", ("matrix",)),
        ("format", ("coordinate", "array")),
        ("field", (*FIELDS, "complex")),
        ("symmetry", (*SYMMETRIES, "hermitian")),
    )
    for i, (what, known) in enumerate(kinds):
        if i >= len(words):
            raise MatrixError(path, f"the banner lacks the {what}", f"known: {', '.join(known)}", 1)
        if words[i] not in known:
            raise MatrixError(path, f"{what} {words[i][:40]!r} in the banner", f"known: {', '.join(known)}", 1)
    layout, field, symmetry = words[1:]
    if field == "complex" or symmetry == "hermitian":
        raise MatrixError(path, f"a {'complex' if field == 'complex' else symmetry} matrix", _REAL_ONLY, 1)
    line = 2
    while not (text := _line(path, stream, line)).strip() or text.startswith("%"):
        line += 1
    return Header(layout, field, symmetry, _sizes(path, text, line, layout), line)


_REAL_ONLY: Final = "kernels here compute real numbers: give the real part, or its absolute values"


def _line(path: Path, stream: IO[bytes], number: int) -> str:
    raw = stream.readline(_LONGEST_LINE + 1)
    if not raw:
        raise MatrixError(path, "the file ends before its sizes", "the header is cut off", number)
    if len(raw) > _LONGEST_LINE:
        raise MatrixError(path, f"a line of more than {_LONGEST_LINE} bytes", "is this a text file?", number)
    return raw.decode("latin-1")


def _sizes(path: Path, text: str, line: int, layout: str) -> tuple[int, ...]:
    words = text.split()
    wanted = ("rows", "columns", "entries") if layout == "coordinate" else ("rows", "columns")
    if len(words) != len(wanted) or not all(re.fullmatch(r"\+?\d{1,18}", word) for word in words):
        raise MatrixError(
            path, f"{text.strip()[:60]!r} are no sizes", f"an {layout} file needs {', '.join(wanted)}", line
        )
    return tuple(int(word) for word in words)


def _check(path: Path, header: Header) -> None:
    rows, columns = header.sizes[:2]
    entries = header.sizes[2] if header.layout == "coordinate" else rows * columns
    if header.symmetry != "general" and rows != columns:
        raise MatrixError(path, f"a {header.symmetry} matrix of {rows} x {columns} is not square", line=header.line)
    if header.layout == "array" and header.field == "pattern":
        raise MatrixError(path, "an array has values, so its field is not pattern", "write real", 1)
    check_shape(path, (rows, columns), entries, header.line)
    shortest = 2 if header.layout == "array" else 4 if header.field == "pattern" else 6  # "1\n", "1 1\n", "1 1 1\n"
    written = entries if header.symmetry == "general" or header.layout == "coordinate" else entries // 2 - rows
    if written * shortest > most_bytes(path) + shortest:
        raise MatrixError(path, f"{entries} entries are announced, more than the file can hold", "", header.line)


class _Lines:
    """A file as SciPy's parser can take it: every line ends, and none holds a NUL.

    It looks for the end of a line as C strings do: where a value is followed by anything but a newline at the end of
    the file, or by a NUL, it reads beyond its buffer (found by fuzzing SciPy 1.17).
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._ended = stream, False

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; a newline once after the last."""
        chunk = self._stream.read(size)
        if chunk:
            return chunk.replace(b"\0", b"\1")
        ended, self._ended = self._ended, True
        return b"" if ended else b"\n"


def _load(path: Path, header: Header) -> Matrix:
    from scipy.io import mmread

    try:
        with opened(path) as stream:
            read: Any = mmread(cast(IO[bytes], _Lines(stream)), spmatrix=False)
    except (ValueError, OverflowError, MemoryError, TypeError) as error:
        _refuse(path, error)
    dtype = _DTYPES.get(header.field, "float64")
    if isinstance(read, np.ndarray):
        return dense_matrix(read, dtype)
    entries = read.nnz
    compressed = read.tocsr()
    del read  # 16 bytes a nonzero
    compressed.sum_duplicates()
    places = compressed.nnz
    compressed.eliminate_zeros()
    mask = Mask.from_csr(compressed.shape, compressed.indptr, compressed.indices)
    return Matrix(mask, dtype, stored_zeros=places - compressed.nnz, duplicates=entries - places)


def _refuse(path: Path, error: Exception) -> NoReturn:
    """SciPy's "Line 5: Row index out of bounds", as ours; a file cut short gets its last line."""
    text = str(error) or type(error).__name__
    if found := re.match(r"Line (\d+): (.*)", text, re.DOTALL):
        raise MatrixError(path, found[2].rstrip("."), "correct that line", int(found[1])) from None
    if text.startswith("Truncated"):
        with opened(path) as stream:
            last = sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
        raise MatrixError(path, text.rstrip("."), "the file is cut off", last) from None
    raise MatrixError(path, text.rstrip(".")) from None
