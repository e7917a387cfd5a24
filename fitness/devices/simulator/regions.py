"""Memory of a simulated launch: named buffers at virtual addresses, and the windows of shared and local memory.

Address map (64-bit generic addresses; the byte above bit 40 tells the space): shared memory of the own block
at 1 << 40, local memory of the own thread at 2 << 40, kernel parameters at 3 << 40, module variables and
buffers from 0x7f << 40, each buffer followed by at least 4 KB that belong to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SPACE_SHIFT = 40
SHARED_WINDOW = 1 << SPACE_SHIFT
LOCAL_WINDOW = 2 << SPACE_SHIFT
PARAM_WINDOW = 3 << SPACE_SHIFT
MODULE_BASE = 0x7F << SPACE_SHIFT
BUFFER_BASE = MODULE_BASE + (1 << 32)
#: Where the driver keeps the barrier of a cooperative launch (%envreg1 and 2 hold the address): size, then arrivals.
GRID_BARRIER = MODULE_BASE + 64
GRID_BARRIER_BYTES = 16
#: First byte of shared memory in a block's window: 1 KB is reserved by the system from sm_90 on.
SHARED_START = 1024
#: First byte of local memory in a thread's window, so that a null pointer is outside.
LOCAL_START = 16
GUARD = 4096

Role = Literal["input", "output", "workspace", "module", "const", "param"]

_POISON_BYTES = np.random.default_rng(0x7FC0).integers(0, 256, 1 << 14, dtype=np.uint8)
_POISON_BYTES[1::2] |= 0x7E  # most 16- and 32-bit patterns are NaN or huge


def poison(size: int) -> Array:
    """Bytes that no computation should meet: random, most of them NaN or huge as f16, bf16 or f32."""
    return np.resize(_POISON_BYTES, size)


def element_views(data: Array) -> dict[int, Array]:
    """The bytes as unsigned elements of 1, 2, 4 and 8 bytes (whole elements only)."""
    return {1 << shift: data[: data.size >> shift << shift].view(f"u{1 << shift}") for shift in range(4)}


@dataclass
class Region:
    """A contiguous range of global, constant or parameter memory.

    Attributes:
        name: as the candidate knows it. base: virtual address. data: its bytes.
        poisoned: per byte, 1 where nothing has written yet; None where all is initialised.
        dtype: element type for messages. writable: False for inputs and constants.
    """

    name: str
    base: int
    data: Array
    role: Role
    dtype: np.dtype[Any]
    poisoned: Array | None = None

    def __post_init__(self) -> None:
        self.size = int(self.data.size)
        self.views = element_views(self.data)
        self.shadow = element_views(self.poisoned) if self.poisoned is not None else None
        self.base_u64 = np.uint64(self.base)
        self.writable = self.role in ("output", "workspace", "module")
        self.end = self.base + self.size

    def fill(self, value: int) -> None:
        """Memset: all bytes, now initialised."""
        self.data[:] = value
        if self.poisoned is not None:
            self.poisoned[:] = 0

    def spoil(self) -> None:
        """Poison contents and mark them uninitialised."""
        self.data[:] = poison(self.size)
        if self.poisoned is not None:
            self.poisoned[:] = 1


class Window:
    """Shared memory of all blocks of a chunk, or local memory of all its threads: one array, fixed stride.

    Attributes:
        space: "shared" or "local". start: first valid address in the window. size: bytes per owner.
        stride: bytes between owners. views, shadow: as in `Region`.
    """

    def __init__(self, space: str, owners: int, size: int, start: int, *, track: bool) -> None:
        self.space, self.start, self.size = space, start, size
        self.stride = window_stride(size)
        self.data: Array = np.empty(owners * self.stride, dtype=np.uint8)
        if track:
            self.data[:] = poison(self.data.size)
        self.views = element_views(self.data)
        self.poisoned: Array | None = np.ones(self.data.size, dtype=np.uint8) if track else None
        self.shadow = element_views(self.poisoned) if self.poisoned is not None else None


def window_stride(size: int) -> int:
    """Bytes between owners' memory: a multiple of 16, with room so that vectors may straddle nothing."""
    return -(-max(size, 1) // 16) * 16


class AddressMap:
    """Places buffers: each aligned to exactly `align` bytes (no more), with guard space around it."""

    def __init__(self, align: int, start: int = BUFFER_BASE) -> None:
        self.align = align
        self.next = start

    def place(self, size: int) -> int:
        """Address of a new buffer of `size` bytes."""
        base = -(-self.next // (2 * self.align)) * 2 * self.align + self.align
        self.next = base + size + GUARD
        return base
