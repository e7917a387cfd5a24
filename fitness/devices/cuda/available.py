"""Whether this machine has a card that evo can use, without opening it in this process."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from fitness import gpu as gpus


@dataclass(frozen=True)
class CardInfo:
    """A card as the driver names it. `index` as the driver counts; `capability` (major, minor)."""

    index: int
    name: str
    capability: tuple[int, int]
    memory_bytes: int


def missing() -> str:
    """Why no card can be used, with what to do; empty if one can."""
    for module, package in (("cuda.bindings", "cuda-bindings"), ("pycuda", "pycuda")):
        if importlib.util.find_spec(module) is None:
            return f"{package} is not installed; pip install 'evo-kernels[gpu]'"
    try:
        found = cards()
    except RuntimeError as error:
        return f"no NVIDIA driver: {error}; install one, then nvidia-smi should list the card"
    return "" if found else "the driver sees no card; check nvidia-smi and CUDA_VISIBLE_DEVICES"


def cards() -> tuple[CardInfo, ...]:
    """The visible cards. Initialises the driver, makes no context.

    Raises:
        RuntimeError: no driver, or it does not work.
    """
    from cuda.bindings import driver as cu

    try:
        status = cu.cuInit(0)[0]
    except RuntimeError as error:  # cuda-bindings raises where libcuda.so cannot be loaded
        raise RuntimeError(str(error).splitlines()[0]) from error
    if int(status) == 100:  # CUDA_ERROR_NO_DEVICE
        return ()
    if int(status) != 0:
        raise RuntimeError(f"cuInit: {status.name}")
    found = []
    for index in range(cu.cuDeviceGetCount()[1]):
        device = cu.cuDeviceGet(index)[1]
        kinds = cu.CUdevice_attribute
        major = cu.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)[1]
        minor = cu.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)[1]
        name = cu.cuDeviceGetName(96, device)[1].split(b"\0")[0].decode()
        found.append(CardInfo(index, name, (int(major), int(minor)), int(cu.cuDeviceTotalMem(device)[1])))
    return tuple(found)


def described(card: CardInfo) -> str | None:
    """Name of the data sheet (fitness/gpus) of a card, or None if there is none."""
    words = card.name.replace("-", " ").split()
    return next((name for name in gpus.known() if name in words), None)
