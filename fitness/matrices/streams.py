"""Opening files, gzipped or not, with damage told as a MatrixError."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, cast

from fitness.matrices.error import MatrixError

DEFLATE_RATIO: Final = 1032
"""Deflate makes at most so many bytes of one (RFC 1951: 258 bytes for two bits)."""


def is_gzipped(path: Path) -> bool:
    """True for a name that ends in .gz."""
    return path.suffix.lower() == ".gz"


def most_bytes(path: Path) -> int:
    """Upper bound of the file's size once decompressed."""
    return path.stat().st_size * (DEFLATE_RATIO if is_gzipped(path) else 1)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed bytes.

    Raises:
        MatrixError: missing, unreadable, or damaged where it is read.
    """
    with told(path), gzip.open(path, "rb") if is_gzipped(path) else path.open("rb") as stream:
        yield cast(IO[bytes], stream)


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Errors of the file system, of gzip and of zip become MatrixErrors that name the file."""
    try:
        yield
    except FileNotFoundError:
        raise MatrixError(path, "no such file", "check the path") from None
    except IsADirectoryError:
        raise MatrixError(path, "is a folder", "give the path of a file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error, zipfile.BadZipFile, struct.error) as error:
        raise MatrixError(path, f"is damaged: {error}", "fetch the file again") from None
    except OSError as error:
        raise MatrixError(path, f"cannot be read ({error.strerror or error})") from None


@contextlib.contextmanager
def seekable(path: Path) -> Iterator[Path]:
    """The file itself, or its decompressed copy in a temporary folder, for formats that are read out of order."""
    if not is_gzipped(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="evo-") as folder:
        plain = Path(folder) / path.stem
        with opened(path) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        yield plain
