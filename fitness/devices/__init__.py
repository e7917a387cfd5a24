"""Devices: what runs and times programs. The simulator needs no GPU; a real card passes the same contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from fitness.devices.device import Device
from fitness.gpu import Gpu
from fitness.registry import find

DEVICES: Final[dict[str, str]] = {
    "simulator": "fitness.devices.simulator.simulator:Simulator",
}
"""Kind as experiments write it -> "module:Class"; the class is made with a `Gpu`."""


def open_device(kind: str, gpu: Gpu) -> Device:
    """Open a device by kind (or dotted path "module:Class") for, or as a model of, a card.

    Raises:
        fitness.registry.UnknownNameError: there is no such kind; the message has the nearest spelling.
    """
    make = cast(Callable[[Gpu], Device], find(DEVICES, kind, "device"))
    return make(gpu)
