"""How many blocks of a kernel one SM holds.

The rules of the CUDA occupancy calculator; limits from the CUDA C++ Programming Guide, compute capabilities.
Registers are given out per warp in units of 256 from four register files, shared memory in units of
128 bytes plus 1 KiB per block that the system keeps on compute capability 8.0 and on.
"""

from __future__ import annotations

from dataclasses import dataclass

from fitness.devices.device import Dim3, Entry
from fitness.gpu import Gpu

WARP = 32
_REGISTER_UNIT = 256  # per warp
_WARP_UNIT = 4  # one register file per scheduler: warps are given out in fours
_SHARED_UNIT = 128
_SHARED_RESERVED = 1024  # per block, sm_80 and on


@dataclass(frozen=True)
class Occupancy:
    """Residency of one launch.

    Attributes:
        blocks_per_sm: resident blocks of an SM, 0 where not even one fits.
        warps_per_sm: resident warps.
        fraction: resident warps / maximum warps of an SM (0..1).
        limiter: what keeps a further block out: "registers", "shared memory", "warps", "blocks" or, where no
            block can exist, "threads per block" or "registers per thread".
    """

    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    limiter: str


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def occupancy(gpu: Gpu, entry: Entry, block: Dim3, shared: int) -> Occupancy:
    """Resident blocks per SM.

    Args:
        gpu: the card.
        entry: the kernel, with its registers and static shared memory as ptxas reports them.
        block: threads of a block in x, y, z.
        shared: dynamic shared memory of a block, bytes.
    """
    return resident(
        gpu,
        threads=block[0] * block[1] * block[2],
        registers=entry.registers,
        shared_bytes=entry.shared_bytes + shared,
    )


def resident(gpu: Gpu, *, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Resident blocks per SM from plain numbers: threads per block, registers per thread, all shared bytes."""
    limits = gpu.limits
    warps = _up(max(threads, 1), WARP) // WARP
    per_warp = _up(max(registers, 1) * WARP, _REGISTER_UNIT)
    register_warps = limits.registers_per_sm // per_warp // _WARP_UNIT * _WARP_UNIT
    shared = _up(shared_bytes + _SHARED_RESERVED, _SHARED_UNIT)
    fits = {
        "threads per block": limits.blocks_per_sm if threads <= limits.threads_per_block else 0,
        "registers per thread": limits.blocks_per_sm if registers <= limits.registers_per_thread else 0,
        "registers": register_warps // warps,
        "shared memory": limits.shared_bytes_per_sm // shared if shared_bytes <= limits.shared_bytes_per_block else 0,
        "warps": limits.warps_per_sm // warps,
        "blocks": limits.blocks_per_sm,
    }
    blocks = min(fits.values())
    named = [name for name in fits if fits[name] == blocks]
    limiter = "blocks" if "blocks" in named and blocks else named[0]
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps_per_sm, limiter)
