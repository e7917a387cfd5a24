"""Readers of matrices and models: files -> `Mask`, one matrix at a time, with bounded memory.

Whatever is wrong with a file is a `MatrixError` that names it, and the line where there are lines.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from fitness.matrices.arrays import open_npy, open_npz
from fitness.matrices.error import MatrixError
from fitness.matrices.market import open_market
from fitness.matrices.mask import Mask, Strip
from fitness.matrices.safetensors import open_index, open_safetensors
from fitness.matrices.smtx import open_smtx
from fitness.matrices.source import Entry, Matrix, Skipped, Source
from fitness.matrices.torch_files import open_torch

__all__ = [
    "READERS",
    "Entry",
    "Mask",
    "Matrix",
    "MatrixError",
    "Skipped",
    "Source",
    "Strip",
    "matrix_files",
    "open_matrices",
]

READERS: Final[dict[str, Callable[[Path], Source]]] = {
    ".mtx": open_market,
    ".smtx": open_smtx,
    ".npz": open_npz,
    ".npy": open_npy,
    ".pt": open_torch,
    ".pth": open_torch,
    ".bin": open_torch,
    ".safetensors": open_safetensors,
    ".safetensors.index.json": open_index,
}
"""Ending of a file's name -> its reader; any of them but the index may have .gz behind it."""


def open_matrices(path: Path) -> Source:
    """The matrices of a file, none of them read yet.

    Args:
        path: a file of one of `READERS`, or a folder with a sharded or whole safetensors model.

    Raises:
        MatrixError: missing, of no known kind, or damaged.
    """
    if path.is_dir():
        return open_matrices(_model_of(path))
    ending = _ending(path)
    if not path.exists():
        raise MatrixError(path, "no such file", "check the path")
    if ending is None:
        raise MatrixError(path, "no file of a known kind", f"known: {', '.join(READERS)}, gzipped or not")
    return READERS[ending](path)


def matrix_files(folder: Path) -> list[Path]:
    """All files of a folder and its subfolders that a reader takes, sorted; of a sharded model its index only."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and _ending(path) is not None)
    sharded = {path.parent for path in files if _ending(path) == ".safetensors.index.json"}
    return [path for path in files if path.parent not in sharded or _ending(path) != ".safetensors"]


def _ending(path: Path) -> str | None:
    name = path.name.lower().removesuffix(".gz")
    return next((ending for ending in sorted(READERS, key=len, reverse=True) if name.endswith(ending)), None)


def _model_of(folder: Path) -> Path:
    for pattern in ("*.safetensors.index.json", "*.safetensors"):
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found[0]
    raise MatrixError(folder, "no safetensors model, or several, in this folder", "give the path of a file")
