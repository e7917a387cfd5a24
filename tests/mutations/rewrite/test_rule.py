"""What all rules share: unfit and known children are passed over, broken ones are no children."""

from __future__ import annotations

from collections.abc import Iterator

from fitness.kernel import Kernel
from mutations.operator import Context, Proposal, Refusal
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code
from mutations.rewrite.toml import HeaderLayoutError
from mutations.testing import context, judged, seed_kernel
from tests.mutations.rewrite.kernels import TASKS

PARENT = judged(seed_kernel("spmm/csr_scalar"))


class Odd(Rule):
    """A broken header, the parent itself, a block too large for any card, a format of another task, a good child."""

    name = "odd"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        source = kernel.source
        yield Rewritten(source.replace("[params]", "[parms]"), "broken")
        yield Rewritten(source, "nothing")
        yield Rewritten(source.replace('["BN", "BM"]', '["BN * 64", "BM"]'), "too many threads")
        yield Rewritten(source.replace('{ name = "csr", order = "natural" }', '"nm24"'), "another format")
        yield Rewritten(source + "\n// good\n", "a comment more")
        raise HeaderLayoutError("no more")


def test_only_fit_children_are_made() -> None:
    for seed in range(10):
        reply = Odd().propose([PARENT], context(TASKS["csr"], seed=seed))
        assert isinstance(reply, Proposal)
        assert reply.reason == "odd: a comment more"


def test_a_known_child_is_not_made_again() -> None:
    first = Odd().propose([PARENT], context(TASKS["csr"]))
    assert isinstance(first, Proposal)
    again = Odd().propose([PARENT], context(TASKS["csr"], tried=[first.kernel.id]))
    assert isinstance(again, Refusal)
    assert "known" in again.why
