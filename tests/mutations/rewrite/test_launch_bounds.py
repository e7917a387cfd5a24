"""The rule `launch_bounds`: the contract, and what its children look like."""

from __future__ import annotations

from mutations.operator import Proposal
from mutations.rewrite.launch_bounds import LaunchBounds
from mutations.testing import context, judged, seed_kernel
from tests.mutations.rewrite.kernels import TASKS, RuleContract, children


class TestLaunchBounds(RuleContract):
    rule = LaunchBounds
    seed = "gemm/fused_tiled"


def test_the_number_of_threads_stays() -> None:
    for child in children(LaunchBounds(), "gemm/fused_tiled"):
        assert "__launch_bounds__(THREADS, " in child.source


def test_a_number_can_be_taken_back() -> None:
    first = children(LaunchBounds(), "gemm/fused_tiled")[0]
    sources = set()
    for seed in range(40):
        reply = LaunchBounds().propose([judged(first)], context(TASKS["fused"], seed=seed))
        assert isinstance(reply, Proposal)
        sources.add(reply.kernel.source)
    assert seed_kernel("gemm/fused_tiled").source in sources
