"""`Simulator`: a `Device` that executes PTX on NumPy and models time on the card it stands for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fitness.devices.device import (
    FULL_CHECKS,
    Checks,
    Execution,
    Inputs,
    Measurement,
    Profile,
    Program,
    Timeable,
)
from fitness.devices.simulator.allocator import keep_freed_memory
from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.profiling import profile_program
from fitness.devices.simulator.running import Run
from fitness.devices.simulator.sites import Strayed
from fitness.devices.simulator.timing import model_program
from fitness.devices.simulator.tracing import Point, Tracer
from fitness.devices.simulator.variables import PtxError
from fitness.gpu import Gpu
from fitness.outcome import Clock


class Simulator:
    """The simulator as a device.

    Args:
        gpu: the card it is a model of.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        keep_freed_memory()

    @property
    def gpu(self) -> Gpu:
        """The card it is a model of."""
        return self._gpu

    @property
    def clock(self) -> Clock:
        """Times are modelled."""
        return "modelled"

    def run(self, program: Program, inputs: Inputs, checks: Checks) -> Execution:
        """Run all launches in order on poisoned outputs; what is wrong is in the Execution.

        Where counters of some blocks alone are asked for, results (which are worth nothing then) are left out.
        """
        counted = checks.counters and checks.blocks is not None and not (checks.races or checks.uninitialised)
        try:
            try:
                return Run(program, inputs, checks, whole=not counted).execute()
            except Strayed:
                return Run(program, inputs, checks).execute()
        except PtxError as error:
            return self._unsupported(inputs, error)

    def trace(self, program: Program, inputs: Inputs, point: Point) -> tuple[Execution, Tracer]:
        """Run with all checks and keep what one thread does at one source line, until a fault if there is one."""
        tracer = Tracer(point)
        try:
            return Run(program, inputs, FULL_CHECKS, tracer).execute(), tracer
        except PtxError as error:
            return self._unsupported(inputs, error), tracer

    @staticmethod
    def _unsupported(inputs: Inputs, error: PtxError) -> Execution:
        stop = unsupported(f"this PTX: {error}", 0)
        written = {name: np.zeros(array.shape, dtype=bool) for name, array in inputs.outputs.items()}
        return Execution(dict(inputs.outputs), written, (stop.finding,), "unsupported")

    def time(self, subjects: Sequence[Timeable], *, screen: bool) -> tuple[Measurement, ...]:
        """Modelled time of each subject; `screen` changes nothing, for there is no noise.

        Raises:
            CostRunError: a subject does not finish, which its correctness runs should have shown.
        """
        del screen
        return tuple(model_program(self, subject) for subject in subjects)

    def profile(self, program: Program, inputs: Inputs) -> Profile:
        """Counters and the limiter sentence of one program at full size.

        Raises:
            CostRunError: the program does not finish.
        """
        return profile_program(self, Timeable(program, inputs))
