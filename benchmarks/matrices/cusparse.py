"""cuSPARSE by its C interface: every algorithm for CSR and COO, and SELL for one column; timed as candidates are.

PyTorch offers the default algorithm only, which is not always the fastest. Preprocessing is done before timing.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.devices.cuda.driver import Card
from fitness.devices.cuda.memory import OperandCache
from fitness.devices.device import Inputs

SPMM: Final = {
    "csr_default": ("csr", 0), "csr_alg1": ("csr", 4), "csr_alg2": ("csr", 6), "csr_alg3": ("csr", 12),
    "coo_alg1": ("coo", 1), "coo_alg2": ("coo", 2), "coo_alg3": ("coo", 3), "coo_alg4": ("coo", 5),
}  # fmt: skip
SPMV: Final = {
    "csr_default": ("csr", 0), "csr_alg1": ("csr", 2), "csr_alg2": ("csr", 3),
    "coo_alg1": ("coo", 1), "coo_alg2": ("coo", 4), "sell_alg1": ("sell", 5),
}  # fmt: skip
"""Name -> (format, cusparseSpMMAlg_t or cusparseSpMVAlg_t)."""

SELL_ROWS: Final = 32
_INDEX_32: Final = 2
_FLOAT_32: Final = 0
_ROW_MAJOR: Final = 2
_NAMES: Final = ("libcusparse.so.12", "libcusparse.so.13", "libcusparse.so")


class CusparseError(RuntimeError):
    """A call of the library failed."""


def library() -> Any:
    """The library that PyTorch brings, that of NVIDIA's wheels (CuPy takes it from there too), or the system's.

    Raises:
        CusparseError: there is none.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")  # its wheel loads the library, so that it is found by name
    wheels = [str(path) for folder in sys.path for path in sorted(Path(folder).glob("nvidia/*/lib/libcusparse.so.*"))]
    for name in (*_NAMES, *wheels):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CusparseError(f"none of {', '.join(_NAMES)} is here; install PyTorch with CUDA, or the CUDA toolkit")


def version(lib: Any) -> str:
    """Its version, "12.5.8"; empty where it does not say."""
    parts, value = [], ctypes.c_int()
    for place in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        if lib.cusparseGetProperty(place, ctypes.byref(value)):
            return ""
        parts.append(str(value.value))
    return ".".join(parts)


class Routine:
    """One algorithm at one shape, as a subject that is timed beside candidates.

    Args:
        lib: of `library`.
        name: of `SPMM`, or of `SPMV` where X has one column.
        inputs: packed as the format of the algorithm says (`W.values`, ...), X and Y row-major float32.
        shape: M, K, N; nnz: nonzeros.
        card, cache, runs: as the protocol gives them.
    """

    def __init__(
        self,
        lib: Any,
        name: str,
        inputs: Inputs,
        shape: tuple[int, int, int],
        nnz: int,
        card: Card,
        cache: OperandCache,
        runs: int,
    ) -> None:
        self._lib, self.card, self._cache, self._shape, self._nnz = lib, card, cache, shape, nnz
        self.inputs, self._runs = inputs, runs
        self._format, self._algorithm = (SPMV if shape[2] == 1 else SPMM)[name]
        self.sets = cache.get(inputs)
        self._y_bytes = -(-inputs.outputs["Y"].nbytes // 256) * 256
        self.arena = (card.allocate(self._y_bytes * runs), self._y_bytes * runs)
        self._alpha, self._beta = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self._handle = ctypes.c_void_p()
        self._scratch: list[int] = []
        self._destroy: list[Callable[[], int]] = []
        try:
            self._call("cusparseCreate", ctypes.byref(self._handle))
            self._destroy.append(lambda: int(lib.cusparseDestroy(self._handle)))
            self._call("cusparseSetStream", self._handle, ctypes.c_void_p(card.stream))
            self._prepared = [self._prepare(run) for run in range(runs)]
        except CusparseError:
            self.close()
            raise

    def _call(self, name: str, *arguments: Any) -> None:
        status = int(getattr(self._lib, name)(*arguments))
        if status:
            raise CusparseError(f"{name}: cusparseStatus {status}")

    def _prepare(self, run: int) -> tuple[Any, ...]:
        """Descriptors, scratch memory and preprocessing of one run: the arguments of its product."""
        m, k, n = self._shape
        addresses = self.sets.addresses[run % len(self.sets.addresses)]
        w = self._matrix(addresses)
        y = self.arena[0] + run * self._y_bytes
        vector = n == 1
        x_desc, y_desc = (
            self._dense("DnVec", ctypes.c_int64(size), ctypes.c_void_p(address), _FLOAT_32)
            if vector
            else self._dense(
                "DnMat", ctypes.c_int64(size), ctypes.c_int64(n), ctypes.c_int64(n), ctypes.c_void_p(address),
                _FLOAT_32, _ROW_MAJOR,
            )
            for size, address in ((k, addresses["X"]), (m, y))
        )  # fmt: skip
        transposes = (0,) if vector else (0, 0)
        product = (
            self._handle, *transposes, ctypes.byref(self._alpha), w, x_desc, ctypes.byref(self._beta), y_desc,
            _FLOAT_32, self._algorithm,
        )  # fmt: skip
        size = ctypes.c_size_t()
        op = "cusparseSpMV" if vector else "cusparseSpMM"
        self._call(f"{op}_bufferSize", *product, ctypes.byref(size))
        scratch = self.card.allocate(max(256, size.value))
        self._scratch.append(scratch)
        if hasattr(self._lib, f"{op}_preprocess"):
            self._call(f"{op}_preprocess", *product, ctypes.c_void_p(scratch))
        return (op, *product, ctypes.c_void_p(scratch))

    def _matrix(self, addresses: Mapping[str, int]) -> ctypes.c_void_p:
        m, k, _ = self._shape
        sizes = [ctypes.c_int64(value) for value in (m, k, self._nnz)]
        at = {name: ctypes.c_void_p(address) for name, address in addresses.items()}
        made = ctypes.c_void_p()
        parts: tuple[ctypes.c_void_p | int, ...]
        if self._format == "csr":
            parts = (at["W.indptr"], at["W.indices"], at["W.values"], _INDEX_32, _INDEX_32, 0, _FLOAT_32)
            self._call("cusparseCreateCsr", ctypes.byref(made), *sizes, *parts)
        elif self._format == "coo":
            parts = (at["W.rows"], at["W.indices"], at["W.values"], _INDEX_32, 0, _FLOAT_32)
            self._call("cusparseCreateCoo", ctypes.byref(made), *sizes, *parts)
        else:
            slots = ctypes.c_int64(self.inputs.buffers["W.values"].size)
            parts = (at["W.indptr"], at["W.indices"], at["W.values"], _INDEX_32, _INDEX_32, 0, _FLOAT_32)
            self._call("cusparseCreateSlicedEll", ctypes.byref(made), *sizes, slots, ctypes.c_int64(SELL_ROWS), *parts)
        self._destroy.append(lambda: int(self._lib.cusparseDestroySpMat(made)))
        return made

    def _dense(self, kind: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(f"cusparseCreate{kind}", ctypes.byref(made), *arguments)
        destroy = getattr(self._lib, f"cusparseDestroy{kind}")
        self._destroy.append(lambda: int(destroy(made)))
        return made

    def clear(self) -> None:
        """Nothing must be zero before: beta is 0."""

    def enqueue(self, run: int) -> None:
        """One product on the card's stream."""
        op, *arguments = self._prepared[run]
        self._call(op, *arguments)

    def outputs(self, run: int) -> Mapping[str, NDArray[Any]]:
        """Y of that run."""
        like = self.inputs.outputs["Y"]
        raw = self.card.download(self.arena[0] + run * self._y_bytes, like.nbytes)
        return {"Y": raw.view(np.float32).reshape(like.shape)}

    def intact(self) -> bool:
        """True if the operands were left alone."""
        return self._cache.intact(self.sets)

    def close(self) -> None:
        """Give everything back."""
        for destroy in reversed(self._destroy):
            destroy()
        for address in (*self._scratch, self.arena[0]):
            self.card.free(address)
        self._destroy.clear()
        self._scratch.clear()
