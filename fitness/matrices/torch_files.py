"""PyTorch checkpoints (.pt, .pth, .bin): weights only, so that no code of the file runs. Needs the extra `torch`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from fitness.matrices.dense import dense_matrix
from fitness.matrices.error import MatrixError
from fitness.matrices.mask import Mask, Shape
from fitness.matrices.source import Entry, Matrix, Skipped, Source
from fitness.matrices.streams import seekable
from fitness.matrices.tensors import as_matrix, why_not

_DTYPES: Final = {"float8_e4m3fn": "float8_e4m3"}
_NARROW: Final = {1: "uint8", 2: "int16"}  # how a tensor NumPy has no type for is handed over: bits and all
_DEEPEST: Final = 8


def open_torch(path: Path) -> Source:
    """The matrices of a checkpoint: a tensor, or tables and lists of tensors, nested up to 8 deep.

    Raises:
        MatrixError: PyTorch is not installed, or the file holds more than weights, or is damaged.
    """
    entries: list[Entry] = []
    skipped: list[Skipped] = []
    for name, tensor in _named(_loaded(path), "", 0):
        dtype = _dtype(tensor)
        if reason := why_not(tensor.shape, dtype):
            skipped.append(Skipped(name, reason))
            continue
        shape = as_matrix(tensor.shape)
        assert shape is not None
        entries.append(Entry(name, shape, dtype, _loader(path, name, shape)))
    if not entries:
        raise MatrixError(path, f"none of its {len(skipped)} tensors is a matrix of weights", "save a state_dict")
    return Source(path, "PyTorch checkpoint", tuple(entries), tuple(skipped))


def _loaded(path: Path) -> Any:
    if importlib.util.find_spec("torch") is None:
        raise MatrixError(
            path, "reading it needs PyTorch", "pip install 'evo-kernels[torch]', or save it as .safetensors"
        )
    import torch

    with seekable(path) as plain:
        if not plain.is_file():
            raise MatrixError(path, "no such file", "check the path")
        try:
            # mapped: only what is looked at is read; files of before 1.6 are no zip and are read whole
            return torch.load(plain, map_location="cpu", weights_only=True, mmap=plain == path and _is_zip(plain))
        except Exception as error:  # noqa: BLE001 - whatever a damaged file makes the unpickler raise, it is this file's
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise MatrixError(
                path, f"no checkpoint of weights alone: {first[:160]}", "save model.state_dict()"
            ) from None


def _is_zip(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"PK\x03\x04"


def _named(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every tensor of nested tables and lists, with its dotted name."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth < _DEEPEST and isinstance(value, Mapping):
        for key, part in value.items():
            yield from _named(part, f"{name}.{key}" if name else str(key), depth + 1)
    elif depth < _DEEPEST and isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from _named(part, f"{name}.{i}" if name else str(i), depth + 1)


def _dtype(tensor: Any) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return _DTYPES.get(name, name)


def _loader(path: Path, name: str, shape: Shape) -> Any:
    def load() -> Matrix:
        tensor = dict(_named(_loaded(path), "", 0))[name].detach()
        if str(tensor.layout) != "torch.strided":
            return _sparse(path, tensor, shape)
        tensor = tensor.reshape(shape)
        try:
            return dense_matrix(tensor.numpy(), _dtype(tensor))
        except TypeError:  # a type NumPy does not have
            return dense_matrix(_narrow(tensor), _dtype(tensor))

    return load


def _narrow(tensor: Any) -> Any:
    """bfloat16 and float8 as NumPy arrays of the same bits."""
    import ml_dtypes
    import torch

    types = {
        "bfloat16": ml_dtypes.bfloat16,
        "float8_e4m3": ml_dtypes.float8_e4m3fn,
        "float8_e5m2": ml_dtypes.float8_e5m2,
    }
    bits = tensor.view(getattr(torch, _NARROW[tensor.element_size()])).numpy()
    return bits.view(np.dtype(types[_dtype(tensor)]))


def _sparse(path: Path, tensor: Any, shape: Shape) -> Matrix:
    from scipy.sparse import coo_array

    if tensor.dim() != 2:
        raise MatrixError(path, "a sparse tensor of more than two dimensions", "save it as a matrix")
    coordinates = tensor.to_sparse_coo().coalesce()
    row, column = coordinates.indices().numpy()
    values = coordinates.values().float().numpy()
    compressed = coo_array((values, (row, column)), shape=shape).tocsr()
    places = compressed.nnz
    compressed.eliminate_zeros()
    mask = Mask.from_csr(shape, compressed.indptr, compressed.indices)
    return Matrix(mask, _dtype(tensor), stored_zeros=places - compressed.nnz)
