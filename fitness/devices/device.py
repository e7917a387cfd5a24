"""The `Device` protocol: what the simulator and a real GPU have in common.

A device runs a `Program` (compiled code + launches resolved for one shape) on `Inputs` (host arrays by
name) and gives back an `Execution` (host arrays + findings). It knows nothing of tasks or tolerances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fitness.gpu import Gpu
from fitness.outcome import Clock, Finding

Array = NDArray[Any]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel entry as its PTX signature declares it.

    `type` is the PTX type without the dot ("u64", "f32", "b8"); `bytes` its size (128 for an opaque
    TensorMap passed by value); `pointer` is True for `.ptr` parameters or 64-bit ones given a buffer.
    """

    name: str
    type: str
    bytes: int
    pointer: bool = False


@dataclass(frozen=True)
class Entry:
    """One `extern "C" __global__` function of a compiled candidate and what ptxas says it uses.

    `max_threads` is the largest block its launch bounds allow; `required_block` the only one (`.reqntid`), if any,
    `required_cluster` the only cluster (`.reqnctapercluster`).
    """

    name: str
    parameters: tuple[Parameter, ...]
    registers: int
    shared_bytes: int
    local_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    max_threads: int = 1024
    required_block: Dim3 | None = None
    required_cluster: Dim3 | None = None


@dataclass(frozen=True)
class Compiled:
    """What NVRTC made of one source for one architecture.

    `ptx` was built with -lineinfo; its `.loc` lines of file "candidate.cu" are the candidate's own line
    numbers (header comment included). `code_hash` is the sha256 of the code and initialised data of the
    cubin (a changed comment keeps it).
    """

    arch: str
    ptx: str
    cubin: bytes
    code_hash: str
    entries: Mapping[str, Entry]
    warnings: tuple[Finding, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Scalar:
    """A by-value argument; the device converts it to the parameter's declared type."""

    name: str
    value: int | float


@dataclass(frozen=True)
class BufferRef:
    """A pointer argument: the named buffer of `Inputs` or a workspace of the `Program`."""

    name: str


@dataclass(frozen=True)
class ResolvedTensorMap:
    """A tensor map passed by value (`const __grid_constant__`): the arguments of cuTensorMapEncodeTiled.

    Devices encode it for the address of `buffer`; `fitness.tensormap.problem` has checked it. Interleave is none.

    Attributes:
        name: as the header calls it. buffer: of `Inputs` or a workspace.
        dtype: element type ("float16", "bfloat16", "float32", "uint8", ...).
        dims: elements, innermost first; strides: bytes, of all dimensions but the innermost.
        box, element_strides: elements, innermost first.
        swizzle: "none", "32B", "64B" or "128B"; l2promotion: "none", "64B", "128B" or "256B".
        oob: what lies outside of the tensor: "zeros" or "nan".
    """

    name: str
    buffer: str
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: str = "none"
    l2promotion: str = "none"
    oob: str = "zeros"


Argument = Scalar | BufferRef | ResolvedTensorMap


@dataclass(frozen=True)
class ResolvedWorkspace:
    """Scratch memory of a program; init as in the kernel header ("poison", "zero", "zero_once")."""

    name: str
    bytes: int
    init: Literal["poison", "zero", "zero_once"]


@dataclass(frozen=True)
class ResolvedLaunch:
    """One kernel launch with every expression evaluated for one shape.

    `shared`: dynamic bytes; `pdl`: may start before the launch before it has ended (programmatic dependent
    launch); `carveout`: percent of L1 preferred as shared memory.
    """

    entry: str
    grid: Dim3
    block: Dim3
    shared: int
    arguments: tuple[Argument, ...]
    memset: tuple[str, ...] = ()
    cluster: Dim3 = (1, 1, 1)
    cooperative: bool = False
    pdl: bool = False
    carveout: int | None = None


@dataclass(frozen=True)
class Program:
    """Compiled code plus the launches for one shape, ready to run on a device.

    `align`: bytes to which correctness runs align every buffer, exactly (16 by default).
    """

    compiled: Compiled
    launches: tuple[ResolvedLaunch, ...]
    workspaces: tuple[ResolvedWorkspace, ...] = ()
    align: int = 16


@dataclass(frozen=True)
class Inputs:
    """Host data of one run.

    Attributes:
        buffers: name -> contiguous 1-D or n-D array; bytes are what the kernel sees. Read-only inputs.
        outputs: name -> array giving shape and dtype of each output; devices poison it before launch.
    """

    buffers: Mapping[str, Array]
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class Checks:
    """What a run watches. Bounds and alignment are always on.

    `blocks`: None runs the whole grid; else the linear block indices to run (the simulator's sampling;
    a GPU refuses it). `steps`: budget of warp instructions before `TimedOut`.
    """

    races: bool = True
    uninitialised: bool = True
    counters: bool = False
    blocks: tuple[tuple[int, ...], ...] | None = None  # per launch
    steps: int = 50_000_000


FULL_CHECKS = Checks()


@dataclass(frozen=True)
class Execution:
    """Result of a run.

    Attributes:
        outputs: name -> array, same shapes and dtypes as Inputs.outputs.
        written: name -> bool array, True where the run wrote the element (all True where unknown).
        findings: sanitizer findings, errors first; empty when clean.
        ended: "finished"; "fault" (a finding stopped it); "trap"; "steps", or "time" on a card (it did not end);
            "refused" (the driver refuses the launch); "unsupported".
        steps: warp instructions executed.
        counters: device-specific counters per launch, None unless asked for.
        printed: what printf wrote, bounded.
    """

    outputs: Mapping[str, Array]
    written: Mapping[str, NDArray[np.bool_]]
    findings: tuple[Finding, ...] = ()
    ended: Literal["finished", "fault", "trap", "steps", "time", "refused", "unsupported"] = "finished"
    steps: int = 0
    counters: tuple[Any, ...] | None = None
    printed: str = ""


@dataclass(frozen=True)
class Measurement:
    """Time of one program: `time_us` with its bounds, raw samples, and the limiter in words.

    `reduced_steps`: (scale, warp instructions per block) of the runs at reduced K that a modelled time was
    extrapolated from, ascending; empty where the full size ran; None where the device does not say.
    `outputs`: what some of the timed runs wrote, for the caller to check; none on the modelled clock.
    `seconds`: wall seconds a card was kept for it, shared equally among what was timed together.
    """

    time_us: float
    low_us: float
    high_us: float
    samples_us: tuple[float, ...] = ()
    limiter: str = ""
    occupancy: float = 0.0
    reduced_steps: tuple[tuple[float, float], ...] | None = None
    outputs: tuple[Mapping[str, Array], ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Profile:
    """Counters (named as Nsight Compute names them where they mean the same) and the limiter sentence."""

    counters: Mapping[str, float]
    limiter: str
    per_line: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Timeable:
    """A program with the means to be timed; evaluate.py makes these.

    Full-size inputs and, for the modelled clock, the same program at reduced K, so that costs may be extrapolated.

    `reduced`: pairs (scale, program, inputs), scale = reduced K / full K, ascending; empty if K is not
    reducible.
    `reference_us`: a time that belongs to the shape, never to the candidate; a card derives from it how many
    runs one sample has.
    """

    program: Program
    inputs: Inputs
    reduced: tuple[tuple[float, Program, Inputs], ...] = ()
    reference_us: float = 0.0


class TimingError(RuntimeError):
    """A program did not finish while it was timed. `execution` says how it ended: a verdict on the kernel."""

    def __init__(self, execution: Execution) -> None:
        first = execution.findings[0].message if execution.findings else execution.ended
        super().__init__(f"timing run ended with {execution.ended!r}: {first}")
        self.execution = execution


class Device(Protocol):
    """Runs, times and profiles programs. Implementations pass `DeviceContract` (devices/testing.py)."""

    @property
    def gpu(self) -> Gpu:
        """The card it is, or is a model of."""

    @property
    def clock(self) -> Clock:
        """Its times are "modelled" or "measured"; the two are never mixed."""

    def run(self, program: Program, inputs: Inputs, checks: Checks) -> Execution:
        """Run all launches in order on poisoned outputs; expected failures are in the Execution."""

    def time(self, subjects: Sequence[Timeable], *, screen: bool) -> tuple[Measurement, ...]:
        """Time each subject (interleaved on a real card); `screen` asks for a few samples only.

        Raises:
            TimingError: a subject did not finish.
        """

    def profile(self, program: Program, inputs: Inputs) -> Profile:
        """Counters and the limiter sentence of one program."""


@runtime_checkable
class Perishable(Protocol):
    """A device that a candidate can break for its whole process: a card, after a hang or a fault.

    `spent`: it is broken; only a new process helps. `run_s`: wall seconds that one run may take.
    """

    spent: bool
    run_s: float


@runtime_checkable
class Shareable(Protocol):
    """A device that several processes use in turn: a card is nobody else's while a kernel is timed on it."""

    def share(self, lock: str) -> None:
        """Take turns with all who name the same lock file; a process that dies gives its turn up."""
