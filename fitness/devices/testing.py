"""The contract of a device, as tests any implementation passes.

Subclass it in a test module and give a `device` fixture:

    class TestSimulator(DeviceContract):
        @pytest.fixture
        def device(self) -> Device:
            return Simulator(load("H200"))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from fitness.compile import compile_source
from fitness.devices.device import (
    Argument,
    Array,
    BufferRef,
    Checks,
    Compiled,
    Device,
    Execution,
    Inputs,
    Program,
    ResolvedLaunch,
    ResolvedWorkspace,
    Scalar,
    Timeable,
)

_COPY = """
extern "C" __global__ void copy(const float* x, float* y, int n, int first) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i + first] = 2.0f * x[i];
}
"""
_SCALARS = """
extern "C" __global__ void scalars(float* y, int a, unsigned b, long long c, float d) {
  if (threadIdx.x == 0) { y[0] = a; y[1] = b; y[2] = c; y[3] = d; }
}
"""
_ACCUMULATE = """
extern "C" __global__ void accumulate(float* sum, float* y, int n) {
  if (threadIdx.x == 0) { sum[blockIdx.x] += 1.0f; y[blockIdx.x] = sum[blockIdx.x]; }
}
"""
_MODULE = """
__device__ int calls;
extern "C" __global__ void count(float* y) { if (threadIdx.x == 0) { calls += 1; y[0] = calls; } }
"""
_SPIN = """
// A loop over a volatile local variable will not do: ptxas 13.0 drops it. This one reads global memory.
extern "C" __global__ void spin(volatile float* y, int n) { y[threadIdx.x] = n; while (y[threadIdx.x] == n) { } }
"""
_TRAP = """
extern "C" __global__ void trap(float* y) { y[threadIdx.x] = 1.0f; if (threadIdx.x == 3) asm volatile("trap;"); }
"""
_MISALIGNED = """
extern "C" __global__ void misaligned(const float* x, float* y) {
  float4 v = *reinterpret_cast<const float4*>(x + 1);
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}
"""


def program_of(
    source: str,
    device: Device,
    *arguments: Argument,
    grid: int = 1,
    block: int = 32,
    memset: tuple[str, ...] = (),
    workspaces: tuple[ResolvedWorkspace, ...] = (),
) -> Program:
    """A program of one launch of the source's only entry."""
    compiled = compile_source(source, arch=device.gpu.arch)
    assert isinstance(compiled, Compiled), compiled
    (entry,) = compiled.entries
    launch = ResolvedLaunch(entry, (grid, 1, 1), (block, 1, 1), 0, arguments, memset)
    return Program(compiled, (launch,), workspaces)


def inputs_of(outputs: int, **buffers: Array) -> Inputs:
    """Inputs by name and one float32 output Y of `outputs` elements."""
    named: Mapping[str, Array] = buffers
    return Inputs(named, {"Y": np.zeros(outputs, np.float32)})


X, Y = BufferRef("X"), BufferRef("Y")


class DeviceContract:
    """What `Device` promises. What a card cannot do without tools is switched off by name.

    Attributes:
        samples: it can run some blocks of a grid; locates: its findings name the line; sees_reads: it finds reads
            out of bounds.
    """

    samples = True
    locates = True
    sees_reads = True

    @pytest.fixture
    def device(self) -> Device:
        """The device under test."""
        raise NotImplementedError("give a `device` fixture")

    def copied(self, device: Device, n: int = 100, first: int = 0, checks: Checks | None = None) -> Execution:
        """Runs y[i + first] = 2 x[i] for i < n on 100 elements, 32 threads a block."""
        program = program_of(_COPY, device, X, Y, Scalar("n", n), Scalar("first", first), grid=4)
        x = np.arange(100, dtype=np.float32)
        return device.run(program, inputs_of(100, X=x), checks or Checks())

    def test_clock_and_card_are_named(self, device: Device) -> None:
        """Times can be told apart by clock and belong to a described card."""
        assert device.clock in ("modelled", "measured")
        assert device.gpu.sms > 0

    def test_results_come_back_in_shape_and_type(self, device: Device) -> None:
        """A right kernel finishes clean with what it computed."""
        execution = self.copied(device)
        assert (execution.ended, execution.findings) == ("finished", ())
        assert execution.outputs["Y"].dtype == np.float32
        np.testing.assert_array_equal(execution.outputs["Y"], 2 * np.arange(100, dtype=np.float32))
        assert execution.written["Y"].all()
        assert execution.steps > 0 or device.clock == "measured"

    def test_unwritten_outputs_never_look_right(self, device: Device) -> None:
        """Outputs are poisoned before the run: what the kernel leaves out is neither 0 nor an older result."""
        self.copied(device)
        execution = self.copied(device, n=60)
        left = execution.outputs["Y"][60:]
        plausible = np.array([0.0, *(2.0 * np.arange(60, 100))], np.float32)
        assert not (left[:, None] == plausible).any()
        if device.clock == "modelled":
            np.testing.assert_array_equal(execution.written["Y"], np.arange(100) < 60)

    def test_inputs_are_left_alone(self, device: Device) -> None:
        """The host's arrays do not change."""
        x = np.arange(100, dtype=np.float32)
        program = program_of(_COPY, device, X, Y, Scalar("n", 100), Scalar("first", 0), grid=4)
        device.run(program, inputs_of(100, X=x), Checks())
        np.testing.assert_array_equal(x, np.arange(100, dtype=np.float32))

    def test_the_same_run_gives_the_same_execution(self, device: Device) -> None:
        """Bit for bit."""
        first, second = self.copied(device, n=60), self.copied(device, n=60)
        assert first.outputs["Y"][:60].tobytes() == second.outputs["Y"][:60].tobytes()
        assert first.findings == second.findings

    def test_writes_past_the_end_are_found(self, device: Device) -> None:
        """By one element."""
        execution = self.copied(device, first=1)
        assert [finding.severity for finding in execution.findings][:1] == ["error"]
        assert execution.findings[0].line == (4 if self.locates else None)

    def test_reads_past_the_end_are_found(self, device: Device) -> None:
        """By one element, though the result is not even used."""
        if not self.sees_reads:
            pytest.skip("this device finds reads out of bounds with tools only")
        program = program_of(_COPY, device, X, Y, Scalar("n", 101), Scalar("first", -1), grid=4)
        execution = device.run(program, inputs_of(100, X=np.zeros(100, np.float32)), Checks())
        assert execution.findings

    def test_misaligned_accesses_are_found(self, device: Device) -> None:
        """A 16-byte load from an address that is not a multiple of 16."""
        program = program_of(_MISALIGNED, device, X, Y)
        execution = device.run(program, inputs_of(32, X=np.zeros(100, np.float32)), Checks())
        assert execution.findings
        assert execution.findings[0].line is not None or not self.locates

    def test_scalars_take_the_type_of_the_parameter(self, device: Device) -> None:
        """Signed, unsigned, 64-bit and floating-point."""
        values = (Scalar("a", -7), Scalar("b", 2**31), Scalar("c", 2**40), Scalar("d", 0.5))
        execution = device.run(program_of(_SCALARS, device, Y, *values), inputs_of(4), Checks())
        np.testing.assert_array_equal(execution.outputs["Y"], [-7, 2**31, 2**40, 0.5])

    def test_workspaces_are_initialised_as_they_say(self, device: Device) -> None:
        """Zero gives zeros, poison gives none."""
        for init in ("zero", "poison"):
            scratch = ResolvedWorkspace("S", 64, init)
            program = program_of(_ACCUMULATE, device, BufferRef("S"), Y, Scalar("n", 1), grid=16, workspaces=(scratch,))
            execution = device.run(program, inputs_of(16), replace(Checks(), uninitialised=init != "zero"))
            clean = (execution.outputs["Y"] == 1.0).all() and not execution.findings
            assert clean == (init == "zero")

    def test_memset_clears_before_the_launch(self, device: Device) -> None:
        """An output may be accumulated into once it is in `memset`."""
        program = program_of(_ACCUMULATE, device, Y, Y, Scalar("n", 1), grid=16, memset=("Y",))
        execution = device.run(program, inputs_of(16), Checks())
        np.testing.assert_array_equal(execution.outputs["Y"], np.ones(16))

    def test_module_variables_are_restored_before_every_launch(self, device: Device) -> None:
        """Nothing survives from one launch to the next in device globals."""
        once = program_of(_MODULE, device, Y)
        twice = replace(once, launches=once.launches * 2)
        for program in (once, twice, once):
            execution = device.run(program, inputs_of(1), Checks())
            assert execution.outputs["Y"][0] == 1.0

    def test_endless_loops_end(self, device: Device) -> None:
        """By the step budget (or the clock of a card), as `ended`, not as an exception."""
        program = program_of(_SPIN, device, Y, Scalar("n", 1))
        execution = device.run(program, inputs_of(32), Checks(steps=2000))
        assert execution.ended == ("steps" if device.clock == "modelled" else "time")

    def test_traps_are_told(self, device: Device) -> None:
        """A trap ends the run as `ended`."""
        execution = device.run(program_of(_TRAP, device, Y), inputs_of(32), Checks())
        assert execution.ended == "trap"

    def test_chosen_blocks_alone_run(self, device: Device) -> None:
        """Where the device can sample: only the blocks asked for write."""
        if not self.samples:
            pytest.skip("this device runs whole grids only")
        execution = self.copied(device, checks=Checks(blocks=((0, 3),)))
        expected = np.zeros(100, np.bool_)
        expected[:32] = expected[96:] = True
        np.testing.assert_array_equal(execution.written["Y"], expected)
        np.testing.assert_array_equal(execution.outputs["Y"][expected], 2 * np.arange(100, dtype=np.float32)[expected])

    def test_times_are_possible_and_in_order(self, device: Device) -> None:
        """No launch is free, bounds hold the time, more work takes longer, subjects keep their order."""
        sizes = (1 << 12, 1 << 20)
        subjects = []
        for n in sizes:
            program = program_of(_COPY, device, X, Y, Scalar("n", n), Scalar("first", 0), grid=n // 256, block=256)
            subjects.append(Timeable(program, inputs_of(n, X=np.zeros(n, np.float32))))
        small, large = device.time(subjects, screen=False)
        for measured in (small, large):
            assert device.gpu.launch_us <= measured.low_us <= measured.time_us <= measured.high_us
            assert 0.0 < measured.occupancy <= 1.0
        assert large.time_us > small.time_us
        # 8 MB must cross DRAM
        assert large.time_us >= device.gpu.floor_us(8 * sizes[1], 0.0, "float32") or device.clock == "measured"

    def test_profiles_have_counters_and_name_the_limiter(self, device: Device) -> None:
        """Numbers by name and one sentence."""
        program = program_of(_COPY, device, X, Y, Scalar("n", 100), Scalar("first", 0), grid=4)
        profile = device.profile(program, inputs_of(100, X=np.zeros(100, np.float32)))
        assert profile.counters
        assert all(np.isfinite(value) for value in profile.counters.values())
        assert profile.limiter
