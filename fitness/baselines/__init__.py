"""What a candidate is compared with on a real card: vendor libraries and any Python callable, by the same protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from fitness.outcome import Timing
from fitness.registry import find
from fitness.task import Task

Run = Callable[[], Any]
"""Enqueues one product on torch's current stream; returns Y as a tensor in the task's layout."""


@dataclass(frozen=True)
class Given:
    """What a routine computes with, as CUDA tensors.

    Attributes:
        task: what.
        w: (M, K), zeros and all. x: in the task's layout, (N, K) for "col", (K, N) for "row".
        bias: (M,). residual: as Y. factor: of `scale`. None where the task's epilogue has no such step.
    """

    task: Task
    w: Any
    x: Any
    bias: Any = None
    residual: Any = None
    factor: float | None = None


Routine = Callable[[Given], Run]
"""Prepares a product. Raises `NotApplicableError`."""

BASELINES: Final[dict[str, str]] = {
    "cublas": "fitness.baselines.routines:cublas",
    "cublaslt": "fitness.baselines.routines:cublaslt",
    "cusparselt": "fitness.baselines.routines:cusparselt",
    "cusparse_csr1": "fitness.baselines.cusparse:csr1",
    "cusparse_csr2": "fitness.baselines.cusparse:csr2",
    "cusparse_csr3": "fitness.baselines.cusparse:csr3",
    "cusparse_coo1": "fitness.baselines.cusparse:coo1",
    "cusparse_coo2": "fitness.baselines.cusparse:coo2",
    "cusparse_coo3": "fitness.baselines.cusparse:coo3",
    "cusparse_coo4": "fitness.baselines.cusparse:coo4",
    "cusparse_bsr": "fitness.baselines.cusparse:bsr",
    "cusparse_blocked_ell": "fitness.baselines.cusparse:ell",
    "torch_csr": "fitness.baselines.routines:torch_csr",
    "torch_bsr": "fitness.baselines.routines:torch_bsr",
    "eager": "fitness.baselines.routines:eager",
    "torch_compile": "fitness.baselines.routines:torch_compile",
}
"""Name -> "module:function"; a task may also name any "module:function" that takes (w, x) and returns Y."""

VENDORS: Final = (
    "cublas", "cublaslt", "cusparselt", "cusparse_csr1", "cusparse_csr2", "cusparse_csr3",
    "cusparse_bsr", "cusparse_blocked_ell", "torch_bsr", "eager",
)  # fmt: skip
"""What `baseline = "auto"` tries on a card; the fastest of each shape is the baseline."""


LENIENT: Final = {"eager": 8.0, "torch_compile": 8.0}
"""Multiples of the tolerance that these may be off: they round after each operation of a chain, which is their
precision and no mistake. To be compared with a faster but less precise routine makes no candidate look better."""


@dataclass(frozen=True)
class BaselineTimes:
    """One routine: its time at every shape of the task, in order; or why it has none.

    `why_not` is empty where `timings` are complete; `remark` is what must be said beside them.
    """

    name: str
    timings: tuple[Timing, ...]
    why_not: str = ""
    remark: str = ""

    @property
    def told(self) -> str:
        """In one line: the times and the remark, or why there are none."""
        times = ", ".join(f"{timing.time_us:.2f} us" for timing in self.timings)
        return self.why_not or times + (f" ({self.remark})" if self.remark else "")


class NotApplicableError(ValueError):
    """A routine cannot compute this task; the message says why."""


def fastest_names(times: Sequence[BaselineTimes]) -> tuple[str, ...]:
    """Name of the fastest routine of each shape, in the task's order; empty where no routine has times."""
    usable = [entry for entry in times if entry.timings]
    if not usable:
        return ()
    shapes = range(len(usable[0].timings))
    return tuple(min(usable, key=lambda entry: entry.timings[i].time_us).name for i in shapes)


def fastest(times: Sequence[BaselineTimes]) -> tuple[str, tuple[Timing, ...]] | None:
    """The fastest routine of each shape, by name: what `baseline = "auto"` means on a card; None without any.

    The name tells them apart where shapes differ: "cusparselt, cublas".
    """
    names = fastest_names(times)
    if not names:
        return None
    by_name = {entry.name: entry for entry in times}
    name = names[0] if len(set(names)) == 1 else ", ".join(names)
    return name, tuple(by_name[chosen].timings[i] for i, chosen in enumerate(names))


def routine(name: str) -> Routine:
    """A routine by name; a dotted name is a user's callable (w, x) -> Y.

    Raises:
        fitness.registry.UnknownNameError: there is none of that name.
    """
    found = find(BASELINES, name, "baseline")
    if name in BASELINES:
        return cast(Routine, found)
    user = cast(Callable[[Any, Any], Any], found)
    return lambda given: lambda: user(given.w, given.x)
