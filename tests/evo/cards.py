"""A stand-in for a card whose vendor routines do what their names say; it needs no driver."""

from __future__ import annotations

import inspect
import os
import time
from pathlib import Path
from typing import NoReturn

from fitness.baselines import NotApplicableError
from fitness.devices.cuda.cuda import Cuda, SubjectMaker
from fitness.gpu import Gpu
from fitness.timing import Plan


def asked() -> list[str]:
    """Routines the cards of this test's processes were asked for, in order; the list lies beside the compile cache."""
    file = _file()
    return file.read_text().split() if file.exists() else []


def _file() -> Path:
    return Path(os.environ["EVO_CACHE"]) / "routines.txt"  # of the few variables that a worker sees


class RoutineCard(Cuda):
    """The routine "hangs" does not answer, every other one refuses the task. Takes down what it was asked for."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.spent = False
        self.run_s = 1.0

    def routine(self, make: SubjectMaker, reference_us: float, plan: Plan) -> NoReturn:  # noqa: ARG002
        name = inspect.getclosurevars(make).nonlocals["name"]
        with _file().open("a") as file:
            file.write(f"{name}\n")
        if name == "hangs":
            time.sleep(600)
        raise NotApplicableError(f"{name} does not take this task")

    def probe(self) -> None:
        """Nothing is broken."""
