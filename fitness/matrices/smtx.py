"""The .smtx files of the Deep Learning Matrix Collection (Gale et al. 2020): a CSR pattern as three lines of text.

The first: "rows, columns, nonzeros"; the second: rows + 1 starts; the third: the columns. Lines that begin with %
may stand before them.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from fitness.matrices.error import MatrixError
from fitness.matrices.mask import Mask
from fitness.matrices.source import Entry, Matrix, Source, check_shape
from fitness.matrices.streams import most_bytes, opened

_CHUNK_BYTES: Final = 1 << 24
_HEADER_LINE_BYTES: Final = 1 << 16


def open_smtx(path: Path) -> Source:
    """The one pattern of a .smtx file, gzipped or not.

    Raises:
        MatrixError: the first line has no sizes, or impossible ones.
    """
    with opened(path) as stream:
        (rows, columns, _), _ = _sizes(path, stream)
    return Source(path, "smtx", (Entry("", (rows, columns), "pattern", lambda: _load(path)),))


def _sizes(path: Path, stream: IO[bytes]) -> tuple[tuple[int, int, int], int]:
    """Rows, columns and nonzeros, and the line they stand in."""
    line = 1
    while (raw := stream.readline(_HEADER_LINE_BYTES)).startswith(b"%"):
        line += 1
    text = raw.decode("latin-1").replace(",", " ")
    found = re.fullmatch(r"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s*", text)
    if not found:
        raise MatrixError(path, "no sizes", "it must read: rows, columns, nonzeros", line)
    rows, columns, nnz = (int(number) for number in found.groups())
    check_shape(path, (rows, columns), nnz, line)
    if 2 * (nnz + rows + 1) > most_bytes(path):
        raise MatrixError(path, f"{rows} rows and {nnz} nonzeros are announced, more than the file can hold", line=line)
    return (rows, columns, nnz), line


def _load(path: Path) -> Matrix:
    with opened(path) as stream:
        (rows, columns, nnz), line = _sizes(path, stream)
        starts = _integers(path, stream, line + 1, rows + 1, "starts of rows")
        indices = _integers(path, stream, line + 2, nnz, "columns")
        if stream.read(1 << 16).strip():
            raise MatrixError(path, "more than sizes, starts and columns", "a pattern ends with its columns", line + 3)
    if starts[0] != 0 or starts[-1] != nnz or (np.diff(starts) < 0).any():
        raise MatrixError(path, f"the starts of rows do not rise from 0 to {nnz}", "correct that line", line + 1)
    if nnz and (indices.min() < 0 or indices.max() >= columns):
        worst = int(indices[(indices < 0) | (indices >= columns)][0])
        raise MatrixError(path, f"column {worst} of a matrix of {columns} columns", "columns count from 0", line + 2)
    return _matrix((rows, columns), starts, indices.astype(np.int32))


def _matrix(shape: tuple[int, int], starts: NDArray[np.int64], indices: NDArray[np.int32]) -> Matrix:
    from scipy.sparse import csr_array

    ones = np.ones(len(indices), np.bool_)
    compressed = csr_array((ones, indices, starts), shape=shape)
    compressed.sum_duplicates()
    mask = Mask.from_csr(shape, compressed.indptr, compressed.indices)
    return Matrix(mask, "pattern", duplicates=len(ones) - compressed.nnz)


def _integers(path: Path, stream: IO[bytes], line: int, count: int, what: str) -> NDArray[np.int64]:
    """The integers of the next line, read in chunks."""
    parts: list[NDArray[np.int64]] = []
    rest, found, ended = b"", 0, False
    while not ended:
        raw = stream.readline(_CHUNK_BYTES)
        ended = not raw or raw.endswith(b"\n")
        text = rest + raw
        if not ended:  # the last word may go on in the next chunk
            cut = max(text.rfind(b" "), text.rfind(b"\t"), text.rfind(b",")) + 1
            text, rest = text[:cut], text[cut:]
            if len(rest) > 64:
                raise MatrixError(path, f"a word of more than {len(rest)} bytes among the {what}", line=line)
        parts.append(_parsed(path, text, line, what))
        found += len(parts[-1])
        if found > count:
            break
    if found != count:
        kind = "more than" if found > count else "only"
        number = count if found > count else found
        raise MatrixError(
            path, f"{kind} {number} {what}, announced were {count}", "correct the sizes or this line", line
        )
    return np.concatenate(parts)


def _parsed(path: Path, text: bytes, line: int, what: str) -> NDArray[np.int64]:
    if not text.strip():
        return np.empty(0, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how NumPy says that it stopped at a word
        try:
            return np.fromstring(text.replace(b",", b" ").decode("ascii"), np.int64, sep=" ")
        except (DeprecationWarning, ValueError):
            words = text.replace(b",", b" ").split()
            bad = next((word for word in words if not re.fullmatch(rb"[+-]?\d{1,18}", word)), words[0])
            shown = bad[:40].decode("latin-1")
            raise MatrixError(path, f"{shown!r} among the {what} is no integer", "correct that line", line) from None
