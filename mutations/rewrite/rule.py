"""What all rewrite rules share: from the children a rule can think of to one that is new, feasible and fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fitness.kernel import Kernel, KernelError, parse_kernel
from mutations.launches import launchable
from mutations.operator import Context, Judged, Proposal, Refusal
from mutations.rewrite.syntax import Code, parsed
from mutations.rewrite.toml import HeaderLayoutError

_MOST: Final = 256
"""Children a rule may list; those of one kernel are few, this bounds odd ones."""


@dataclass(frozen=True)
class Rewritten:
    """A child in the making: its source, the reason, and params to change from the parent's values."""

    source: str
    reason: str
    params: Mapping[str, int] = field(default_factory=dict)


class Rule:
    """An operator with one parent. A subclass gives `name` and lists what it can do to a kernel."""

    name: str
    arity = 1

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:
        """Every child the rule can make of a kernel, in a fixed order; may raise HeaderLayoutError."""
        raise NotImplementedError

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        """One of them, drawn; a refusal if there is none or all are known or unfit."""
        (parent,) = parents
        kernel = parent.candidate.kernel
        listed = _listed(self, kernel, context)
        if not listed:
            return Refusal(f"{self.name}: the kernel has no place of the form the rule changes")
        for i in context.rng.permutation(len(listed)):
            child = _child(kernel, listed[int(i)], context)
            if child is not None:
                return Proposal(child, f"{self.name}: {listed[int(i)].reason}")
        return Refusal(f"{self.name}: every change it can make is known to the run or does not fit the task")


def _listed(rule: Rule, kernel: Kernel, context: Context) -> list[Rewritten]:
    found: list[Rewritten] = []
    try:
        for rewritten in rule.rewrites(kernel, parsed(kernel.source), context):
            found.append(rewritten)
            if len(found) == _MOST:
                break
    except HeaderLayoutError:
        pass  # what was found before stands; the rest of this header cannot be edited
    return found


def _child(kernel: Kernel, rewritten: Rewritten, context: Context) -> Kernel | None:
    """The kernel of a rewritten source with the parent's params, or None if it is no fit child."""
    try:
        known = parse_kernel(rewritten.source).header.params
        params = {name: value for name, value in {**kernel.params, **rewritten.params}.items() if name in known}
        child = parse_kernel(rewritten.source, params=params)
    except KernelError:  # a constraint the parent's params break, or too long a source
        return None
    if child == kernel or context.ledger.tried(child.id) or not launchable(child, context.task, context.target):
        return None
    unfit = any(finding.severity == "error" for finding in context.task.domain_violations(child))
    return None if unfit else child
