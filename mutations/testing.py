"""`OperatorContract`: what every operator must keep, as an importable test class.

    class TestMyOperator(OperatorContract):
        def operator(self) -> Operator:
            return MyOperator()

pytest collects the inherited tests. Overriding `parents` or `task` tests other kernels and tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

import fitness.gpu
import seeds
from fitness.kernel import Kernel, load_kernel, parse_kernel
from fitness.outcome import Gate, Outcome, Rejected, Timed, Timing
from fitness.task import Task
from mutations.operator import Candidate, Context, Judged, Operator, Plan, Proposal, Refusal


class KnownKernels:
    """A `Ledger` of given kernel ids, verdicts, and candidates without a verdict."""

    def __init__(
        self, ids: Collection[str] = (), judged: Sequence[Judged] = (), pending: Sequence[Candidate] = ()
    ) -> None:
        self.ids = {*ids, *(one.candidate.kernel.id for one in judged), *(one.kernel.id for one in pending)}
        self._judged = tuple(judged)
        self._pending = tuple(pending)

    def tried(self, kernel_id: str) -> bool:
        """True if the id is among those given."""
        return kernel_id in self.ids

    def timed(self) -> Sequence[Judged]:
        """The verdicts given."""
        return self._judged

    def pending(self) -> Sequence[Candidate]:
        """The candidates given."""
        return self._pending


class EmptyLibrary:
    """A `Library` without kernels."""

    def similar(self, task: Task, limit: int) -> Sequence[Judged]:  # noqa: ARG002 - the protocol's names
        """Nothing."""
        return ()


class Events:
    """A `Recorder` that keeps what it is told in `events`."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def event(self, kind: str, data: dict[str, object]) -> None:
        """Keep one event."""
        self.events.append((kind, data))


def nm24_task() -> Task:
    """A small 2:4 task with one shape for few and one for many columns."""
    return Task.from_spec(
        {
            "op": "spmm",
            "pattern": {"kind": "nm", "n": 2, "m": 4},
            "dtype": "float16",
            "shapes": [{"M": 256, "K": 512, "N": 16}, {"M": 256, "K": 512, "N": 128}],
            "free": ["N"],
            "seeds": ["spmm/nm24_*"],
        }
    )


def context(
    task: Task,
    *,
    seed: int = 0,
    tried: Collection[str] = (),
    seen: Sequence[Judged] = (),
    pending: Sequence[Candidate] = (),
    gpu: str = "H200",
) -> Context:
    """A context whose ledger knows the kernels `tried`, `seen` and `pending`, and whose library is empty."""
    return Context(
        task=task,
        target=fitness.gpu.load(gpu),
        rng=np.random.default_rng(seed),
        inspirations=(),
        ledger=KnownKernels(tried, seen, pending),
        library=EmptyLibrary(),
        recorder=Events(),
    )


def judged(kernel: Kernel, n: int = 0, outcome: Outcome | None = None) -> Judged:
    """The kernel as candidate n; without an outcome, one that was rejected."""
    plan = Plan(n=n, generation=0, island=0, operator="seed")
    return Judged(Candidate(plan, kernel, "a starting kernel"), outcome or Rejected(Gate.PARSE))


def timed(task: Task, times_us: Sequence[float], gpu: str = "H200") -> Timed:
    """A modelled outcome with one time for each of the task's shapes."""
    card = fitness.gpu.load(gpu)
    timings = tuple(
        Timing(shape, "modelled", time, time, time, task.floor_us(shape, card), 0.0, 0.0, "memory latency")
        for shape, time in zip(task.shapes, times_us, strict=True)
    )
    return Timed(Gate.TIMING, clock="modelled", timings=timings)


def seed_kernel(name: str) -> Kernel:
    """A kernel of the seed library by name ("spmm/nm24_mma_sp")."""
    (path,) = seeds.seed_paths(name)
    return load_kernel(path)


class OperatorContract:
    """Tests every operator passes. Subclasses say which operator; they may say on what it works."""

    draws = 20
    """How many generators each property is tried with."""

    def operator(self) -> Operator:
        """The operator under test."""
        raise NotImplementedError("a subclass names its operator")

    def task(self) -> Task:
        """The task the children must serve."""
        return nm24_task()

    def parents(self) -> tuple[Judged, ...]:
        """As many judged parents as the operator takes."""
        task = self.task()
        names = ("spmm/nm24_mma_sp", "spmm/nm24_mma_sp_fragment", "spmm/nm24_dense_mma")
        kernels = [seed_kernel(names[i % len(names)]) for i in range(self.operator().arity)]
        return tuple(judged(kernel, n, timed(task, (9.0 + n, 40.0))) for n, kernel in enumerate(kernels))

    def surroundings(self, seed: int = 0, tried: Collection[str] = ()) -> Context:
        """What the operator may use; `tried` are kernels the run has already."""
        return context(self.task(), seed=seed, tried=tried)

    def proposals(self) -> list[Proposal]:
        """The children that `draws` generators give; refusals are left out."""
        replies = [self.operator().propose(self.parents(), self.surroundings(s)) for s in range(self.draws)]
        return [reply for reply in replies if isinstance(reply, Proposal)]

    def test_it_has_a_name_and_an_arity(self) -> None:
        """Experiments name operators in lower case."""
        operator = self.operator()
        assert operator.name
        assert operator.name == operator.name.lower()
        assert operator.arity >= 0

    def test_it_makes_children_of_these_parents(self) -> None:
        """The parents of the contract are ones it can work on."""
        assert self.proposals()

    def test_the_same_generator_gives_the_same_child(self) -> None:
        """Deterministic in parents and generator: resume and replay need it."""
        for seed in range(self.draws):
            one, two = (self.operator().propose(self.parents(), self.surroundings(seed)) for _ in range(2))
            assert one == two

    def test_chance_comes_from_the_generator(self) -> None:
        """Children vary with the generator, unless it is not drawn from at all."""
        if len({proposal.kernel.id for proposal in self.proposals()}) == 1:
            # One child only: acceptable for a rule that has nothing to choose, not for one that draws.
            generator = np.random.default_rng(0)
            before = generator.bit_generator.state
            surroundings = self.surroundings()
            self.operator().propose(self.parents(), surroundings)
            assert surroundings.rng.bit_generator.state == before

    def test_children_parse_to_themselves_and_are_feasible(self) -> None:
        """A child is what its source and params say."""
        for proposal in self.proposals():
            child = proposal.kernel
            assert child.feasible(child.params)
            assert parse_kernel(child.source, params=child.params) == child

    def test_children_serve_the_same_task(self) -> None:
        """Format, arguments and `require` still fit the task, which is left alone."""
        task = self.task()
        before = task.fingerprint
        for proposal in self.proposals():
            assert not [f for f in task.domain_violations(proposal.kernel) if f.severity == "error"]
        assert task.fingerprint == before

    def test_children_differ_from_every_parent(self) -> None:
        """A copy is no child."""
        ids = {parent.candidate.kernel.id for parent in self.parents()}
        assert all(proposal.kernel.id not in ids for proposal in self.proposals())

    def test_reasons_are_given_in_words(self) -> None:
        """The reason is kept and shown: one line of some words."""
        for proposal in self.proposals():
            assert len(proposal.reason.split()) >= 3
            assert "\n" not in proposal.reason

    def test_parents_are_left_as_they_were(self) -> None:
        """Parents are shared with the archive and with other children."""
        parents = self.parents()
        before = [(parent.candidate.kernel.id, dict(parent.candidate.kernel.params)) for parent in parents]
        self.operator().propose(parents, self.surroundings())
        assert before == [(parent.candidate.kernel.id, dict(parent.candidate.kernel.params)) for parent in parents]

    def test_a_known_child_is_not_made_while_others_are_new(self) -> None:
        """What the run has already is not proposed again."""
        for seed in range(5):
            first = self.operator().propose(self.parents(), self.surroundings(seed))
            if isinstance(first, Proposal) and first.model is None:
                surroundings = self.surroundings(seed, tried=[first.kernel.id])
                again = self.operator().propose(self.parents(), surroundings)
                assert isinstance(again, Refusal) or again.kernel.id != first.kernel.id

    def test_parents_it_can_do_nothing_with_are_refused_not_raised(self) -> None:
        """A refusal is data and says why."""
        kernel = parse_kernel(_FIXED)
        parents = tuple(judged(kernel, n) for n in range(self.operator().arity))
        reply = self.operator().propose(parents, self.surroundings())
        assert isinstance(reply, Refusal | Proposal)
        if isinstance(reply, Refusal):
            assert len(reply.why.split()) >= 3


_FIXED = """/*---
about  = "a kernel with nothing to tune"
format = "nm24"

[[launch]]
kernel = "nothing"
grid   = ["1"]
block  = ["32"]
args   = ["Y"]
---*/
#include "evo.cuh"

extern "C" __global__ void nothing(__half* y) {
    y[0] = __half(0.0f);
}
"""
