"""The operator `rewrite`: the contract, and that every rule gets its turn; slow: every rule on every seed is right."""

from __future__ import annotations

from typing import cast

import pytest

import seeds
from fitness.evaluate import Prepared, judge, prepare
from fitness.outcome import Gate
from fitness.registry import find
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
