"""`cp.reduce.async.bulk`: what it combines with memory, and which types it has (PTX ISA, "cp.reduce.async.bulk")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator.atomics import bits_function

Array = NDArray[Any]

OPERATIONS: Final = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_SHARED: Final = {
    "add": "u32 s32 u64", "min": "u32 s32", "max": "u32 s32", "inc": "u32", "dec": "u32", "and": "b32", "or": "b32",
    "xor": "b32",
}  # fmt: skip
_GLOBAL: Final = {
    "add": "u32 s32 u64 f16 bf16 f32 f64", "min": "u32 s32 u64 s64 f16 bf16", "max": "u32 s32 u64 s64 f16 bf16",
    "inc": "u32", "dec": "u32", "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64",
}  # fmt: skip
_TENSOR_TYPES: Final = {
    "uint32": "u32", "int32": "s32", "uint64": "u64", "int64": "s64", "float16": "f16", "bfloat16": "bf16",
    "float32": "f32", "float64": "f64",
}  # fmt: skip


@dataclass(frozen=True)
class Reduction:
    """One operation on elements of one PTX type."""

    operation: str
    kind: str

    def combine(self, old: Array, new: Array) -> Array:
        """What is in memory after: bytes of whole elements along the last axis, as both operands are.

        Sums of f32 keep subnormals, as an H200 was seen to do; atomics on global memory flush them.
        """
        width = int(self.kind[1:]) // 8 if self.kind != "bf16" else 2
        dtype = np.dtype(f"u{width}")
        before, given = (np.ascontiguousarray(x).view(dtype) for x in (old, new))
        return np.ascontiguousarray(bits_function(self.operation, self.kind)(before, given)).view(np.uint8)


def reduction(operation: str, kind: str, *, shared: bool) -> Reduction | None:
    """A reduction of a type in shared or global memory; None where the instruction does not have it."""
    types = (_SHARED if shared else _GLOBAL)[operation]
    return Reduction(operation, kind) if kind in types.split() else None


def tensor_reduction(operation: str, dtype: str) -> Reduction | None:
    """The same for elements of a tensor map."""
    kind = _TENSOR_TYPES.get(dtype, "")
    if operation in ("and", "or", "xor"):
        kind = {"u32": "b32", "s32": "b32", "u64": "b64", "s64": "b64"}.get(kind, "")
    if (operation, kind) == ("add", "s64"):
        kind = "u64"
    return reduction(operation, kind, shared=False)
