"""The timing protocol on a card: cold, rotating operands, poisoned outputs, graphs, interleaved, verified.

One sample of a subject is one replay of one captured graph: poison the outputs and workspaces of *all* subjects,
flush the L2, record an event, run the subject `count` times (each run on the next operand set, with outputs of its
own), record an event. Counts come from `reference_us`, which belongs to the shape, never from the candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from fitness.devices.cuda.audit import Audit
from fitness.devices.cuda.driver import Array, Card
from fitness.devices.cuda.loaded import LoadedProgram
from fitness.devices.cuda.memory import ALIGNMENT, MOST_SETS, OperandCache
from fitness.devices.device import Inputs, Program
from fitness.timing import Plan, Samples, interleave

GROUP_US: Final = 200.0
"""Work between two events, where one run is shorter than SINGLE_US."""
SINGLE_US: Final = 50.0
MOST_RUNS: Final = MOST_SETS  # each has a set of its own
_VERIFIED: Final = 1  # timed runs of each subject whose outputs are handed back, screen and full protocol each


def runs_per_sample(reference_us: float) -> int:
    """How many runs lie between two events, by the reference time of the shape."""
    if reference_us >= SINGLE_US:
        return 1
    return int(min(MOST_RUNS, max(2, round(GROUP_US / max(reference_us, 1e-3)))))


class Subject(Protocol):
    """Something that can be run again and again on the card: a candidate's program or a vendor's routine."""

    @property
    def arena(self) -> tuple[int, int]:
        """(address, bytes) of what is poisoned before each sample: all its outputs and scratch memory."""

    def clear(self) -> None:
        """Enqueue what must be zero before a sample, outside of the timing."""

    def enqueue(self, run: int) -> None:
        """Enqueue one run, on the operand set and outputs of this number."""

    def outputs(self, run: int) -> Mapping[str, Array]:
        """What that run wrote."""

    def intact(self) -> bool:
        """True if its operands still hold what was put there."""

    def close(self) -> None:
        """Give back what it holds."""


class ProgramSubject:
    """A candidate's program with rotating operands.

    Args:
        card, cache: where.
        program, inputs: what.
        runs: how many runs one sample has: each gets outputs and workspaces of its own.
    """

    def __init__(self, card: Card, cache: OperandCache, program: Program, inputs: Inputs, runs: int) -> None:
        self.card, self.program, self.inputs, self._cache = card, program, inputs, cache
        self.loaded = LoadedProgram(card, program)
        self.sets = cache.get(inputs)
        sizes = {name: array.nbytes for name, array in inputs.outputs.items()}
        sizes |= {space.name: space.bytes for space in program.workspaces}
        self._sizes = sizes
        self._stride = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes.values())
        self.arena = (card.allocate(self._stride * runs), self._stride * runs)
        self._addresses = [self._place(run) for run in range(runs)]
        self._arguments = [self.loaded.arguments(addresses) for addresses in self._addresses]

    def _place(self, run: int) -> dict[str, int]:
        addresses = dict(self.sets.addresses[run % len(self.sets.addresses)])
        address = self.arena[0] + run * self._stride
        for name, size in self._sizes.items():
            addresses[name] = address
            address += -(-size // ALIGNMENT) * ALIGNMENT
        return addresses

    def clear(self) -> None:
        """Workspaces that the kernel itself leaves zero."""
        for space in self.program.workspaces:
            if space.init == "zero_once":
                for addresses in self._addresses:
                    self.card.fill(addresses[space.name], 0, space.bytes)

    def enqueue(self, run: int) -> None:
        """One run of all launches."""
        self.loaded.enqueue(self._addresses[run], self._sizes, self._arguments[run])

    def outputs(self, run: int) -> Mapping[str, Array]:
        """What that run wrote."""
        found = {}
        for name, like in self.inputs.outputs.items():
            raw = self.card.download(self._addresses[run][name], like.nbytes)
            found[name] = raw.view(like.dtype).reshape(like.shape)
        return found

    def intact(self) -> bool:
        """Compares checksums; a set that changed is forgotten, for no other candidate may meet it."""
        if self._cache.intact(self.sets):
            return True
        self._cache.drop(self.sets)
        return False

    def close(self) -> None:
        """Outputs, workspaces and module; the operands stay cached."""
        self.card.free(self.arena[0])
        self.loaded.close()


@dataclass(frozen=True)
class Sampled:
    """What timing one subject gave.

    Attributes:
        samples: (blocks, per block) microseconds of one run.
        outputs: of a few timed runs, chosen at random: the caller checks them.
        intact: its operands were left alone.
    """

    samples: Samples
    outputs: tuple[Mapping[str, Array], ...]
    intact: bool


class Session:
    """All subjects that are timed beside each other at one shape.

    Args:
        card, audit: where and with what.
        subjects: what.
        runs: of each subject in one sample.
        timeout_s: of one sample.
    """

    def __init__(self, card: Card, audit: Audit, subjects: Sequence[Subject], runs: int, timeout_s: float) -> None:
        self.card, self.audit, self.subjects, self.runs, self.timeout_s = card, audit, subjects, runs, timeout_s
        self._graphs: list[tuple[Any, Any, Any]] = []

    def sample(self, plan: Plan, rng: np.random.Generator) -> tuple[Sampled, ...]:
        """Take all samples.

        Raises:
            HangError, CudaError: a subject broke the context.
        """
        for subject in self.subjects:  # load code, allocate what the first run allocates
            subject.clear()
            subject.enqueue(0)
            self.card.wait(self.timeout_s)
        self._graphs = [self._graph(subject) for subject in self.subjects]
        # A first replay uploads the graph. Runs per sample never change; a slow session only takes fewer samples.
        first_us = sum(self._replay(index) * self.runs for index in range(len(self.subjects)))
        plan = plan.affordable(first_us)
        total = plan.blocks * plan.per_block
        wanted = {(s, int(n)) for s in range(len(self.subjects)) for n in rng.choice(total, _VERIFIED, replace=False)}
        taken = [0] * len(self.subjects)
        outputs: list[list[Mapping[str, Array]]] = [[] for _ in self.subjects]

        def one(index: int) -> float:
            time_us = self._replay(index)
            if (index, taken[index]) in wanted:
                outputs[index].append(self.subjects[index].outputs(int(rng.integers(self.runs))))
            taken[index] += 1
            return time_us

        samples = interleave(len(self.subjects), plan, rng, one)
        return tuple(
            Sampled(samples[i], tuple(outputs[i]), subject.intact()) for i, subject in enumerate(self.subjects)
        )

    def _replay(self, index: int) -> float:
        graph, begin, end = self._graphs[index]
        self.card.replay(graph)
        self.card.wait(self.timeout_s)
        return self.card.elapsed_us(begin, end) / self.runs

    def _graph(self, subject: Subject) -> tuple[Any, Any, Any]:
        begin, end = self.card.event(), self.card.event()

        def enqueue() -> None:
            for other in self.subjects:
                self.audit.poison(*other.arena)
            self.audit.tick()
            subject.clear()
            self.audit.flush()
            self.card.record(begin)
            for run in range(self.runs):
                subject.enqueue(run)
            self.card.record(end)

        return self.card.capture(enqueue), begin, end

    def close(self) -> None:
        """Drop the graphs. The subjects are the caller's."""
        for graph, _, _ in self._graphs:
            self.card.drop(graph)
        self._graphs = []
