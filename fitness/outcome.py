"""Verdicts on a kernel: an `Outcome` is data, never an exception and never a sentinel number.

Every expected way a candidate can fail is a frozen dataclass here, with structured findings a person
or a model can act on. Infrastructure faults (a killed worker, a full disk) are exceptions instead:
they are retried and never become a verdict.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Clock = Literal["modelled", "measured"]


class Gate(enum.IntEnum):
    """The gates of an evaluation, in order, cheapest first. A depth names the last gate to run."""

    PARSE = 1
    SCREEN = 2
    COMPILE = 3
    SMALL_RUN = 4
    CORRECTNESS = 5
    TIMING_SCREEN = 6
    TIMING = 7
    CONFIRMATION = 8


@dataclass(frozen=True)
class WrongValues:
    """How a wrong result differs from the float64 reference.

    Attributes:
        max_abs: largest |out - ref| over finite elements.
        max_rel: largest |out - ref| / |ref| over elements with ref != 0.
        margin: largest |out - ref| / tolerance (> 1 is wrong; inf where finiteness differs).
        wrong: number of elements outside the tolerance; total: number compared.
        first: index (m, n) of the first wrong element, with its value and the reference's.
        pattern: name of the pattern of wrongness (triage.py), for example "missing k-slice".
        suggestion: what the pattern suggests looking at, one sentence; may be empty.
    """

    max_abs: float
    max_rel: float
    margin: float
    wrong: int
    total: int
    first: tuple[int, int]
    got: float
    want: float
    pattern: str
    suggestion: str = ""


@dataclass(frozen=True)
class Finding:
    """One structured thing to tell the author of a kernel.

    Attributes:
        gate: the gate that found it.
        kind: error type, a stable snake_case name ("out_of_bounds", "unknown_api", "race", ...).
        message: what happened, one sentence.
        line: 1-based line of the candidate's source, None where no line applies.
        suggestion: what to try, one sentence; may be empty.
        severity: "error" decides the verdict; "warning" and "note" are kept on success as well.
        shape: the task shape it was seen at, None where none applies.
        wrong: for wrong results, by how much and in what pattern.
    """

    gate: Gate
    kind: str
    message: str
    line: int | None = None
    suggestion: str = ""
    severity: Literal["error", "warning", "note"] = "error"
    shape: Mapping[str, int] | None = None
    wrong: WrongValues | None = None


@dataclass(frozen=True)
class Cost:
    """What an evaluation cost, in wall seconds. Never compared between runs (not deterministic).

    `timing_s`: of `evaluate_s`, for which a card was kept taking times; 0 on the modelled clock and in archives.
    """

    compile_s: float = 0.0
    evaluate_s: float = 0.0
    timing_s: float = 0.0


@dataclass(frozen=True)
class Resources:
    """What one kernel entry uses, as ptxas reports it, and what the launch adds.

    `registers` per thread; `shared_bytes` static + dynamic per block; `spill_bytes` stores + loads per
    thread; `occupancy` resident warps / maximum warps of an SM (0..1). For several launches: the maxima
    (occupancy: the minimum).
    """

    registers: int
    shared_bytes: int
    spill_bytes: int
    occupancy: float


@dataclass(frozen=True)
class Timing:
    """Time of one subject at one shape.

    `low_us`/`high_us` bound `time_us` (equal to it on the modelled clock, which has no noise);
    `floor_us` is the roofline floor of the task at that shape; `limiter` is the modelled or profiled
    limiter in an engineer's words; `samples_us` raw samples where measured.
    """

    shape: Mapping[str, int]
    clock: Clock
    time_us: float
    low_us: float
    high_us: float
    floor_us: float
    tflops: float
    gb_per_s: float
    limiter: str = ""
    cold: bool = True
    samples_us: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The verdict on a kernel: which gate it ended at, what was found, what it cost.

    `code_key` is set once the candidate has compiled.
    """

    stage: Gate
    findings: tuple[Finding, ...] = ()
    cost: Cost = field(default_factory=Cost)
    code_key: str | None = None

    @property
    def kind(self) -> str:
        """Name of the verdict as the archive stores it ("Timed", "WrongResult", ...)."""
        return type(self).__name__

    @property
    def valid(self) -> bool:
        """True only for a kernel that passed every gate it was asked to pass and has times."""
        return isinstance(self, Timed)


@dataclass(frozen=True)
class Timed(Outcome):
    """Passed: right and timed. `timings` holds one entry per timed shape, in the task's order."""

    clock: Clock = "modelled"
    timings: tuple[Timing, ...] = ()
    resources: Resources = Resources(0, 0, 0, 0.0)


@dataclass(frozen=True)
class Rejected(Outcome):
    """Not acceptable as a kernel file: header, expressions, includes, limits, `require` too narrow."""


@dataclass(frozen=True)
class CompileFailed(Outcome):
    """NVRTC or ptxas refused it."""


@dataclass(frozen=True)
class LaunchFailed(Outcome):
    """Compiled, but a launch is impossible (grid, block, shared memory, arguments)."""


@dataclass(frozen=True)
class WrongResult(Outcome):
    """Ran, but an element is outside the tolerance (Finding.wrong says how)."""


@dataclass(frozen=True)
class SanitizerFinding(Outcome):
    """Out of bounds, misaligned, race, uninitialised value used, barrier divergence."""


@dataclass(frozen=True)
class Crashed(Outcome):
    """The candidate ended abnormally (trap, sticky device error)."""


@dataclass(frozen=True)
class TimedOut(Outcome):
    """Step budget (simulator) or wall clock (GPU, compiler) exceeded."""


@dataclass(frozen=True)
class Unsupported(Outcome):
    """Uses something this device cannot run; not a statement that the kernel is wrong."""


OUTCOMES: Mapping[str, type[Outcome]] = {
    cls.__name__: cls
    for cls in (
        Timed,
        Rejected,
        CompileFailed,
        LaunchFailed,
        WrongResult,
        SanitizerFinding,
        Crashed,
        TimedOut,
        Unsupported,
    )
}
