"""The splice operator."""

from __future__ import annotations

import pytest

from fitness.kernel import Kernel, parse_kernel
from fitness.task import Task
from mutations.operator import Operator, Proposal, Refusal
from mutations.regions import regions
from mutations.splice import Splice
from mutations.testing import OperatorContract, context, judged, nm24_task, seed_kernel, timed


class TestSpliceKeepsTheContract(OperatorContract):
    def operator(self) -> Operator:
        return Splice()


@pytest.fixture(scope="module")
def task() -> Task:
    return nm24_task()


def children(first: Kernel, second: Kernel, task: Task, draws: int = 30) -> list[Proposal]:
    replies = [Splice().propose([judged(first, 3), judged(second, 8)], context(task, seed=s)) for s in range(draws)]
    return [reply for reply in replies if isinstance(reply, Proposal)]


def test_siblings_exchange_params_only(task: Task) -> None:
    first = seed_kernel("spmm/nm24_mma_sp")
    second = first.with_params({"STAGES": 4, "BK": 128, "S_STAGES": 3})
    found = set()
    for child in children(first, second, task):
        assert child.kernel.source == first.source
        for name, value in child.kernel.params.items():
            assert value in (first.params[name], second.params[name])
        found.add(tuple(child.kernel.params.values()))
    assert len(found) == 6  # 2 ** 3, less the two parents


def test_the_first_child_has_each_param_from_the_parent_that_is_faster_where_it_matters(task: Task) -> None:
    first = seed_kernel("spmm/nm24_mma_sp").with_params({"STAGES": 3, "S_STAGES": 3, "BK": 64})
    second = first.with_params({"STAGES": 4, "BK": 128, "S_STAGES": 4})
    fast_small, fast_large = timed(task, (8.0, 40.0)), timed(task, (9.0, 30.0))
    parents = [judged(first, 3, fast_small), judged(second, 8, fast_large)]
    for one, two in (parents, reversed(parents)):
        for seed in range(5):
            child = Splice().propose([one, two], context(task, seed=seed))
            assert isinstance(child, Proposal)
            assert {name: child.kernel.params[name] for name in ("STAGES", "BK", "S_STAGES")} == {
                "STAGES": 4, "BK": 128, "S_STAGES": 3,
            }  # fmt: skip
            # Known already: a random half then.
            again = Splice().propose([one, two], context(task, seed=seed, tried=[child.kernel.id]))
            assert isinstance(again, Proposal)
            assert again.kernel != child.kernel


def test_seeds_exchange_regions_and_bring_what_they_need(task: Task) -> None:
    first, second = seed_kernel("spmm/nm24_mma_sp"), seed_kernel("spmm/nm24_mma_sp_fragment")
    ours, theirs = regions(first.source), regions(second.source)
    seen = set()
    for child in children(first, second, task):
        for name, region in regions(child.kernel.source).items():
            assert region in (ours[name], theirs.get(name))
            if region == theirs.get(name) != ours[name]:
                seen.add(name)
                assert name in child.reason
        took_order = regions(child.kernel.source)["tile_order"] == theirs["tile_order"]
        assert ("GROUP" in child.kernel.params) == took_order
        if took_order:
            assert child.kernel.params["GROUP"] == second.params["GROUP"]
    assert seen == {"tile_order", "epilogue"}  # both have the same x_tile; only the first one has a reduce


def test_params_nothing_mentions_any_more_are_dropped(task: Task) -> None:
    first, second = seed_kernel("spmm/nm24_mma_sp_fragment"), seed_kernel("spmm/nm24_mma_sp")
    orders = set()
    for child in children(first, second, task):
        took_order = regions(child.kernel.source)["tile_order"] == regions(second.source)["tile_order"]
        assert ("GROUP" in child.kernel.params) != took_order
        orders.add(took_order)
    assert orders == {True, False}


def test_the_format_stays_that_of_the_first_parent(task: Task) -> None:
    first, second = seed_kernel("spmm/nm24_mma_sp_fragment"), seed_kernel("spmm/nm24_mma_sp")
    assert all(child.kernel.format == first.format for child in children(first, second, task))


def test_constraints_on_a_new_param_come_along(task: Task) -> None:
    source = seed_kernel("spmm/nm24_mma_sp_fragment").source
    second = parse_kernel(source.replace("constraints = [\n", 'constraints = [\n    "GROUP <= 16",\n'))
    first = seed_kernel("spmm/nm24_mma_sp")
    texts = set()
    for child in children(first, second, task):
        if "GROUP" in child.kernel.params:
            texts |= {constraint.text for constraint in child.kernel.header.constraints}
    assert "GROUP <= 16" in texts


def test_code_is_not_exchanged_between_files_with_other_flags(task: Task) -> None:
    first = seed_kernel("spmm/nm24_mma_sp")
    source = seed_kernel("spmm/nm24_mma_sp_fragment").source
    second = parse_kernel(source.replace("/*---\n", '/*---\noptions = ["--use_fast_math"]\n', 1))
    assert all(child.kernel.source == first.source for child in children(first, second, task))


def test_equal_parents_are_refused(task: Task) -> None:
    kernel = seed_kernel("spmm/nm24_mma_sp")
    reply = Splice().propose([judged(kernel), judged(kernel)], context(task))
    assert isinstance(reply, Refusal)
    assert "differ" in reply.why


def test_parents_that_differ_in_one_param_have_no_new_child(task: Task) -> None:
    kernel = seed_kernel("spmm/nm24_mma_sp")
    reply = Splice().propose([judged(kernel), judged(kernel.with_params({"STAGES": 3}))], context(task))
    assert isinstance(reply, Refusal)
