"""What the loop needs of a pool of workers, as protocols: `evo.pool.Pool` is one, a test's fake another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fitness.kernel import Kernel
from fitness.outcome import Finding, Gate, Outcome
from fitness.task import Task


def never() -> bool:
    """Whoever waits for results does not give up."""
    return False


if TYPE_CHECKING:
    from fitness.baselines import BaselineTimes


class DeviceSpec(Protocol):
    """Where a pool runs candidates."""

    @property
    def kind(self) -> str:
        """Either "simulator" or "cuda"."""

    @property
    def gpu(self) -> str:
        """Name of the card it is, or is a model of."""


@runtime_checkable
class Prepared(Protocol):
    """A kernel that passed gates 1 to 3."""

    @property
    def code_key(self) -> str:
        """Equal for kernels that are the same code, launched the same way."""

    @property
    def findings(self) -> Sequence[Finding]:
        """Warnings and notes of the compilation."""


class Evaluator(Protocol):
    """Judges kernels, several at once. Results come as they are completed, in any order."""

    @property
    def device(self) -> DeviceSpec:
        """What every worker opens."""

    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the workers."""

    def prepare(
        self, task: Task, kernels: Iterable[tuple[int, Kernel]], *, stop: Callable[[], bool] = never
    ) -> Iterator[tuple[int, Prepared | Outcome]]:
        """Gates 1 to 3 of each (n, kernel)."""

    def judge(
        self,
        task: Task,
        kernels: Iterable[tuple[int, Kernel]],
        depth: Gate = Gate.TIMING,
        incumbent_us: float | None = None,
        *,
        full: bool = False,
        stop: Callable[[], bool] = never,
    ) -> Iterator[tuple[int, Outcome]]:
        """All gates up to `depth` of each (n, kernel); `full` runs the whole lists of the small run.

        Once `stop` says True, what is in hand is given up and no more results come.
        """


@runtime_checkable
class VendorTimes(Protocol):
    """A pool on real cards: vendor routines can be timed there, and are the baseline where a task names none."""

    def baselines(self, task: Task) -> tuple[BaselineTimes, ...]:
        """Times of every vendor routine, or why it has none."""


@runtime_checkable
class Compares(Protocol):
    """A pool that times what it confirms beside other kernels: on a card, where a time alone says little."""

    def compare_with(self, task: Task, kernel: Kernel) -> None:
        """From now on confirmations of the task are interleaved with this kernel."""
