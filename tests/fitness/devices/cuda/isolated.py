"""A card behind a process of its own, as the contract's tests want it: they break it and go on."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from typing import Any

from fitness.devices.device import Checks, Execution, Inputs, Measurement, Profile, Program, Timeable
from fitness.gpu import Gpu
from fitness.outcome import Clock


def _serve(connection: Any, gpu: Gpu) -> None:
    from fitness.devices.cuda.cuda import Cuda

    device = Cuda(gpu)
    device.run_s = 1.0
    while True:
        name, arguments, keywords = connection.recv()
        connection.send((getattr(device, name)(*arguments, **keywords), device.spent))


class IsolatedCuda:
    """Passes every call to a `Cuda` in a spawned process; a broken one is killed and replaced."""

    clock: Clock = "measured"

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self._process: Any = None

    def _call(self, name: str, *arguments: object, **keywords: object) -> Any:
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self.gpu), daemon=True)
            self._process.start()
        self._connection.send((name, arguments, keywords))
        answer, spent = self._connection.recv()
        if spent:
            self.close()
        return answer

    def run(self, program: Program, inputs: Inputs, checks: Checks) -> Execution:
        execution: Execution = self._call("run", program, inputs, checks)
        return execution

    def time(self, subjects: Sequence[Timeable], *, screen: bool) -> tuple[Measurement, ...]:
        measured: tuple[Measurement, ...] = self._call("time", subjects, screen=screen)
        return measured

    def profile(self, program: Program, inputs: Inputs) -> Profile:
        profile: Profile = self._call("profile", program, inputs)
        return profile

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
