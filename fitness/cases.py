"""The cases a process has met lately: workers judge many kernels on the same ones."""

from __future__ import annotations

from collections import OrderedDict

from fitness.gpu import Gpu
from fitness.inputs import Case, make_case
from fitness.kernel import FormatChoice
from fitness.shapes import Shape
from fitness.task import Task


class CaseCache:
    """Keeps made cases while their packed operands take at most `capacity_bytes`; the latest always stays.

    Operands and references are shared between formats and kept by `fitness.operands`; this holds what a device
    is handed.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._held: OrderedDict[tuple[object, ...], Case] = OrderedDict()

    def get(self, task: Task, shape: Shape, choice: FormatChoice, *, seed: int, data: str, gpu: Gpu) -> Case:
        """The case of these arguments (as `make_case`), made if need be."""
        options = tuple(sorted(choice.options.items()))
        key = (task.fingerprint, tuple(sorted(shape.items())), choice.name, options, seed, data, gpu.name)
        if key not in self._held:
            self._held[key] = make_case(task, shape, choice, seed=seed, data=data, gpu=gpu)
        self._held.move_to_end(key)
        while len(self._held) > 1 and self.held_bytes > self.capacity_bytes:
            self._held.popitem(last=False)
        return self._held[key]

    @property
    def held_bytes(self) -> int:
        """Bytes of all buffers and outputs it keeps; cases that differ in N only share W."""
        arrays = {
            id(array): array.nbytes
            for case in self._held.values()
            for array in (*case.inputs.buffers.values(), *case.inputs.outputs.values())
        }
        return sum(arrays.values())
