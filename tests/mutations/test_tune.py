"""The tune operator."""

from __future__ import annotations

import dataclasses
from typing import cast

import numpy as np
import pytest

from fitness.kernel import Kernel, parse_kernel
from fitness.task import Task
from mutations.operator import Operator, Proposal, Refusal
from mutations.testing import KnownKernels, OperatorContract, context, judged, nm24_task, seed_kernel, timed
from mutations.tune import EXHAUSTED, Children, Moves, Tune

SMALL = """/*---
about = "two params, six combinations"
format = "nm24"
constraints = ["A * B <= 32"]

[[launch]]
kernel = "k"
grid   = ["cdiv(M, A)"]
block  = ["32 * B"]
args   = ["Y"]

[params]
A = { values = [4, 8, 16], default = 8 }
B = { values = [1, 4],     default = 1 }
---*/
extern "C" __global__ void k(void* y) {}
"""


class TestTuneKeepsTheContract(OperatorContract):
    def operator(self) -> Operator:
        return Tune()


@pytest.fixture(scope="module")
def task() -> Task:
    return nm24_task()


def child_of(kernel: Kernel, task: Task, seed: int, tried: tuple[str, ...] = ()) -> Proposal | Refusal:
    return Tune().propose([judged(kernel, 7, timed(task, (9.0, 40.0)))], context(task, seed=seed, tried=tried))


def test_one_to_three_params_change_and_the_source_does_not(task: Task) -> None:
    parent = seed_kernel("spmm/nm24_mma_sp_fragment")
    counts = set()
    for seed in range(40):
        child = child_of(parent, task, seed)
        assert isinstance(child, Proposal)
        assert child.kernel.source == parent.source
        counts.add(sum(child.kernel.params[name] != value for name, value in parent.params.items()))
    assert counts == {1, 2, 3}


def test_neighbours_in_the_list_are_preferred(task: Task) -> None:
    parent = seed_kernel("spmm/nm24_mma_sp")
    steps = []
    for seed in range(100):
        child = child_of(parent, task, seed)
        assert isinstance(child, Proposal)
        for name, value in parent.params.items():
            values = sorted(parent.header.params[name].values)
            if child.kernel.params[name] != value:
                steps.append(abs(values.index(child.kernel.params[name]) - values.index(value)))
    near = sum(step == 1 for step in steps) / len(steps)
    assert 0.6 < near < 0.98  # far jumps happen, and are the exception


def test_the_space_is_exhausted_before_it_refuses(task: Task) -> None:
    kernel = parse_kernel(SMALL)
    seen = {kernel.id}
    for seed in range(4):  # six combinations, less the parent, less A = 16 with B = 4
        child = child_of(kernel, task, seed, tuple(seen))
        assert isinstance(child, Proposal)
        assert child.kernel.params["A"] * child.kernel.params["B"] <= 32
        seen.add(child.kernel.id)
    assert len(seen) == 5
    reply = child_of(kernel, task, 99, tuple(seen))
    assert isinstance(reply, Refusal)
    assert "tried" in reply.why


def test_params_of_a_launch_that_never_runs_are_left_alone(task: Task) -> None:
    parent = seed_kernel("spmm/nm24_mma_sp").with_params({"SMALL_N": 0})
    for seed in range(40):
        child = child_of(parent, task, seed)
        assert isinstance(child, Proposal)
        changed = {name for name, value in parent.params.items() if child.kernel.params[name] != value}
        assert not {name for name in changed if name.startswith("S_")} or "SMALL_N" in changed


def test_the_shape_farthest_from_its_floor_gets_most_children(task: Task) -> None:
    parent = judged(seed_kernel("spmm/nm24_mma_sp"), 0, timed(task, (1.3, 400.0)))
    reasons = []
    for seed in range(30):
        child = Tune().propose([parent], context(task, seed=seed))
        assert isinstance(child, Proposal)
        reasons.append(child.reason)
    assert sum("N = 128" in reason for reason in reasons) > 20
    assert all("limited by memory latency" in reason for reason in reasons)


def test_blocks_the_card_cannot_hold_are_not_proposed(task: Task) -> None:
    parent = seed_kernel("spmm/nm24_mma_sp")
    small = dataclasses.replace(context(task).target.limits, shared_bytes_per_block=32 * 1024)
    for seed in range(30):
        surroundings = context(task, seed=seed)
        surroundings = dataclasses.replace(surroundings, target=dataclasses.replace(surroundings.target, limits=small))
        child = Tune().propose([judged(parent)], surroundings)
        assert isinstance(child, Proposal)
        for launch in child.kernel.header.launches:
            names = {**child.kernel.params, "M": 256, "K": 512, "N": 128, "SMS": 132}
            if launch.kernel == "spmm" and child.kernel.params["SMALL_N"] < 128:
                assert launch.shared.evaluate(names) <= 32 * 1024


def test_reasons_say_from_what_to_what(task: Task) -> None:
    child = child_of(parse_kernel(SMALL), task, 0)
    assert isinstance(child, Proposal)
    assert " -> " in child.reason
    assert "step" in child.reason or "jump" in child.reason


def test_a_parent_whose_neighbours_are_all_known_is_refused_without_looking_again(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = parse_kernel(SMALL)
    operator, around = Tune(), context(task)
    for _ in range(4):
        child = operator.propose([judged(parent, 7)], around)
        assert isinstance(child, Proposal)
        cast("KnownKernels", around.ledger).ids.add(child.kernel.id)
    first = operator.propose([judged(parent, 7)], around)
    monkeypatch.setattr(Children, "at", None)
    assert operator.propose([judged(parent, 7)], around) == first == Refusal(EXHAUSTED)
    monkeypatch.undo()
    assert isinstance(operator.propose([judged(parent, 7)], context(task)), Proposal)  # another run, another memory


def test_moves_draw_as_numpy_would() -> None:
    """How many params change is drawn as `Generator.choice` draws it: archived runs can be repeated."""
    parent = seed_kernel("spmm/nm24_mma_sp")
    moves = Moves(parent, list(parent.params))
    for seed in range(200):
        child = moves.draw(parent.params, np.random.default_rng(seed))
        count = 1 + int(np.random.default_rng(seed).choice(3, p=(0.55, 0.3, 0.15)))
        assert sum(child[name] != value for name, value in parent.params.items()) == count
