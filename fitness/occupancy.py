"""How many blocks of a kernel one SM holds.

The rules of the CUDA occupancy calculator; limits from the CUDA C++ Programming Guide, compute capabilities.
Registers are given out per warp in units of 256 from four register files, shared memory in units of
128 bytes plus 1 KiB per block that the system keeps on compute capability 8.0 and on.
"""

from __future__ import annotations

from dataclasses import dataclass

from fitness.gpu import Gpu

WARP = 32
_REGISTER_UNIT = 256  # per warp
_WARP_UNIT = 4  # one register file per scheduler: warps are given out in fours
_SHARED_UNIT = 128
_SHARED_RESERVED = 1024  # per block, sm_80 and on


class OccupancyError(ValueError):
    """A block that no SM of the card can hold; the message names the resource, what is asked and what there is."""


@dataclass(frozen=True)
class Occupancy:
    """Residency of one launch.

    Attributes:
        blocks: resident blocks of an SM; warps: resident warps; fraction: warps / maximum warps (0..1).
        limiter: what keeps a further block out: "registers", "shared memory", "warps" or "blocks".
    """

    blocks: int
    warps: int
    fraction: float
    limiter: str


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def occupancy(gpu: Gpu, *, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Resident blocks per SM.

    Args:
        gpu: the card.
        threads: threads per block.
        registers: per thread, as ptxas reports them.
        shared_bytes: static + dynamic shared memory of a block.

    Raises:
        OccupancyError: one block alone does not fit.
    """
    limits = gpu.limits
    warps = _up(max(threads, 1), WARP) // WARP
    per_warp = _up(max(registers, 1) * WARP, _REGISTER_UNIT)
    register_warps = limits.registers_per_sm // per_warp // _WARP_UNIT * _WARP_UNIT
    shared = _up(shared_bytes + _SHARED_RESERVED, _SHARED_UNIT)
    _refuse("threads per block", threads, limits.threads_per_block)
    _refuse("registers per thread", registers, limits.registers_per_thread)
    _refuse("bytes of shared memory per block", shared_bytes, limits.shared_bytes_per_block)
    _refuse(f"warps with {registers} registers per thread", warps, register_warps)
    fits = {
        "registers": register_warps // warps,
        "shared memory": limits.shared_bytes_per_sm // shared,
        "warps": limits.warps_per_sm // warps,
        "blocks": limits.blocks_per_sm,
    }
    limiter = min(fits, key=lambda name: fits[name])
    blocks = fits[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps_per_sm, limiter)


def _refuse(what: str, asked: int, most: int) -> None:
    if asked > most:
        raise OccupancyError(f"{asked} {what}, the card has {most}")
