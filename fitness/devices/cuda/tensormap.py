"""Tensor maps on a real card: `cuTensorMapEncodeTiled` through cuda-bindings (CUDA driver API, Tensor Map Object)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.device import ResolvedTensorMap


def encode(tensormap: ResolvedTensorMap, address: int) -> NDArray[np.uint64]:
    """The 128 bytes of a tensor map whose tensor begins at a device address.

    Args:
        tensormap: the map, already checked by `fitness.tensormap.problem`.
        address: of its buffer on the card, bytes; a multiple of 16.

    Returns:
        (16,) uint64, as the kernel's parameter wants it.

    Raises:
        ValueError: the driver refuses the map; says its error code.
    """
    from cuda.bindings import driver as cu

    def member(enum: Any, name: str) -> Any:
        return getattr(enum, f"{_prefix(enum)}{name.upper()}")

    rank = len(tensormap.dims)
    code, encoded = cu.cuTensorMapEncodeTiled(
        member(cu.CUtensorMapDataType, tensormap.dtype),
        rank,
        address,
        [cu.cuuint64_t(size) for size in tensormap.dims],
        [cu.cuuint64_t(size) for size in tensormap.strides],
        [cu.cuuint32_t(size) for size in tensormap.box],
        [cu.cuuint32_t(size) for size in tensormap.element_strides],
        cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        member(cu.CUtensorMapSwizzle, tensormap.swizzle),
        member(cu.CUtensorMapL2promotion, "NONE" if tensormap.l2promotion == "none" else "L2_" + tensormap.l2promotion),
        member(cu.CUtensorMapFloatOOBfill, "NONE" if tensormap.oob == "zeros" else "NAN_REQUEST_ZERO_FMA"),
    )
    if int(code) != 0:
        raise ValueError(f"the driver refuses tensor map {tensormap.name!r}: {code!r}")
    return np.array([int(word) for word in encoded.opaque], np.uint64)


def _prefix(enum: Any) -> str:
    """The common start of an enumeration's names: "CU_TENSOR_MAP_SWIZZLE_"."""
    return {
        "CUtensorMapDataType": "CU_TENSOR_MAP_DATA_TYPE_",
        "CUtensorMapSwizzle": "CU_TENSOR_MAP_SWIZZLE_",
        "CUtensorMapL2promotion": "CU_TENSOR_MAP_L2_PROMOTION_",
        "CUtensorMapFloatOOBfill": "CU_TENSOR_MAP_FLOAT_OOB_FILL_",
    }[enum.__name__]
