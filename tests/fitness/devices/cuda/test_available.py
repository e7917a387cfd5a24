"""Which device "auto" means, and the logic that needs no card."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from fitness.compile import compile_source
from fitness.devices import resolve
from fitness.devices.cuda import available
from fitness.devices.cuda.available import CardInfo, described, missing
from fitness.devices.cuda.cuda import Cuda
from fitness.devices.cuda.driver import CudaError, HangError, argument_bytes, checked
from fitness.devices.cuda.loaded import UnrestorableError, global_variables
from fitness.devices.device import BufferRef, Compiled, Entry, Parameter, ResolvedLaunch, Scalar
from fitness.gpu import load
from tests.fitness.devices.cuda.fake import copy_inputs


def card(name: str) -> CardInfo:
    return CardInfo(0, name, (9, 0), 1 << 37)


@pytest.mark.parametrize(
    ("name", "sheet"),
    [("NVIDIA H200", "H200"), ("NVIDIA H200 NVL", "H200"), ("NVIDIA A100-SXM4-80GB", "A100"), ("NVIDIA H100", None)],
)
def test_cards_find_their_data_sheet(name: str, sheet: str | None) -> None:
    assert described(card(name)) == sheet


@pytest.mark.parametrize(
    ("why", "name", "kind", "reason"),
    [
        ("pycuda is not installed", "", "simulator", "pycuda"),
        ("", "NVIDIA H200", "cuda", "is here"),
        ("", "NVIDIA A100-SXM4-80GB", "simulator", "not H200"),
    ],
)
def test_auto_says_what_it_chose(monkeypatch: pytest.MonkeyPatch, why: str, name: str, kind: str, reason: str) -> None:
    monkeypatch.setattr(available, "missing", lambda: why)
    monkeypatch.setattr(available, "cards", lambda: (card(name),))
    assert resolve("auto", load("H200"))[0] == kind
    assert reason in resolve("auto", load("H200"))[1]
    assert resolve("simulator", load("H200")) == ("simulator", "asked for")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pycuda" else object())
    assert missing().startswith("pycuda is not installed; pip install")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())

    def no_driver() -> tuple[CardInfo, ...]:
        raise RuntimeError("libcuda.so.1 cannot be opened")

    monkeypatch.setattr(available, "cards", no_driver)
    assert "no NVIDIA driver: libcuda" in missing()
    monkeypatch.setattr(available, "cards", tuple)
    assert "sees no card" in missing()


def test_parameters_take_their_types() -> None:
    types = ("u64", "u32", "u32", "f32", "u64", "u16")
    entry = Entry("k", tuple(Parameter(f"p{i}", t, 8) for i, t in enumerate(types)), 1, 0, 0, 0, 0)
    arguments = (
        BufferRef("X"),
        Scalar("a", -7),
        Scalar("b", 2**31),
        Scalar("c", 0.5),
        Scalar("d", 2**40),
        Scalar("e", -1),
    )
    launch = ResolvedLaunch("k", (1, 1, 1), (1, 1, 1), 0, arguments)
    found = argument_bytes(entry, launch, {"X": 4096})
    assert [value.tobytes() for value in found] == [
        np.uint64(4096).tobytes(), np.int32(-7).tobytes(), np.uint32(2**31).tobytes(), np.float32(0.5).tobytes(),
        np.uint64(2**40).tobytes(), np.uint16(65535).tobytes(),
    ]  # fmt: skip


def test_variables_that_code_uses_are_restored() -> None:
    source = (
        "__device__ int calls; static __device__ float table[2] = {1, 2};\n"
        "__device__ int unused; __constant__ int c[2];\n"
        'extern "C" __global__ void k(float* y) { calls += 1; y[0] = calls + table[threadIdx.x] + c[threadIdx.x]; }'
    )
    compiled = compile_source(source)
    assert isinstance(compiled, Compiled)
    names = global_variables(compiled.ptx)
    assert "calls" in names
    assert any("table" in name for name in names)
    assert not any("unused" in name for name in names)
    assert "c" not in names


def test_variables_of_a_long_listing_are_found_in_one_pass() -> None:
    table = "".join(f".global .align 4 .b8 table{n}[4];\n" for n in range(200))
    ptx = table + "ld.global.u32 %r1, [table7];\n" * 40_000 + "mov.u64 %rd1, table13;\n"
    began = time.process_time()
    assert global_variables(ptx) == ("table7", "table13")
    assert time.process_time() - began < 2.0  # a search for each name took 10


class Status(int):
    name = "CUDA_ERROR_ILLEGAL_ADDRESS"


def test_driver_errors_carry_code_and_name() -> None:
    assert checked((0, 5), "call") == 5
    assert checked((0, 5, 6), "call") == (5, 6)
    with pytest.raises(CudaError, match="kernel: illegal address") as caught:
        checked((Status(700), None), "kernel")
    assert (caught.value.code, caught.value.name) == (700, "ILLEGAL_ADDRESS")


@pytest.mark.parametrize(
    ("error", "kind", "ended", "spent"),
    [
        (CudaError("kernel", 700, "ILLEGAL_ADDRESS"), "out_of_bounds", "fault", True),
        (CudaError("kernel", 716, "MISALIGNED_ADDRESS"), "misaligned", "fault", True),
        (CudaError("kernel", 719, "LAUNCH_FAILED"), "trap", "trap", True),
        (CudaError("launch", 701, "LAUNCH_OUT_OF_RESOURCES"), "launch_refused", "refused", False),
        (HangError("no end"), "time_limit", "time", True),
        (UnrestorableError("no name"), "module_state", "unsupported", False),
    ],
)
def test_failures_become_executions(error: Any, kind: str, ended: str, spent: bool) -> None:
    device = object.__new__(Cuda)  # without a card
    device.spent, device.run_s = False, 1.0
    execution = device._ended(error, copy_inputs())
    assert (execution.findings[0].kind, execution.ended, device.spent) == (kind, ended, spent)
    assert not execution.written["Y"].any()


def test_a_fault_of_the_machine_is_no_verdict() -> None:
    device = object.__new__(Cuda)
    device.spent, device.run_s = False, 1.0
    with pytest.raises(CudaError):
        device._ended(CudaError("cuModuleLoadData", 209, "NO_BINARY_FOR_GPU"), copy_inputs())
