"""Floors: the least time a product can take with a format on a card, and what it could gain over dense.

time = launch + max(bytes / peak bandwidth, multiplications / peak rate), from the card's data sheet, as
`fitness.gpu.Gpu.floor_us`. Bytes: the format's, X once (rows that meet a nonzero), Y once. Multiplications: a format
that stores zeros multiplies them. One that stores single elements can either multiply those one by one on the FMA units
or gather them into the tall tiles of the tensor cores (r x 1 columns of 8 or 16 rows with a nonzero), whichever is
faster. Tensor cores take N in steps of 8. No floor is a prediction: it says what no kernel can beat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fitness.analysis.blocks import Blocks
from fitness.analysis.sizes import Sizes, StoredSize
from fitness.gpu import Gpu, GpuError

COLUMNS: Final = (1, 8, 32, 128, 512, 4096)
"""Columns N of X that floors are given for."""
TENSOR_DTYPES: Final[Mapping[str, str]] = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "float8_e4m3": "float8",
    "float8_e5m2": "float8",
}
"""Our dtype -> the rate of a card's data sheet; the others have no exact tensor cores here."""
_TENSOR_COLUMNS: Final = 8
_GATHERED: Final = ((8, 1), (16, 1))


@dataclass(frozen=True)
class Floor:
    """One format at one N, microseconds.

    Attributes:
        format: its name; columns: N.
        bytes: that must move; flops: 2 x multiplications it must make.
        time_us: the floor; bound: "memory", "compute" or "launch", what it is made of mostly.
        gain: the floor of dense storage over this one.
    """

    format: str
    columns: int
    bytes: float
    flops: float
    time_us: float
    bound: str
    gain: float


@dataclass(frozen=True)
class Rates:
    """FLOPs per microsecond of a card for a dtype: fused multiply-adds, and tensor cores (equal where it has none)."""

    fma: float
    tensor: float

    @property
    def has_tensor_cores(self) -> bool:
        """False where the dtype has no exact tensor cores."""
        return self.tensor > self.fma


def rates_of(gpu: Gpu, dtype: str) -> Rates:
    """The card's peaks. FMA units accumulate in float32 (float64 for float64), as tasks ask.

    Raises:
        GpuError: the card's data sheet has no rate for the dtype.
    """
    if TENSOR_DTYPES.get(dtype, dtype) not in gpu.tflops:
        raise GpuError(f"{gpu.name} has no rate for {dtype}; choose another --dtype or another card")
    fma = gpu.tflops["float64" if dtype == "float64" else "float32"] * 1e6
    return Rates(fma, max(fma, gpu.tflops[TENSOR_DTYPES[dtype]] * 1e6 if dtype in TENSOR_DTYPES else fma))


def floors_of(
    sizes: Sizes,
    blocks: Blocks,
    shape: tuple[int, int],
    used_columns: int,
    dtype: str,
    gpu: Gpu,
    columns: Sequence[int] = COLUMNS,
) -> tuple[Floor, ...]:
    """Every format at every N, formats in the order of `sizes`.

    Args:
        sizes: bytes and slots by format; dense among them.
        blocks: how many columns of 8 and 16 rows have a nonzero.
        shape: M, K.
        used_columns: columns with a nonzero.
        dtype: of W, X and Y.
        gpu: the card.
        columns: every N.
    """
    rates = rates_of(gpu, dtype)
    dense = sizes.of("dense")
    assert dense is not None
    itemsize = dense.bytes / (shape[0] * shape[1])
    found = []
    for n in columns:
        base = _time(dense, shape[1], n, blocks, shape, itemsize, rates, gpu)[0]
        for size in sizes.stored:
            met = shape[1] if size.format == "dense" else used_columns
            time_us, moved, flops, bound = _time(size, met, n, blocks, shape, itemsize, rates, gpu)
            found.append(Floor(size.format, n, moved, flops, time_us, bound, base / time_us))
    return tuple(found)


def _time(
    size: StoredSize,
    met: int,
    n: int,
    blocks: Blocks,
    shape: tuple[int, int],
    itemsize: float,
    rates: Rates,
    gpu: Gpu,
) -> tuple[float, float, float, str]:
    """Microseconds, bytes, FLOPs, what bounds it."""
    moved = size.bytes + n * (met + shape[0]) * itemsize
    memory = moved / (gpu.bandwidth_gb_per_s * 1e3)
    compute, flops = _compute(size, n, blocks, rates)
    bound = "compute" if compute > memory else "memory"
    if gpu.launch_us > max(memory, compute):
        bound = "launch"
    return gpu.launch_us + max(memory, compute), moved, flops, bound


def _compute(size: StoredSize, n: int, blocks: Blocks, rates: Rates) -> tuple[float, float]:
    """Microseconds and FLOPs of the fastest way to multiply what a format stores."""
    stepped = -(-n // _TENSOR_COLUMNS) * _TENSOR_COLUMNS
    ways = [(2.0 * size.slots * n / rates.fma, 2.0 * size.slots * n)]
    if rates.has_tensor_cores:
        slots = min(blocks.slots(tile) for tile in _GATHERED) if size.by_element else size.slots
        ways.append((2.0 * slots * stepped / rates.tensor, 2.0 * slots * stepped))
    return min(ways)


def paying_density(shape: tuple[int, int], itemsize: int, n: int, dtype: str, gpu: Gpu, gain: float = 1.0) -> float:
    """The density below which random single nonzeros with 4-byte columns can gain that much over dense storage.

    Args:
        shape: M, K.
        itemsize: bytes of an element.
        n: columns of X.
        dtype: decides the rates.
        gpu: likewise.
        gain: floor of dense storage over the sparse one.

    Returns:
        0..1; 0 where no density does.
    """
    rates = rates_of(gpu, dtype)
    rows, columns = shape
    stepped = -(-n // _TENSOR_COLUMNS) * _TENSOR_COLUMNS if rates.has_tensor_cores else n
    moved = rows * columns * itemsize + n * (rows + columns) * itemsize
    dense = gpu.launch_us + max(moved / (gpu.bandwidth_gb_per_s * 1e3), 2.0 * rows * columns * stepped / rates.tensor)
    density = np.logspace(-6, 0, 2401)
    nnz = density * rows * columns
    memory = (nnz * (itemsize + 4) + 4 * rows + n * (rows + columns) * itemsize) / (gpu.bandwidth_gb_per_s * 1e3)
    gathered = [2.0 * rows * columns * (1 - (1 - density) ** r) * stepped / rates.tensor for r, _ in _GATHERED]
    compute = np.minimum.reduce([2.0 * nnz * n / rates.fma, *gathered])
    below = np.flatnonzero(gain * (gpu.launch_us + np.maximum(memory, compute)) < dense)
    return float(density[below[-1]]) if len(below) else 0.0
