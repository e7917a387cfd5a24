"""The `Operator` protocol (parents -> child) and the nouns it speaks in.

An operator never evaluates and never does IO; what it needs of the engine comes through the small
protocols of `Context`, which `evo` implements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from numpy.random import Generator

from fitness.gpu import Gpu
from fitness.kernel import Kernel
from fitness.outcome import Outcome
from fitness.task import Task

if TYPE_CHECKING:
    from mutations.llm.access import Access


@dataclass(frozen=True)
class Plan:
    """What child n shall be made of. `parents`/`inspirations` are candidate numbers of the same run.

    Seeds have generation 0, operator "seed" and no parents.
    """

    n: int
    generation: int
    island: int
    operator: str
    parents: tuple[int, ...] = ()
    inspirations: tuple[int, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """A child an operator made, why, and the model that wrote it (None for built-in operators)."""

    kernel: Kernel
    reason: str
    model: str | None = None


@dataclass(frozen=True)
class Refusal:
    """Why an operator could make no child of these parents. Recorded, counted, no error."""

    why: str


class Unavailable(Refusal):
    """The operator itself could not work (no model answered); another operator may take its place, said aloud."""


@dataclass(frozen=True)
class Candidate:
    """A kernel with its place in a run."""

    plan: Plan
    kernel: Kernel
    reason: str
    model: str | None = None


@dataclass(frozen=True)
class Judged:
    """A candidate and its verdict. `reused_from`: n of the earlier candidate with the same code key."""

    candidate: Candidate
    outcome: Outcome
    reused_from: int | None = None


class Ledger(Protocol):
    """What the run has made and seen so far (implemented by evo)."""

    def tried(self, kernel_id: str) -> bool:
        """True if this exact kernel (source + params) is already part of the run."""

    def timed(self) -> Sequence[Judged]:
        """Candidates of earlier generations that were right and timed at every shape, in order of n."""

    def pending(self) -> Sequence[Candidate]:
        """Candidates without a verdict yet, in order of n."""


class Library(Protocol):
    """Verified kernels of similar tasks (implemented by evo)."""

    def similar(self, task: Task, limit: int) -> Sequence[Judged]:
        """Best matches first."""


class Recorder(Protocol):
    """Where an operator reports model calls and events (implemented by evo)."""

    def event(self, kind: str, data: dict[str, object]) -> None:
        """Record one event of this run."""


@dataclass(frozen=True)
class Context:
    """What an operator may know and use while making one child.

    `rng` is child n's own generator (SeedSequence([rng_seed, n])): an operator takes all its chance from it.
    `llm` is how it may ask a language model, None where none is in use.
    """

    task: Task
    target: Gpu
    rng: Generator
    inspirations: Sequence[Judged]
    ledger: Ledger
    library: Library
    recorder: Recorder
    llm: Access | None = None


class Operator(Protocol):
    """Makes a child from parents. Implementations pass `mutations.testing.OperatorContract`."""

    name: str
    arity: int

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        """Make one child of exactly `arity` parents; deterministic in (parents, context.rng) and a model's answers."""
