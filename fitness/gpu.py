"""GPU data sheets: `gpus/*.toml` as frozen dataclasses, with the launch limits and peaks they imply."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "gpus"


class GpuError(ValueError):
    """An unknown or malformed GPU description."""


@dataclass(frozen=True)
class Limits:
    """What one launch and one SM may use on this card (CUDA C++ Programming Guide, compute capabilities)."""

    threads_per_block: int
    shared_bytes_per_block: int  # opt-in maximum of dynamic + static
    shared_bytes_per_sm: int
    registers_per_sm: int
    registers_per_thread: int
    warps_per_sm: int
    blocks_per_sm: int
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class Gpu:
    """A card by its data sheet.

    Attributes:
        name: as users write it ("H200"); arch: NVRTC target ("sm_90a").
        sms: streaming multiprocessors; clock_ghz: maximum SM clock; l2_bytes: L2 capacity.
        bandwidth_gb_per_s: data-sheet DRAM peak; launch_us: cost of an empty launch.
        tflops: peak dense rate at maximum clock by input dtype ("float16", "float32", "tf32", "int8", ...).
        model: constants of the cost model (clocks, bytes/clock), measured where the source says so.
        source: where the numbers come from.
    """

    name: str
    arch: str
    sms: int
    clock_ghz: float
    l2_bytes: int
    bandwidth_gb_per_s: float
    launch_us: float
    tflops: Mapping[str, float]
    limits: Limits
    model: Mapping[str, float]
    source: str

    def floor_us(self, bytes_moved: float, flops: float, dtype: str) -> float:
        """Roofline floor: launch + max(bytes / peak bandwidth, FLOPs / peak rate). Microseconds."""
        return self.launch_us + max(bytes_moved / (self.bandwidth_gb_per_s * 1e3), flops / (self.tflops[dtype] * 1e6))


def known() -> tuple[str, ...]:
    """Names of the described cards, as `load` accepts them (case does not matter)."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@functools.cache
def load(name: str) -> Gpu:
    """Read one description.

    Raises:
        GpuError: no such card; the message lists those there are.
    """
    path = {p.stem.lower(): p for p in _FOLDER.glob("*.toml")}.get(name.lower())
    if path is None:
        raise GpuError(f"gpu = {name!r} is not described; known: {', '.join(known())}. Add a file to fitness/gpus/.")
    data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    limits = data.pop("limits")
    limits["grid"] = tuple(limits["grid"])
    return Gpu(limits=Limits(**limits), **data)
