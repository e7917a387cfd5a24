"""Tasks and kernels that rewrite rules are tried on."""

from __future__ import annotations

from collections.abc import Collection

import fitness.gpu
from fitness.devices import open_device
from fitness.devices.device import Device
from fitness.evaluate import Prepared, judge, prepare
from fitness.kernel import Kernel
from fitness.outcome import Gate
from fitness.task import Task
from mutations.operator import Judged, Operator
from mutations.rewrite.rule import Rule
from mutations.testing import OperatorContract, context, judged, seed_kernel, timed

SHAPES = [{"M": 128, "K": 256, "N": 16}, {"M": 128, "K": 256, "N": 64}]
TASKS: dict[str, Task] = {
    "dense": Task.from_spec({"op": "gemm", "shapes": SHAPES}),
    "fused": Task.from_spec({"op": "gemm", "shapes": SHAPES, "epilogue": ["bias", "gelu"]}),
    "csr": Task.from_spec({"op": "spmm", "shapes": SHAPES, "pattern": {"kind": "random", "density": 0.1}}),
    "bsr": Task.from_spec(
        {"op": "spmm", "shapes": SHAPES, "pattern": {"kind": "block", "shape": [32, 32], "density": 0.2}}
    ),
    "nm24": Task.from_spec({"op": "spmm", "shapes": SHAPES, "pattern": {"kind": "nm", "n": 2, "m": 4}}),
}


def task_of(seed: str) -> Task:
    """The task of a seed ("spmm/csr_scalar")."""
    return TASKS[seed.partition("/")[2].partition("_")[0]]


def device() -> Device:
    """The simulator."""
    return open_device("simulator", fitness.gpu.load("H200"))


def children(rule: Rule, seed: str, draws: int = 40) -> list[Kernel]:
    """Distinct children of a seed, in the order they are drawn."""
    found: dict[str, Kernel] = {}
    parent = judged(seed_kernel(seed))
    for i in range(draws):
        reply = rule.propose([parent], context(task_of(seed), seed=i, tried=tuple(found)))
        if not hasattr(reply, "kernel"):
            break
        found[reply.kernel.id] = reply.kernel
    return list(found.values())


def code_key(kernel: Kernel, task: Task) -> str:
    """The key of the compiled kernel."""
    prepared = prepare(kernel, task, device())
    assert isinstance(prepared, Prepared), prepared.findings
    return prepared.code_key


def assert_right(kernel: Kernel, task: Task) -> None:
    """Gates 1 to 4 with every check of the simulator."""
    outcome = judge(kernel, task, device(), depth=Gate.SMALL_RUN)
    assert outcome.valid, (outcome.findings, kernel.source)


class RuleContract(OperatorContract):
    """The contract of operators, and what a rewrite rule promises beyond: another code that is right."""

    rule: type[Rule]
    seed = "spmm/csr_scalar"
    draws = 6

    def operator(self) -> Operator:
        return self.rule()

    def task(self) -> Task:
        return task_of(self.seed)

    def parents(self) -> tuple[Judged, ...]:
        task = self.task()
        return (judged(seed_kernel(self.seed), 0, timed(task, (9.0, 40.0))),)

    def surroundings(self, seed: int = 0, tried: Collection[str] = ()) -> object:  # type: ignore[override]
        return context(self.task(), seed=seed, tried=tried)

    def test_a_child_is_other_code_and_right(self) -> None:
        task = self.task()
        own = code_key(seed_kernel(self.seed), task)
        changed = next((c for c in children(self.rule(), self.seed) if code_key(c, task) != own), None)
        assert changed is not None, "no child differs in its machine code"
        assert_right(changed, task)

    def test_it_names_itself_in_the_reason(self) -> None:
        assert all(proposal.reason.startswith(f"{self.rule.name}: ") for proposal in self.proposals())
