"""The surrogate operator."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest

from fitness.kernel import Kernel, parse_kernel
from fitness.task import Task
from mutations.operator import Candidate, Judged, Operator, Plan, Proposal, Refusal
from mutations.surrogate import _LENGTHS, FEWEST, Surrogate, _expect, _features, _fitted, _kin
from mutations.testing import OperatorContract, context, judged, nm24_task, seed_kernel, timed
from mutations.tune import Tune

SMALL = """/*---
about = "two params, six combinations"
format = "nm24"

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


def times(kernel: Kernel) -> tuple[float, float]:
    """Two shapes, each with params of its own that only work together: deep rings need many warps."""
    p = {name: math.log2(value) for name, value in kernel.params.items() if value > 0}
    small = 8.0 + abs(p["S_STAGES"] - p["S_KB"] - 1.0) * 3 + abs(p["S_KB"] - 2.0) * 2 + abs(p["S_MT"] - 1.0)
    large = 12.0 + abs(p["STAGES"] - p["WG"] - 2.0) * 5 + abs(p["BN"] - 7.0) * 4 + abs(p["WG"] - 1.0) * 3 + p["SPLITK"]
    return small, large


def verdict(kernel: Kernel, n: int, task: Task, law: Callable[[Kernel], tuple[float, float]] = times) -> Judged:
    return judged(kernel, n, timed(task, law(kernel)))


@pytest.fixture(scope="module")
def task() -> Task:
    return nm24_task()


def sample(task: Task, count: int, seed: int = 0) -> list[Judged]:
    """Verdicts on random feasible kernels."""
    kernel, rng = seed_kernel("spmm/nm24_wgmma_sp"), np.random.default_rng(seed)
    found: list[Judged] = []
    while len(found) < count:
        params = {name: int(rng.choice(param.values)) for name, param in kernel.header.params.items()}
        if kernel.feasible(params):
            found.append(verdict(kernel.with_params(params), len(found), task))
    return found


class TestSurrogateKeepsTheContract(OperatorContract):
    def operator(self) -> Operator:
        return Surrogate()


class TestSurrogateWithTimesKeepsTheContract(OperatorContract):
    """The same once a model is fitted."""

    draws = 6

    def operator(self) -> Operator:
        class Informed(Surrogate):
            def propose(self, parents, context):  # type: ignore[no-untyped-def]
                if "S_MT" in parents[0].candidate.kernel.params:
                    context.ledger._judged = tuple(sample(nm24_task(), 12))
                return super().propose(parents, context)

        return Informed()

    def parents(self) -> tuple[Judged, ...]:
        return (verdict(seed_kernel("spmm/nm24_wgmma_sp"), 0, self.task()),)


def search(operator: Operator, task: Task, seed: int, evaluations: int) -> float:
    """Geometric mean of the best times after so many children, each of the best kernel so far, four at a time."""
    known = [verdict(seed_kernel("spmm/nm24_wgmma_sp"), 0, task)]
    mean = lambda one: math.sqrt(math.prod(t.time_us for t in one.outcome.timings))  # noqa: E731
    while len(known) < evaluations:
        best = min(known, key=mean)
        batch: list[Candidate] = []
        for n in range(len(known), len(known) + 4):
            around = context(task, seed=1000 * seed + n, seen=known, pending=batch)
            child = operator.propose([best], around)
            assert isinstance(child, Proposal)
            batch.append(Candidate(Plan(n, 1, 0, operator.name), child.kernel, child.reason))
        known += [verdict(one.kernel, one.plan.n, task) for one in batch]
    return min(map(mean, known))


def test_it_finds_faster_kernels_than_blind_tuning_with_equal_evaluations(task: Task) -> None:
    ours, blind = ([search(operator, task, seed, 33) for seed in range(3)] for operator in (Surrogate(), Tune()))
    assert statistics.median(ours) < 0.95 * statistics.median(blind)


def test_the_model_passes_through_what_it_has_seen_and_doubts_what_it_has_not(task: Task) -> None:
    seen = sample(task, 40)
    pool = [one.candidate.kernel for one in seen]
    expected = _expect(seen, [], pool, context(task))
    logs = [float(np.mean(np.log(times(kernel)))) for kernel in pool]
    assert np.allclose(expected.mean, logs, atol=0.02)
    strangers = [one.candidate.kernel for one in sample(task, 40, seed=1)]
    unknown = _expect(seen, [], strangers, context(task))
    assert np.median(unknown.variance) > 20 * np.median(expected.variance)
    error = unknown.mean - [float(np.mean(np.log(times(kernel)))) for kernel in strangers]
    assert np.mean(error**2) < 0.85 * np.var([np.mean(np.log(times(kernel))) for kernel in strangers])


def test_what_is_pending_is_doubted_no_more_and_expected_as_before(task: Task) -> None:
    seen, pool = sample(task, 20), [one.candidate.kernel for one in sample(task, 10, seed=1)]
    before = _expect(seen, [], pool, context(task))
    after = _expect(seen, [pool[0]], pool, context(task))
    assert np.allclose(after.mean, before.mean)
    assert after.variance[0] < 0.1 * before.variance[0]
    assert np.all(after.variance <= before.variance + 1e-12)


@pytest.mark.parametrize(
    ("place", "idle", "busy"), [(0, {"S_BN"}, {"S_KB"}), (1, {"GROUP", "KB"}, {"STAGES", "WG", "BN"})]
)
def test_params_that_change_no_time_are_known_as_idle(task: Task, place: int, idle: set[str], busy: set[str]) -> None:
    """Those that the law of a shape does not mention, among them all that its launch reads."""
    seen = sample(task, 60)
    features = _features([one.candidate.kernel for one in seen], context(task))[place]
    logs = np.log([times(one.candidate.kernel)[place] for one in seen])
    prior = _fitted((logs - logs.mean()) / logs.std(), features)
    found = {
        name
        for name, length in zip(seen[0].candidate.kernel.header.params, prior.lengths, strict=True)
        if _LENGTHS[length] == max(_LENGTHS)
    }
    assert idle <= found
    assert not busy & found


def test_params_of_another_shape_are_no_difference(task: Task) -> None:
    kernel = seed_kernel("spmm/nm24_wgmma_sp")
    wide = kernel.with_params({"WG": 4})  # matters for wide X only

    def law(one: Kernel) -> tuple[float, float]:
        return times(one)[0], 10.0  # the second shape tells nothing

    seen = [
        judged(one.candidate.kernel, n, timed(task, law(one.candidate.kernel)))
        for n, one in enumerate(sample(task, 20))
    ]
    expected = _expect(seen, [], [kernel, wide], context(task))
    assert expected.mean[0] == pytest.approx(expected.mean[1], abs=1e-3)


def test_kernels_with_other_params_are_not_asked(task: Task) -> None:
    ours = sample(task, FEWEST)
    theirs = judged(seed_kernel("spmm/nm24_mma_sp"), 9, timed(task, (9.0, 40.0)))
    kernel = ours[0].candidate.kernel
    assert len(_kin(kernel, context(task, seen=[*ours, theirs]))) == FEWEST


def test_with_too_few_times_it_mutates_and_says_so(task: Task) -> None:
    parent = verdict(seed_kernel("spmm/nm24_wgmma_sp"), 0, task)
    child = Surrogate().propose([parent], context(task, seen=[parent]))
    assert isinstance(child, Proposal)
    assert "too few times yet" in child.reason


def test_the_reason_says_what_changed_and_what_is_expected(task: Task) -> None:
    seen = sample(task, 12)
    child = Surrogate().propose([seen[0]], context(task, seen=seen))
    assert isinstance(child, Proposal)
    assert " -> " in child.reason
    assert child.reason.endswith("% expected after 12 times")


def test_a_small_space_is_exhausted_before_it_refuses(task: Task) -> None:
    parent = parse_kernel(SMALL)
    tried = {parent.id}
    for seed in range(5):
        child = Surrogate().propose([judged(parent, 0)], context(task, seed=seed, tried=tuple(tried)))
        assert isinstance(child, Proposal)
        tried.add(child.kernel.id)
    assert len(tried) == 6
    assert isinstance(Surrogate().propose([judged(parent, 0)], context(task, tried=tuple(tried))), Refusal)
