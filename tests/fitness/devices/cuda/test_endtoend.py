"""What a call costs besides the kernel, and what is read out of an nsys report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fitness.devices.cuda import endtoend, nsys
from fitness.devices.cuda.tools import ToolError
from fitness.gpu import load
from tests.fitness.devices.cuda.fake import FakeCard, copy_inputs, copy_program

REPORT = """Generating SQLite file run.sqlite from run.nsys-rep
Processing [run.sqlite] with [cuda_gpu_kern_sum.py]...

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
71.4,24640,2,12320.0,12320.0,12288,12352,45.3,spmm
28.6,9856,1,9856.0,9856.0,9856,9856,0.0,"void poison<int, 4>(unsigned int *, int)"
"""


def test_calls_are_timed_in_a_stream_and_in_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    card, ran = FakeCard(), []

    def work() -> None:
        card.clock_us += 7.0
        ran.append(1)

    def enqueue(*_: Any) -> None:
        card._do(work)

    loaded = SimpleNamespace(arguments=lambda _: (), enqueue=enqueue)
    monkeypatch.setattr(endtoend, "LoadedProgram", lambda *_: loaded)
    cost = endtoend.cost(card, copy_program(), copy_inputs())  # type: ignore[arg-type]
    assert cost.stream_us == pytest.approx(7.0)
    assert cost.graph_us == pytest.approx(7.0)
    assert cost.launch_us > 0
    assert cost.request_us > 0
    batches = endtoend._BATCHES
    assert len(ran) == 1 + 2 * batches * endtoend._BATCH + batches


def test_a_process_that_fails_says_why() -> None:
    with pytest.raises(ToolError, match="measuring end to end failed: "):  # no driver or no such entry, anywhere
        endtoend.measure(copy_program(), copy_inputs(), load("H200"))


def test_kernels_come_out_of_the_report() -> None:
    spmm, poison = nsys.parse(REPORT)
    assert (spmm.name, spmm.count) == ("spmm", 2)
    assert spmm.median_us == pytest.approx(12.32)
    assert poison.name == "void poison<int, 4>(unsigned int *, int)"
    assert nsys.parse("SKIPPED: run.sqlite does not contain CUDA kernel data.\n") == ()


def test_a_missing_nsys_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fitness.devices.cuda.tools.find_tool", lambda _: None)
    with pytest.raises(ToolError, match="nsys is not installed"):
        nsys.kernel_times(copy_program(), copy_inputs(), load("H200"))
