"""Tensor maps in the simulator: their 128 bytes, and where a box lies in global and in shared memory.

The encoding is our own (the hardware's is not public); only copies of its bytes work, as on a card. Boxes are
packed innermost first; a swizzle exchanges 16-byte chunks within a span of 32, 64 or 128 bytes by the bits of
the shared address above bit 7 (PTX ISA, "Tensors: swizzling modes").
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.device import ResolvedTensorMap
from fitness.tensormap import ELEMENT_BYTES, SWIZZLES

Array = NDArray[Any]

BYTES = 128
_MAGIC = b"evoT"
_LAYOUT = struct.Struct("<4sBBBBQ5Q4Q5H5B")
_SWIZZLES = tuple(SWIZZLES)
_TYPES = tuple(ELEMENT_BYTES)


@dataclass(frozen=True)
class TensorMap:
    """A decoded map: `address` of the tensor; the rest as in `ResolvedTensorMap`, `width` bytes per element."""

    address: int
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: str
    oob: str

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return ELEMENT_BYTES[self.dtype]

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """Elements of a box in shared memory, innermost first."""
        steps = (1, *self.element_strides[1:])  # the innermost step is ignored
        return tuple(-(-size // step) for size, step in zip(self.box, steps, strict=True))

    @functools.cached_property
    def bytes(self) -> int:
        """Bytes of a box in shared memory: what a load counts towards its mbarrier."""
        return int(np.prod(self.shape)) * self.width


def encode(tensormap: ResolvedTensorMap, address: int) -> bytes:
    """The 128 bytes of a map whose buffer lies at `address`."""

    def padded(values: tuple[int, ...], size: int) -> list[int]:
        return [*values, *[0] * (size - len(values))]

    image = _LAYOUT.pack(
        _MAGIC,
        len(tensormap.dims),
        _TYPES.index(tensormap.dtype),
        _SWIZZLES.index(tensormap.swizzle),
        int(tensormap.oob == "nan"),
        address,
        *padded(tensormap.dims, 5),
        *padded(tensormap.strides, 4),
        *padded(tensormap.box, 5),
        *padded(tensormap.element_strides, 5),
    )
    return image.ljust(BYTES, b"\0")


@functools.lru_cache(maxsize=256)
def decode(image: bytes) -> TensorMap | None:
    """The map of 128 bytes, None where they are none."""
    magic, rank, kind, swizzle, nan, address, *numbers = _LAYOUT.unpack(image[: _LAYOUT.size])
    if magic != _MAGIC:
        return None
    dims, strides, box, steps = numbers[:5], numbers[5:9], numbers[9:14], numbers[14:19]
    return TensorMap(
        address, _TYPES[kind], tuple(dims[:rank]), tuple(strides[: rank - 1]), tuple(box[:rank]),
        tuple(steps[:rank]), _SWIZZLES[swizzle], "nan" if nan else "zeros",
    )  # fmt: skip


#: Fields that `tensormap.replace` changes: place of their first number in the layout, and how many there are.
_FIELDS = {
    "rank": (1, 1), "elemtype": (2, 1), "swizzle_mode": (3, 1), "fill_mode": (4, 1), "global_address": (5, 1),
    "global_dim": (6, 5), "global_stride": (11, 4), "box_dim": (15, 5), "element_stride": (20, 5),
}  # fmt: skip
#: Numbers of element types, as the driver and `tensormap.replace` have them.
_ELEMENTS = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "", "float64", "bfloat16",
)  # fmt: skip


def changed(image: bytes, field: str, ordinal: int, value: int) -> bytes | None:
    """The 128 bytes of a map after `tensormap.replace`.

    Returns:
        None where they are no map; nothing (b"") where the field cannot have that value here.
    """
    numbers: list[Any] = list(_LAYOUT.unpack(image[: _LAYOUT.size]))
    if numbers[0] != _MAGIC:
        return None
    if field == "interleave_layout":
        return image if value == 0 else b""
    first, count = _FIELDS.get(field, (0, 0))
    if not 0 <= ordinal < count:
        return b""
    new: int | None = value
    if field == "rank":
        new = value + 1 if 0 <= value < 5 else None
    elif field == "elemtype":
        name = _ELEMENTS[value] if 0 <= value < len(_ELEMENTS) else ""
        new = _TYPES.index(name) if name else None
    elif field == "swizzle_mode":
        new = value if 0 <= value < len(_SWIZZLES) else None
    elif field == "fill_mode":
        new = value if value in (0, 1) else None
    elif field in ("box_dim", "element_stride"):
        new = value if 0 < value < 1 << 16 else None
    if new is None:
        return b""
    numbers[first + ordinal] = new
    return _LAYOUT.pack(*numbers).ljust(BYTES, b"\0")


@dataclass(frozen=True)
class Overlap:
    """The part of a box that lies inside the tensor, outermost dimension first.

    Attributes:
        inside: slices of the box. start: byte offset of its first element in the buffer. shape: elements.
        strides: bytes between elements in the buffer.
    """

    inside: tuple[slice, ...]
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def moved(self, offset: int) -> Overlap:
        """The same in a buffer where the tensor begins at a byte offset."""
        return replace(self, start=self.start + offset) if offset else self

    def view(self, data: Array, width: int) -> Array:
        """The elements in the buffer's bytes, as a strided view of shape (*shape, width)."""
        return np.lib.stride_tricks.as_strided(data[self.start :], (*self.shape, width), (*self.strides, 1))

    @property
    def rows(self) -> tuple[NDArray[np.int64], int]:
        """Byte offsets of the contiguous rows in the buffer, and the bytes of one (elements where rows have gaps)."""
        return self.start + _rows(self.shape[:-1], self.strides[:-1]), self.shape[-1] * self.strides[-1]


@functools.lru_cache(maxsize=256)
def _rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[np.int64]:
    """Byte offsets of the rows of a box from its first."""
    offsets = np.zeros(1, dtype=np.int64)
    for size, stride in zip(shape, strides, strict=True):
        offsets = (offsets[:, None] + stride * np.arange(size)).ravel()
    return offsets


def overlap(tensormap: TensorMap, coordinates: tuple[int, ...]) -> Overlap | None:
    """Where a box at signed coordinates (innermost first) meets the tensor; None where it does not."""
    inside, shape, strides, start = [], [], [], 0
    steps = (tensormap.width, *tensormap.strides)
    jumps = (1, *tensormap.element_strides[1:])
    for first, size, length, step, jump in zip(coordinates, tensormap.shape, tensormap.dims, steps, jumps, strict=True):
        low = max(0, -(first // jump)) if first < 0 else 0  # ceil(-first / jump)
        high = min(size, -(-(length - first) // jump))
        if low >= high:
            return None
        inside.append(slice(low, high))
        shape.append(high - low)
        strides.append(step * jump)
        start += (first + low * jump) * step
    return Overlap(tuple(inside[::-1]), start, tuple(shape[::-1]), tuple(strides[::-1]))


def starts_of(tensormap: TensorMap, coordinates: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """`Overlap.start` of many boxes, at coordinates (rank, n); None where they do not all meet the tensor alike."""
    steps = (tensormap.width, *tensormap.strides)
    jumps = (1, *tensormap.element_strides[1:])
    start = np.zeros(coordinates.shape[1], dtype=np.int64)
    for first, size, length, step, jump in zip(coordinates, tensormap.shape, tensormap.dims, steps, jumps, strict=True):
        low = np.maximum(0, -(first // jump))
        low[first >= 0] = 0
        high = np.minimum(size, -(-(length - first) // jump))
        if (low != low[0]).any() or (high != high[0]).any():
            return None
        start += (first + low * jump) * step
    return start


@functools.lru_cache(maxsize=256)
def chunks(start: int, size: int, swizzle: str) -> NDArray[np.int64]:
    """Byte offsets in shared memory of the 16-byte chunks of a box that begins at `start`, in the box's order."""
    plain = start + 16 * np.arange(size // 16, dtype=np.int64)
    return swizzled(plain, SWIZZLES[swizzle])


def swizzled(address: NDArray[np.int64], span: int) -> NDArray[np.int64]:
    """Shared addresses after the exchange of 16-byte chunks within `span` bytes (0: none)."""
    if not span:
        return address
    return np.asarray(address ^ (((address >> 7) & (span // 16 - 1)) << 4))


def fill(tensormap: TensorMap) -> Array:
    """A box of what lies outside of the tensor, bytes of shape (*reversed(shape), width)."""
    shape = (*tensormap.shape[::-1], tensormap.width)
    if tensormap.oob == "zeros":
        return np.zeros(shape, dtype=np.uint8)
    return np.full(shape, 0xFF, dtype=np.uint8)  # a NaN in every floating-point type
