"""safetensors models, one file or sharded: the header is read, then one tensor at a time is mapped into memory.

The format (8 bytes of header length, JSON, raw data) is read here and not by the safetensors package, whose NumPy
side refuses bfloat16 and float8, the types most models are in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np

from fitness.matrices.dense import dense_matrix
from fitness.matrices.error import MatrixError
from fitness.matrices.mask import Shape
from fitness.matrices.source import Entry, Matrix, Skipped, Source
from fitness.matrices.streams import seekable, told
from fitness.matrices.tensors import as_matrix, why_not

MAX_HEADER_BYTES: Final = 100_000_000
"""As the format's own reader."""

DTYPES: Final[Mapping[str, tuple[str, np.dtype[Any]]]] = {
    "F64": ("float64", np.dtype(np.float64)),
    "F32": ("float32", np.dtype(np.float32)),
    "F16": ("float16", np.dtype(np.float16)),
    "BF16": ("bfloat16", np.dtype(ml_dtypes.bfloat16)),
    "F8_E4M3": ("float8_e4m3", np.dtype(ml_dtypes.float8_e4m3fn)),
    "F8_E5M2": ("float8_e5m2", np.dtype(ml_dtypes.float8_e5m2)),
    "I64": ("int64", np.dtype(np.int64)),
    "I32": ("int32", np.dtype(np.int32)),
    "I16": ("int16", np.dtype(np.int16)),
    "I8": ("int8", np.dtype(np.int8)),
    "U64": ("uint64", np.dtype(np.uint64)),
    "U32": ("uint32", np.dtype(np.uint32)),
    "U16": ("uint16", np.dtype(np.uint16)),
    "U8": ("uint8", np.dtype(np.uint8)),
    "BOOL": ("bool", np.dtype(np.bool_)),
}
"""The format's name of a dtype -> ours and NumPy's."""

_INDEX_FIX: Final = "fetch the file again"


@dataclass(frozen=True)
class _Tensor:
    """Where a tensor lies in its file, offset in bytes from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


def open_safetensors(path: Path) -> Source:
    """The matrices of one .safetensors file, gzipped or not.

    Raises:
        MatrixError: no safetensors file, or damaged.
    """
    entries, skipped = _entries(path)
    return Source(path, "safetensors", tuple(entries), tuple(skipped))


def open_index(path: Path) -> Source:
    """The matrices of a sharded model by its `model.safetensors.index.json`.

    Raises:
        MatrixError: no index, or a shard is missing or damaged.
    """
    with told(path):
        text = path.read_bytes()
    try:
        shards = json.loads(text)["weight_map"]
        wanted = {str(name): str(shard) for name, shard in shards.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MatrixError(path, 'no index of a sharded model: it has no "weight_map" of names', _INDEX_FIX) from None
    entries: list[Entry] = []
    skipped: list[Skipped] = []
    for shard in dict.fromkeys(wanted.values()):
        file = path.parent / shard
        if Path(shard).name != shard or not file.is_file():
            raise MatrixError(path, f"the shard {shard!r} is not in its folder", "fetch all shards")
        found, other = _entries(file)
        names = {name for name, place in wanted.items() if place == shard}
        if absent := names - {entry.name for entry in found} - {item.name for item in other}:
            raise MatrixError(file, f"the tensor {min(absent)!r} is not in it, though {path.name} says so", _INDEX_FIX)
        entries += [entry for entry in found if entry.name in names]
        skipped += [item for item in other if item.name in names]
    return Source(path, "sharded safetensors", tuple(entries), tuple(skipped))


def _entries(path: Path) -> tuple[list[Entry], list[Skipped]]:
    entries: list[Entry] = []
    skipped: list[Skipped] = []
    for tensor in _tensors(path):
        name, _ = DTYPES.get(tensor.dtype, (tensor.dtype, None))
        if reason := why_not(tensor.shape, name):
            skipped.append(Skipped(tensor.name, reason))
            continue
        shape = as_matrix(tensor.shape)
        assert shape is not None
        entries.append(Entry(tensor.name, shape, name, _loader(path, tensor, shape)))
    return entries, skipped


def _loader(path: Path, tensor: _Tensor, shape: Shape) -> Any:
    name, dtype = DTYPES[tensor.dtype]

    def load() -> Matrix:
        with seekable(path) as plain, told(path):
            raw = np.memmap(plain, np.uint8, "r", tensor.offset, (shape[0] * shape[1] * dtype.itemsize,))
            return dense_matrix(raw.view(dtype).reshape(shape), name)

    return load


def _tensors(path: Path) -> list[_Tensor]:
    """All tensors of a file, in the order of their data; raises MatrixError."""
    with seekable(path) as plain, told(path), plain.open("rb") as stream:
        size = plain.stat().st_size
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
            raise MatrixError(path, f"no safetensors file: a header of {length} bytes is announced", _INDEX_FIX)
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        if not isinstance(header, dict):
            raise TypeError("not a table")
    except (ValueError, TypeError, RecursionError) as error:
        raise MatrixError(path, f"its header is no JSON table: {error}", _INDEX_FIX) from None
    header.pop("__metadata__", None)
    return sorted(
        (_tensor(path, name, about, 8 + length, size) for name, about in header.items()), key=lambda t: t.offset
    )


def _tensor(path: Path, name: str, about: Any, start: int, size: int) -> _Tensor:
    try:
        dtype, shape = str(about["dtype"]), tuple(about["shape"])
        first, last = about["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, first, last))
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise MatrixError(path, f"tensor {name[:80]!r} lacks dtype, shape or offsets", _INDEX_FIX)
    known = DTYPES.get(dtype)
    if start + last > size or first > last:
        raise MatrixError(path, f"tensor {name[:80]!r} ends after the file", "the file is cut off: " + _INDEX_FIX)
    if known and math.prod(shape) * known[1].itemsize != last - first:
        raise MatrixError(path, f"tensor {name[:80]!r} of shape {shape} has {last - first} bytes", _INDEX_FIX)
    return _Tensor(name, dtype, shape, start + first)
