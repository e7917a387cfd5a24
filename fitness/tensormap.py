"""Tensor maps: what `cuTensorMapEncodeTiled` demands of one, checked before a device sees it.

Rules: CUDA driver API, "Tensor Map Object Management", cuTensorMapEncodeTiled, with interleave none, the only
one supported here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fitness.devices.device import ResolvedTensorMap

ELEMENT_BYTES: Final = {
    "uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
"""Element types of a tensor map (CUtensorMapDataType) and their sizes."""

SWIZZLES: Final = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
"""Swizzle modes and their spans, bytes (CUtensorMapSwizzle)."""

L2_PROMOTIONS: Final = ("none", "64B", "128B", "256B")
OOB_FILLS: Final = ("zeros", "nan")

_FLOATING: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
_LONGEST: Final = 1 << 32
_FARTHEST: Final = 1 << 40


def element_type(dtype: np.dtype[np.generic]) -> str:
    """Name of the tensor-map element type that holds elements of a NumPy type; "" where there is none."""
    name = dtype.name
    if dtype.itemsize == 1:
        return "uint8"
    name = {"int16": "uint16"}.get(name, name)
    return name if name in ELEMENT_BYTES else ""


def problem(tensormap: ResolvedTensorMap, buffer_bytes: int, align: int) -> tuple[str, str]:
    """The first rule a map breaks: (header key, what is wrong); ("", "") if it can be encoded.

    Args:
        tensormap: the map.
        buffer_bytes: size of its buffer.
        align: bytes to which the buffer is aligned at least.
    """
    rank, width = len(tensormap.dims), ELEMENT_BYTES.get(tensormap.dtype, 0)
    if not width:
        return "dtype", f"element type {tensormap.dtype!r} is none of {', '.join(ELEMENT_BYTES)}"
    if not 1 <= rank <= 5:
        return "dims", f"{rank} dimensions; 1 to 5 are possible"
    if len(tensormap.box) != rank:
        return "box", f"{len(tensormap.box)} sizes for a tensor of {rank} dimensions"
    if align % 16:
        return "tensor", f"its buffer is aligned to {align} bytes; a tensor map needs 16 (align = 16)"
    return _shape_problem(tensormap, buffer_bytes, width) or _box_problem(tensormap, width) or ("", "")


def _shape_problem(tensormap: ResolvedTensorMap, buffer_bytes: int, width: int) -> tuple[str, str] | None:
    dims, strides = tensormap.dims, tensormap.strides
    if any(not 1 <= size <= _LONGEST for size in dims):
        return "dims", f"sizes {dims}; each must be from 1 to 2^32"
    if len(strides) != len(dims) - 1:
        return "strides", f"{len(strides)} strides for {len(dims)} dimensions; give all but the innermost's"
    for place, stride in enumerate(strides):
        if stride % 16 or not 0 < stride < _FARTHEST:
            return "strides", f"stride {stride} of dimension {place + 1}; it must be a multiple of 16 bytes below 2^40"
        inner = dims[0] * width if place == 0 else dims[place] * strides[place - 1]
        if stride < inner and dims[place + 1] > 1:
            return "strides", f"stride {stride} of dimension {place + 1} is less than the {inner} bytes inside it"
    steps = (width, *strides)
    extent = width + sum((size - 1) * step for size, step in zip(dims, steps, strict=True))
    if extent > buffer_bytes:
        return "dims", f"the tensor spans {extent} bytes of {tensormap.buffer}, which has {buffer_bytes}"
    return None


def _box_problem(tensormap: ResolvedTensorMap, width: int) -> tuple[str, str] | None:
    box, steps = tensormap.box, tensormap.element_strides
    if any(not 1 <= size <= 256 for size in box):
        return "box", f"box {box}; each size must be from 1 to 256"
    if len(steps) != len(box) or any(not 1 <= step <= 8 for step in steps):
        return "element_strides", f"{steps}; give one from 1 to 8 per dimension"
    inner = box[0] * width
    if inner % 16:
        return "box", f"the innermost {box[0]} elements are {inner} bytes, no multiple of 16"
    if tensormap.swizzle not in SWIZZLES:
        return "swizzle", f"{tensormap.swizzle!r} is none of {', '.join(SWIZZLES)}"
    span = SWIZZLES[tensormap.swizzle]
    if span and inner > span:
        return "box", f"the innermost {box[0]} elements are {inner} bytes, more than the swizzle's {span}"
    if tensormap.l2promotion not in L2_PROMOTIONS:
        return "l2promotion", f"{tensormap.l2promotion!r} is none of {', '.join(L2_PROMOTIONS)}"
    if tensormap.oob not in OOB_FILLS:
        return "oob", f"{tensormap.oob!r} is none of {', '.join(OOB_FILLS)}"
    if tensormap.oob == "nan" and tensormap.dtype not in _FLOATING:
        return "oob", f"NaN cannot fill elements of {tensormap.dtype}"
    return None
