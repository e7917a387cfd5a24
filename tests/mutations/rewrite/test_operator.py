"""The operator `rewrite`: the contract, and that every rule gets its turn; slow: every rule on every seed is right."""

from __future__ import annotations

import re
from typing import cast

import pytest

import seeds
from fitness.evaluate import Prepared, judge, prepare
from fitness.kernel import Kernel
from fitness.outcome import Gate
from fitness.registry import find
from fitness.task import Task
from mutations import load_operator
from mutations.operator import Judged, Operator, Proposal, Refusal
from mutations.rewrite import RULES
from mutations.rewrite.operator import Rewrite
from mutations.rewrite.rule import Rule
from mutations.testing import OperatorContract, context, judged, seed_kernel
from tests.mutations.rewrite.kernels import TASKS, children, device, task_of


class TestRewrite(OperatorContract):
    draws = 6

    def operator(self) -> Operator:
        return Rewrite()


def test_an_experiment_finds_it_by_name() -> None:
    assert isinstance(load_operator("rewrite"), Rewrite)
    assert load_operator(RULES["unroll"]).name == "unroll"


def test_rules_are_called_as_listed() -> None:
    for name, path in RULES.items():
        assert find(RULES, name, "rule").name == name
        assert path.startswith(f"mutations.rewrite.{name}:")


def test_every_rule_gets_its_turn() -> None:
    parents: list[Judged] = [judged(seed_kernel("spmm/csr_scalar"))]
    used = set()
    for seed in range(150):
        reply = Rewrite().propose(parents, context(TASKS["csr"], seed=seed))
        assert isinstance(reply, Proposal)
        used.add(reply.reason.partition(":")[0])
    assert used == set(RULES) - {"interchange", "padding", "double_buffer"}  # no nested loops, no tiles in the seed


def test_a_kernel_without_a_place_is_refused() -> None:
    reply = find(RULES, "raster", "rule")().propose([judged(seed_kernel("gemm/fused_mma"))], context(TASKS["fused"]))
    assert isinstance(reply, Refusal)
    assert "no place" in reply.why


def every_child(rule: str, kernel: Kernel, task: Task, most: int) -> list[Kernel]:
    """Distinct children of one kernel by one rule, in the order they are drawn."""
    made = cast(type[Rule], find(RULES, rule, "rule"))()
    found: dict[str, Kernel] = {}
    while len(found) < most:
        reply = made.propose([judged(kernel)], context(task, seed=len(found), tried=tuple(found)))
        if not isinstance(reply, Proposal):
            break
        found[reply.kernel.id] = reply.kernel
    return list(found.values())


HINTED = [
    ("change_format", "spmm/csr_vector"),
    ("change_format", "spmm/csr_scalar"),
    ("shared_staging", "spmm/csr_scalar"),
    ("vector_loads", "gemm/dense_naive"),
]


@pytest.mark.parametrize(("rule", "seed"), HINTED)
def test_a_load_through_a_hint_is_one_load(rule: str, seed: str) -> None:
    """`__ldcs(&p[i])` is what stands for the element: an address of the element's new place is no global one."""
    task = task_of(seed)
    grandchildren = [
        child
        for hinted in every_child("cache_hints", seed_kernel(seed), task, 40)
        for child in every_child(rule, hinted, task, 40)
    ]
    assert grandchildren
    for child in grandchildren:
        assert not re.search(r"__ld\w*\(&(ell_|\w+_stage|\w+_vector)", child.source), child.source


@pytest.mark.slow
@pytest.mark.parametrize("second", RULES)
@pytest.mark.parametrize("seed", ["spmm/csr_scalar", "spmm/csr_vector", "gemm/dense_naive", "spmm/nm24_shared"])
def test_rules_one_after_the_other_are_right(seed: str, second: str) -> None:
    """A child of every rule, then a child of that by another: what one writes, the next must read as it is meant."""
    task = task_of(seed)
    for first in RULES:
        for child in every_child(first, seed_kernel(seed), task, 1):
            for grandchild in every_child(second, child, task, 1):
                prepared = prepare(grandchild, task, device())
                assert isinstance(prepared, Prepared), (first, prepared.findings, grandchild.source)
                outcome = judge(grandchild, task, device(), depth=Gate.SMALL_RUN)
                assert outcome.valid, (first, outcome.findings, grandchild.source)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("path", [p for p in seeds.seed_paths("*/*") if "wgmma" not in p.stem], ids=lambda p: p.stem)
def test_every_rule_is_right_on_every_seed(path: object, rule: str) -> None:
    name = f"{path.parent.name}/{path.stem}"  # type: ignore[attr-defined]
    task = task_of(name)
    for child in children(cast(type[Rule], find(RULES, rule, "rule"))(), name, draws=4):
        prepared = prepare(child, task, device())
        assert isinstance(prepared, Prepared), (prepared.findings, child.source)
        outcome = judge(child, task, device(), depth=Gate.SMALL_RUN)
        assert outcome.valid, (outcome.findings, child.source)
