"""Times routines on a card by the protocol candidates are timed by: same data, cold, rotating operands, graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fitness import costing
from fitness.baselines import LENIENT, VENDORS, BaselineTimes, Given, NotApplicableError, Run, routine
from fitness.correctness import check
from fitness.devices.cuda.cuda import Cuda
from fitness.devices.cuda.driver import Array, Card
from fitness.devices.cuda.memory import OperandCache
from fitness.devices.device import Measurement, Timeable
from fitness.inputs import Case, make_case
from fitness.kernel import FormatChoice
from fitness.outcome import WrongValues
from fitness.task import Task
from fitness.timing import CONFIRM, FULL, Estimate, Plan, ratio_estimate


class _Borrowed:
    """Device memory of ours that torch views as a tensor (the CUDA array interface, version 3)."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, False), "version": 3, "strides": None
        }  # fmt: skip


def _tensor(address: int, like: Array, dtype: str) -> Any:
    import torch

    if dtype == "bfloat16":
        return torch.as_tensor(_Borrowed(address, like.shape, "<i2"), device="cuda").view(torch.bfloat16)
    return torch.as_tensor(_Borrowed(address, like.shape, like.dtype.str), device="cuda")


def _given(task: Task, case: Case, addresses: Mapping[str, int]) -> Given:
    """The operands at these addresses as tensors."""
    types = {"W.values": task.dtype, "X": task.dtype, "bias": task.dtype, "residual": task.out_dtype}
    buffers = case.inputs.buffers
    tensors = {name: _tensor(addresses[name], buffers[name], dtype) for name, dtype in types.items()}
    bias, residual = (tensors[name] if name in task.epilogue else None for name in ("bias", "residual"))
    factor = float(case.scalars["scale"]) if "scale" in task.epilogue else None
    return Given(task, tensors["W.values"], tensors["X"], bias, residual, factor)


class RoutineSubject:
    """A routine as something to be timed beside candidates; its operands rotate as theirs do."""

    def __init__(self, name: str, task: Task, case: Case, card: Card, cache: OperandCache, runs: int) -> None:
        import torch

        self._torch, self.card, self._case, self._cache = torch, card, case, cache
        self._stream = torch.cuda.ExternalStream(card.stream)
        self.sets = cache.get(case.inputs)
        self._results: dict[int, Any] = {}
        self.arena = (card.allocate(256), 256)
        prepare = routine(name)
        self._runs: list[Run] = []
        with torch.cuda.stream(self._stream):
            for addresses in self.sets.addresses[: max(1, runs)]:
                self._runs.append(prepare(_given(task, case, addresses)))

    def clear(self) -> None:
        """Nothing: a routine keeps no state of ours."""

    def enqueue(self, run: int) -> None:
        """One product on the card's stream."""
        with self._torch.cuda.stream(self._stream):
            self._results[run] = self._runs[run % len(self._runs)]()

    def outputs(self, run: int) -> Mapping[str, Array]:
        """Y of that run."""
        result = self._results[run].contiguous()
        like = self._case.inputs.outputs["Y"]
        raw = self.card.download(result.data_ptr(), like.nbytes)
        return {"Y": raw.view(like.dtype).reshape(like.shape)}

    def intact(self) -> bool:
        """True if the operands were left alone."""
        return self._cache.intact(self.sets)

    def close(self) -> None:
        """Forget tensors; torch keeps its memory for the next."""
        self._results.clear()
        self._runs.clear()
        self.card.free(self.arena[0])


def maker(name: str, task: Task, case: Case) -> Any:
    """A `SubjectMaker` of a routine on a dense case."""
    return lambda card, cache, runs: RoutineSubject(name, task, case, card, cache, runs)


def dense_case(task: Task, shape: Mapping[str, int], device: Cuda) -> Case:
    """The operands of a shape with W dense, zeros and all."""
    return make_case(task, shape, FormatChoice("dense"), seed=0, data="normal", gpu=device.gpu)


def measure(task: Task, device: Cuda, names: Sequence[str] = VENDORS, plan: Plan = FULL) -> tuple[BaselineTimes, ...]:
    """Time each routine at every shape of the task; wrong results (see `LENIENT`) count as not applicable, aloud."""
    return tuple(_one(name, task, device, plan) for name in names)


def _one(name: str, task: Task, device: Cuda, plan: Plan) -> BaselineTimes:
    timings, remark, most = [], "", 1.0
    for shape in task.shapes:
        case = dense_case(task, shape, device)
        try:
            measured = device.routine(maker(name, task, case), 2 * task.floor_us(shape, device.gpu), plan)
        except (NotApplicableError, RuntimeError, ImportError, AttributeError) as error:
            device.probe()
            return BaselineTimes(name, (), str(error).splitlines()[0][:200])
        for found in _beyond(case, measured):
            if not found.margin <= LENIENT.get(name, 1.0):
                return BaselineTimes(
                    name, (), f"its result is wrong: {found.pattern}, {found.margin:.3g}x the tolerance"
                )
            most = max(most, found.margin)
            remark = f"off by {most:.3g}x the tolerance: it rounds after each operation"
        timings.append(costing.timing_of(task, device, shape, measured))
    return BaselineTimes(name, tuple(timings), remark=remark)


def _beyond(case: Case, measured: Measurement) -> Iterator[WrongValues]:
    """Results that are beyond the tolerance of candidates."""
    for outputs in measured.outputs:
        found = check(case, outputs, {"Y": np.ones(outputs["Y"].shape, np.bool_)}, sampled=False)
        if found is not None:
            yield found


def beside(
    task: Task,
    device: Cuda,
    shape: Mapping[str, int],
    subject: Timeable,
    name: str,
    others: Mapping[str, Timeable] | None = None,
) -> tuple[Measurement, dict[str, Estimate]]:
    """Time a candidate by the full protocol of confirmation, interleaved with a vendor routine and other kernels.

    Args:
        task: what all compute.
        device: the card.
        shape: one of the task's.
        subject: the candidate at that shape.
        name: of a routine known to work here: one that breaks the card breaks it for the candidate too. "" for none.
        others: further kernels at that shape, by name.

    Returns:
        (its measurement, time / candidate time of each of the others by name).

    Raises:
        TimingError: the candidate or one of the others did not finish.
    """
    others = others or {}
    rivals = [maker(name, task, dense_case(task, shape, device))] if name else []
    own, *theirs = device.beside((subject, *others.values()), rivals, CONFIRM)
    ratios = {}
    for label, measured in zip((*others, *([name] if name else [])), theirs, strict=True):
        pair = [np.array(each.samples_us).reshape(CONFIRM.blocks, -1) for each in (measured, own)]
        ratios[label] = ratio_estimate(pair[0], pair[1])
    return own, ratios
