"""SpMM of cuSPARSE (generic API) in its formats and by each of its algorithms, accumulating in float32.

PyTorch calls the same library, but lets the user choose neither format nor algorithm. Enumerators are those of
cusparse.h and library_types.h of CUDA 12 and 13.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from fitness.baselines import Given, NotApplicableError, Routine, Run
from fitness.task import Task

_DATA_TYPES: Final = {"float32": 0, "float16": 2, "bfloat16": 14}
_FLOAT32: Final = 0
_INT32_INDEX: Final = 2
_COLUMN_MAJOR: Final = 1
_ROW_MAJOR: Final = 2
_ZERO_BASED: Final = 0
_AS_IT_IS: Final = 0  # not transposed

CSR_ALGORITHMS: Final = {1: 4, 2: 6, 3: 12}
COO_ALGORITHMS: Final = {1: 1, 2: 2, 3: 3, 4: 5}
_BLOCKED_ELL: Final = 13
_BSR: Final = 14


class CusparseError(RuntimeError):
    """A call of the library failed; the message has its name and status."""


@cache
def _library() -> ctypes.CDLL:
    """The library that PyTorch has loaded."""
    import torch  # noqa: F401 -- loads it

    for name in ("libcusparse.so.12", "libcusparse.so.13", "libcusparse.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotApplicableError("libcusparse is not there; it comes with the CUDA builds of PyTorch")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), name)(*arguments)
    if status != 0:
        raise CusparseError(f"{name}: status {status}")


def _size(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


def _pointer(tensor: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


@cache
def _handle(stream: int) -> ctypes.c_void_p:
    """One handle a stream; kept as long as the process lives."""
    handle = ctypes.c_void_p()
    _call("cusparseCreate", ctypes.byref(handle))
    _call("cusparseSetStream", handle, ctypes.c_void_p(stream))
    return handle


def _dense(tensor: Any, rows: int, columns: int, layout: str, kind: int) -> ctypes.c_void_p:
    """A (rows, columns) matrix; "col" keeps its columns together."""
    descriptor = ctypes.c_void_p()
    leading, order = (rows, _COLUMN_MAJOR) if layout == "col" else (columns, _ROW_MAJOR)
    sizes = (_size(rows), _size(columns), _size(leading))
    _call("cusparseCreateDnMat", ctypes.byref(descriptor), *sizes, _pointer(tensor), kind, order)
    return descriptor


Sparse = tuple[ctypes.c_void_p, list[Any]]
"""A descriptor and the tensors it points into."""


def _csr(w: Any, kind: int) -> Sparse:
    import torch

    sparse, descriptor = w.to_sparse_csr(), ctypes.c_void_p()
    held = [sparse.crow_indices().to(torch.int32), sparse.col_indices().to(torch.int32), sparse.values()]
    sizes = (_size(w.shape[0]), _size(w.shape[1]), _size(held[2].numel()))
    kinds = (_INT32_INDEX, _INT32_INDEX, _ZERO_BASED, kind)
    _call("cusparseCreateCsr", ctypes.byref(descriptor), *sizes, *map(_pointer, held), *kinds)
    return descriptor, held


def _coo(w: Any, kind: int) -> Sparse:
    import torch

    sparse, descriptor = w.to_sparse_coo().coalesce(), ctypes.c_void_p()  # sorted by row, as the algorithms ask
    rows, columns = sparse.indices().to(torch.int32)
    held = [rows.contiguous(), columns.contiguous(), sparse.values()]
    sizes = (_size(w.shape[0]), _size(w.shape[1]), _size(held[2].numel()))
    kinds = (_INT32_INDEX, _ZERO_BASED, kind)
    _call("cusparseCreateCoo", ctypes.byref(descriptor), *sizes, *map(_pointer, held), *kinds)
    return descriptor, held


def _block(task: Task, w: Any) -> int:
    """Edge of the square blocks of a block pattern."""
    pattern = dict(task.pattern or {})
    if pattern.get("kind") != "block":
        raise NotApplicableError("it takes block patterns only")
    rows, columns = pattern["shape"]
    if rows != columns:
        raise NotApplicableError("it takes square blocks only")
    if w.shape[0] % rows or w.shape[1] % rows:
        raise NotApplicableError(f"M and K are no multiples of the block's {rows}")
    return int(rows)


def _bsr(w: Any, kind: int, block: int) -> Sparse:
    import torch

    sparse, descriptor = w.to_sparse_bsr((block, block)), ctypes.c_void_p()
    held = [sparse.crow_indices().to(torch.int32), sparse.col_indices().to(torch.int32), sparse.values().contiguous()]
    sizes = (
        _size(w.shape[0] // block),
        _size(w.shape[1] // block),
        _size(held[2].shape[0]),
        _size(block),
        _size(block),
    )
    kinds = (_INT32_INDEX, _INT32_INDEX, _ZERO_BASED, kind, _ROW_MAJOR)
    _call("cusparseCreateBsr", ctypes.byref(descriptor), *sizes, *map(_pointer, held), *kinds)
    return descriptor, held


def blocked_ell(w: Any, block: int) -> tuple[Any, Any]:
    """Blocked-ELL of a dense matrix: (M / block, width) int32 block columns, -1 for padding, and the values.

    Values are (M, width * block), the blocks of a block row side by side, zeros where a row has fewer.
    """
    import torch

    rows, columns = w.shape[0] // block, w.shape[1] // block
    blocks = w.reshape(rows, block, columns, block).permute(0, 2, 1, 3)  # block row, block column, i, j
    used = blocks.ne(0).flatten(2).any(2)
    width = max(1, int(used.sum(1).max()))
    order = torch.argsort((~used).to(torch.int8), dim=1, stable=True)[:, :width]
    there = torch.gather(used, 1, order)
    chosen = torch.gather(blocks, 1, order[:, :, None, None].expand(-1, -1, block, block))
    values = torch.where(there[:, :, None, None], chosen, torch.zeros_like(chosen))
    indices = torch.where(there, order, torch.full_like(order, -1)).to(torch.int32)
    return indices.contiguous(), values.permute(0, 2, 1, 3).reshape(w.shape[0], width * block).contiguous()


def _blocked_ell(w: Any, kind: int, block: int) -> Sparse:
    descriptor = ctypes.c_void_p()
    indices, values = blocked_ell(w, block)
    sizes = (_size(w.shape[0]), _size(w.shape[1]), _size(block), _size(values.shape[1]))
    kinds = (_INT32_INDEX, _ZERO_BASED, kind)
    _call("cusparseCreateBlockedEll", ctypes.byref(descriptor), *sizes, _pointer(indices), _pointer(values), *kinds)
    return descriptor, [indices, values]


def _refuse(task: Task) -> int:
    """The data type's number; refuses what a bare product does not compute."""
    if task.epilogue:
        raise NotApplicableError("it computes no epilogue")
    if task.dtype != task.out_dtype or task.dtype not in _DATA_TYPES:
        raise NotApplicableError(f"it gives no {task.out_dtype} of {task.dtype}")
    return _DATA_TYPES[task.dtype]


def _product(sparse: Sparse, given: Given, algorithm: int) -> Run:
    import torch

    w, x, task = given.w, given.x, given.task
    kind, (m, k) = _DATA_TYPES[task.dtype], w.shape
    n = x.shape[0] if task.x_layout == "col" else x.shape[1]
    y = torch.empty((n, m) if task.y_layout == "col" else (m, n), dtype=w.dtype, device=w.device)
    handle = _handle(torch.cuda.current_stream().cuda_stream)
    operands = (sparse[0], _dense(x, k, n, task.x_layout, kind), _dense(y, m, n, task.y_layout, kind))
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    scaled = (ctypes.byref(one), operands[0], operands[1], ctypes.byref(zero), operands[2])
    called = (handle, _AS_IT_IS, _AS_IT_IS, *scaled, _FLOAT32, algorithm)
    needed = ctypes.c_size_t()
    _call("cusparseSpMM_bufferSize", *called, ctypes.byref(needed))
    scratch = torch.empty(max(1, needed.value), dtype=torch.uint8, device=w.device)
    _call("cusparseSpMM_preprocess", *called, _pointer(scratch))

    def enqueue(held: Any = (sparse, x, one, zero)) -> Any:
        del held  # what the descriptors point into lives as long as this
        _call("cusparseSpMM", *called, _pointer(scratch))
        return y

    return enqueue


def csr(algorithm: int) -> Routine:
    """CSR by one of CSR_ALGORITHMS."""
    return _of(lambda w, kind, task: _csr(w, kind), CSR_ALGORITHMS[algorithm])  # noqa: ARG005


def coo(algorithm: int) -> Routine:
    """COO by one of COO_ALGORITHMS."""
    return _of(lambda w, kind, task: _coo(w, kind), COO_ALGORITHMS[algorithm])  # noqa: ARG005


def _of(make: Callable[[Any, int, Task], Sparse], algorithm: int) -> Routine:
    def prepare(given: Given) -> Run:
        kind = _refuse(given.task)
        return _product(make(given.w, kind, given.task), given, algorithm)

    return prepare


csr1, csr2, csr3 = (csr(number) for number in CSR_ALGORITHMS)
coo1, coo2, coo3, coo4 = (coo(number) for number in COO_ALGORITHMS)
bsr = _of(lambda w, kind, task: _bsr(w, kind, _block(task, w)), _BSR)
ell = _of(lambda w, kind, task: _blocked_ell(w, kind, _block(task, w)), _BLOCKED_ELL)
