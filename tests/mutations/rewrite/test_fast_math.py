"""The rule `fast_math`: the contract, and what its children look like."""

from __future__ import annotations

from fitness.task import Task
from mutations.operator import Proposal, Refusal
from mutations.rewrite.fast_math import FastMath
from mutations.testing import context, judged, seed_kernel
from tests.mutations.rewrite.kernels import SHAPES, TASKS, RuleContract, children


class TestFastMath(RuleContract):
    rule = FastMath
    seed = "gemm/fused_tiled"


def test_flags_come_and_go() -> None:
    first = children(FastMath(), "gemm/fused_tiled")
    assert {child.header.options for child in first} == {("--use_fast_math",), ("--ftz=true",), ("--prec-div=false",)}
    again = FastMath().propose([judged(first[0])], context(TASKS["fused"], seed=1, tried=[c.id for c in first]))
    assert isinstance(again, Proposal)
    assert len(again.kernel.header.options) in (0, 2)


def test_float32_results_leave_no_room_for_it() -> None:
    task = Task.from_spec({"op": "gemm", "shapes": SHAPES, "out_dtype": "float32"})
    reply = FastMath().propose([judged(seed_kernel("gemm/fused_tiled"))], context(task))
    assert isinstance(reply, Refusal)
