from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import mutations
from evo.archive import Refused
from evo.errors import EvoError
from evo.ledger import RunLedger
from evo.population import Share
from evo.propose import REPROPOSALS, load_operators, propose, shares
from fitness import gpu
from fitness.kernel import Kernel
from mutations.operator import Candidate, Context, Judged, Plan, Proposal, Refusal
from tests.evo import fakes

PLAN = Plan(5, 1, 0, "tune", (0,))


class Scripted:
    """Proposes what it is given, one after the other."""

    name = "scripted"
    arity = 1

    def __init__(self, *children: Kernel | str, model: str | None = None) -> None:
        self.children = list(children)
        self.model = model
        self.calls = 0

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        del parents, context
        child = self.children[min(self.calls, len(self.children) - 1)]
        self.calls += 1
        return Refusal(child) if isinstance(child, str) else Proposal(child, "why", self.model)


def run(operator: Scripted, *known: Kernel) -> Candidate | Refused:
    ledger = RunLedger(Candidate(Plan(n, 0, 0, "seed"), kernel, "") for n, kernel in enumerate(known))
    task = fakes.experiment().checked_task
    nothing: object = None
    context = Context(task, gpu.load("H200"), np.random.default_rng(0), (), ledger, nothing, nothing)  # type: ignore[arg-type]
    return propose(PLAN, operator, (), context, ledger)


def test_a_new_kernel_is_taken() -> None:
    operator = Scripted(fakes.kernel(A=2))
    assert run(operator, fakes.kernel()) == Candidate(PLAN, fakes.kernel(A=2), "why", None)
    assert operator.calls == 1


def test_a_known_kernel_is_asked_for_again() -> None:
    operator = Scripted(fakes.kernel(), fakes.kernel(), fakes.kernel(A=4))
    child = run(operator, fakes.kernel())
    assert isinstance(child, Candidate)
    assert child.kernel == fakes.kernel(A=4)
    assert operator.calls == 3


def test_but_not_for_ever() -> None:
    operator = Scripted(fakes.kernel())
    assert isinstance(run(operator, fakes.kernel()), Candidate)
    assert operator.calls == 1 + REPROPOSALS


def test_a_model_is_not_asked_twice() -> None:
    operator = Scripted(fakes.kernel(), model="m")
    child = run(operator, fakes.kernel())
    assert isinstance(child, Candidate)
    assert child.model == "m"
    assert operator.calls == 1


def test_refusals() -> None:
    assert run(Scripted("nothing to do")) == Refused(PLAN, "nothing to do")
    late = run(Scripted(fakes.kernel(), "nothing else"), fakes.kernel())
    assert isinstance(late, Candidate)


def test_operators_are_loaded_by_name_and_path() -> None:
    names = [*mutations.OPERATORS, "tests.evo.fakes:Splice"]
    operators = load_operators(names)
    assert list(operators) == sorted(names)
    assert operators["tests.evo.fakes:Splice"].arity == 2
    weights = dict.fromkeys(names, 3.0)
    assert shares(weights, operators)["tune"] == Share(3.0, 1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere:Class", "cannot be loaded"),
        ("tests.evo.fakes:Missing", "cannot be loaded"),
        ("tests.evo.fakes:FakePool", "is no operator"),
        ("tests.evo.fakes:Prepared", "cannot be loaded"),
        ("tuen", "cannot be loaded.*tune"),
    ],
)
def test_what_is_no_operator(name: str, words: str) -> None:
    with pytest.raises(EvoError, match=words):
        load_operators([name])
