"""Devices: what runs and times programs. The simulator needs no GPU; a real card passes the same contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from fitness.devices.device import Device
from fitness.gpu import Gpu
from fitness.registry import find

DEVICES: Final[dict[str, str]] = {
    "simulator": "fitness.devices.simulator.simulator:Simulator",
    "cuda": "fitness.devices.cuda.cuda:Cuda",
}
"""Kind as experiments write it -> "module:Class"; the class is made with a `Gpu`."""


def open_device(kind: str, gpu: Gpu) -> Device:
    """Open a device by kind (or dotted path "module:Class") for, or as a model of, a card.

    Raises:
        fitness.registry.UnknownNameError: there is no such kind; the message has the nearest spelling.
    """
    make = cast(Callable[[Gpu], Device], find(DEVICES, kind, "device"))
    return make(gpu)


def resolve(kind: str, gpu: Gpu) -> tuple[str, str]:
    """The device that "auto" means on this machine for a card, and why.

    Args:
        kind: "auto", or a kind of `DEVICES`, which is given back as it is.
        gpu: the card that is asked for.

    Returns:
        (kind, reason): "cuda" where PyCUDA and that card are here, else "simulator".
    """
    if kind != "auto":
        return kind, "asked for"
    from fitness.devices.cuda.available import cards, described, missing

    why = missing()
    if why:
        return "simulator", why
    found = cards()
    if described(found[0]) == gpu.name:
        return "cuda", f"{found[0].name} is here"
    return "simulator", f"the card here is {found[0].name}, not {gpu.name}"
